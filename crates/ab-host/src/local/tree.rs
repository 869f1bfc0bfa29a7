//! Lists and removes directories by handles.

use std::sync::Arc;

use ab_core::metadata::{DirEntry, Listing, RemoveOutcome, TruncationCause, WalkProblem};
use ab_core::options::{
    EntryDetailLevel, ListOptions, OnMissingTarget, RemoveDepth, RemoveOptions,
};
use ab_core::path::TEMP_FILE_PREFIX;
use ab_core::{ErrorKind, FileKind, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::ffi::{CStr, CString};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::walk::{self, Entered, Flow, Top, Trouble, Visited, Visitor};
use super::{Shared, describe, write};
use crate::blocking::Cancel;
use crate::failure::Act;
use crate::jail::{Final, Missing, Purpose};

/// Maximum depth to which a removal descends. Deeper directories are moved up first, so that the
/// number of open files is limited.
const MAX_HELD: usize = 64;
/// How often a directory is emptied again if new entries appear while it is removed.
const REFILLS: usize = 8;
/// Maximum number of problems that one listing reports.
const MAX_PROBLEMS: usize = 1000;

pub(super) fn list(
    shared: &Shared,
    act: Act<'_>,
    options: ListOptions,
    cancel: &Cancel,
) -> Result<Listing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let located = shared.jail.locate(act.path, flags, Final::Follow);
    let (top, place) = located.map_err(|fault| act.failed(fault))?;
    let top = Arc::new(top);
    if describe::handle(&top).is_ok_and(|described| described.links == 0) {
        let gone = act.error(ErrorKind::NotFound, "the directory was removed");
        return Err(gone.with_hint("open the workspace again after its directory was replaced"));
    }
    if options.max_depth == 0 {
        return Ok(Listing::default());
    }
    let mut lister = Lister { act, options, cancel, depth: 0, listing: Listing::default() };
    walk::walk(Top { handle: top, path: act.path, place }, &mut lister)
        .map_err(|errno| act.failed(errno))?;
    Ok(lister.listing)
}

/// Collects the entries of a walk.
struct Lister<'a> {
    act: Act<'a>,
    options: ListOptions,
    cancel: &'a Cancel,
    depth: usize,
    listing: Listing,
}

impl Visitor for Lister<'_> {
    fn visit(&mut self, entry: &Visited<'_>) -> Result<Flow, Errno> {
        if self.listing.entries.len() == self.options.max_entries {
            self.listing.truncated = Some(TruncationCause::Count);
            return Ok(Flow::Stop);
        }
        if self.cancel.is_set() {
            return Err(Errno::CANCELED);
        }
        let Some(path) = entry.path() else { return Ok(Flow::Pass) };
        let stat = match self.options.detail {
            EntryDetailLevel::Kind => None,
            EntryDetailLevel::Stat => match describe::name(entry.directory, entry.name) {
                Ok(described) => Some(described.stat),
                Err(Errno::NOENT) => return Ok(Flow::Pass),
                Err(errno) => {
                    self.trouble(path.to_string(), Trouble::Os(errno));
                    None
                }
            },
        };
        let kind = stat.as_ref().map_or(entry.kind, |stat| stat.kind);
        self.listing.entries.push(DirEntry { path, kind, stat });
        if self.depth < self.options.max_depth { Ok(Flow::Enter) } else { Ok(Flow::Pass) }
    }

    fn entered(&mut self, _: Entered<'_>) {
        self.depth += 1;
    }

    fn left(&mut self) {
        self.depth -= 1;
    }

    fn trouble(&mut self, path: String, trouble: Trouble) {
        if self.listing.problems.len() < MAX_PROBLEMS {
            let error = self.act.troubled(&path, trouble);
            self.listing.problems.push(WalkProblem { path, error });
        }
    }
}

pub(super) fn remove(
    shared: &Shared,
    act: Act<'_>,
    options: RemoveOptions,
    cancel: &Cancel,
) -> Result<RemoveOutcome> {
    if act.path.is_root() {
        return Err(
            act.error(ErrorKind::Invalid, "the root of the workspace cannot be moved or removed")
        );
    }
    match remove_spot(shared, act, options.depth, cancel) {
        Err(error)
            if error.kind() == ErrorKind::NotFound
                && options.missing == OnMissingTarget::Ignore =>
        {
            Ok(RemoveOutcome::default())
        }
        result => result,
    }
}

