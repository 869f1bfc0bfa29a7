//! Walking directories by handles: listing them, removing them.

use ab_core::metadata::{Entry, Listing, Problem, Removed, Truncated};
use ab_core::options::{Detail, ListOptions, Missing as MissingTarget, Reach, RemoveOptions};
use ab_core::path::RESERVED_PREFIX;
use ab_core::{FileKind, Kind, Result, WsPath};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::ffi::{CStr, CString};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::{Shared, describe, write};
use crate::blocking::Cancel;
use crate::failure::Act;
use crate::jail::{Final, Missing};

/// Levels that a removal goes down before it moves what is deeper up, so that no depth of
/// directories can use up the open files.
const MAX_HELD: usize = 64;
/// How often a directory that fills up again while it is removed is emptied again.
const REFILLS: usize = 8;
/// Problems that one listing names; beyond that it is the directory that is broken.
const MAX_PROBLEMS: usize = 1000;

pub(super) fn list(
    shared: &Shared,
    act: Act<'_>,
    options: ListOptions,
    cancel: &Cancel,
) -> Result<Listing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let top = shared.jail.open(act.path, flags, Final::Follow);
    let top = top.map_err(|fault| act.failed(fault))?;
    if options.depth == 0 {
        return Ok(Listing::default());
    }
    let mut walk = Walk { act, options, cancel, listing: Listing::default() };
    let first = walk.read(&top, WsPath::root()).map_err(|errno| act.failed(errno))?;
    walk.run(&top, first)?;
    Ok(walk.listing)
}

struct Walk<'a> {
    act: Act<'a>,
    options: ListOptions,
    cancel: &'a Cancel,
    listing: Listing,
}

/// A directory whose children are being listed.
struct Level {
    /// From the top of the walk.
    path: WsPath,
    /// Sorted backwards, so that the next one is at the end.
    children: Vec<(String, FileKind)>,
}

impl Walk<'_> {
    fn run(&mut self, top: &OwnedFd, first: Level) -> Result<()> {
        let mut levels = vec![first];
        while let Some(level) = levels.last_mut() {
            let Some((name, kind)) = level.children.pop() else {
                levels.pop();
                continue;
            };
            if self.listing.entries.len() == self.options.limit {
                self.listing.truncated = Some(Truncated::Count);
                return Ok(());
            }
            if self.cancel.is_set() {
                return Err(self.act.failed(Errno::CANCELED));
            }
            let Ok(below) = level.path.child(&name) else { continue };
            let descend = kind == FileKind::Dir && levels.len() < self.options.depth;
            self.add(top, &below, kind);
            if descend {
                match self.open_below(top, &below).and_then(|dir| self.read(&dir, below.clone())) {
                    Ok(level) => levels.push(level),
                    // Someone removed it meanwhile, which is how it would have been a moment later.
                    Err(Errno::NOENT) => {}
                    Err(errno) => self.problem(&below.to_string(), errno),
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, top: &OwnedFd, below: &WsPath, kind: FileKind) {
        let stat = match self.options.detail {
            Detail::Kind => None,
            Detail::Stat => match describe::beneath(top, below) {
                Ok(described) => Some(described.stat),
                Err(Errno::NOENT) => return,
                Err(errno) => {
                    self.problem(&below.to_string(), errno);
                    None
                }
            },
        };
        let kind = stat.as_ref().map_or(kind, |stat| stat.kind);
        let path = self.act.path.join(below);
        self.listing.entries.push(Entry { path, kind, stat });
    }

    /// Opens a directory of the walk from its top; a link anywhere on the way is not entered.
    fn open_below(&self, top: &OwnedFd, below: &WsPath) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        crate::jail::open_plain(top.as_fd(), below, flags)
    }

    fn read(&mut self, dir: &OwnedFd, path: WsPath) -> Result<Level, Errno> {
        let mut children = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_dot(name) || name.to_bytes().starts_with(RESERVED_PREFIX.as_bytes()) {
                continue;
            }
            let Ok(text) = name.to_str() else {
                let shown = path.to_string() + "/" + &name.to_string_lossy();
                self.unnameable(shown.trim_start_matches("./"));
                continue;
            };
            let kind = match entry.file_type() {
                FileType::Unknown => match describe::name(dir, text) {
                    Ok(described) => described.stat.kind,
                    Err(_) => continue,
                },
                known => describe::kind(known),
            };
            children.push((text.to_owned(), kind));
        }
        children.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        Ok(Level { path, children })
    }

    fn problem(&mut self, below: &str, errno: Errno) {
        let error = self.act.failed(errno);
        self.note(below, error);
    }

    fn unnameable(&mut self, below: &str) {
        let error = self.act.error(Kind::InvalidPath, "the name is not valid UTF-8");
        self.note(below, error);
    }

    fn note(&mut self, below: &str, error: ab_core::Error) {
        if self.listing.problems.len() < MAX_PROBLEMS {
            let path = match self.act.path.is_root() {
                true => below.to_owned(),
                false => format!("{}/{below}", self.act.path),
            };
            let error = error.with_path(path.clone());
            self.listing.problems.push(Problem { path, error });
        }
    }
}

pub(super) fn remove(
    shared: &Shared,
    act: Act<'_>,
    options: RemoveOptions,
    cancel: &Cancel,
) -> Result<Removed> {
    if act.path.is_root() {
        return Err(act.error(Kind::Invalid, "the root of the workspace stays where it is"));
    }
    match remove_spot(shared, act, options.reach, cancel) {
        Err(error)
            if error.kind() == Kind::NotFound && options.missing == MissingTarget::Ignore =>
        {
            Ok(Removed::default())
        }
        result => result,
    }
}

fn remove_spot(shared: &Shared, act: Act<'_>, reach: Reach, cancel: &Cancel) -> Result<Removed> {
    let spot = shared.jail.spot(act.path, Final::Keep, Missing::Fail);
    let spot = spot.map_err(|fault| act.failed(fault))?;
    let name = spot.name().map_err(|errno| act.failed(errno))?;
    let described = describe::name(&spot.dir, name).map_err(|errno| act.failed(errno))?;
    let result = match (described.stat.kind, reach) {
        (FileKind::Dir, Reach::One) => unlinkat(&spot.dir, name, AtFlags::REMOVEDIR).map(|()| 1),
        (FileKind::Dir, Reach::Recursive) => remove_tree(spot.dir.as_fd(), name, cancel),
        (FileKind::File | FileKind::Symlink | FileKind::Other, _) => {
            unlinkat(&spot.dir, name, AtFlags::empty()).map(|()| 1)
        }
    };
    match result {
        Ok(count) => Ok(Removed { count }),
        // POSIX lets a full directory be reported either way.
        Err(Errno::EXIST) => Err(act.failed(Errno::NOTEMPTY)),
        Err(errno) => Err(act.failed(errno)),
    }
}

/// Removes a directory with all it holds. Links are removed, not entered.
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
    /// Directories from far down that now stand in the top under a name of ours.
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
