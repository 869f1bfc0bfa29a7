//! Rust code with comments and literals replaced by spaces, so that a rule sees only code.
//!
//! Newlines and byte offsets are kept, so an offset in the code is the same offset in the file.

/// `text` with spaces in place of comments, strings and characters.
pub(crate) fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_end(text, at) {
            Some(end) => end.min(bytes.len()),
            None => {
                code.push(bytes[at]);
                at += 1;
                continue;
            }
        };
        code.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// An identifier or keyword and where it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
}

impl Word<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The words of blanked code in order.
pub(crate) fn words(code: &str) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + code[at..].find(is_word)?;
        let length = code[start..].find(|c| !is_word(c)).unwrap_or(code.len() - start);
        at = start + length;
        Some(Word { text: &code[start..at], start })
    })
}

/// The number of the line that holds the byte at `offset`, counted from one.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// A declared item: `fn read`, `struct Plan`, `mod tests`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Item<'a> {
    pub(crate) keyword: &'a str,
    pub(crate) name: &'a str,
    pub(crate) line: usize,
    /// The rest of the line after the name.
    pub(crate) rest: &'a str,
}

/// Every item in `code` that one of `keywords` declares.
pub(crate) fn items<'a>(code: &'a str, keywords: &[&str]) -> Vec<Item<'a>> {
    let words: Vec<Word<'a>> = words(code).collect();
    let mut items = Vec::new();
    for pair in words.windows(2) {
        let [keyword, name] = pair else { continue };
        let between = &code[keyword.end()..name.start];
        let declares = keywords.contains(&keyword.text) && is_gap(between);
        if !declares || name.text.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let rest = code[name.end()..].split('\n').next().unwrap_or_default();
        items.push(Item {
            keyword: keyword.text,
            name: name.text,
            line: line_at(code, name.start),
            rest,
        });
    }
    items
}

/// The lines right above line number `line` that are attributes or doc comments, nearest first,
/// each with its own number.
pub(crate) fn lines_above<'a>(
    text: &'a str,
    line: usize,
) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
    let lines: Vec<&str> = text.lines().take(line.saturating_sub(1)).collect();
    lines
        .into_iter()
        .enumerate()
        .rev()
        .map(|(index, line)| (index + 1, line.trim()))
        .take_while(|(_, line)| line.starts_with("///") || line.starts_with("#["))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_gap(between: &str) -> bool {
    !between.is_empty() && between.chars().all(char::is_whitespace)
}

/// Where the comment or literal that starts at `at` ends; `None` when none starts there.
fn literal_end(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(rest.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |n| at + n));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    match rest.first()? {
        b'"' => Some(quoted_end(bytes, at, b'"')),
        b'\'' => char_end(text, at),
        b'r' | b'b' | b'c' if at == 0 || !is_word(char::from(bytes[at - 1])) => {
            raw_string_end(bytes, at)
        }
        _ => None,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn quoted_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of the character literal that starts here. `None` for a lifetime or a label.
fn char_end(text: &str, start: usize) -> Option<usize> {
    let mut chars = text[start + 1..].chars();
    let first = chars.next()?;
    if first == '\\' {
        return Some(quoted_end(text.as_bytes(), start, b'\''));
    }
    (chars.next() == Some('\'')).then(|| start + 1 + first.len_utf8() + 1)
}

/// The end of the raw string that starts here: `r"..."`, `r#"..."#`, or a byte or C string of this
/// form. `None` for a raw identifier.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    if matches!(bytes[at], b'b' | b'c') {
        at += 1;
    }
    if bytes.get(at) != Some(&b'r') {
        return None;
    }
    at += 1;
    let hashes = bytes[at..].iter().take_while(|&&byte| byte == b'#').count();
    at += hashes;
    if bytes.get(at) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), "#".repeat(hashes).as_bytes()].concat();
    let length = bytes[at + 1..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| at + 1 + length + close.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let code = blanked(text);
        assert_eq!(code.len(), text.len(), "offsets moved");
        let squeezed: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(squeezed.join(" "), expected, "{text}");
    }

    #[test]
    fn comments_and_literals_go() {
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check(r#"f("x \" y", 1)"#, "f( , 1)");
        check(r##"f(r#"x " y"#, b"z", br"z")"##, "f( , b , )");
        check(r"m('a', '\'', '\u{1f}', 'é')", "m( , , , )");
        check("fn f<'a>(x: &'a str) { 'l: loop {} }", "fn f<'a>(x: &'a str) { 'l: loop {} }");
        check("let r#type = b;", "let r#type = b;");
    }

    #[test]
    fn unfinished_text_does_not_run_away() {
        for text in ["\"abc", "/* abc", "r#\"abc", "'\\", "\"abc\\"] {
            assert_eq!(blanked(text).len(), text.len(), "{text}");
        }
    }

    #[test]
    fn items_know_their_line() {
        let code = "pub struct Plan;\n\nimpl Plan {\n    pub async fn go(&self) {}\n}\n";
        let items = items(code, &["struct", "fn"]);
        let found: Vec<_> = items.iter().map(|item| (item.keyword, item.name, item.line)).collect();
        assert_eq!(found, [("struct", "Plan", 1), ("fn", "go", 4)]);
        assert_eq!(items[1].rest, "(&self) {}");
    }

    #[test]
    fn lines_above_stop_at_the_first_other_line() {
        let text = "/// far\n\n/// doc\n#[test]\nfn f() {}\n";
        let above: Vec<_> = lines_above(text, 5).collect();
        assert_eq!(above, [(4, "#[test]"), (3, "/// doc")]);
    }
}