fn remove_spot(
    shared: &Shared,
    act: Act<'_>,
    reach: RemoveDepth,
    cancel: &Cancel,
) -> Result<RemoveOutcome> {
    let spot = shared.jail.spot_to(Purpose::Displace, act.path, Final::Keep, Missing::Fail);
    let spot = spot.map_err(|fault| act.failed(fault))?;
    let name = spot.name().map_err(|errno| act.failed(errno))?;
    let described = describe::name(&spot.dir, name).map_err(|errno| act.failed(errno))?;
    let result = match (described.stat.kind, reach) {
        (FileKind::Dir, RemoveDepth::NonRecursive) => {
            match unlinkat(&spot.dir, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) if only_leftovers(&spot.dir, name) => {
                    remove_tree(spot.dir.as_fd(), name, cancel).map(|_| 1)
                }
                result => result.map(|()| 1),
            }
        }
        (FileKind::Dir, RemoveDepth::Recursive) => remove_tree(spot.dir.as_fd(), name, cancel),
        (FileKind::File | FileKind::Symlink | FileKind::Other, _) => {
            unlinkat(&spot.dir, name, AtFlags::empty()).map(|()| 1)
        }
    };
    match result {
        Ok(count) => Ok(RemoveOutcome { count }),
        // POSIX allows both errors for a directory that is not empty.
        Err(Errno::EXIST) => Err(act.failed(Errno::NOTEMPTY)),
        Err(errno) => Err(act.failed(errno)),
    }
}

/// Returns whether a directory contains only temporary files of killed writers. Callers can neither
/// see nor name these files.
fn only_leftovers(parent: &OwnedFd, name: &str) -> bool {
    let opened = to_c(name).and_then(|name| open_to_empty(parent.as_fd(), &name));
    let Ok(entries) = opened.and_then(Dir::read_from) else { return false };
    entries.into_iter().all(|entry| {
        entry.is_ok_and(|entry| {
            let name = entry.file_name();
            is_dot(name) || name.to_bytes().starts_with(TEMP_FILE_PREFIX.as_bytes())
        })
    })
}

/// Removes a directory with everything in it. Links are removed, not followed.
fn remove_tree(parent: BorrowedFd<'_>, name: &str, cancel: &Cancel) -> Result<u64, Errno> {
    let top = open_to_empty(parent, &to_c(name)?)?;
    let mut removal = Removal { top, deep: Vec::new(), count: 0, cancel };
    for _ in 0..REFILLS {
        removal.run()?;
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(removal.count + 1),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::NOTEMPTY)
}

struct Removal<'a> {
    top: OwnedFd,
    /// The temporary names of deep directories that were moved into the top directory.
    deep: Vec<CString>,
    count: u64,
    cancel: &'a Cancel,
}

impl Removal<'_> {
    fn run(&mut self) -> Result<(), Errno> {
        let top = openat(&self.top, ".", directory_flags(), Mode::empty())?;
        self.empty(&top, 0)?;
        while let Some(name) = self.deep.pop() {
            self.remove_dir(&top, &name, 0)?;
        }
        Ok(())
    }

    fn empty(&mut self, dir: &OwnedFd, depth: usize) -> Result<(), Errno> {
        let names: Vec<(CString, FileType)> = Dir::read_from(dir)?
            .map(|entry| entry.map(|entry| (entry.file_name().to_owned(), entry.file_type())))
            .filter(|entry| entry.as_ref().map_or(true, |(name, _)| !is_dot(name)))
            .collect::<Result<_, Errno>>()?;
        for (name, kind) in names {
            if self.cancel.is_set() {
                return Err(Errno::CANCELED);
            }
            if kind == FileType::Directory {
                self.remove_dir(dir, &name, depth)?;
                continue;
            }
            match unlinkat(dir, &name, AtFlags::empty()) {
                Ok(()) => self.count += 1,
                Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => self.remove_dir(dir, &name, depth)?,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn remove_dir(&mut self, dir: &OwnedFd, name: &CStr, depth: usize) -> Result<(), Errno> {
        if depth == MAX_HELD {
            let moved = to_c(&write::temporary_name())?;
            renameat(dir, name, &self.top, &moved)?;
            self.deep.push(moved);
            return Ok(());
        }
        for _ in 0..REFILLS {
            match open_to_empty(dir.as_fd(), name) {
                Ok(child) => self.empty(&child, depth + 1)?,
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(errno),
            }
            match unlinkat(dir, name, AtFlags::REMOVEDIR) {
                Ok(()) => {
                    self.count += 1;
                    return Ok(());
                }
                Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::NOTEMPTY)
    }
}

fn open_to_empty(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(dir, name, directory_flags(), Mode::empty())
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn to_c(name: &str) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

fn is_dot(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
