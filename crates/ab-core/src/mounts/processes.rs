//! Commands in a mounted tree: each part runs its own, and one list shows them all.
//!
//! Two parts may give out the same id, so a mount's ids carry its point: `<point>:<id>`. The
//! base's stay as they are, unless they could be mistaken for one of those.

use super::Mounts;
use super::parts::Part;
use crate::call::Verb;
use crate::driver::BackendKind;
use crate::error::{Code, Error, Kind, Result};
use crate::path::WsPath;
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo};

/// Between the point and the id.
const SEPARATOR: char = ':';
/// Stands for the base where its own ids need a point.
const BASE: &str = ".";

pub(super) async fn exec(mounts: &Mounts, mut request: ExecRequest) -> Result<Process> {
    let part = mounts.part(Verb::Exec, &request.cwd)?;
    if !part.driver.info().capabilities.exec {
        return Err(Error::unsupported(BackendKind::Mounts, Verb::Exec));
    }
    request.cwd = part.inward(&request.cwd);
    let process = part.shown(part.driver.exec(request).await)?;
    Ok(named(part, process))
}

pub(super) async fn all(mounts: &Mounts) -> Result<Vec<ProcessInfo>> {
    let mut able = able(mounts).peekable();
    if able.peek().is_none() {
        return Err(Error::unsupported(BackendKind::Mounts, Verb::Processes));
    }
    let mut all = Vec::new();
    for part in able {
        for mut process in part.shown(part.driver.processes().await)? {
            process.cwd = part.outward(&process.cwd);
            process.id = outward(part.point, &process.id);
            // One that was started where a mount is now runs in a directory that has no name here.
            if mounts.owner(&process.cwd).point == part.point {
                all.push(process);
            }
        }
    }
    Ok(all)
}

pub(super) async fn attach(mounts: &Mounts, id: &ProcessId, from: u64) -> Result<Process> {
    if able(mounts).next().is_none() {
        return Err(Error::unsupported(BackendKind::Mounts, Verb::Attach));
    }
    let owner = able(mounts).find_map(|part| Some((part, inward(part.point, id)?)));
    let Some((part, id)) = owner else {
        let message = format!("no process {id} in this workspace");
        return Err(Error::new(Code::ExecError, Kind::NotFound, message).with_verb(Verb::Attach));
    };
    let process = part.shown(part.driver.attach(&id, from).await)?;
    Ok(named(part, process))
}

/// The parts that run commands and are still alive.
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

/// The id as the part at `point` knows it, when it is one of that part's.
fn inward(point: &WsPath, id: &ProcessId) -> Option<ProcessId> {
    match id.as_str().split_once(SEPARATOR) {
        None => point.is_root().then(|| id.clone()),
        Some((owner, rest)) => (owner == label(point)).then(|| ProcessId::new(rest)),
    }
}

/// The point as text without a separator, and no two points with the same.
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
