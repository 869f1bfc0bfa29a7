//! Finds the end of what stands in brackets.

/// Where the bracket is that closes one which was open before `text`. Quotes and nested brackets
/// are stepped over.
pub(super) fn closing(text: &str, (open, close): (char, char)) -> Option<usize> {
    let mut depth = 0usize;
    // The quote that we are in, and the depth at which it began: a substitution in double quotes
    // has quotes of its own.
    let mut quotes: Vec<(char, usize)> = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let quote = quotes.last().copied();
        match (quote, c) {
            (Some(('\'', _)), '\'') => drop(quotes.pop()),
            (Some(('\'', _)), _) => {}
            (_, '\\') => drop(chars.next()),
            (Some(('"', began)), '"') if depth == began => drop(quotes.pop()),
            (Some(('"', began)), '\'') if depth == began => {}
            (Some(('"', began)), c) if depth == began && c != '$' => {}
            (_, '$') if chars.peek().is_some_and(|(_, next)| *next == open) => {
                chars.next();
                depth += 1;
            }
            (_, '\'' | '"') => quotes.push((c, depth)),
            (_, c) if c == open => depth += 1,
            (_, c) if c == close && depth == 0 => return Some(at),
            (_, c) if c == close => depth -= 1,
            _ => {}
        }
    }
    None
}
