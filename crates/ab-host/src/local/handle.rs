//! Open files: reading and writing at offsets.

use std::sync::Arc;

use ab_core::driver::File;
use ab_core::metadata::Stat;
use ab_core::options::{
    AttributeChanges, ExistingContentHandling, FileAccess, FileCreationMode, OpenOptions,
    WritePosition,
};
use ab_core::{Error, ErrorKind, Result, Verb, WsPath};
use async_trait::async_trait;
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, fchmod, fsync, ftruncate, openat};
use rustix::io::{Errno, pwrite};

use super::write::Keep;
use super::{Shared, describe, is_in_memory, place, read, write};
use crate::blocking;
use crate::failure::Act;
use crate::jail::{Fault, Final, Missing, Purpose, Spot};

/// Maximum number of bytes that one `read_at` returns.
const MAX_READ: usize = 16 * 1024 * 1024;
/// Maximum number of bytes that are copied on an async thread. Copying more would take longer than
/// waking another thread.
const INLINE_BYTES: usize = 256 * 1024;
/// How often an open is retried if it raced with a change of the name.
const RACE_RETRIES: usize = 8;

/// Opens a file for reading without waiting for a disk. Returns `None` if a blocking thread must
/// open the file, or if there is an error to report.
pub(super) fn open_cached(
    shared: &Shared,
    path: &WsPath,
    options: OpenOptions,
) -> Option<LocalFile> {
    if options.access != FileAccess::Read || options.create != FileCreationMode::Never {
        return None;
    }
    let fd = shared.jail.open_cached(path, read::read_flags())?;
    let described = describe::handle(&fd).ok()?;
    if !described.stat.kind.is_file() {
        return None;
    }
    let inner = Arc::new(Inner { fd, path: path.clone(), writing: Writing::MayWait });
    Some(LocalFile { inner, access: FileAccess::Read })
}

pub(super) fn open(shared: &Shared, act: Act<'_>, options: OpenOptions) -> Result<LocalFile> {
    let fd = match options.access {
        FileAccess::Read if options.create == FileCreationMode::Never => {
            let opened = shared.jail.open(act.path, read::read_flags(), Final::Follow);
            opened.map_err(|fault| act.failed(fault))?
        }
        FileAccess::Read | FileAccess::Write | FileAccess::ReadWrite => {
            open_spot(shared, act, options)?
        }
    };
    let described = describe::handle(&fd).map_err(|errno| act.failed(errno))?;
    read::check_regular(act, &described)?;
    let writing = if options.access.can_write() { Writing::to(&fd) } else { Writing::MayWait };
    let inner = Arc::new(Inner { fd, path: act.path.clone(), writing });
    Ok(LocalFile { inner, access: options.access })
}

/// Opens the file that `act` names through the directory of the file. This allows the call to
/// create a missing file, and to give a file with other hard links its own inode.
fn open_spot(shared: &Shared, act: Act<'_>, options: OpenOptions) -> Result<OwnedFd> {
    let missing = match options.create {
        FileCreationMode::Never => Missing::Fail,
        FileCreationMode::IfMissing | FileCreationMode::MustBeNew => Missing::MakeParents,
    };
    for _ in 0..RACE_RETRIES {
        let spot = shared.jail.spot_to(Purpose::Change, act.path, Final::Follow, missing);
        let spot = spot.map_err(|fault| act.failed(fault))?;
        let name = spot.name().map_err(|errno| act.failed(errno))?;
        let opened = match options.create {
            FileCreationMode::Never => open_name(&spot, name, options),
            FileCreationMode::MustBeNew => match create_name(&spot, name, options) {
                Err(Errno::EXIST) if is_dir(&spot, name) => Err(Errno::ISDIR),
                result => result,
            },
            FileCreationMode::IfMissing => match create_name(&spot, name, options) {
                Err(Errno::EXIST) => open_name(&spot, name, options),
                result => result,
            },
        };
        match opened {
            Err(Errno::LOOP | Errno::STALE) => {}
            Err(Errno::NOENT) if options.create == FileCreationMode::IfMissing => {}
            Err(errno) => return Err(act.failed(errno)),
            Ok(fd) => return Ok(fd),
        }
    }
    Err(act.failed(Fault::Os(Errno::LOOP)))
}

fn create_name(spot: &Spot, name: &str, options: OpenOptions) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(options.permissions.unwrap_or(0o666) & 0o777);
    let flags = flags(options.access, options.position) | OFlags::CREATE | OFlags::EXCL;
    let fd = openat(&spot.dir, name, flags, mode)?;
    if options.permissions.is_some() {
        // Set exactly the requested bits, whatever the umask of this process is.
        fchmod(&fd, mode)?;
    }
    Ok(fd)
}

fn is_dir(spot: &Spot, name: &str) -> bool {
    describe::name(&spot.dir, name).is_ok_and(|described| described.stat.kind.is_dir())
}

