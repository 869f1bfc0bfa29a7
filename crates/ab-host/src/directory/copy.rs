//! Copies a directory by handles, and lets files share blocks (reflinks) where the file system
//! supports that.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ab_core::{Error, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::failure;
use crate::blocking::Cancel;

/// Maximum nesting depth of directories. Each level keeps two handles open.
const MAX_DEPTH: usize = 128;

/// Limits on the contents of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryCopyLimits {
    /// Maximum number of files, directories and links together.
    pub entries: u64,
    /// Maximum number of bytes of all files together, whether they are shared with the original or
    /// not.
    pub bytes: u64,
}

impl Default for DirectoryCopyLimits {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 64 * 1024 * 1024 * 1024 }
    }
}

/// The result of a copy: what was copied, and what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryCopyReport {
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    pub bytes: u64,
    /// Number of files that share their blocks with the original.
    pub reflinked_files: u64,
    /// Number of devices, sockets and FIFOs that were left out.
    pub skipped_special_files: u64,
}

pub(super) fn copy(
    from: &Path,
    to: &Path,
    bounds: DirectoryCopyLimits,
    cancel: &Cancel,
) -> Result<DirectoryCopyReport> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let source = rustix::fs::open(from, flags, Mode::empty());
    let source = source.map_err(|errno| failure("copy", from, errno))?;
    let stat = rustix::fs::fstat(&source).map_err(|errno| failure("copy", from, errno))?;
    rustix::fs::mkdir(to, Mode::RWXU).map_err(|errno| failure("create", to, errno))?;
    let flags = flags | OFlags::NOFOLLOW;
    let made = rustix::fs::open(to, flags, Mode::empty());
    let made = made.map_err(|errno| failure("create", to, errno))?;
    let own = rustix::fs::fstat(&made).map_err(|errno| failure("create", to, errno))?;
    let mut copying = Copying {
        report: DirectoryCopyReport::default(),
        bounds,
        own: (own.st_dev, own.st_ino),
        clones: true,
        path: from.to_owned(),
        cancel,
    };
    copying.contents(&source, &made, 0)?;
    finish(&made, &stat, Mode::RWXU).map_err(|errno| failure("create", to, errno))?;
    Ok(copying.report)
}

struct Copying<'a> {
    report: DirectoryCopyReport,
    bounds: DirectoryCopyLimits,
    /// Device and inode of the new directory. If the copy finds this directory inside the source,
    /// the copy fails, because it would copy the directory into itself.
    own: (u64, u64),
    /// Whether to try to share blocks. False once the file system has refused to.
    clones: bool,
    /// The path that is being copied now, for error messages.
    path: PathBuf,
    cancel: &'a Cancel,
}

impl Copying<'_> {
    fn failed(&self, errno: Errno) -> Error {
        failure("copy", &self.path, errno)
    }

    fn contents(&mut self, from: &OwnedFd, to: &OwnedFd, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(self.failed(Errno::FBIG));
        }
        let entries = Dir::read_from(from).map_err(|errno| self.failed(errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| self.failed(errno))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.path.push(Path::new(std::ffi::OsStr::new(&*name.to_string_lossy())));
            self.entry(from, to, name, depth)?;
            self.path.pop();
        }
        Ok(())
    }

    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, depth: usize) -> Result<()> {
        if self.cancel.is_set() {
            return Err(self.failed(Errno::CANCELED));
        }
        let count = self.report.files + self.report.directories + self.report.links;
        if count >= self.bounds.entries {
            return Err(self.failed(Errno::FBIG));
        }
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| self.failed(errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.file(from, to, name).map_err(|errno| self.failed(errno)),
            FileType::Directory => self.directory(from, to, name, depth),
            FileType::Symlink => {
                self.report.links += 1;
                let target = rustix::fs::readlinkat(from, name, Vec::new());
                let linked = target.and_then(|target| rustix::fs::symlinkat(target, to, name));
                linked.map_err(|errno| self.failed(errno))
            }
            _ => {
                self.report.skipped_special_files += 1;
                Ok(())
            }
        }
    }

    fn directory(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr, depth: usize) -> Result<()> {
        self.report.directories += 1;
        let opened = || -> Result<(OwnedFd, Stat, OwnedFd), Errno> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
            let stat = rustix::fs::fstat(&source)?;
            if (stat.st_dev, stat.st_ino) == self.own {
                return Err(Errno::INVAL);
            }
            rustix::fs::mkdirat(to, name, Mode::RWXU)?;
            let made = rustix::fs::openat(to, name, flags, Mode::empty())?;
            Ok((source, stat, made))
        };
        let (source, stat, made) = opened().map_err(|errno| self.failed(errno))?;
        self.contents(&source, &made, depth + 1)?;
        finish(&made, &stat, Mode::RWXU).map_err(|errno| self.failed(errno))
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        // After `statat`, the file may have been replaced by a FIFO or a link. These flags make the
        // open safe in that case.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&source)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            self.report.skipped_special_files += 1;
            return Ok(());
        }
        let left = self.bounds.bytes - self.report.bytes;
        if u64::try_from(stat.st_size).unwrap_or_default() > left {
            return Err(Errno::FBIG);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR)?;
        self.report.files += 1;
        if self.clones && stat.st_size > 0 {
            match rustix::fs::ioctl_ficlone(&made, &source) {
                Ok(()) => {
                    self.report.reflinked_files += 1;
                    self.report.bytes += u64::try_from(stat.st_size).unwrap_or_default();
                    return finish(&made, &stat, Mode::empty());
                }
                // Fall back to copying the bytes. A real error, such as a full disk, will also
                // occur when the bytes are copied.
                Err(_) => self.clones = false,
            }
        }
        let mut source = File::from(source).take(left.saturating_add(1));
        let mut made = File::from(made);
        let copied = std::io::copy(&mut source, &mut made);
        let copied = copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if copied > left {
            return Err(Errno::FBIG);
        }
        self.report.bytes += copied;
        finish(&OwnedFd::from(made), &stat, Mode::empty())
    }
}

/// Gives a copy the permissions and times of its original. `at_least` names permissions that the
/// copy always gets.
fn finish(made: &OwnedFd, original: &Stat, at_least: Mode) -> Result<(), Errno> {
    const PERMISSIONS: Mode = Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
    let mode = Mode::from_raw_mode(original.st_mode) & PERMISSIONS;
    rustix::fs::fchmod(made, mode | at_least)?;
    let at = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    let times = Timestamps {
        last_access: at(original.st_atime, original.st_atime_nsec),
        last_modification: at(original.st_mtime, original.st_mtime_nsec),
    };
    rustix::fs::futimens(made, &times)
}
