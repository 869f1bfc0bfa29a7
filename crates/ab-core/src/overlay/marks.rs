//! The marker files that an overlay stores in its upper layer, and their names.
//!
//! A *whiteout* with the name `.ab-wh-<name>` hides `<name>` of the lower layer in the same
//! directory. An entry with this name in the upper layer stays visible. If a directory is removed
//! and created again, its whiteout stays and hides the old contents.
//!
//! A *keeper* with the name `.ab-keep` is a file in a directory of an upper layer that does not
//! support empty directories. The directory exists because of this file, which also stores the mode
//! and the modification time of the directory.

use crate::path::{
    EMPTY_DIR_MARKER_NAME, MAX_PATH_SEGMENT_BYTES, OVERLAY_WHITEOUT_PREFIX, TEMP_FILE_PREFIX,
    WsPath, is_mark,
};

/// Separates the beginning of a long name from the digest in the name of its whiteout.
const CUT: char = '~';
const DIGEST_DIGITS: usize = 32;

/// The name and the content of a whiteout. A whiteout is a marker file that hides a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Whiteout {
    pub(super) name: String,
    /// The hidden name if it is too long for the name of the whiteout, otherwise empty.
    pub(super) content: String,
}

/// The whiteout that hides `name`.
pub(super) fn whiteout(name: &str) -> Whiteout {
    let plain =
        OVERLAY_WHITEOUT_PREFIX.len() + name.len() <= MAX_PATH_SEGMENT_BYTES && !looks_cut(name);
    if plain {
        return Whiteout {
            name: format!("{OVERLAY_WHITEOUT_PREFIX}{name}"),
            content: String::new(),
        };
    }
    let most =
        MAX_PATH_SEGMENT_BYTES - OVERLAY_WHITEOUT_PREFIX.len() - CUT.len_utf8() - DIGEST_DIGITS;
    let end = (0..=most.min(name.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    let digest = digest(name.as_bytes());
    let name_of_mark = format!("{OVERLAY_WHITEOUT_PREFIX}{}{CUT}{digest:032x}", &name[..end]);
    Whiteout { name: name_of_mark, content: name.to_owned() }
}

/// The whiteout that hides `path` of the lower layer, and its path.
pub(super) fn whiteout_of(path: &WsPath) -> Option<(WsPath, Whiteout)> {
    let (parent, name) = (path.parent()?, path.name()?);
    let whiteout = whiteout(name);
    Some((parent.with_name(&whiteout.name), whiteout))
}

/// The meaning of a name in the upper layer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    /// An ordinary entry, which callers see.
    Plain,
    /// A whiteout that hides this name of the lower layer.
    Whiteout(&'a str),
    /// A whiteout for a name that is too long for the name of the whiteout. The hidden name is the
    /// content of the whiteout.
    CutWhiteout,
    /// A keeper, or the temporary file of a write that has not finished. Callers do not see it.
    Silent,
}

pub(super) fn read(name: &str) -> Name<'_> {
    if name == EMPTY_DIR_MARKER_NAME || name.starts_with(TEMP_FILE_PREFIX) {
        return Name::Silent;
    }
    match name.strip_prefix(OVERLAY_WHITEOUT_PREFIX) {
        None => Name::Plain,
        Some(hidden) if looks_cut(hidden) => Name::CutWhiteout,
        Some(hidden) => Name::Whiteout(hidden),
    }
}

/// Whether the name is reserved, so that callers never see it and cannot use it.
pub(super) fn is_reserved(name: &str) -> bool {
    is_mark(name) || name.starts_with(TEMP_FILE_PREFIX)
}

pub(super) fn keeper_in(directory: &WsPath) -> WsPath {
    directory.with_name(EMPTY_DIR_MARKER_NAME)
}

/// Whether a name looks like a shortened name, which is a beginning and a digest. A short name of
/// this form is also stored with a digest, so that two different names never have the same
/// whiteout.
fn looks_cut(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.len() > DIGEST_DIGITS
        && name.is_char_boundary(name.len() - DIGEST_DIGITS)
        && name[..name.len() - DIGEST_DIGITS].ends_with(CUT)
        && name[name.len() - DIGEST_DIGITS..].bytes().all(is_digit)
}

/// The FNV-1a digest. It must be the same in every build, because marker files remain on disk after
/// this process has ended.
fn digest(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_readable_in_their_whiteouts() {
        for name in ["a", "a b", ".hidden", "~", "grüße", &"n".repeat(248)] {
            let mark = whiteout(name);
            assert_eq!(
                (mark.name.as_str(), mark.content.as_str()),
                (&*format!(".ab-wh-{name}"), "")
            );
            assert_eq!(read(&mark.name), Name::Whiteout(name));
        }
    }

    #[test]
    fn long_names_are_cut_and_told_by_the_content() {
        let wide = format!("{}x", "ü".repeat(127));
        for name in ["n".repeat(249), "n".repeat(255), wide] {
            let mark = whiteout(&name);
            assert!(mark.name.len() <= MAX_PATH_SEGMENT_BYTES, "{}", mark.name.len());
            assert_eq!(mark.content, name);
            assert_eq!(read(&mark.name), Name::CutWhiteout);
        }
    }

    #[test]
    fn no_two_names_share_a_whiteout() {
        let long = "n".repeat(255);
        let mark = whiteout(&long).name;
        let imitation = mark.strip_prefix(OVERLAY_WHITEOUT_PREFIX).unwrap();
        let names = [long.as_str(), &long[..254], imitation, "~00112233445566778899aabbccddeeff"];
        let marks: Vec<String> = names.iter().map(|name| whiteout(name).name).collect();
        for (at, mark) in marks.iter().enumerate() {
            assert!(!marks[..at].contains(mark), "{mark}");
        }
    }

    #[test]
    fn marks_are_told_from_names() {
        for (name, expect) in [
            ("a", Name::Plain),
            (".ab-", Name::Plain),
            (".ab-keeper", Name::Plain),
            ("x.ab-wh-a", Name::Plain),
            (".ab-keep", Name::Silent),
            (".ab-tmp-1", Name::Silent),
            (".ab-wh-a", Name::Whiteout("a")),
            (".ab-wh-.ab-wh-a", Name::Whiteout(".ab-wh-a")),
        ] {
            assert_eq!(read(name), expect, "{name}");
            assert_eq!(is_reserved(name), expect != Name::Plain, "{name}");
        }
    }
}
