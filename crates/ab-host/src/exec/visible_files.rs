//! Opens the files that one command may see, before the command starts. The result contains handles
//! and the paths of these handles at the time of opening. Commands cannot replace a handle
//! afterwards.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ab_core::effective_policy::Isolation;
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

/// A directory of the host that a command sees, and the covers (mounts over restricted paths) below
/// it.
#[derive(Debug)]
pub(super) struct VisibleDirectory {
    pub(super) handle: OwnedFd,
    /// Its current path on the host.
    pub(super) path: String,
    /// The path of the directory in the tree that the caller sees.
    pub(super) at: WsPath,
    pub(super) covers: Vec<Cover>,
    /// The files that were examined to choose the covers (mounts over restricted paths). When the
    /// covers are mounted, these paths must still lead to the same files.
    pub(super) seen: Vec<Seen>,
    pub(super) read_only: bool,
    /// Empty files at paths that commands must not create, see [`Placeholder`]. They exist until
    /// the command has ended.
    pub(super) placeholders: Vec<Placeholder>,
    /// Whether other processes may replace this directory, or a directory above it, while the
    /// command starts.
    pub(super) contested: bool,
}

impl VisibleDirectory {
    /// Returns the host paths that commands must not see or change. The flag is true for a hidden
    /// path and false for a read-only path.
    pub(super) fn restricted(&self) -> impl Iterator<Item = (PathBuf, bool)> {
        let whole = self.read_only.then(|| (PathBuf::from(&self.path), false));
        let covers = self.covers.iter().filter(|cover| cover.with != With::Itself);
        whole.into_iter().chain(
            covers.map(|cover| {
                (Path::new(&self.path).join(&cover.below), cover.with != With::ReadOnly)
            }),
        )
    }

    fn has_cover(&self, below: &WsPath) -> bool {
        self.covers.iter().any(|cover| cover.below == below.as_str())
    }

    /// Returns whether commands may only read `below`.
    fn is_kept(&self, below: &WsPath) -> bool {
        let above = |cover: &&Cover| {
            let rest = below.as_str().strip_prefix(cover.below.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut above = self.covers.iter().filter(above);
        self.read_only || above.any(|cover| cover.with == With::ReadOnly)
    }
}

/// A file inside a directory, and its identity when it was examined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) below: String,
    /// The device and inode of the file, in the format of `stat`.
    pub(super) identity: String,
}

#[derive(Debug)]
pub(super) struct VisibleFiles {
    /// The workspace or scope of the command, followed by the other workspaces that are mounted
    /// beside it.
    pub(super) visible: Vec<VisibleDirectory>,
    pub(super) cwd: OwnedFd,
    /// Host directories that are visible in addition to the workspace.
    pub(super) binds: Vec<Bound>,
    /// The working directory: its path on the host, and its path relative to the scope root.
    pub(super) cwd_path: String,
    pub(super) cwd_below: String,
    /// Absolute paths that name the scope root.
    pub(super) aliases: Vec<String>,
    pub(super) limits: ExecLimits,
    pub(super) origin: Origin,
    /// The limits that the command's control group enforces.
    pub(super) grouped: Wanted,
    group: Option<Group>,
    /// The control group of all commands of the workspace.
    total: Option<ControlGroup>,
}

/// The conditions under which `VisibleFiles` are opened.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) isolation: Isolation,
    pub(super) limits: ExecLimits,
    /// Requirements that may be left unenforced although they were requested.
    pub(super) accepted: BTreeSet<SandboxRequirement>,
    pub(super) origin: Origin,
    /// Directories and files of the host that the operator shows to all commands.
    pub(super) mounts: Arc<[SandboxMount]>,
    /// The control group of all commands of the workspace.
    pub(super) total: Option<ControlGroup>,
}

/// Who chose the command line, the variables and the limits of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A caller of the workspace. The workspace's limits apply. If no kernel mechanism isolates the
    /// command, the command line is checked.
    Caller,
    /// The operator's configuration. Only the limits that it names apply, and nothing is checked.
    Operator,
}

