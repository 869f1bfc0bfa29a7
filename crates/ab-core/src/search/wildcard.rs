//! Wildcards within a single name: `*`, `?`, `[a-z]` and `[!a]`. `\\` escapes a character.
//!
//! Characters are matched, not bytes. Backtracking goes back only to the last star. The work for a
//! name is therefore at most the product of the lengths of name and pattern.

/// A compiled pattern without braces or slashes.
#[derive(Clone, Debug)]
pub(super) struct Wildcard(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Star,
    Any,
    Literal(char),
    Class { ranges: Vec<(char, char)>, negated: bool },
}

impl Wildcard {
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            let token = match c {
                '*' => Token::Star,
                '?' => Token::Any,
                '\\' => Token::Literal(chars.next().ok_or("it ends in a lone backslash")?),
                '[' => class(&mut chars)?,
                literal => Token::Literal(literal),
            };
            if token != Token::Star || tokens.last() != Some(&Token::Star) {
                tokens.push(token);
            }
        }
        Ok(Self(tokens))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        let tokens = &self.0;
        let (mut token, mut rest) = (0, name);
        // Where to continue after a mismatch. The search continues at the last star, which then
        // matches one more character.
        let mut retry: Option<(usize, &str)> = None;
        loop {
            match (tokens.get(token), rest.chars().next()) {
                (None, None) => return true,
                (Some(Token::Star), _) => {
                    retry = Some((token, rest));
                    token += 1;
                    continue;
                }
                (Some(one), Some(c)) if one.fits(c) => {
                    token += 1;
                    rest = &rest[c.len_utf8()..];
                    continue;
                }
                (None | Some(_), _) => {}
            }
            let Some((star, from)) = retry else { return false };
            let Some(skipped) = from.chars().next() else { return false };
            let from = &from[skipped.len_utf8()..];
            retry = Some((star, from));
            (token, rest) = (star + 1, from);
        }
    }
}

impl Token {
    fn fits(&self, c: char) -> bool {
        match self {
            Token::Star => false,
            Token::Any => true,
            Token::Literal(literal) => *literal == c,
            Token::Class { ranges, negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Parses a character class after its opening bracket. A `]` directly after the bracket is a member
/// of the class.
fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token, String> {
    const OPEN: &str = "a bracket is not closed";
    let negated = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let low = match chars.next().ok_or(OPEN)? {
            ']' if !ranges.is_empty() => return Ok(Token::Class { ranges, negated }),
            '\\' => chars.next().ok_or(OPEN)?,
            c => c,
        };
        let mut ahead = chars.clone();
        let high = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                chars.next();
                match chars.next().ok_or(OPEN)? {
                    '\\' => chars.next().ok_or(OPEN)?,
                    high => high,
                }
            }
            _ => low,
        };
        if low > high {
            return Err(format!("the range {low}-{high} is reversed"));
        }
        ranges.push((low, high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_characters() {
        for (pattern, yes, no) in [
            ("a*c", vec!["ac", "abc", "a*c", "acc"], vec!["a", "acd", "bac"]),
            ("*a*b*", vec!["ab", "xaybz", "aab"], vec!["ba", "a", ""]),
            ("w?rld", vec!["wörld", "world", "w界rld"], vec!["wrld", "wöörld"]),
            ("[a-cx]", vec!["a", "b", "x"], vec!["d", "", "ab"]),
            ("[!a-c]", vec!["d", "ä"], vec!["a", "c"]),
            ("[]a]", vec!["]", "a"], vec!["b"]),
            ("[a-]", vec!["a", "-"], vec!["b"]),
            ("[\\]x]", vec!["]", "x"], vec!["\\"]),
            ("\\*\\?", vec!["*?"], vec!["ab"]),
            ("[α-ω]*", vec!["β", "λx"], vec!["a"]),
            ("", vec![""], vec!["a"]),
        ] {
            let wildcard = Wildcard::new(pattern).unwrap();
            for name in yes {
                assert!(wildcard.matches(name), "{pattern} must match {name}");
            }
            for name in no {
                assert!(!wildcard.matches(name), "{pattern} must not match {name}");
            }
        }
        for pattern in ["[", "[a", "[!", "a\\", "[z-a]", "[a\\"] {
            assert!(Wildcard::new(pattern).is_err(), "{pattern}");
        }
    }
}
