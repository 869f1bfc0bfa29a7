//! Resolves a path one component at a time, by handles.
//!
//! Each component is opened with `O_NOFOLLOW` relative to the handle of the previous component. Its
//! type is read from the opened handle, so the file that is checked is the file that is used. For a
//! `..` in a link, the walk goes back to a handle that is already open. It never goes up by name,
//! and never above the base.

use std::collections::VecDeque;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::{Fault, Purpose};
use ab_core::WsPath;

/// Maximum number of links that are followed. The kernel has the same limit.
const MAX_LINKS: usize = 40;

/// What to do if the last component of the path is a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Final {
    Follow,
    Keep,
}

/// What to do if directories of the path are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Fail,
    MakeParents,
    /// Create the missing directories, including the last component.
    MakeAll,
}

/// The result of resolving a path: an open directory and a name in it. There may be no file of this
/// name.
#[derive(Debug)]
pub(crate) struct Spot {
    pub(crate) dir: OwnedFd,
    /// The name. `None` if the path ends at the base, or at a directory that was reached by `..` in
    /// a link.
    pub(crate) name: Option<String>,
    /// The real path, with the rules that apply there. If there are no rules, this is the root.
    pub(super) place: WsPath,
}

impl Spot {
    pub(crate) fn at(dir: OwnedFd, name: &str, place: WsPath) -> Self {
        Self { dir, name: Some(name.to_owned()), place }
    }

    /// Returns the name, or the error `ISDIR` if there is none.
    pub(crate) fn name(&self) -> Result<&str, Errno> {
        self.name.as_deref().ok_or(Errno::ISDIR)
    }

    pub(super) fn is_link(&self) -> Result<bool, Errno> {
        let Some(name) = &self.name else { return Ok(false) };
        match statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Symlink),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Fault> {
        let name = self.name.as_deref().unwrap_or(".");
        Ok(openat(&self.dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?)
    }
}

/// A component of the path that has not been resolved yet.
struct Step {
    name: String,
    /// If the component comes from a link, the target of that link.
    link: Option<String>,
}

fn steps(path: &str, link: Option<&str>) -> impl DoubleEndedIterator<Item = Step> {
    path.split('/')
        .filter(|segment| !segment.is_empty() && *segment != ".")
        .map(move |segment| Step { name: segment.to_owned(), link: link.map(str::to_owned) })
}

/// The start of a walk: the base, which the walk cannot leave, and the real path of the base.
pub(super) struct Start<'a> {
    pub(super) base: BorrowedFd<'a>,
    /// The real path of the base, with the rules that apply there.
    pub(super) place: &'a WsPath,
}

/// How a walk handles a link at the end of the path, missing directories, and rules.
#[derive(Clone, Copy)]
pub(super) struct WalkOptions {
    pub(super) last: Final,
    pub(super) missing: Missing,
    pub(super) purpose: Purpose,
}

/// The directories that lead from the base to the current position of a walk.
struct Trail {
    handles: Vec<OwnedFd>,
    /// The real paths of the same directories. Empty if there are no rules.
    places: Vec<WsPath>,
    purpose: Purpose,
}

impl Trail {
    fn begin(start: &Start<'_>, purpose: Purpose) -> Result<Self, Fault> {
        let places =
            if start.place.has_access_rules() { vec![start.place.clone()] } else { Vec::new() };
        Ok(Self { handles: vec![open_dir(start.base, ".")?], places, purpose })
    }

