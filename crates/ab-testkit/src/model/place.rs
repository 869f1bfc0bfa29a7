//! Resolves a caller's path by the rules of the contract, without using its code.

use std::fmt;

use ab_core::ErrorKind;

use super::answer::Refusal;

/// Names from the root down; empty for the root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(pub(super) Vec<String>);

impl Place {
    /// Parses a path that is relative, or absolute from the root. Resolves `..` as text. Refuses
    /// paths that lead outside.
    pub(super) fn parse(raw: &str) -> Result<Self, Refusal> {
        let refused = |kind| Refusal { kind, path: Some(raw.to_owned()) };
        if raw.is_empty() || raw.contains('\0') {
            return Err(refused(ErrorKind::InvalidPath));
        }
        let mut names: Vec<String> = Vec::new();
        for name in raw.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    names.pop().ok_or_else(|| refused(ErrorKind::PathEscape))?;
                }
                name if name.starts_with(".ab-tmp-") => {
                    return Err(refused(ErrorKind::InvalidPath));
                }
                name => names.push(name.to_owned()),
            }
        }
        Ok(Self(names))
    }

    pub(super) fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The parent directories without the root, from the top down.
    pub(super) fn above(&self) -> impl Iterator<Item = Place> {
        (1..self.0.len()).map(|length| Place(self.0[..length].to_vec()))
    }

    /// How far below `top` this is; `None` if it is elsewhere.
    pub(super) fn depth_below(&self, top: &Place) -> Option<usize> {
        self.0.strip_prefix(&top.0[..]).map(<[String]>::len)
    }

    /// The same place after `from` was renamed to `to`. This place must be at or below `from`.
    pub(super) fn moved(&self, from: &Place, to: &Place) -> Place {
        let below = &self.0[from.0.len()..];
        Place(to.0.iter().chain(below).cloned().collect())
    }

    pub(super) fn refuse(&self, kind: ErrorKind) -> Refusal {
        Refusal { kind, path: Some(self.to_string()) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&if self.is_root() { ".".to_owned() } else { self.0.join("/") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_lead_where_the_contract_says() {
        for (raw, expect) in [
            ("a/b", Ok("a/b")),
            ("./a//b/.", Ok("a/b")),
            ("/a/", Ok("a")),
            ("a/../b", Ok("b")),
            ("a/..", Ok(".")),
            ("/", Ok(".")),
            ("", Err(ErrorKind::InvalidPath)),
            ("a\0", Err(ErrorKind::InvalidPath)),
            ("a/.ab-tmp-1", Err(ErrorKind::InvalidPath)),
            ("..", Err(ErrorKind::PathEscape)),
            ("/..", Err(ErrorKind::PathEscape)),
            ("a/../../b", Err(ErrorKind::PathEscape)),
        ] {
            let found = Place::parse(raw).map(|place| place.to_string());
            let expect = expect.map(str::to_owned);
            let expect = expect.map_err(|kind| Refusal { kind, path: Some(raw.to_owned()) });
            assert_eq!(found, expect, "{raw:?}");
        }
    }
}
