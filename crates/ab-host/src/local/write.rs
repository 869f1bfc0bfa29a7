//! Replaces a file in one step. Writes a new file beside the old file, and then renames the new
//! file to the old name.
//!
//! Open handles and other hard links of the old file keep the old content. If a step fails, the old
//! file remains and no temporary file is left. Only a process that is killed leaves a temporary
//! file, which has a name that is never listed.

use std::sync::atomic::{AtomicU64, Ordering};

use ab_core::metadata::{FileKind, Stat};
use ab_core::options::{Durability, WriteMode, WriteOptions};
use ab_core::path::TEMP_FILE_PREFIX;
use ab_core::{Error, ErrorKind, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, fchmod, fchown, fstat, fsync, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::Shared;
use super::describe::{self, ContentId, Described};
use crate::blocking::Cancel;
use crate::failure::Act;
use crate::jail::{Fault, Final, Missing, Purpose, Spot};
use crate::stripes::{self, Across};

/// How often a write is retried if a link appeared at its name.
const RACE_RETRIES: usize = 8;

pub(super) fn replace(
    shared: &Shared,
    act: Act<'_>,
    content: &[u8],
    options: WriteOptions,
    cancel: &Cancel,
) -> Result<Stat> {
    for _ in 0..RACE_RETRIES {
        if let Some(stat) = attempt(shared, act, content, options, cancel)? {
            return Ok(stat);
        }
    }
    Err(act.failed(Errno::LOOP))
}

/// Makes one attempt. Returns `None` if the name changed after it was resolved, so that the caller
/// must try again.
fn attempt(
    shared: &Shared,
    act: Act<'_>,
    content: &[u8],
    options: WriteOptions,
    cancel: &Cancel,
) -> Result<Option<Stat>> {
    let missing = match options.mode {
        _ if options.expected_version.is_some() => Missing::Fail,
        WriteMode::Replace => Missing::Fail,
        WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::CreateIfMissing => {
            Missing::MakeParents
        }
    };
    let spot = match shared.jail.spot_to(Purpose::Change, act.path, Final::Follow, missing) {
        Ok(spot) => spot,
        Err(Fault::Os(Errno::NOENT)) if options.expected_version.is_some() => {
            return Err(conflict(act));
        }
        Err(fault) => return Err(act.failed(fault)),
    };
    let name = spot.name().map_err(|errno| act.failed(errno))?;
    let _held = stripes::lock(&spot.dir, name).map_err(|errno| act.failed(errno))?;
    let _across = stripes::lock_across_processes(
        &spot.dir,
        match options.expected_version {
            Some(_) => Across::Alone,
            None => Across::Together,
        },
    );
    let existing = match describe::name(&spot.dir, name) {
        Ok(described) => Some(described),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(act.failed(errno)),
    };
    if let Some(described) = &existing {
        match described.stat.kind {
            FileKind::File => {}
            FileKind::Symlink => return Ok(None),
            FileKind::Dir => return Err(act.failed(Errno::ISDIR)),
            FileKind::Other => return Err(act.error(ErrorKind::SpecialFile, "not a regular file")),
        }
    }
    if let Some(expected) = options.expected_version
        && existing.as_ref().is_none_or(|described| described.stat.version != expected)
    {
        return Err(conflict(act));
    }
    match (&existing, options.mode) {
        (Some(_), WriteMode::CreateNew) => return Err(act.failed(Errno::EXIST)),
        (Some(described), WriteMode::CreateIfMissing) => return Ok(Some(described.stat.clone())),
        (None, WriteMode::Replace) => return Err(act.failed(Errno::NOENT)),
        (_, _) => {}
    }
    let stat = put(&spot, name, content, existing.as_ref(), options, cancel);
    match stat {
        Err(Errno::EXIST) if options.mode == WriteMode::CreateIfMissing => Ok(None),
        Err(Errno::STALE) if options.expected_version.is_some() => Err(conflict(act)),
        result => result.map(Some).map_err(|errno| act.failed(errno)),
    }
}

fn conflict(act: Act<'_>) -> Error {
    act.error(ErrorKind::Conflict, "the file does not have the expected version")
        .with_hint("read the file again, and use its current version")
}

fn put(
    spot: &Spot,
    name: &str,
    content: &[u8],
    existing: Option<&Described>,
    options: WriteOptions,
    cancel: &Cancel,
) -> Result<Stat, Errno> {
    let mut temporary = Temporary::create(spot.dir.as_fd(), existing, options.permissions)?;
    write_fully(&temporary.file, content)?;
    if options.durability == Durability::SurvivesPowerLoss {
        fsync(&temporary.file)?;
    }
    if cancel.is_set() {
        // The caller may have sent a newer write already, and this write must not overwrite it. If
        // the caller goes away after this check, the next write of the caller waits for our lock.
        return Err(Errno::CANCELED);
    }
    match (options.mode, existing) {
        (WriteMode::CreateNew | WriteMode::CreateIfMissing, _) => {
            temporary.rename_to(name, Target::Free)?;
        }
        (WriteMode::CreateOrReplace | WriteMode::Replace, Some(existing))
            if options.expected_version.is_some() =>
        {
            temporary.replace(name, existing)?;
        }
        (WriteMode::CreateOrReplace | WriteMode::Replace, _) => {
            temporary.rename_to(name, Target::Any)?;
        }
    }
    if options.durability == Durability::SurvivesPowerLoss {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fsync(openat(&spot.dir, ".", flags, Mode::empty())?)?;
    }
    // The rename changes a time of the inode. So the final version can only be read after the
    // rename.
    Ok(describe::handle(&temporary.file)?.stat)
}

/// Gives a file that has other hard links its own inode, so that a change in place does not affect
/// the other names.
pub(super) fn unshare(spot: &Spot, name: &str, file: &OwnedFd, keep: Keep) -> Result<(), Errno> {
    let _held = stripes::lock(&spot.dir, name)?;
    let _across = stripes::lock_across_processes(&spot.dir, Across::Alone);
    let (is, was) = (statat(&spot.dir, name, AtFlags::SYMLINK_NOFOLLOW)?, fstat(file)?);
    if (is.st_dev, is.st_ino) != (was.st_dev, was.st_ino) {
        // Another writer replaced the file before we got the lock.
        return Err(Errno::STALE);
    }
    let described = describe::handle(file)?;
    let mut temporary = Temporary::create(spot.dir.as_fd(), Some(&described), None)?;
    if keep == Keep::Content {
        copy(file, &temporary.file)?;
    }
    temporary.replace(name, &described)
}

/// Whether a file that gets its own inode keeps its content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    Content,
    Nothing,
}

