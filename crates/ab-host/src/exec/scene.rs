//! What one command may see, opened before it starts: handles, so that nobody can swap them, and
//! the names that they have at that moment.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ab_core::effective::Isolation;
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{ExecLimits, ExecRequest, PathRestrictions};
use ab_core::{Verb, WsPath};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::binds::{self, Bound};
use super::mounts::SandboxMount;
use super::placeholder::Placeholder;
use super::requirements::{self, SandboxRequirement};
use super::settings::needs_group;
use crate::blocking;
use crate::failure::Act;
use crate::jail::{Fault, Final, Jail, Missing, Spot, open_host_dir};
use crate::limits::cgroup::{self, ControlGroup, Group, Groups, Wanted};
use crate::local::Shared;
use crate::process::watchdog;
use crate::sandbox::bwrap::{Cover, With};

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
    /// What stands where nothing may be made, until the command has ended.
    pub(super) placeholders: Vec<Placeholder>,
    /// Whether others may swap it, or directories on the way to it, while the command starts.
    pub(super) contested: bool,
}

impl Visible {
    fn has_cover(&self, below: &WsPath) -> bool {
        self.covers.iter().any(|cover| cover.below == below.as_str())
    }

    /// Whether `below` lies in a part that commands cannot change.
    fn is_kept(&self, below: &WsPath) -> bool {
        let above = |cover: &&Cover| {
            let rest = below.as_str().strip_prefix(cover.below.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut above = self.covers.iter().filter(above);
        self.read_only || above.any(|cover| cover.with == With::ReadOnly)
    }
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
    /// Directories of the host beside it.
    pub(super) binds: Vec<Bound>,
    /// The working directory's name on the host, and below the fence.
    pub(super) cwd_path: String,
    pub(super) cwd_below: String,
    /// Absolute paths that mean the fence.
    pub(super) aliases: Vec<String>,
    pub(super) limits: ExecLimits,
    pub(super) origin: Origin,
    /// The limits that its control group sees to.
    pub(super) grouped: Wanted,
    group: Option<Group>,
    /// The group of all commands of the workspace.
    total: Option<ControlGroup>,
}

/// What a scene is opened for.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) isolation: Isolation,
    pub(super) limits: ExecLimits,
    /// What may be missing although it was asked for.
    pub(super) accepted: BTreeSet<SandboxRequirement>,
    pub(super) origin: Origin,
    /// What the operator shows commands beside the workspace.
    pub(super) mounts: Arc<[SandboxMount]>,
    /// The group of all commands of the workspace.
    pub(super) total: Option<ControlGroup>,
}

/// Who chose the words, the variables and the limits of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A caller of the workspace. The workspace's limits hold, and what the command names is
    /// checked where no wall stands.
    Caller,
    /// The operator's configuration. Only the limits that it names hold, and nothing is checked.
    Operator,
}

