//! Path patterns. Wildcards match within segments, and a pattern also covers everything below a
//! matching path.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A pattern for paths of a workspace.
///
/// A pattern without a slash matches any segment of a path: `.*` covers `src/.ssh/id`. A pattern
/// with a slash starts at the root, such as `src/*.rs`. `*` and `?` match within one segment, and
/// `**` matches any number of segments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathPattern(String);

impl PathPattern {
    pub(super) fn new(text: &str) -> Self {
        let text = text.trim_start_matches("./").trim_start_matches('/');
        let text = text.strip_suffix("/**").unwrap_or(text).trim_end_matches('/');
        Self(text.to_owned())
    }

    /// Returns what is wrong with a text as a pattern. `None` if it is valid.
    pub(super) fn problem(text: &str) -> Option<&'static str> {
        match Self::new(text).0.as_str() {
            "" => Some("must not be empty"),
            text if text.contains(['[', ']', '{', '}', '\\', '\0']) => {
                Some("has a character that patterns do not know: only *, ? and ** are wildcards")
            }
            text if text.split('/').any(|part| part == ".." || part == ".") => {
                Some("must not contain . or .. as a segment")
            }
            _ => None,
        }
    }

    /// Whether the pattern matches the path or a directory above it.
    pub fn covers(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if !self.0.contains('/') && self.0 != "**" {
            return parts.iter().any(|part| fits(self.0.as_bytes(), part.as_bytes()));
        }
        let pattern: Vec<&str> = self.0.split('/').collect();
        (1..=parts.len()).any(|end| fits_parts(&pattern, &parts[..end]))
    }

    /// Whether the pattern starts at the root, so that it names a place and not only a name.
    pub(super) fn is_anchored(&self) -> bool {
        self.0.contains('/')
    }

    /// Whether the pattern may match something below the path.
    pub(super) fn may_cover_below(&self, path: &str) -> bool {
        let parts = path.split('/').filter(|part| !part.is_empty());
        if !self.0.contains('/') {
            return true;
        }
        let mut pattern = self.0.split('/');
        for part in parts {
            match pattern.next() {
                None => return true,
                Some("**") => return true,
                Some(piece) if !fits(piece.as_bytes(), part.as_bytes()) => return false,
                Some(_) => {}
            }
        }
        true
    }

    /// The single path that the pattern names. `None` if the pattern has no slash or has a
    /// wildcard.
    pub(super) fn as_place(&self) -> Option<&str> {
        let text = self.0.as_str();
        (text.contains('/') && !text.contains(['*', '?'])).then_some(text)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn fits_parts(pattern: &[&str], parts: &[&str]) -> bool {
    match (pattern.split_first(), parts.split_first()) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some((&"**", rest)), _) => (0..=parts.len()).any(|skip| fits_parts(rest, &parts[skip..])),
        (Some(_), None) => false,
        (Some((piece, rest)), Some((part, below))) => {
            fits(piece.as_bytes(), part.as_bytes()) && fits_parts(rest, below)
        }
    }
}

/// Whether a pattern matches one segment. `*` stands for any text, `?` for one character. The time
/// is at most proportional to the product of the lengths.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(b'?') => {
                p += 1;
                t += 1;
                // Skip the remaining bytes of a multi-byte character.
                while text.get(t).is_some_and(|byte| byte & 0xC0 == 0x80) {
                    t += 1;
                }
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            Some(_) | None => match retry {
                Some((star, at)) => {
                    retry = Some((star, at + 1));
                    p = star + 1;
                    t = at + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_know_segments_and_cover_what_is_below() {
        for (pattern, path, expect) in [
            ("node_modules", "node_modules", true),
            ("node_modules", "node_modules/x/y.js", true),
            ("node_modules", "web/node_modules/x", true),
            ("node_modules", "node_modules2", false),
            (".*", ".env", true),
            (".*", "src/.ssh/id", true),
            (".*", "src/a.b", false),
            ("*.env", "deploy/prod.env", true),
            ("*.env", "prod.environment", false),
            ("src/*.rs", "src/main.rs", true),
            ("src/*.rs", "src/bin/main.rs", false),
            ("src/**/gen", "src/gen/x", true),
            ("src/**/gen", "src/a/b/gen", true),
            ("src/**", "src/a/b", true),
            ("/src/", "src/a", true),
            ("a?c/d", "aäc/d", true),
            ("a*b*c/x", "aXbYc/x", true),
            ("**", "anything/at/all", true),
        ] {
            assert_eq!(PathPattern::new(pattern).covers(path), expect, "{pattern} {path}");
        }
    }

    #[test]
    fn a_directory_may_contain_what_is_blocked() {
        for (pattern, path, expect) in [
            ("*.env", "src", true),
            ("src/secret", "src", true),
            ("src/secret", "", true),
            ("src/secret", "lib", false),
            ("src/**/x", "src/a", true),
        ] {
            assert_eq!(PathPattern::new(pattern).may_cover_below(path), expect, "{pattern} {path}");
        }
        assert_eq!(PathPattern::new("etc/keys/").as_place(), Some("etc/keys"));
        assert_eq!(PathPattern::new("keys").as_place(), None);
    }
}
