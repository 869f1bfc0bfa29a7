//! Removal of a tree with two open directories at a time, whatever its depth.
//!
//! Directories inside a directory are renamed into the top one before their parent is removed, so
//! there is neither recursion nor a path that grows.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use ab_core::Result;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::failure;

/// Names that are read before they are acted on.
const BATCH: usize = 4096;
/// Fresh names begin so.
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
    /// Directories that were renamed so far.
    moved: u64,
}

impl Tree {
    /// Removes a directory in the top one; directories in it are renamed to the top.
    fn remove_child(&mut self, name: &CString) -> Result<(), Errno> {
        let directory = open(&self.top, name)?;
        loop {
            let names = names(&directory)?;
            if names.is_empty() {
                return rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR);
            }
            for inner in names {
                if !unlinked(&directory, &inner)? {
                    // A directory that cannot be written cannot be renamed to another parent.
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

/// Removes a name that is not a directory; false for a directory.
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

/// Opens a directory to be listed and emptied, after giving us the permissions for it.
fn open(parent: &OwnedFd, name: &CString) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    if Mode::from_raw_mode(stat.st_mode) & Mode::RWXU != Mode::RWXU {
        // This link of the kernel leads to the open directory, whatever has its name now.
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        rustix::fs::chmod(path.as_str(), Mode::RWXU)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&found, ".", flags, Mode::empty())
}

/// Some names in a directory; none when it is empty.
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
