//! Removes a directory tree of any depth with a small, fixed number of open directories.
//!
//! Subdirectories are renamed into the top directory before their parent is removed. The removal
//! therefore needs no recursion, and paths do not grow longer.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use ab_core::Result;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::failure;

/// Number of names that are read from a directory before they are removed.
const BATCH: usize = 4096;
/// Prefix of the names that moved directories get.
const MOVED: &str = ".ab-removed-";

pub(super) fn remove(path: &Path) -> Result<()> {
    let failed = |errno| failure("remove", path, errno);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed(Errno::INVAL));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match rustix::fs::open(parent, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|_| failed(Errno::INVAL))?;
    match unlinked(&parent, &name) {
        Ok(true) | Err(Errno::NOENT) => return Ok(()),
        Ok(false) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let emptied = || -> Result<(), Errno> {
        let top = open(&parent, &name)?;
        let mut tree = Tree { top, moved: 0 };
        loop {
            let names = names(&tree.top)?;
            if names.is_empty() {
                return rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR);
            }
            for name in names {
                if !unlinked(&tree.top, &name)? {
                    tree.remove_child(&name)?;
                }
            }
        }
    };
    emptied().map_err(failed)
}

struct Tree {
    top: OwnedFd,
    /// Number of directories that have been moved so far.
    moved: u64,
}

impl Tree {
    /// Removes a directory that lies directly in the top directory. Its own subdirectories are
    /// moved to the top directory.
    fn remove_child(&mut self, name: &CString) -> Result<(), Errno> {
        let directory = open(&self.top, name)?;
        loop {
            let names = names(&directory)?;
            if names.is_empty() {
                return rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR);
            }
            for inner in names {
                if !unlinked(&directory, &inner)? {
                    // Moving a directory to another parent needs write permission on the directory
                    // itself, which `open` grants.
                    drop(open(&directory, &inner)?);
                    self.raise(&directory, &inner)?;
                }
            }
        }
    }

    fn raise(&mut self, from: &OwnedFd, name: &CString) -> Result<(), Errno> {
        loop {
            let fresh = format!("{MOVED}{}", self.moved);
            self.moved += 1;
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(from, name, &self.top, fresh.as_str(), flags) {
                Err(Errno::EXIST) => {}
                renamed => return renamed,
            }
        }
    }
}

/// Removes a name and returns true. If the name is a directory, removes nothing and returns false.
fn unlinked(parent: &OwnedFd, name: &CString) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::ISDIR) => Ok(false),
        Err(errno @ Errno::PERM) => {
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => Ok(false),
                _ => Err(errno),
            }
        }
        Err(errno) => Err(errno),
    }
}

/// Opens a directory for listing and removal. Gives the owner all permissions first.
fn open(parent: &OwnedFd, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    if Mode::from_raw_mode(stat.st_mode) & Mode::RWXU != Mode::RWXU {
        // This path leads to the directory that was opened, even if another file has its name now.
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        rustix::fs::chmod(path.as_str(), Mode::RWXU)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&found, ".", flags, Mode::empty())
}

/// Reads up to [`BATCH`] names of a directory. The result is empty if the directory is empty.
fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == BATCH {
            break;
        }
    }
    Ok(names)
}