impl VisibleFiles {
    /// Opens the files through which a child process enters its control groups.
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

    /// Waits until commands of the workspace may start. While the returned guard is held, they may.
    pub(super) async fn entering(&self) -> Option<cgroup::Entering> {
        match &self.total {
            Some(total) => Some(total.entering().await),
            None => None,
        }
    }

    /// Returns the resources that must exist until the command has ended: its control group and its
    /// placeholders.
    pub(super) fn into_remains(self) -> (Option<Group>, Vec<Placeholder>) {
        let placeholders = self.visible.into_iter().flat_map(|visible| visible.placeholders);
        (self.group, placeholders.collect())
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Opens the files. Uses the calling thread if this cannot block on a disk. Otherwise uses a
/// blocking thread.
pub(super) async fn open(
    shared: &Arc<Shared>,
    request: &ExecRequest,
    terms: Terms,
) -> Result<VisibleFiles> {
    let plain = request.restrictions.is_empty() && request.mount_layout.mounted.is_empty();
    if plain && terms.mounts.is_empty() && !needs_group(&terms.limits) {
        let cached = |path: &WsPath| shared.jail.open_cached(path, DIRECTORY);
        if let (Some(own), Some(cwd)) =
            (cached(&request.cwd.innermost_scope_root()), cached(&request.cwd))
        {
            return opened(shared, request, &terms, (own, cwd));
        }
    }
    let (shared, request) = (shared.clone(), request.clone());
    blocking::run(move |_| {
        let act = Act::new(Verb::Exec, &request.cwd);
        let open = |path: &WsPath| {
            shared.jail.open(path, DIRECTORY, Final::Follow).map_err(|fault| act.failed(fault))
        };
        let (own, cwd) = (open(&request.cwd.innermost_scope_root())?, open(&request.cwd)?);
        opened(&shared, &request, &terms, (own, cwd))
    })
    .await
}

/// Creates the `VisibleFiles` from the handles of the scope root (`own`) and of the working
/// directory.
fn opened(
    shared: &Shared,
    request: &ExecRequest,
    terms: &Terms,
    (own, cwd): (OwnedFd, OwnedFd),
) -> Result<VisibleFiles> {
    let isolation = terms.isolation;
    let scope_root = request.cwd.innermost_scope_root().without_access_rules();
    let act = Act::new(Verb::Exec, &request.cwd);
    let own = VisibleDirectory {
        path: name_of(&own, act)?,
        at: request.mount_layout.scope_path.clone().unwrap_or_else(|| scope_root.clone()),
        contested: !scope_root.is_root(),
        ..covered(own, &scope_root, &request.restrictions, (&shared.jail, isolation), act)?
    };
    let mut visible = vec![own];
    for neighbour in &request.mount_layout.mounted {
        let root = open_host_dir(neighbour.root.as_ref()).map_err(|errno| act.failed(errno))?;
        let jail = Jail::new(root, &[&neighbour.root]);
        let handle = jail.open(&neighbour.visible_path, DIRECTORY, Final::Follow);
        let handle = handle.map_err(|fault| act.failed(fault))?;
        visible.push(VisibleDirectory {
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
        if scope_root.is_root() {
            alias.clone()
        } else {
            format!("{}/{scope_root}", alias.trim_end_matches('/'))
        }
    };
    let binds = binds::open(shared, request, terms, act)?;
    for bind in &binds {
        binds::check(bind, &name_of(&bind.handle, act)?, &visible, isolation)?;
    }
    check_limits(&terms.limits, isolation)?;
    let sandbox = if isolation == Isolation::Bwrap { BWRAP_PROCESSES } else { 0 };
    let limits = ExecLimits {
        processes: terms.limits.processes.map(|most| most.saturating_add(sandbox)),
        ..terms.limits
    };
    let (group, grouped) = grouped(&limits, &terms.accepted, terms.total.as_ref())?;
    Ok(VisibleFiles {
        cwd_path: if request.cwd == scope_root {
            visible[0].path.clone()
        } else {
            name_of(&cwd, act)?
        },
        cwd_below: request.cwd.part_below_scope_root().to_owned(),
        aliases: shared.aliases.iter().map(below).collect(),
        visible,
        binds,
        cwd,
        limits: terms.limits,
        origin: terms.origin,
        grouped,
        group,
        total: terms.total.clone(),
    })
}

/// Number of processes of the sandbox itself that are in the command's control group: bwrap outside
/// of the sandbox, its first process inside, and the shell that waits for the command.
const BWRAP_PROCESSES: u64 = 3;
/// The smallest file size limit in bytes that works with bwrap. bwrap writes files such as
/// `/etc/passwd` for the command. The limits of the command also apply to these writes.
const MIN_BWRAP_FILE_SIZE: u64 = 4096;

/// Number of files that bwrap and its first process have open.
const MIN_BWRAP_OPEN_FILES: u64 = 16;
/// The smallest limit of open files: the three standard streams, and one file of the program.
const MIN_OPEN_FILES: u64 = 4;
/// The smallest memory limit in bytes. The kernel needs more than this to start any program.
const MIN_MEMORY: u64 = 64 * 1024;

/// Fails if the limits are so low that no command can start.
pub(super) fn check_limits(limits: &ExecLimits, isolation: Isolation) -> Result<()> {
    let is_bwrap = isolation == Isolation::Bwrap;
    if let Some(most) = limits.file_size.filter(|most| is_bwrap && *most < MIN_BWRAP_FILE_SIZE) {
        return Err(too_low(format!(
            "the limit for the size of files is {most} bytes, but the bwrap sandbox needs at least \
             {MIN_BWRAP_FILE_SIZE}"
        )));
    }
    if let Some(most) = limits.memory.filter(|most| *most < MIN_MEMORY) {
        let message = format!(
            "the memory limit is {most} bytes, but a program needs at least {MIN_MEMORY} to start"
        );
        return Err(too_low(message).with_hint("raise the limit, for example to 512M"));
    }
    let (who, least) = match isolation {
        Isolation::Bwrap => ("the bwrap sandbox", MIN_BWRAP_OPEN_FILES),
        Isolation::Auto | Isolation::Landlock | Isolation::Software | Isolation::None => {
            ("a program", MIN_OPEN_FILES)
        }
    };
    match limits.open_files {
        Some(most) if most < least => Err(too_low(format!(
            "the limit for open files is {most}, but {who} needs at least {least} to start"
        ))),
        _ => Ok(()),
    }
}

fn too_low(message: String) -> Error {
    Error::new(ErrorCode::ExecError, ErrorKind::Invalid, message)
        .with_verb(Verb::Exec)
        .with_hint("raise the limit, or choose another isolation")
}

/// Creates a control group with the limits. Also starts the watchdog, which ends the group if this
/// process cannot do it. Returns the group and the limits that it enforces. The group is `None` if
/// no limit needs one.
///
/// # Errors
/// Fails if a limit cannot be set and the settings do not accept that.
pub(super) fn grouped(
    limits: &ExecLimits,
    accepted: &BTreeSet<SandboxRequirement>,
    total: Option<&ControlGroup>,
) -> Result<(Option<Group>, Wanted)> {
    if !needs_group(limits) {
        return Ok((None, Wanted::default()));
    }
    // Remove the groups of processes that were killed together with their watchdog.
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
    // If the watchdog cannot be started, the group still enforces its limits. The described policy
    // says what is missing.
    let _ = watchdog::stand(&groups.parents());
    Ok((Some(group), wanted))
}

/// Returns the current path of a directory on the host.
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
        Err(error) => Err(act
            .error(ErrorKind::Io, "cannot find the path of the directory")
            .with_source(error)),
    }
}

/// Chooses the covers of a directory. A cover is a mount over a path, and the covers make the
/// restrictions hold.
fn covered(
    handle: OwnedFd,
    root: &WsPath,
    restrictions: &PathRestrictions,
    (jail, isolation): (&Jail, Isolation),
    act: Act<'_>,
) -> Result<VisibleDirectory> {
    let mut visible = VisibleDirectory {
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
            // Nothing can be created below a file. A command cannot replace the file, because the
            // file has a cover.
            Way::File => continue,
        };
        // Two restricted paths may lie in the same missing directory, which needs only one cover.
        if !visible.has_cover(&target) {
            cover(&mut visible, target, hidden, root, (jail, isolation), act)?;
        }
    }
    Ok(visible)
}

/// Returns the restrictions that have an effect, outer paths first. Each path occurs once. Leaves
/// out paths below a hidden path, and read-only paths below another read-only path. The flag is
/// true for hidden paths.
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

/// The result of looking for a restricted path: how much of it exists.
enum Way {
    Whole,
    /// The path exists up to this directory, which is missing.
    Missing(WsPath),
    /// One of the directories in the path is a file instead.
    File,
}

/// Mounts each directory on the way to a restricted path over itself. Commands cannot rename a
/// mount point. So they cannot move one of these directories away and replace it.
fn pin(
    visible: &mut VisibleDirectory,
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
            // A separate mount does not inherit the read-only flag of the mount around it.
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

/// Mounts a cover over one path, so that commands cannot see, change or create it.
fn cover(
    visible: &mut VisibleDirectory,
    below: WsPath,
    hidden: bool,
    root: &WsPath,
    (jail, isolation): (&Jail, Isolation),
    act: Act<'_>,
) -> Result<()> {
    let full = root.join(&below);
    let stands = |get: fn(Spot) -> Result<Option<Placeholder>, Errno>| match isolation {
        Isolation::Bwrap => held(jail, &full, get, act),
        // Only bwrap can cover a path, because it uses mounts.
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
        // The path does not exist, and commands must not create it.
        Err(Fault::Os(Errno::NOENT)) => (With::EmptyFile, stands(Placeholder::make)?, None),
        Err(fault) => return Err(act.failed(fault)),
    };
    visible.placeholders.extend(placeholder);
    let below = below.as_str().to_owned();
    visible.seen.extend(identity.map(|identity| Seen { below: below.clone(), identity }));
    visible.covers.push(Cover { below, with });
    Ok(())
}

/// How often to look again for a placeholder that was just removed.
const TRIES: usize = 16;

/// Creates a placeholder at `path`. If another command has already created it, joins that
/// placeholder.
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
    // The file looks like a placeholder, but a command holds a lock on it. So the file is covered
    // in the same way as any other file.
    Ok(None)
}

/// Returns whether the file at `path` is a placeholder for a missing path.
fn is_placeholder(jail: &Jail, path: &WsPath, act: Act<'_>) -> Result<bool> {
    let spot = jail.spot(path, Final::Keep, Missing::Fail).map_err(|fault| act.failed(fault))?;
    Placeholder::is_at(&spot).map_err(|errno| act.failed(errno))
}

/// Creates the error for a link on the way to a restricted path. Such links are refused for two
/// reasons. A mount would follow the link out of the workspace. A command could replace the link,
/// even if something is mounted at its target.
fn linked(below: &WsPath, act: Act<'_>) -> Error {
    let message = format!("'{below}' is part of a restricted path and must not be a symbolic link");
    act.error(ErrorKind::PermissionDenied, &message)
}

/// Returns the type of a file, and its device and inode.
fn identity(jail: &Jail, path: &WsPath) -> Result<(FileType, String), Fault> {
    let handle = jail.open(path, OFlags::PATH, Final::Keep)?;
    let stat = rustix::fs::fstat(&handle)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    Ok((kind, format!("{}:{}", stat.st_dev, stat.st_ino)))
}

/// Returns the device and inode of an open file, in the format of `stat`.
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