/// Opens an existing file. The error `STALE` means that the file was given its own inode, and that
/// the caller must resolve the path again.
fn open_name(spot: &Spot, name: &str, options: OpenOptions) -> Result<OwnedFd, Errno> {
    let flags_wanted = flags(options.access, options.position);
    let fd = openat(&spot.dir, name, flags_wanted, Mode::empty())?;
    if !options.access.can_write() {
        return Ok(fd);
    }
    let described = describe::handle(&fd)?;
    if !described.stat.kind.is_file() {
        // The caller checks the type before it writes anything.
        return Ok(fd);
    }
    if described.links > 1 {
        let keep = match options.existing {
            ExistingContentHandling::Keep => Keep::Content,
            ExistingContentHandling::Truncate => Keep::Nothing,
        };
        let source = openat(
            &spot.dir,
            name,
            flags(FileAccess::Read, WritePosition::AtOffset),
            Mode::empty(),
        )?;
        write::unshare(spot, name, &source, keep)?;
        return Err(Errno::STALE);
    }
    if options.existing == ExistingContentHandling::Truncate {
        ftruncate(&fd, 0)?;
    }
    place::drop_set_id(&fd)?;
    Ok(fd)
}

fn flags(access: FileAccess, placement: WritePosition) -> OFlags {
    let end = match placement {
        WritePosition::AtOffset => OFlags::empty(),
        // With this flag, Linux ignores the offset of a write and appends.
        WritePosition::End => OFlags::APPEND,
    };
    let access = match access {
        FileAccess::Read => OFlags::RDONLY,
        FileAccess::Write => OFlags::WRONLY,
        FileAccess::ReadWrite => OFlags::RDWR,
    };
    access | end | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// The open file that callers hold.
#[derive(Debug)]
pub(super) struct LocalFile {
    inner: Arc<Inner>,
    access: FileAccess,
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    path: WsPath,
    writing: Writing,
}

/// Whether a write to the file may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// The file is on a disk. A write blocks if the disk is busy.
    MayWait,
    /// The file is in memory only.
    InMemory,
}

impl Writing {
    fn to(fd: &OwnedFd) -> Self {
        if is_in_memory(fd) { Writing::InMemory } else { Writing::MayWait }
    }
}

impl LocalFile {
    async fn hop<T: Send + 'static>(
        &self,
        verb: Verb,
        work: impl FnOnce(&OwnedFd) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        blocking::run(move |_| {
            work(&inner.fd).map_err(|errno| Act::new(verb, &inner.path).failed(errno))
        })
        .await
    }

    fn refused(&self, verb: Verb, message: &str) -> Error {
        Error::for_path(verb, &self.inner.path, ErrorKind::PermissionDenied, message)
    }

    fn check_writable(&self) -> Result<()> {
        if self.access.can_write() {
            return Ok(());
        }
        Err(self.refused(Verb::Write, "the file is open for reading only"))
    }
}

fn write_fully_at(fd: &OwnedFd, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let mut written = 0;
    while written < bytes.len() {
        let at = offset.checked_add(written as u64).ok_or(Errno::FBIG)?;
        match pwrite(fd, &bytes[written..], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) => return Err(Errno::FBIG),
            Err(errno) => return Err(errno),
        }
    }
    // A command may have set one of these bits after the file was opened. Clear them.
    place::drop_set_id(fd)
}

#[async_trait]
impl File for LocalFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        if !self.access.can_read() {
            return Err(self.refused(Verb::Read, "the file is open for writing only"));
        }
        let length = length.min(MAX_READ);
        if i64::try_from(offset).is_err() || length == 0 {
            return Ok(Bytes::new());
        }
        if length <= INLINE_BYTES
            && let Some(bytes) = read::read_cached(&self.inner.fd, offset, length)
        {
            return Ok(bytes);
        }
        self.hop(Verb::Read, move |fd| read::read_fully(fd, offset, length)).await
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        self.check_writable()?;
        if self.inner.writing == Writing::InMemory && bytes.len() <= INLINE_BYTES {
            let act = Act::new(Verb::Write, &self.inner.path);
            return write_fully_at(&self.inner.fd, offset, &bytes)
                .map_err(|errno| act.failed(errno));
        }
        self.hop(Verb::Write, move |fd| write_fully_at(fd, offset, &bytes)).await
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        self.check_writable()?;
        self.hop(Verb::Write, move |fd| match ftruncate(fd, length) {
            Err(Errno::INVAL) => Err(Errno::FBIG),
            Err(errno) => Err(errno),
            Ok(()) => place::drop_set_id(fd),
        })
        .await
    }

    async fn stat(&self) -> Result<Stat> {
        let described = describe::handle(&self.inner.fd);
        let act = Act::new(Verb::Stat, &self.inner.path);
        Ok(described.map_err(|errno| act.failed(errno))?.stat)
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        if !self.access.can_write() {
            let message = "the file is open for reading only";
            return Err(self.refused(Verb::SetAttributes, message));
        }
        let act = Act::new(Verb::SetAttributes, &self.inner.path);
        place::check(act, attributes)?;
        self.hop(Verb::SetAttributes, move |fd| place::apply(fd, attributes)).await?;
        let described = describe::handle(&self.inner.fd);
        Ok(described.map_err(|errno| act.failed(errno))?.stat)
    }

    async fn sync(&self) -> Result<()> {
        self.hop(Verb::Write, |fd| fsync(fd)).await
    }
}
