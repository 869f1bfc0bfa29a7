//! Decodes `$'…'` quotes.

/// Decodes the text between `$'` and the closing quote. As in bash, the text ends at a NUL. Bytes
/// that are not UTF-8 become `\u{fffd}`, which does not occur in the names and paths that rules
/// test.
pub(super) fn decode(body: &str) -> String {
    let mut bytes = Vec::with_capacity(body.len());
    let mut chars = body.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            push(&mut bytes, c);
            continue;
        }
        let Some(escape) = chars.next() else {
            bytes.push(b'\\');
            break;
        };
        match escape {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'e' | 'E' => bytes.push(27),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            c @ ('\\' | '\'' | '"' | '?') => push(&mut bytes, c),
            'x' => match number(&mut chars, 16, 2) {
                Some(value) => bytes.push((value & 0xff) as u8),
                None => bytes.extend_from_slice(b"\\x"),
            },
            c @ ('u' | 'U') => match number(&mut chars, 16, if c == 'u' { 4 } else { 8 }) {
                Some(value) => push(&mut bytes, char::from_u32(value).unwrap_or('\u{fffd}')),
                None => {
                    bytes.push(b'\\');
                    push(&mut bytes, c);
                }
            },
            'c' => {
                let control = chars.next().and_then(|c| u8::try_from(c).ok());
                bytes.push(control.unwrap_or(b'?') & 0x1f);
            }
            first @ '0'..='7' => {
                let mut value = first.to_digit(8).unwrap_or(0);
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
        if bytes.last() == Some(&0) {
            bytes.pop();
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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
            ("plain", "plain"),
            ("\\x72m", "rm"),
            ("\\162\\155", "rm"),
            ("\\u0072\\U0000006d", "rm"),
            ("a\\tb\\n\\\\", "a\tb\n\\"),
            ("it\\'s", "it's"),
            ("\\q", "\\q"),
            ("\\x41\\x4", "A\u{4}"),
            ("\\ca", "\u{1}"),
            ("a\\0b", "a"),
            ("\\x00rm", ""),
            ("\\xff", "\u{fffd}"),
            ("\\xc3\\xa9", "é"),
            ("\\x", "\\x"),
            ("\\uzz", "\\uzz"),
        ] {
            assert_eq!(decode(body), expect, "{body}");
        }
    }
}
