//! Operations that change where a file is or what attributes it has, but not its content: renames,
//! links and attributes. Also reports the free disk space.

use std::time::{Duration, SystemTime};

use ab_core::metadata::{DiskSpace, FileKind, RenameOutcome, Stat};
use ab_core::options::{AttributeChanges, OverwriteMode, RenameOptions};
use ab_core::path::MAX_PATH_BYTES;
use ab_core::{ErrorKind, Result, WsPath};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, chmod, fstat, fstatvfs, openat,
    readlinkat, renameat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::write::{self, Keep};
use super::{Shared, describe};
use crate::failure::Act;
use crate::jail::{Final, Missing, Purpose};
use crate::stripes;

/// The set-user-ID and set-group-ID bits.
const SET_ID: u32 = 0o6000;

pub(super) fn rename(
    shared: &Shared,
    act: Act<'_>,
    to: &WsPath,
    options: RenameOptions,
) -> Result<RenameOutcome> {
    let from = act.path;
    let target = Act::new(act.verb, to);
    if let Some(root) = [act, target].into_iter().find(|act| act.path.is_root()) {
        return Err(
            root.error(ErrorKind::Invalid, "the root of the workspace cannot be moved or removed")
        );
    }
    let source = shared.jail.spot_to(Purpose::Displace, from, Final::Keep, Missing::Fail);
    let source = source.map_err(|fault| act.failed(fault))?;
    let source_name = source.name().map_err(|_| act.error(ErrorKind::Invalid, "has no name"))?;
    let described = describe::name(&source.dir, source_name).map_err(|errno| act.failed(errno))?;
    if from == to {
        return Ok(RenameOutcome { atomic: true });
    }
    if described.stat.kind == FileKind::Dir && to.starts_with(from) {
        return Err(act.error(ErrorKind::Invalid, "a directory cannot move into itself"));
    }
    let place = shared.jail.spot_to(Purpose::Displace, to, Final::Keep, Missing::MakeParents);
    let place = place.map_err(|fault| target.failed(fault))?;
    let name = place.name().map_err(|errno| target.failed(errno))?;
    let _held = stripes::lock_two((&source.dir, source_name), (&place.dir, name))
        .map_err(|errno| act.failed(errno))?;
    let moved = match options.overwrite {
        OverwriteMode::Refuse => write::rename_to_free(&source.dir, source_name, &place.dir, name),
        OverwriteMode::Replace => renameat(&source.dir, source_name, &place.dir, name),
    };
    match moved {
        Ok(()) => Ok(RenameOutcome { atomic: true }),
        Err(Errno::NOENT) => Err(act.failed(Errno::NOENT)),
        // The kernel also returns this error if the target is a directory that contains the file.
        Err(Errno::NOTEMPTY) if described.stat.kind != FileKind::Dir => {
            Err(target.failed(Errno::ISDIR))
        }
        Err(Errno::EXIST) if options.overwrite == OverwriteMode::Replace => {
            Err(target.failed(Errno::NOTEMPTY))
        }
        Err(errno) => Err(target.failed(errno)),
    }
}

pub(super) fn read_link(shared: &Shared, act: Act<'_>) -> Result<String> {
    let spot = shared.jail.spot(act.path, Final::Keep, Missing::Fail);
    let spot = spot.map_err(|fault| act.failed(fault))?;
    let not_a_link = || act.error(ErrorKind::Invalid, "not a link");
    let name = spot.name().map_err(|_| not_a_link())?;
    match readlinkat(&spot.dir, name, Vec::new()) {
        Ok(target) => target
            .into_string()
            .map_err(|_| act.error(ErrorKind::Invalid, "the link's target is not valid UTF-8")),
        Err(Errno::INVAL) => Err(not_a_link()),
        Err(errno) => Err(act.failed(errno)),
    }
}

pub(super) fn symlink(shared: &Shared, act: Act<'_>, target: &str) -> Result<()> {
    if target.is_empty() || target.contains('\0') || target.len() > MAX_PATH_BYTES {
        return Err(act.error(
            ErrorKind::InvalidPath,
            "the target of a link must not be empty, too long or contain NUL",
        ));
    }
    if !stays_inside(shared, act.path, target) {
        return Err(act.error(ErrorKind::PathEscape, "the target leaves the workspace"));
    }
    let spot = shared.jail.spot_to(Purpose::Change, act.path, Final::Keep, Missing::MakeParents);
    let spot = spot.map_err(|fault| act.failed(fault))?;
    let name = spot.name().map_err(|_| act.failed(Errno::EXIST))?;
    symlinkat(target, &spot.dir, name).map_err(|errno| act.failed(errno))
}

