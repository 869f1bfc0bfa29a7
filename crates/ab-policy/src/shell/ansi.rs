//! The text that `$'…'` stands for.

/// Decodes what stands between `$'` and the closing quote; nothing when bash would make bytes of it
/// that are no text.
pub(super) fn decode(body: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(body.len());
    let mut chars = body.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            push(&mut bytes, c);
            continue;
        }
        match chars.next()? {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'e' | 'E' => bytes.push(27),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            c @ ('\\' | '\'' | '"' | '?') => push(&mut bytes, c),
            'x' => bytes.push(u8::try_from(number(&mut chars, 16, 2)?).ok()?),
            'u' => push(&mut bytes, char::from_u32(number(&mut chars, 16, 4)?)?),
            'U' => push(&mut bytes, char::from_u32(number(&mut chars, 16, 8)?)?),
            'c' => bytes.push(u8::try_from(chars.next()?).ok()? & 0x1f),
            first @ '0'..='7' => {
                let mut value = first.to_digit(8)?;
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                    value = value * 8 + digit;
                    chars.next();
                }
                bytes.push((value & 0xff) as u8);
            }
            other => {
                bytes.push(b'\\');
                push(&mut bytes, other);
            }
        }
    }
    // A NUL would end the word early, and what follows would be lost from sight.
    if bytes.contains(&0) {
        return None;
    }
    String::from_utf8(bytes).ok()
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn number(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    radix: u32,
    most: usize,
) -> Option<u32> {
    let mut value = None;
    for _ in 0..most {
        let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
        value = Some(value.unwrap_or(0) * radix + digit);
        chars.next();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_bash() {
        for (body, expect) in [
            ("plain", Some("plain")),
            ("\\x72m", Some("rm")),
            ("\\162\\155", Some("rm")),
            ("\\u0072\\U0000006d", Some("rm")),
            ("a\\tb\\n\\\\", Some("a\tb\n\\")),
            ("\\q", Some("\\q")),
            ("\\x41\\x4", Some("A\u{4}")),
            ("\\ca", Some("\u{1}")),
            ("a\\0b", None),
            ("\\xff", None),
            ("\\x", None),
        ] {
            assert_eq!(decode(body).as_deref(), expect, "{body}");
        }
    }
}