impl Scene {
    /// The files by which a child enters its control group.
    pub(super) fn entries(&self) -> Result<Vec<OwnedFd>> {
        let own = self.group.as_ref();
        let entries = || {
            let mut entries = own.map(Group::entry_files).transpose()?.unwrap_or_default();
            if let Some(total) = &self.total {
                entries.extend(total.entry_files(own)?);
            }
            Ok(entries)
        };
        entries().map_err(|cause: std::io::Error| {
            Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, cause.to_string())
        })
    }

    /// Waits until commands of the workspace may start. They may as long as it is held.
    pub(super) async fn entering(&self) -> Option<cgroup::Entering> {
        match &self.total {
            Some(total) => Some(total.entering().await),
            None => None,
        }
    }

    /// What must outlive the command: its control group, and what stands for missing paths.
    pub(super) fn into_remains(self) -> (Option<Group>, Vec<Placeholder>) {
        let placeholders = self.visible.into_iter().flat_map(|visible| visible.placeholders);
        (self.group, placeholders.collect())
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Opens everything: at once where nothing can wait for a disk, else on a thread that may.
pub(super) async fn open(
    shared: &Arc<Shared>,
    request: &ExecRequest,
    terms: Terms,
) -> Result<Scene> {
    let plain = request.restrictions.is_empty() && request.layout.mounted.is_empty();
    if plain && terms.mounts.is_empty() && !needs_group(&terms.limits) {
        let cached = |path: &WsPath| shared.jail.open_cached(path, DIRECTORY);
        if let (Some(own), Some(cwd)) = (cached(&request.cwd.scope_root()), cached(&request.cwd)) {
            return opened(shared, request, &terms, (own, cwd));
        }
    }
    let (shared, request) = (shared.clone(), request.clone());
    blocking::run(move |_| {
        let act = Act::new(Verb::Exec, &request.cwd);
        let open = |path: &WsPath| {
            shared.jail.open(path, DIRECTORY, Final::Follow).map_err(|fault| act.failed(fault))
        };
        let (own, cwd) = (open(&request.cwd.scope_root())?, open(&request.cwd)?);
        opened(&shared, &request, &terms, (own, cwd))
    })
    .await
}

/// The scene around the two directories that a command always has.
fn opened(
    shared: &Shared,
    request: &ExecRequest,
    terms: &Terms,
    (own, cwd): (OwnedFd, OwnedFd),
) -> Result<Scene> {
    let isolation = terms.isolation;
    let fence = request.cwd.scope_root().without_access_rules();
    let act = Act::new(Verb::Exec, &request.cwd);
    let own = Visible {
        path: name_of(&own, act)?,
        at: request.layout.scope_path.clone().unwrap_or_else(|| fence.clone()),
        contested: !fence.is_root(),
        ..covered(own, &fence, &request.restrictions, (&shared.jail, isolation), act)?
    };
    let mut visible = vec![own];
    for neighbour in &request.layout.mounted {
        let root = open_host_dir(neighbour.root.as_ref()).map_err(|errno| act.failed(errno))?;
        let jail = Jail::new(root, &[&neighbour.root]);
        let handle = jail.open(&neighbour.visible_path, DIRECTORY, Final::Follow);
        let handle = handle.map_err(|fault| act.failed(fault))?;
        visible.push(Visible {
            path: name_of(&handle, act)?,
            at: neighbour.mount_path.clone(),
            contested: !neighbour.visible_path.is_root(),
            ..covered(
                handle,
                &neighbour.visible_path,
                &neighbour.restrictions,
                (&jail, isolation),
                act,
            )?
        });
    }
    visible[1..].sort_by(|one, other| one.at.cmp(&other.at));
    let below = |alias: &String| {
        if fence.is_root() {
            alias.clone()
        } else {
            format!("{}/{fence}", alias.trim_end_matches('/'))
        }
    };
    let (group, grouped) = grouped(&terms.limits, &terms.accepted, terms.total.as_ref())?;
    Ok(Scene {
        cwd_path: if request.cwd == fence { visible[0].path.clone() } else { name_of(&cwd, act)? },
        cwd_below: request.cwd.relative_to_scope_root().to_owned(),
        aliases: shared.aliases.iter().map(below).collect(),
        visible,
        binds: binds::open(shared, request, terms, act)?,
        cwd,
        limits: terms.limits,
        origin: terms.origin,
        grouped,
        group,
        total: terms.total.clone(),
    })
}

/// A group with the limits, and a watchdog that ends it when we cannot; nothing where no limit needs
/// one. Says which limits it has.
///
/// # Errors
/// A limit cannot be set, and that was not accepted.
pub(super) fn grouped(
    limits: &ExecLimits,
    accepted: &BTreeSet<SandboxRequirement>,
    total: Option<&ControlGroup>,
) -> Result<(Option<Group>, Wanted)> {
    if !needs_group(limits) {
        return Ok((None, Wanted::default()));
    }
    // What processes that were killed together with their watchdog have left.
    cgroup::sweep_once();
    let groups = Groups::find();
    let all = Wanted { memory: limits.memory, processes: limits.processes };
    let needed = requirements::needed(all, accepted);
    let (group, wanted) = match groups.make_in(total, &all) {
        Ok(group) => (group, all),
        Err(_) if needed == Wanted::default() => return Ok((None, needed)),
        Err(lack) if needed == all => return Err(requirements::unlimited(needed, &lack)),
        Err(_) => match groups.make_in(total, &needed) {
            Ok(group) => (group, needed),
            Err(lack) => return Err(requirements::unlimited(needed, &lack)),
        },
    };
    // Without one the group still has its limits; what then holds is said by the policy.
    let _ = watchdog::stand(&groups.parents());
    Ok((Some(group), wanted))
}

/// The name that a directory has on the host now.
fn name_of(handle: &OwnedFd, act: Act<'_>) -> Result<String> {
    let gone = |message: &str| Err(act.error(ErrorKind::NotFound, message));
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
            Err(_) => {
                Err(act.error(ErrorKind::InvalidPath, "the directory's path is not valid UTF-8"))
            }
        },
        Err(error) => {
            Err(act.error(ErrorKind::Io, "cannot tell the directory's path").with_source(error))
        }
    }
}

