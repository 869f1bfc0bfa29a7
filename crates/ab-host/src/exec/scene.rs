//! What one command may see, opened before it starts: handles, so that nobody can swap them, and
//! the names that they have at that moment.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ab_core::error::{Code, Error, Kind, Result};
use ab_core::process::{ExecLimits, ExecRequest, Restrictions};
use ab_core::{Verb, WsPath};
use rustix::fs::OFlags;

use crate::blocking;
use crate::failure::Act;
use crate::jail::{Fault, Final, Jail, open_host_dir};
use crate::limits::cgroup::{self, Group, Groups, Wanted};
use crate::local::Shared;
use crate::sandbox::bwrap::{Cover, With};

static SWEPT: std::sync::Once = std::sync::Once::new();

/// A directory of the host that a command sees.
#[derive(Debug)]
pub(super) struct Visible {
    pub(super) handle: OwnedFd,
    /// Its name on the host now.
    pub(super) path: String,
    /// Where it is in the tree that the caller knows.
    pub(super) at: WsPath,
    pub(super) covers: Vec<Cover>,
    /// What was looked at to decide on the covers: by the time of the mount it must be the same.
    pub(super) seen: Vec<Seen>,
    pub(super) read_only: bool,
    /// Whether others may swap it, or directories on the way to it, while the command starts.
    pub(super) contested: bool,
}

/// Something inside a directory, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) below: String,
    /// Device and inode, as `stat` prints them.
    pub(super) identity: String,
}

#[derive(Debug)]
pub(super) struct Scene {
    /// The workspace, or the scope, first; then its neighbours.
    pub(super) visible: Vec<Visible>,
    pub(super) cwd: OwnedFd,
    /// The working directory's name on the host, and below the fence.
    pub(super) cwd_path: String,
    pub(super) cwd_below: String,
    /// Absolute paths that mean the fence.
    pub(super) aliases: Vec<String>,
    pub(super) limits: ExecLimits,
    group: Option<Group>,
}

impl Scene {
    pub(super) fn own(&self) -> &Visible {
        // Made with one, and nothing takes it away.
        &self.visible[0]
    }

    /// The files by which a child enters its control group.
    pub(super) fn entries(&self) -> Result<Vec<OwnedFd>> {
        let entries = self.group.as_ref().map(Group::entry_files).transpose();
        entries.map(Option::unwrap_or_default).map_err(|cause| {
            Error::new(Code::MissingUtilities, Kind::Unavailable, cause.to_string())
        })
    }

