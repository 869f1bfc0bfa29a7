//! Walks through a directory tree by handles, in path order.
//!
//! Each directory is opened relative to the handle of its parent and without following links. So a
//! rename during the walk cannot lead the walk elsewhere. The entries are passed to a [`Visitor`].

use std::mem::MaybeUninit;
use std::sync::Arc;

use ab_core::path::{MAX_PATH_BYTES, TEMP_FILE_PREFIX};
use ab_core::{FileKind, WsPath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, RawDir, fstat, openat};
use rustix::io::Errno;

use super::describe;
use crate::jail::open_plain;

/// Maximum depth at which a directory is opened relative to its parent's handle. A deeper directory
/// is opened from the top.
const MAX_HELD: usize = 128;
/// Size of the buffer for directory entries in bytes.
const BUFFER: usize = 32 * 1024;

/// Receives the entries of a walk.
pub(super) trait Visitor {
    /// Handles an entry and decides how the walk continues. A link is passed as an entry and is
    /// never followed.
    fn visit(&mut self, entry: &Visited<'_>) -> Result<Flow, Errno>;

    /// Called before a directory is listed.
    fn entered(&mut self, entered: Entered<'_>);

    /// Called when all entries of the directory that was entered last have been visited.
    fn left(&mut self);

    /// Called if an entry or a directory could not be read.
    fn trouble(&mut self, path: String, trouble: Trouble);
}

/// The directory where a walk starts.
pub(super) struct Top<'a> {
    pub(super) handle: Arc<OwnedFd>,
    /// The path of the directory as the caller named it.
    pub(super) path: &'a WsPath,
    /// The real path of the directory, with the rules that apply there. Entries that the rules hide
    /// are skipped.
    pub(super) place: WsPath,
}

/// A directory that is about to be listed.
pub(super) struct Entered<'a> {
    pub(super) path: &'a WsPath,
    pub(super) directory: &'a OwnedFd,
    /// The real path of the directory, with the rules that apply there.
    pub(super) place: &'a WsPath,
}

/// How the walk continues after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Enters the entry if it is a directory.
    Enter,
    /// Does not enter the entry.
    Pass,
    /// Ends the walk.
    Stop,
}

/// Why an entry or a directory could not be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    Os(Errno),
    NotText,
}

/// An entry that the walk has found in a directory.
pub(super) struct Visited<'a> {
    pub(super) parent: &'a WsPath,
    pub(super) directory: &'a Arc<OwnedFd>,
    pub(super) name: &'a str,
    pub(super) kind: FileKind,
    /// Whether the directory of the entry is on the file system on which the walk started.
    pub(super) near: bool,
}

impl Visited<'_> {
    /// Returns the path from the workspace's root. Returns `None` if the name is not valid in a
    /// workspace path.
    pub(super) fn path(&self) -> Option<WsPath> {
        self.parent.child(self.name).ok()
    }
}

/// Visits everything below `top` that the rules do not hide.
pub(super) fn walk(top: Top<'_>, visitor: &mut dyn Visitor) -> Result<(), Errno> {
    let Top { handle: top, path, place } = top;
    // The paths of entries begin with the caller's path without its rules, because `place` contains
    // the rules that apply here.
    let root = path.clone().without_access_rules();
    let buffer = vec![MaybeUninit::uninit(); BUFFER];
    let mut walk = Walk { top: top.clone(), root: &root, buffer };
    let first = identity(&top)?;
    let at = Site { path: root.clone(), place };
    let mut levels = vec![walk.level(at, top, first, visitor)?];
    while let Some(level) = levels.last_mut() {
        let Some(child) = level.children.pop() else {
            levels.pop();
            visitor.left();
            continue;
        };
        let name = &level.names[child.start..child.end];
        let entry = Visited {
            parent: &level.path,
            directory: &level.directory,
            name,
            kind: child.kind,
            near: level.identity.0 == first.0,
        };
        match visitor.visit(&entry)? {
            Flow::Stop => return Ok(()),
            Flow::Enter if child.kind == FileKind::Dir => {}
            Flow::Enter | Flow::Pass => continue,
        }
        let Some(path) = entry.path() else { continue };
        let place = if level.place.has_access_rules() {
            level.place.join_unchecked(name)
        } else {
            WsPath::root()
        };
        let entered = if path.as_str().len() > MAX_PATH_BYTES {
            Err(Errno::NAMETOOLONG)
        } else {
            walk.open(&levels, &path).and_then(|directory| {
                let identity = identity(&directory)?;
                if levels.iter().any(|level| level.identity == identity) {
                    Err(Errno::LOOP)
                } else {
                    let site = Site { path: path.clone(), place };
                    walk.level(site, Arc::new(directory), identity, visitor)
                }
            })
        };
        match entered {
            Ok(next) => levels.push(next),
            // Another process has removed the directory since it was listed.
            Err(Errno::NOENT) => {}
            Err(errno) => visitor.trouble(path.to_string(), Trouble::Os(errno)),
        }
    }
    Ok(())
}

struct Walk<'a> {
    top: Arc<OwnedFd>,
    root: &'a WsPath,
    buffer: Vec<MaybeUninit<u8>>,
}

/// The two paths of a directory: the path that the caller sees, and the real path.
struct Site {
    path: WsPath,
    place: WsPath,
}

/// A directory whose children are being visited.
struct Level {
    path: WsPath,
    /// The real path of the directory, with the rules that apply there.
    place: WsPath,
    directory: Arc<OwnedFd>,
    identity: (u64, u64),
    /// The names of all children, concatenated.
    names: String,
    /// The children in reverse order, so that the next one is at the end.
    children: Vec<Child>,
}

struct Child {
    start: usize,
    end: usize,
    kind: FileKind,
}

impl Walk<'_> {
    fn open(&self, levels: &[Level], path: &WsPath) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match (levels.last(), path.name()) {
            (Some(level), Some(name)) if levels.len() < MAX_HELD => {
                openat(&level.directory, name, flags, Mode::empty())
            }
            _ => {
                let below = path.strip_prefix(self.root).unwrap_or_else(WsPath::root);
                open_plain(self.top.as_fd(), &below, flags)
            }
        }
    }

    fn level(
        &mut self,
        site: Site,
        directory: Arc<OwnedFd>,
        identity: (u64, u64),
        visitor: &mut dyn Visitor,
    ) -> Result<Level, Errno> {
        let Site { path, place } = site;
        let (mut names, mut children) = (String::new(), Vec::new());
        let mut strangers = Vec::new();
        let mut entries = RawDir::new(&directory, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let bytes = entry.file_name().to_bytes();
            if matches!(bytes, b"." | b"..") || bytes.starts_with(TEMP_FILE_PREFIX.as_bytes()) {
                continue;
            }
            let Ok(name) = entry.file_name().to_str() else {
                strangers.push(entry.file_name().to_string_lossy().into_owned());
                continue;
            };
            if place.hides_child(name) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match describe::name(&directory, name) {
                    Ok(described) => described.stat.kind,
                    Err(_) => continue,
                },
                known => describe::kind(known),
            };
            let start = names.len();
            names.push_str(name);
            children.push(Child { start, end: names.len(), kind });
        }
        children.sort_unstable_by(|a, b| names[b.start..b.end].cmp(&names[a.start..a.end]));
        visitor.entered(Entered { path: &path, directory: &directory, place: &place });
        for name in strangers {
            let shown = if path.is_root() { name } else { format!("{path}/{name}") };
            visitor.trouble(shown, Trouble::NotText);
        }
        Ok(Level { path, place, directory, identity, names, children })
    }
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}