/// What must be covered in a directory, so that restrictions hold.
fn covered(
    handle: OwnedFd,
    root: &WsPath,
    restrictions: &PathRestrictions,
    (jail, isolation): (&Jail, Isolation),
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
        placeholders: Vec::new(),
    };
    if restrictions.hidden.iter().any(|path| root.starts_with(path)) {
        return Err(act.error(ErrorKind::NotFound, "no such file or directory"));
    }
    let below = |paths: &[WsPath]| -> Vec<WsPath> {
        let inside = paths.iter().filter_map(|path| path.strip_prefix(root));
        inside.filter(|below| !below.is_root()).collect()
    };
    let wanted = needed(&below(&restrictions.hidden), &below(&restrictions.read_only));
    for (below, hidden) in wanted {
        let target = match pin(&mut visible, &below, root, jail, act)? {
            Way::Whole => below,
            Way::Missing(at) => at,
            // Nothing can be made below a file that cannot be moved away.
            Way::File => continue,
        };
        // Two ways may end at the same missing directory.
        if !visible.has_cover(&target) {
            cover(&mut visible, target, hidden, root, (jail, isolation), act)?;
        }
    }
    Ok(visible)
}

/// The restrictions that say something, from the outside in: each path once, and nothing below a
/// hidden path, nor a read-only path below another. The flag says whether the path is hidden.
fn needed(hidden: &[WsPath], read_only: &[WsPath]) -> Vec<(WsPath, bool)> {
    let below_other = |path: &WsPath, others: &[WsPath]| {
        others.iter().any(|other| other != path && path.starts_with(other))
    };
    let hides = hidden.iter().filter(|path| !below_other(path, hidden));
    let keeps = read_only.iter().filter(|path| {
        !hidden.iter().any(|other| path.starts_with(other)) && !below_other(path, read_only)
    });
    let hides = hides.map(|path| (path.clone(), true));
    let mut needed: Vec<_> = hides.chain(keeps.map(|path| (path.clone(), false))).collect();
    needed.sort();
    needed.dedup();
    needed
}

/// How far the way to a restricted path goes.
enum Way {
    Whole,
    /// To here, where nothing is.
    Missing(WsPath),
    /// To a file.
    File,
}

/// Covers the directories on the way to a restricted path with themselves, so that none of them
/// can be moved away and replaced.
fn pin(
    visible: &mut Visible,
    below: &WsPath,
    root: &WsPath,
    jail: &Jail,
    act: Act<'_>,
) -> Result<Way> {
    let mut ways: Vec<WsPath> = std::iter::successors(below.parent(), WsPath::parent)
        .take_while(|way| !way.is_root())
        .collect();
    ways.reverse();
    for way in ways {
        let (kind, identity) = match identity(jail, &root.join(&way)) {
            Ok(found) => found,
            Err(Fault::Os(Errno::NOENT)) => return Ok(Way::Missing(way)),
            Err(fault) => return Err(act.failed(fault)),
        };
        if kind == FileType::Symlink {
            return Err(linked(&way, act));
        }
        if !kind.is_dir() && is_placeholder(jail, &root.join(&way), act)? {
            return Ok(Way::Missing(way));
        }
        if !visible.has_cover(&way) {
            // A mount of its own does not inherit that the one around it is read-only.
            let with = if visible.is_kept(&way) { With::ReadOnly } else { With::Itself };
            visible.seen.push(Seen { below: way.as_str().to_owned(), identity });
            visible.covers.push(Cover { below: way.as_str().to_owned(), with });
        }
        if !kind.is_dir() {
            return Ok(Way::File);
        }
    }
    Ok(Way::Whole)
}

