//! Commands in a tree of mounts. The base and each mount run their own commands, and a common list
//! shows all of them.
//!
//! Two workspaces may use the same process id. Therefore the ids of a mount contain its mount
//! point: `<point>:<id>`. Ids of the base are changed only if they could be confused with ids of
//! mounts.

use super::Mounts;
use super::parts::Part;
use crate::call::Verb;
use crate::driver::BackendKind;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::path::WsPath;
use crate::process::{
    ExecRequest, MountedWorkspace, PathRestrictions, Process, ProcessId, ProcessInfo,
};

/// Separates the mount point from the process id.
const SEPARATOR: char = ':';
/// Stands for the base in ids of the base that could be confused with ids of mounts.
const BASE: &str = ".";

pub(super) async fn exec(mounts: &Mounts, mut request: ExecRequest) -> Result<Process> {
    let part = mounts.part(Verb::Exec, &request.cwd)?;
    if !part.driver.info().capabilities.exec {
        return Err(Error::for_unsupported_verb(BackendKind::Mounts, Verb::Exec));
    }
    arrange(mounts, part, &mut request);
    request.cwd = part.inward(&request.cwd);
    let process = part.shown(part.driver.exec(request).await)?;
    Ok(named(part, process))
}

/// Completes a request for a command in `own`. Adds where the directories of the request appear in
/// the tree, and which other workspaces are visible to the command. A workspace is visible if it is
/// on the same machine and inside the scope root of the working directory.
fn arrange(mounts: &Mounts, own: Part<'_>, request: &mut ExecRequest) {
    let scope_root = request.cwd.innermost_scope_root().without_access_rules();
    let above = request.mount_layout.scope_path.take();
    let place = |path: &WsPath| match &above {
        Some(above) => above.join(&path.strip_prefix(&scope_root).unwrap_or_else(|| path.clone())),
        None => path.clone(),
    };
    // Returns the path at which a workspace is visible. This is its mount point, or the scope root
    // if the scope root is inside the workspace. `None` for a workspace outside the scope root.
    let owner = mounts.owner(&scope_root).point;
    let seen = |point: &WsPath| {
        if point == owner {
            Some(scope_root.clone())
        } else {
            point.starts_with(&scope_root).then(|| point.clone())
        }
    };
    let all = std::mem::take(&mut request.restrictions);
    let of_part = |point: &WsPath| PathRestrictions {
        hidden: within(mounts, &all.hidden, point),
        read_only: within(mounts, &all.read_only, point),
        host_directories: Vec::new(),
    };
    for part in mounts.parts().filter(|part| part.point != own.point) {
        let info = part.driver.info();
        let on_this_machine = info.kind == BackendKind::Local && part.check(Verb::Exec).is_ok();
        let (Some(seen), Some(root)) = (seen(part.point), info.root_aliases.first()) else {
            continue;
        };
        let restrictions = of_part(part.point);
        if on_this_machine && !restrictions.hidden.iter().any(WsPath::is_root) {
            request.mount_layout.mounted.push(MountedWorkspace {
                root: root.clone(),
                visible_path: part.inward(&seen),
                mount_path: place(&seen),
                restrictions,
            });
        }
    }
    request.mount_layout.scope_path = seen(own.point).map(|seen| place(&seen));
    request.restrictions =
        PathRestrictions { host_directories: all.host_directories.clone(), ..of_part(own.point) };
}

/// The restricted paths that apply to the workspace at `point`, relative to its root.
fn within(mounts: &Mounts, paths: &[WsPath], point: &WsPath) -> Vec<WsPath> {
    let inward = |path: &WsPath| {
        if point.starts_with(path) {
            Some(WsPath::root())
        } else if mounts.owner(path).point == point {
            path.strip_prefix(point)
        } else {
            None
        }
    };
    paths.iter().filter_map(inward).collect()
}

pub(super) async fn all(mounts: &Mounts) -> Result<Vec<ProcessInfo>> {
    let mut able = able(mounts).peekable();
    if able.peek().is_none() {
        return Err(Error::for_unsupported_verb(BackendKind::Mounts, Verb::Processes));
    }
    let mut all = Vec::new();
    for part in able {
        for mut process in part.shown(part.driver.processes().await)? {
            process.cwd = part.outward(&process.cwd);
            process.id = outward(part.point, &process.id);
            // If the directory of a process is now covered by a mount, the process has no path in
            // the tree and is omitted.
            if mounts.owner(&process.cwd).point == part.point {
                all.push(process);
            }
        }
    }
    Ok(all)
}

pub(super) async fn attach(mounts: &Mounts, id: &ProcessId, from: u64) -> Result<Process> {
    if able(mounts).next().is_none() {
        return Err(Error::for_unsupported_verb(BackendKind::Mounts, Verb::Attach));
    }
    let owner = able(mounts).find_map(|part| Some((part, inward(part.point, id)?)));
    let Some((part, id)) = owner else {
        let message = format!("no process {id} in this workspace");
        return Err(
            Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message).with_verb(Verb::Attach)
        );
    };
    let process = part.shown(part.driver.attach(&id, from).await)?;
    Ok(named(part, process))
}

/// The base and the mounts, without those that cannot run commands or were destroyed.
fn able(mounts: &Mounts) -> impl Iterator<Item = Part<'_>> {
    let alive = |part: &Part<'_>| part.check(Verb::Processes).is_ok();
    mounts.parts().filter(alive).filter(|part| part.driver.info().capabilities.exec)
}

fn named(part: Part<'_>, mut process: Process) -> Process {
    process.id = outward(part.point, &process.id);
    process
}

fn outward(point: &WsPath, id: &ProcessId) -> ProcessId {
    if point.is_root() && !id.as_str().contains(SEPARATOR) {
        return id.clone();
    }
    ProcessId::new(format!("{}{SEPARATOR}{id}", label(point)))
}

/// The process id in the form that the workspace at `point` uses. `None` if the process belongs to
/// another workspace.
fn inward(point: &WsPath, id: &ProcessId) -> Option<ProcessId> {
    match id.as_str().split_once(SEPARATOR) {
        None => point.is_root().then(|| id.clone()),
        Some((owner, rest)) => (owner == label(point)).then(|| ProcessId::new(rest)),
    }
}

/// The mount point as text that contains no separator. Unique for each mount point.
fn label(point: &WsPath) -> String {
    if point.is_root() {
        return BASE.to_owned();
    }
    point.as_str().replace('%', "%25").replace(SEPARATOR, "%3A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_find_their_way_back_and_to_nobody_else() {
        let points = ["", "a", "a/b", "a:b", "a%3Ab", "%", "1"].map(WsPath::from_key);
        for id in ["1", "a:1", "b:1", ".:1", ":", "", "a/b:c", "%3A"].map(ProcessId::new) {
            for own in &points {
                let shown = outward(own, &id);
                for point in &points {
                    let expect = (point == own).then(|| id.clone());
                    assert_eq!(inward(point, &shown), expect, "{shown} of {own} at {point}");
                }
            }
        }
    }

    #[test]
    fn plain_ids_of_the_base_stay_plain() {
        let shown = |point: &str, id: &str| {
            outward(&WsPath::from_key(point), &ProcessId::new(id)).to_string()
        };
        assert_eq!(shown("", "p1"), "p1");
        assert_eq!(shown("", "a:1"), ".:a:1");
        assert_eq!(shown("srv/data", "p1"), "srv/data:p1");
    }
}