    fn top(&self) -> Result<BorrowedFd<'_>, Fault> {
        Ok(self.handles.last().ok_or(Fault::Escape)?.as_fd())
    }

    /// Returns the real path of `name` in the current directory.
    fn place_of(&self, name: &str) -> WsPath {
        self.places.last().map_or_else(WsPath::root, |place| place.join_unchecked(name))
    }

    fn enter(&mut self, handle: OwnedFd, name: &str) {
        if !self.places.is_empty() {
            self.places.push(self.place_of(name));
        }
        self.handles.push(handle);
    }

    fn climb(&mut self) -> Result<(), Fault> {
        self.handles.pop();
        self.places.pop();
        if self.handles.is_empty() { Err(Fault::Escape) } else { Ok(()) }
    }

    fn restart(&mut self) {
        self.handles.truncate(1);
        self.places.truncate(1);
    }

    /// Creates a directory, if the rules allow that.
    fn make(&self, name: &str) -> Result<OwnedFd, Fault> {
        Purpose::Change.judge(&self.place_of(name))?;
        make(self.top()?, name)
    }

    /// Ends the walk at `name` in the current directory.
    fn spot(mut self, name: String) -> Result<Spot, Fault> {
        let place = self.place_of(&name);
        self.purpose.judge(&place)?;
        let dir = self.handles.pop().ok_or(Fault::Escape)?;
        Ok(Spot { dir, name: Some(name), place })
    }

    /// Ends the walk at the current directory.
    fn here(mut self) -> Result<Spot, Fault> {
        let place = self.places.pop().unwrap_or_default();
        self.purpose.judge(&place)?;
        let dir = self.handles.pop().ok_or(Fault::Escape)?;
        Ok(Spot { dir, name: None, place })
    }
}

/// Resolves `below` relative to a base. `inside` translates absolute link targets that point below
/// the base.
pub(super) fn walk(
    start: Start<'_>,
    below: &str,
    options: WalkOptions,
    inside: &dyn Fn(&str) -> Option<Vec<String>>,
) -> Result<Spot, Fault> {
    let WalkOptions { last, missing, purpose } = options;
    let mut trail = Trail::begin(&start, purpose)?;
    let mut pending: VecDeque<Step> = steps(below, None).collect();
    let mut links = 0;
    while let Some(step) = pending.pop_front() {
        if step.name == ".." {
            trail.climb()?;
            continue;
        }
        let is_last = pending.is_empty();
        purpose.pass(&trail.place_of(&step.name))?;
        match look(trail.top()?, &step.name)? {
            Found::Link(target) if !(is_last && last == Final::Keep) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let path = if target.starts_with('/') {
                    let segments = inside(&target).ok_or(Fault::Escape)?;
                    trail.restart();
                    segments.join("/")
                } else {
                    target.clone()
                };
                for step in steps(&path, Some(&target)).rev() {
                    pending.push_front(step);
                }
            }
            Found::Directory(handle) if !is_last => trail.enter(handle, &step.name),
            Found::Nothing if is_last && missing == Missing::MakeParents && step.link.is_none() => {
                return trail.spot(step.name);
            }
            Found::Nothing if missing != Missing::Fail => {
                if let Some(target) = step.link {
                    return Err(Fault::Dangling(target));
                }
                let made = trail.make(&step.name)?;
                if is_last {
                    return trail.spot(step.name);
                }
                trail.enter(made, &step.name);
            }
            Found::Nothing if !is_last => return Err(Errno::NOENT.into()),
            Found::Other if !is_last => return Err(Errno::NOTDIR.into()),
            Found::Other if missing == Missing::MakeAll => {
                purpose.judge(&trail.place_of(&step.name))?;
                return Err(Errno::EXIST.into());
            }
            Found::Nothing => {
                return match step.link {
                    Some(target) => Err(Fault::Dangling(target)),
                    None => trail.spot(step.name),
                };
            }
            Found::Directory(_) | Found::Link(_) | Found::Other => return trail.spot(step.name),
        }
    }
    trail.here()
}

enum Found {
    Nothing,
    Directory(OwnedFd),
    Link(String),
    Other,
}

/// Returns the type of `name`. It is read from a handle that was opened on the name.
fn look(dir: BorrowedFd<'_>, name: &str) -> Result<Found, Fault> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match openat(dir, name, flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(errno) => return Err(errno.into()),
    };
    match FileType::from_raw_mode(fstat(&handle)?.st_mode) {
        FileType::Directory => Ok(Found::Directory(handle)),
        FileType::Symlink => {
            let target = readlinkat(&handle, "", Vec::new())?;
            // If the target is not UTF-8, it cannot be a workspace path.
            Ok(Found::Link(target.into_string().map_err(|_| Fault::Escape)?))
        }
        FileType::RegularFile
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Ok(Found::Other),
    }
}

fn make(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Fault> {
    match mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => Ok(open_dir(dir, name)?),
        Err(errno) => Err(errno.into()),
    }
}

fn open_dir(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}
