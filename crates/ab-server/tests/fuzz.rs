//! Whatever bytes an archive has, its names stay inside, and the pieces in which it arrives make no difference.

use ab_core::tar::{TarDecoder, TarEntry, TarEntryKind, TarEvent};
use ab_testkit::fuzz;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq};
use proptest::sample::select;

const NAMES: &[&str] =
    &["a", "a/b", "../x", "/x", "a/../b", "./a", "", "l", "l/x", "a//b", "..", "a\n", "ü"];
const KINDS: &[u8] = b"00512xLKgS37\0";

fn block(name: &str, link: &str, kind: u8, size: usize) -> Vec<u8> {
    let mut block = vec![0_u8; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[148..156].fill(b' ');
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..263].copy_from_slice(b"ustar\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

fn archive() -> impl Strategy<Value = Vec<u8>> {
    let content = vec(select(b"a/.. =\n\x00129path".as_slice()), 0..700);
    let entry = (select(NAMES), select(NAMES), select(KINDS), content);
    let entry = entry.prop_map(|(name, link, kind, content)| {
        let mut bytes = block(name, link, kind, content.len());
        bytes.extend_from_slice(&content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    });
    let damage = vec((any::<u16>(), any::<u8>()), 0..2);
    (vec(entry, 0..5), damage, any::<bool>()).prop_map(|(entries, damage, is_cut)| {
        let mut bytes = entries.concat();
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(usize::from(at)) {
                *byte = value;
            }
        }
        if is_cut {
            bytes.truncate(bytes.len() * 2 / 3);
        }
        bytes
    })
}

/// The entries with the length of their content, and whether the archive was whole.
fn read(bytes: &[u8], piece: usize) -> (Vec<(TarEntry, usize)>, bool) {
    let mut decoder = TarDecoder::default();
    let mut entries: Vec<(TarEntry, usize)> = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.feed(piece);
        loop {
            match decoder.next() {
                Ok(Some(TarEvent::Entry(entry))) => entries.push((entry, 0)),
                Ok(Some(TarEvent::Data(data))) => entries.last_mut().unwrap().1 += data.len(),
                Ok(None) => break,
                Err(_) => return (entries, false),
            }
        }
    }
    (entries, decoder.finish().is_ok())
}

fn stays_inside(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|segment| segment != "..")
}

#[test]
fn fuzz_tar() {
    fuzz::check_property("tar", (archive(), 1_usize..600), |(bytes, piece)| {
        let whole = read(&bytes, bytes.len().max(1));
        for (entry, length) in &whole.0 {
            prop_assert!(stays_inside(&entry.path), "{entry:?}");
            match &entry.kind {
                TarEntryKind::File { size } => prop_assert!(*length as u64 <= *size),
                TarEntryKind::HardLink { path } => prop_assert!(stays_inside(path), "{entry:?}"),
                TarEntryKind::Symlink { target } => {
                    let ups = target.split('/').filter(|segment| *segment == "..").count();
                    prop_assert!(ups < entry.path.split('/').count(), "{entry:?}");
                    prop_assert!(!target.starts_with('/'));
                }
                TarEntryKind::Directory => prop_assert_eq!(*length, 0),
            }
        }
        prop_assert_eq!(read(&bytes, piece), whole);
        Ok(())
    });
}
