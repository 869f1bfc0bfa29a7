//! Opens the host directories that a command sees in addition to the workspace, before the command
//! starts.
//!
//! If other commands can write to a parent of such a directory, they could replace a part of the
//! path by a link to anywhere. In this case the directory is opened relative to the handle of the
//! parent.

use std::os::fd::OwnedFd;
use std::path::Path;

use ab_core::PathParser;
use ab_core::effective_policy::Isolation;
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{ExecRequest, HostDirectory, HostDirectoryAccess};
use rustix::fs::{Mode, OFlags};

use super::mounts::SandboxMount;
use super::visible_files::{Terms, VisibleDirectory, identity_of};
use crate::failure::Act;
use crate::jail::{Final, Jail, open_host_dir};
use crate::local::Shared;
use crate::sandbox::bwrap::{self, SANDBOX_WORKSPACE_PATH};

/// A directory or file of the host that a command will see in addition to the workspace. It is
/// already open.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) handle: OwnedFd,
    /// Its path on the host.
    pub(super) path: String,
    /// The path at which commands see it.
    pub(super) at: String,
    pub(super) access: HostDirectoryAccess,
    /// Whether other processes may replace the directory or file while the command starts.
    pub(super) contested: bool,
}

/// Opens the directories of a request and the mounts of its workspace. Returns an empty list for
/// isolations that do not limit what commands see.
pub(super) fn open(
    shared: &Shared,
    request: &ExecRequest,
    terms: &Terms,
    act: Act<'_>,
) -> Result<Vec<Bound>> {
    let asked = &request.restrictions.host_directories;
    match terms.isolation {
        Isolation::Bwrap | Isolation::Landlock => {
            let mounts = terms.mounts.iter().map(mounted);
            let writable =
                terms.mounts.iter().filter(|it| it.access == HostDirectoryAccess::ReadWrite);
            let writable = writable.map(|mount| HostDirectory {
                path: mount.source.to_string_lossy().into_owned(),
                access: HostDirectoryAccess::ReadWrite,
            });
            let all: Vec<HostDirectory> = asked.iter().cloned().chain(writable).collect();
            mounts.chain(asked.iter().map(|bind| opened(shared, &all, bind, act))).collect()
        }
        Isolation::Auto | Isolation::Software | Isolation::None => Ok(Vec::new()),
    }
}

/// Opens a mount of the workspace. The plain path can be used, because commands cannot write to any
/// parent directory of a mount.
fn mounted(mount: &SandboxMount) -> Result<Bound> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = rustix::fs::open(&mount.source, flags, Mode::empty()).map_err(|errno| {
        let message = format!("cannot show {} to commands: {errno}", mount.source.display());
        Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, message)
            .with_source(std::io::Error::from(errno))
    })?;
    let (path, at, access) = (text(&mount.source), text(&mount.target), mount.access);
    Ok(Bound { handle, path, at, access, contested: false })
}

fn opened(
    shared: &Shared,
    all: &[HostDirectory],
    bind: &HostDirectory,
    act: Act<'_>,
) -> Result<Bound> {
    let bound = |handle, contested| Bound {
        handle,
        path: bind.path.clone(),
        at: bind.path.clone(),
        access: bind.access,
        contested,
    };
    let beneath = |jail: &Jail, below: &str| {
        let below = PathParser::lenient().parse(if below.is_empty() { "." } else { below })?;
        jail.open(&below, OFlags::PATH, Final::Follow).map_err(|fault| act.failed(fault))
    };
    let unopened = |errno: rustix::io::Errno| {
        let error = std::io::Error::from(errno);
        let message = format!("cannot bind {}: {error}", bind.path);
        Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, message).with_source(error)
    };
    let own = shared.aliases.iter().filter(|alias| *alias != SANDBOX_WORKSPACE_PATH);
    if let Some(below) = own.filter_map(|root| below(root, &bind.path)).next() {
        return Ok(bound(beneath(&shared.jail, below)?, true));
    }
    let writable =
        all.iter().filter(|it| it.access == HostDirectoryAccess::ReadWrite && it.path != bind.path);
    let mut around = writable.filter_map(|it| Some((&it.path, below(&it.path, &bind.path)?)));
    if let Some((root, below)) = around.next() {
        let jail = Jail::new(open_host_dir(root.as_ref()).map_err(unopened)?, &[root]);
        return Ok(bound(beneath(&jail, below)?, true));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = rustix::fs::open(&*bind.path, flags, Mode::empty()).map_err(unopened)?;
    Ok(bound(handle, false))
}

/// The number by which the kernel identifies the proc file system.
const PROC_MAGIC: u64 = 0x9fa0;

/// Fails if commands could use a directory to get around other restrictions. There are four cases.
/// A hidden path can be read through the directory. A read-only path can be changed through it. It
/// is a proc file system, which shows the host's processes. It would cover a path that the sandbox
/// itself mounts. `real` is the path of the directory with all links resolved.
pub(super) fn check(
    bind: &Bound,
    real: &str,
    visible: &[VisibleDirectory],
    isolation: Isolation,
) -> Result<()> {
    let refused = |cause: &str| {
        let message = format!("cannot bind {}: {cause}", bind.path);
        Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message))
    };
    let stat = rustix::fs::fstatfs(&bind.handle);
    if stat.is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(PROC_MAGIC)) {
        return refused("it shows the processes of the host, and its settings");
    }
    if isolation == Isolation::Bwrap && bwrap::covers_own(&bind.at) {
        return refused("the sandbox itself needs that path");
    }
    for place in visible {
        let same = identity_of(&bind.handle).is_ok_and(|it| identity_of(&place.handle) == Ok(it));
        let real = if same { Path::new(&place.path) } else { Path::new(real) };
        for (path, hidden) in place.restricted() {
            let overlaps = path.starts_with(real) || real.starts_with(&path);
            // If the directory is mounted at its own path, the restricted paths below it are
            // mounted on top of it, so the restrictions still hold.
            let on_top = isolation == Isolation::Bwrap
                && real == Path::new(&bind.at)
                && path != real
                && path.starts_with(real);
            let only_read = !hidden && bind.access == HostDirectoryAccess::ReadOnly;
            if overlaps && !on_top && !only_read {
                let kind = if hidden { "hidden" } else { "read-only" };
                let path = path.display();
                return refused(&format!("commands could then access {path}, which is {kind}"));
            }
        }
    }
    Ok(())
}

/// Returns the rest of `path` below `directory`, or `None` if `path` lies elsewhere.
fn below<'a>(directory: &str, path: &'a str) -> Option<&'a str> {
    Path::new(path).strip_prefix(directory).ok()?.to_str()
}
