//! Converts metadata from the kernel to the types of the driver contract.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use ab_core::metadata::{FileKind, FileVersion, Stat};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, statx};
use rustix::io::Errno;

/// A stat, together with values that only this crate needs.
pub(super) struct Described {
    pub(super) stat: Stat,
    pub(super) links: u32,
    pub(super) owner: (u32, u32),
    pub(super) content: ContentId,
}

/// Identifies a file and its content, as reliably as is possible without reading the file. A rename
/// does not change the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentId {
    device: (u32, u32),
    inode: u64,
    size: u64,
    modified: (i64, u32),
}

/// Describes an open file. This works even if the file's name has changed.
pub(super) fn handle(fd: impl AsFd) -> Result<Described, Errno> {
    Ok(describe(&statx(fd, "", AtFlags::EMPTY_PATH, mask())?))
}

/// Describes a name in a directory. If it is a link, describes the link itself.
pub(super) fn name(dir: impl AsFd, name: &str) -> Result<Described, Errno> {
    Ok(describe(&statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, mask())?))
}

pub(super) fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => FileKind::Other,
    }
}

fn mask() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME
}

fn describe(raw: &Statx) -> Described {
    let kind = kind(FileType::from_raw_mode(raw.stx_mode.into()));
    let has_birth = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    let stat = Stat {
        kind,
        size: if kind == FileKind::Dir { 0 } else { raw.stx_size },
        modified: time(raw.stx_mtime),
        accessed: Some(time(raw.stx_atime)),
        created: has_birth.then(|| time(raw.stx_btime)),
        mode: Some(u32::from(raw.stx_mode) & 0o777),
        version: version(raw),
    };
    let content = ContentId {
        device: (raw.stx_dev_major, raw.stx_dev_minor),
        inode: raw.stx_ino,
        size: raw.stx_size,
        modified: (raw.stx_mtime.tv_sec, raw.stx_mtime.tv_nsec),
    };
    Described { stat, links: raw.stx_nlink, owner: (raw.stx_uid, raw.stx_gid), content }
}

/// Returns the version of a file. The version changes whenever the file is replaced, because the
/// inode changes. It also changes whenever the file is written in place, because the times or the
/// size change.
///
/// The kernel reuses the inode number of a removed file, and within one clock tick the new file may
/// have the same times as the old one. In this case, the birth time distinguishes the two files.
fn version(raw: &Statx) -> FileVersion {
    let has_birth = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    let facts = (
        has_birth.then_some((raw.stx_btime.tv_sec, raw.stx_btime.tv_nsec)),
        (raw.stx_dev_major, raw.stx_dev_minor, raw.stx_ino, raw.stx_size),
        (raw.stx_mtime.tv_sec, raw.stx_mtime.tv_nsec),
        (raw.stx_ctime.tv_sec, raw.stx_ctime.tv_nsec),
    );
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, facts).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    FileVersion::new(half(0) << 64 | half(1))
}

fn time(stamp: StatxTimestamp) -> SystemTime {
    let nanos = Duration::from_nanos(stamp.tv_nsec.into());
    let seconds = Duration::from_secs(stamp.tv_sec.unsigned_abs());
    let whole = if stamp.tv_sec < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(SystemTime::UNIX_EPOCH)
}