fn copy(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    const PIECE: usize = 1024 * 1024;
    let mut offset = 0;
    loop {
        let bytes = super::read::read_fully(from, offset, PIECE)?;
        if bytes.is_empty() {
            return Ok(());
        }
        write_fully(to, &bytes)?;
        offset += bytes.len() as u64;
    }
}

pub(super) fn write_fully(file: impl AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&file, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

enum Target {
    Free,
    Any,
}

/// A temporary file. When the value is dropped, the file is removed unless it was renamed to its
/// final name.
struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    name: String,
    file: OwnedFd,
    placed: bool,
}

impl<'a> Temporary<'a> {
    /// Creates a file beside the existing file, with that file's mode and owner. If there is no
    /// existing file, the new file gets `permissions`.
    fn create(
        dir: BorrowedFd<'a>,
        existing: Option<&Described>,
        permissions: Option<u32>,
    ) -> Result<Self, Errno> {
        // Until the file gets the mode of the file that it replaces, only its owner may read it.
        let at_first = if existing.is_some() { 0o600 } else { 0o666 };
        let (name, file) = loop {
            let name = temporary_name();
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match openat(dir, &name, flags, Mode::from_raw_mode(at_first)) {
                Ok(file) => break (name, file),
                Err(Errno::EXIST | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        };
        let temporary = Self { dir, name, file, placed: false };
        match (existing, permissions) {
            (Some(described), _) => temporary.dress_like(described)?,
            (None, Some(mode)) => fchmod(&temporary.file, Mode::from_raw_mode(mode & 0o777))?,
            (None, None) => {}
        }
        Ok(temporary)
    }

    fn dress_like(&self, described: &Described) -> Result<(), Errno> {
        let (user, group) = described.owner;
        if describe::handle(&self.file)?.owner != described.owner {
            // Only privileged processes can change the owner. If that fails, the new file belongs
            // to our user.
            let _ = fchown(&self.file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        }
        fchmod(&self.file, Mode::from_raw_mode(described.stat.mode.unwrap_or(0o644)))
    }

    /// Replaces the file that `existing` describes by this temporary file. The error `STALE` means
    /// that there is another file at `name`.
    ///
    /// This function exchanges the two files and then checks the replaced file. So it also detects
    /// a writer that ignored the lock. If it replaced the wrong file, it puts that file back.
    fn replace(&mut self, name: &str, existing: &Described) -> Result<(), Errno> {
        let own = describe::handle(&self.file)?.content;
        let is_same = |name: &str, content: &ContentId| {
            describe::name(self.dir, name).map(|there| there.content == *content)
        };
        if !is_same(name, &existing.content).unwrap_or(false) {
            return Err(Errno::STALE);
        }
        let exchange =
            || renameat_with(self.dir, &self.name, self.dir, name, RenameFlags::EXCHANGE);
        match exchange() {
            Ok(()) => {}
            Err(Errno::NOENT) => return Err(Errno::STALE),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                return self.rename_to(name, Target::Any);
            }
            Err(errno) => return Err(errno),
        }
        // The old file now has the temporary name, so it is removed when `self` is dropped.
        if is_same(&self.name, &existing.content)? {
            return Ok(());
        }
        for _ in 0..RACE_RETRIES {
            exchange()?;
            if is_same(&self.name, &own)? {
                break;
            }
        }
        Err(Errno::STALE)
    }

    fn rename_to(&mut self, name: &str, target: Target) -> Result<(), Errno> {
        match target {
            Target::Any => renameat(self.dir, &self.name, self.dir, name)?,
            Target::Free => rename_to_free(self.dir, &self.name, self.dir, name)?,
        }
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let _ = unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Renames a file to a name that must be free. The caller must hold the lock on the name, because
/// some file systems cannot check and rename in one step.
pub(super) fn rename_to_free(
    from_dir: impl AsFd,
    from: &str,
    to_dir: impl AsFd,
    to: &str,
) -> Result<(), Errno> {
    match renameat_with(&from_dir, from, &to_dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            match statat(&to_dir, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => renameat(from_dir, from, to_dir, to),
                Err(errno) => Err(errno),
            }
        }
        result => result,
    }
}

pub(super) fn temporary_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.subsec_nanos());
    format!("{TEMP_FILE_PREFIX}{process:x}-{count:x}-{nanos:x}")
}