/// Covers one path, so that it cannot be seen, changed or made.
fn cover(
    visible: &mut Visible,
    below: WsPath,
    hidden: bool,
    root: &WsPath,
    (jail, isolation): (&Jail, Isolation),
    act: Act<'_>,
) -> Result<()> {
    let full = root.join(&below);
    let stands = |get: fn(Spot) -> Result<Option<Placeholder>, Errno>| match isolation {
        Isolation::Bwrap => held(jail, &full, get, act),
        // Only mounts can cover anything.
        Isolation::Auto | Isolation::Landlock | Isolation::Software | Isolation::None => Ok(None),
    };
    let (with, placeholder, identity) = match identity(jail, &full) {
        Ok((FileType::Symlink, _)) => return Err(linked(&below, act)),
        Ok((FileType::Directory, _)) if hidden => (With::EmptyDirectory, None, None),
        Ok((FileType::Directory, identity)) => (With::ReadOnly, None, Some(identity)),
        Ok((_, identity)) => match (hidden, stands(Placeholder::join)?) {
            (false, None) => (With::ReadOnly, None, Some(identity)),
            (_, placeholder) => (With::EmptyFile, placeholder, None),
        },
        // Nothing is there, and nothing may be made there.
        Err(Fault::Os(Errno::NOENT)) => (With::EmptyFile, stands(Placeholder::make)?, None),
        Err(fault) => return Err(act.failed(fault)),
    };
    visible.placeholders.extend(placeholder);
    let below = below.as_str().to_owned();
    visible.seen.extend(identity.map(|identity| Seen { below: below.clone(), identity }));
    visible.covers.push(Cover { below, with });
    Ok(())
}

/// Times that a placeholder that was just removed is looked for again.
const TRIES: usize = 16;

/// A placeholder at `path`, made or joined.
fn held(
    jail: &Jail,
    path: &WsPath,
    get: impl Fn(Spot) -> Result<Option<Placeholder>, Errno>,
    act: Act<'_>,
) -> Result<Option<Placeholder>> {
    for _ in 0..TRIES {
        let spot =
            jail.spot(path, Final::Keep, Missing::Fail).map_err(|fault| act.failed(fault))?;
        match get(spot) {
            Ok(placeholder) => return Ok(placeholder),
            Err(Errno::AGAIN | Errno::NOENT) => {}
            Err(errno) => return Err(act.failed(errno)),
        }
    }
    // A command holds a lock on a file that looks like one. It is covered like any other file.
    Ok(None)
}

/// Whether what is there stands for something that is not.
fn is_placeholder(jail: &Jail, path: &WsPath, act: Act<'_>) -> Result<bool> {
    let spot = jail.spot(path, Final::Keep, Missing::Fail).map_err(|fault| act.failed(fault))?;
    Placeholder::is_at(&spot).map_err(|errno| act.failed(errno))
}

/// A link can be removed and replaced whatever is mounted where it leads, and a mount would follow
/// it out of the workspace.
fn linked(below: &WsPath, act: Act<'_>) -> Error {
    let message = format!("'{below}' is restricted, or on the way to what is, and it is a link");
    act.error(ErrorKind::PermissionDenied, &message)
}

/// What kind of file it is, and which.
fn identity(jail: &Jail, path: &WsPath) -> Result<(FileType, String), Fault> {
    let handle = jail.open(path, OFlags::PATH, Final::Keep)?;
    let stat = rustix::fs::fstat(&handle)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    Ok((kind, format!("{}:{}", stat.st_dev, stat.st_ino)))
}

/// Which file a handle means, as `stat` prints it.
pub(super) fn identity_of(handle: &OwnedFd) -> Result<String, Errno> {
    let stat = rustix::fs::fstat(handle)?;
    Ok(format!("{}:{}", stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use ab_core::PathParser;

    use super::*;

    #[test]
    fn restrictions_are_reduced_to_those_that_say_something() {
        let paths = |paths: &[&str]| -> Vec<WsPath> {
            paths.iter().map(|path| PathParser::lenient().parse(path).unwrap()).collect()
        };
        let check = |hidden: &[&str], read_only: &[&str], expect: &[(&str, bool)]| {
            let reduced = needed(&paths(hidden), &paths(read_only));
            let reduced: Vec<_> = reduced.iter().map(|(path, it)| (path.as_str(), *it)).collect();
            assert_eq!(reduced, expect, "--hide {hidden:?} --read-only {read_only:?}");
        };
        check(&["a", "a/b"], &[], &[("a", true)]);
        check(&["a/b", "a", "a"], &[], &[("a", true)]);
        check(&["a"], &["a"], &[("a", true)]);
        check(&["a"], &["a/b"], &[("a", true)]);
        check(&["a/b"], &["a"], &[("a", false), ("a/b", true)]);
        check(&["a/b"], &["a", "a/b/c", "a/d"], &[("a", false), ("a/b", true)]);
        check(&[], &["a/b", "a", "ab"], &[("a", false), ("ab", false)]);
        check(&["a", "ab"], &["a/b", "abc"], &[("a", true), ("ab", true), ("abc", false)]);
    }
}