    pub(super) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    pub(super) fn into_group(self) -> Option<Group> {
        self.group
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Opens everything: at once where nothing can wait for a disk, else on a thread that may.
pub(super) async fn open(
    shared: &Arc<Shared>,
    request: &ExecRequest,
    limits: ExecLimits,
) -> Result<Scene> {
    let plain = request.restrictions.is_empty() && request.layout.neighbours.is_empty();
    if plain && limits.memory.is_none() && limits.processes.is_none() {
        let cached = |path: &WsPath| shared.jail.open_cached(path, DIRECTORY);
        if let (Some(own), Some(cwd)) = (cached(&request.cwd.fence()), cached(&request.cwd)) {
            return opened(shared, request, limits, own, cwd);
        }
    }
    let (shared, request) = (shared.clone(), request.clone());
    blocking::run(move |_| {
        let act = Act::new(Verb::Exec, &request.cwd);
        let open = |path: &WsPath| {
            shared.jail.open(path, DIRECTORY, Final::Follow).map_err(|fault| act.failed(fault))
        };
        let (own, cwd) = (open(&request.cwd.fence())?, open(&request.cwd)?);
        opened(&shared, &request, limits, own, cwd)
    })
    .await
}

/// The scene around the two directories that a command always has.
fn opened(
    shared: &Shared,
    request: &ExecRequest,
    limits: ExecLimits,
    own: OwnedFd,
    cwd: OwnedFd,
) -> Result<Scene> {
    let fence = request.cwd.fence();
    let act = Act::new(Verb::Exec, &request.cwd);
    let own = Visible {
        path: name_of(&own, act)?,
        at: request.layout.at.clone().unwrap_or_else(|| fence.clone()),
        contested: !fence.is_root(),
        ..covered(own, &fence, &request.restrictions, &shared.jail, act)?
    };
    let mut visible = vec![own];
    for neighbour in &request.layout.neighbours {
        let root = open_host_dir(neighbour.root.as_ref()).map_err(|errno| act.failed(errno))?;
        let jail = Jail::new(root, &[&neighbour.root]);
        let handle = jail.open(&neighbour.below, DIRECTORY, Final::Follow);
        let handle = handle.map_err(|fault| act.failed(fault))?;
        visible.push(Visible {
            path: name_of(&handle, act)?,
            at: neighbour.at.clone(),
            contested: !neighbour.below.is_root(),
            ..covered(handle, &neighbour.below, &neighbour.restrictions, &jail, act)?
        });
    }
    visible[1..].sort_by(|one, other| one.at.cmp(&other.at));
    let below = |alias: &String| match fence.is_root() {
        true => alias.clone(),
        false => format!("{}/{fence}", alias.trim_end_matches('/')),
    };
    let wanted = Wanted { memory: limits.memory, processes: limits.processes };
    let group = match limits.memory.is_some() || limits.processes.is_some() {
        true => {
            // What processes that were killed have left.
            SWEPT.call_once(cgroup::sweep);
            Groups::find().make(&wanted).ok()
        }
        false => None,
    };
    Ok(Scene {
        cwd_path: name_of(&cwd, act)?,
        cwd_below: request.cwd.below_fence().to_owned(),
        aliases: shared.aliases.iter().map(below).collect(),
        visible,
        cwd,
        limits,
        group,
    })
}

/// The name that a directory has on the host now.
fn name_of(handle: &OwnedFd, act: Act<'_>) -> Result<String> {
    let gone = |message: &str| Err(act.error(Kind::NotFound, message));
    let stat = rustix::fs::fstat(handle).map_err(|errno| act.failed(errno))?;
    if stat.st_nlink == 0 {
        return gone("the directory was removed");
    }
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    match std::fs::read_link(link) {
        Ok(path) => match path.into_os_string().into_string() {
            Ok(path) if path.starts_with('/') => Ok(path),
            Ok(_) => gone("the directory is not reachable from the root of the host"),
            Err(_) => Err(act.error(Kind::InvalidPath, "the directory's path is not valid UTF-8")),
        },
        Err(error) => {
            Err(act.error(Kind::Io, "cannot tell the directory's path").with_source(error))
        }
    }
}

/// What must be covered in a directory, so that restrictions hold.
fn covered(
    handle: OwnedFd,
    root: &WsPath,
    restrictions: &Restrictions,
    jail: &Jail,
    act: Act<'_>,
) -> Result<Visible> {
    let mut visible = Visible {
        handle,
        path: String::new(),
        at: WsPath::root(),
        covers: Vec::new(),
        seen: Vec::new(),
        read_only: restrictions.read_only.iter().any(|path| root.starts_with(path)),
        contested: false,
    };
    if restrictions.hidden.iter().any(|path| root.starts_with(path)) {
        return Err(act.error(Kind::NotFound, "no such file or directory"));
    }
    let hidden = restrictions.hidden.iter().map(|path| (path, true));
    let kept = restrictions.read_only.iter().map(|path| (path, false));
    let mut wanted: Vec<(WsPath, bool)> = hidden
        .chain(kept)
        .filter_map(|(path, hidden)| Some((path.strip_prefix(root)?, hidden)))
        .filter(|(below, _)| !below.is_root())
        .collect();
    // From the outside in; of two for one path, hidden wins by coming last.
    wanted.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    let mut pinned = std::collections::BTreeSet::new();
    for (below, hidden) in wanted {
        pin(&mut visible, &below, root, jail, &mut pinned, act)?;
        let full = root.join(&below);
        let with = match (identity(jail, &full), hidden) {
            (Ok((is_dir, identity)), hidden) => {
                let with = match (hidden, is_dir) {
                    (false, _) => With::ReadOnly,
                    (true, true) => With::EmptyDirectory,
                    (true, false) => With::EmptyFile,
                };
                if !hidden {
                    visible.seen.push(Seen { below: below.as_str().to_owned(), identity });
                }
                with
            }
            // Nothing is there, and nothing may be made there.
            (Err(Fault::Os(rustix::io::Errno::NOENT)), _) => With::EmptyFile,
            (Err(fault), _) => return Err(act.failed(fault)),
        };
        visible.covers.push(Cover { below: below.as_str().to_owned(), with });
    }
    Ok(visible)
}

/// Covers the directories on the way to a restricted path with themselves, so that none of them
/// can be moved away and replaced.
fn pin(
    visible: &mut Visible,
    below: &WsPath,
    root: &WsPath,
    jail: &Jail,
    pinned: &mut std::collections::BTreeSet<WsPath>,
    act: Act<'_>,
) -> Result<()> {
    let mut ways: Vec<WsPath> = std::iter::successors(below.parent(), WsPath::parent)
        .take_while(|way| !way.is_root())
        .collect();
    ways.reverse();
    for way in ways {
        if !pinned.insert(way.clone()) || visible.covers.iter().any(|it| it.below == way.as_str()) {
            continue;
        }
        match identity(jail, &root.join(&way)) {
            Ok((true, identity)) => {
                visible.seen.push(Seen { below: way.as_str().to_owned(), identity });
                visible.covers.push(Cover { below: way.as_str().to_owned(), with: With::Itself });
            }
            Ok((false, _)) => return Ok(()),
            Err(Fault::Os(rustix::io::Errno::NOENT)) => {
                // The cover of the missing path itself makes it.
                return Ok(());
            }
            Err(fault) => return Err(act.failed(fault)),
        }
    }
    Ok(())
}

/// Whether it is a directory, and which file it is.
fn identity(jail: &Jail, path: &WsPath) -> Result<(bool, String), Fault> {
    let handle = jail.open(path, OFlags::PATH, Final::Keep)?;
    let stat = rustix::fs::fstat(&handle)?;
    let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    Ok((is_dir, format!("{}:{}", stat.st_dev, stat.st_ino)))
}

/// Which file a handle means, as `stat` prints it.
pub(super) fn identity_of(handle: &OwnedFd) -> Option<String> {
    let stat = rustix::fs::fstat(handle).ok()?;
    Some(format!("{}:{}", stat.st_dev, stat.st_ino))
}