/// Returns whether a link at `path` to `target` stays inside, judged only by the text of the
/// target. The real target is determined whenever the link is used.
fn stays_inside(shared: &Shared, path: &WsPath, target: &str) -> bool {
    let start = if target.starts_with('/') {
        return shared.jail.points_inside(target, &path.innermost_scope_root());
    } else {
        path.part_below_scope_root().split('/').count() - 1
    };
    let mut depth = start;
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

pub(super) fn set_attributes(
    shared: &Shared,
    act: Act<'_>,
    attributes: AttributeChanges,
) -> Result<Stat> {
    check(act, attributes)?;
    let open = || shared.jail.open_to(Purpose::Change, act.path, OFlags::PATH, Final::Follow);
    let mut handle = open().map_err(|fault| act.failed(fault))?;
    let described = describe::handle(&handle).map_err(|errno| act.failed(errno))?;
    match described.stat.kind {
        FileKind::Dir => {}
        FileKind::File if described.links > 1 => {
            unshare(shared, act)?;
            handle = open().map_err(|fault| act.failed(fault))?;
        }
        FileKind::File => {}
        FileKind::Symlink | FileKind::Other => {
            return Err(act.error(ErrorKind::SpecialFile, "not a regular file or directory"));
        }
    }
    apply(&handle, attributes).map_err(|errno| act.failed(errno))?;
    Ok(describe::handle(&handle).map_err(|errno| act.failed(errno))?.stat)
}

pub(super) fn check(act: Act<'_>, attributes: AttributeChanges) -> Result<()> {
    if attributes.mode.is_some_and(|mode| mode > 0o777) {
        return Err(act.error(ErrorKind::Invalid, "only permission bits up to 777 can be set"));
    }
    Ok(())
}

/// Gives a file that has other hard links its own inode, because attributes belong to the inode.
fn unshare(shared: &Shared, act: Act<'_>) -> Result<()> {
    let spot = shared.jail.spot_to(Purpose::Change, act.path, Final::Follow, Missing::Fail);
    let spot = spot.map_err(|fault| act.failed(fault))?;
    let name = spot.name().map_err(|errno| act.failed(errno))?;
    let flags = super::read::read_flags() | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let unshared = openat(&spot.dir, name, flags, Mode::empty())
        .and_then(|file| write::unshare(&spot, name, &file, Keep::Content));
    match unshared {
        // If the error is `STALE`, another writer has replaced the file. The new file has no other
        // links, so nothing is left to do.
        Ok(()) | Err(Errno::STALE) => Ok(()),
        Err(errno) => Err(act.failed(errno)),
    }
}

/// Changes the attributes of the inode that was opened. The path in `/proc` leads to exactly this
/// inode, even if the file was renamed.
pub(super) fn apply(handle: &OwnedFd, attributes: AttributeChanges) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    if let Some(mode) = attributes.mode {
        chmod(&path, Mode::from_raw_mode(mode))?;
    }
    if attributes.modified.is_some() || attributes.accessed.is_some() {
        let times = Timestamps {
            last_access: timespec(attributes.accessed),
            last_modification: timespec(attributes.modified),
        };
        utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty())?;
    }
    drop_set_id(handle)
}

/// Clears the set-user-ID and set-group-ID bits of a file that is changed in place.
///
/// A command may have set these bits. The kernel clears them when an unprivileged process writes to
/// the file, but not when root does.
pub(super) fn drop_set_id(handle: &OwnedFd) -> Result<(), Errno> {
    let stat = fstat(handle)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || stat.st_mode & SET_ID == 0 {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    chmod(&path, Mode::from_raw_mode(stat.st_mode & 0o777))
}

fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else { return Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT } };
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timespec {
            tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: since.subsec_nanos().into(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = before.as_secs() + u64::from(before.subsec_nanos() > 0);
            let nanos = (Duration::from_secs(seconds) - before).subsec_nanos();
            Timespec {
                tv_sec: i64::try_from(seconds).map_or(i64::MIN, |seconds| -seconds),
                tv_nsec: nanos.into(),
            }
        }
    }
}

pub(super) fn space(shared: &Shared, act: Act<'_>) -> Result<DiskSpace> {
    let stat = fstatvfs(shared.jail.root()).map_err(|errno| act.failed(errno))?;
    Ok(DiskSpace {
        total: stat.f_frsize.saturating_mul(stat.f_blocks),
        available: stat.f_frsize.saturating_mul(stat.f_bavail),
    })
}
