//! Converts names on the wire to paths of the workspace.

use std::collections::VecDeque;

use ab_core::options::{LinkHandling, StatOptions};
use ab_core::{Backend, FileKind, WsPath};
use bytes::Bytes;

use super::status::{FAILURE, Refusal};

/// Which of the two names of a SYMLINK is the link. The draft puts the link first. OpenSSH has them
/// the other way round, and most clients follow OpenSSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkOrder {
    TargetFirst,
    LinkFirst,
}

impl LinkOrder {
    /// Decides by the client's identification. These two clients follow the draft for every server
    /// but OpenSSH.
    pub(crate) fn of(client: &[u8]) -> Self {
        let client = client.strip_prefix(b"SSH-2.0-").unwrap_or(client);
        if client.starts_with(b"ssh2js") || client.starts_with(b"AsyncSSH") {
            LinkOrder::LinkFirst
        } else {
            LinkOrder::TargetFirst
        }
    }
}

/// A name as text. Workspaces have only UTF-8 names, so any other name is refused.
pub(super) fn text(name: &Bytes) -> Result<&str, Refusal> {
    match std::str::from_utf8(name) {
        Ok("") => Ok("."),
        Ok(text) => Ok(text),
        Err(_) => Err(Refusal::new(FAILURE, "names must be valid UTF-8")),
    }
}

/// The path as clients see it: from `/`.
pub(super) fn shown(path: &WsPath) -> String {
    format!("/{}", path.as_str())
}

/// Most links that are followed for one file, the same as in the Linux kernel.
const MAX_LINKS: usize = 40;

/// The path with its links resolved, as far as it exists. If a link leaves the workspace or forms a
/// loop, the path is returned as it was requested.
pub(super) async fn real_path(backend: &Backend, path: &str) -> Result<WsPath, Refusal> {
    let asked = backend.parse_path(path)?;
    let mut real = WsPath::root();
    let mut rest: VecDeque<String> = asked.segments().map(str::to_owned).collect();
    let (mut links, mut there) = (0, true);
    while let Some(segment) = rest.pop_front() {
        if segment == ".." {
            let Some(parent) = real.parent() else { return Ok(asked) };
            real = parent;
            continue;
        }
        let next = real.child(&segment)?;
        let found = if there {
            backend
                .stat_with(&shown(&next), StatOptions { links: LinkHandling::NoFollow })
                .await
                .ok()
        } else {
            None
        };
        there = found.is_some();
        if found.is_none_or(|stat| stat.kind != FileKind::Symlink) {
            real = next;
            continue;
        }
        let mut target = backend.read_link(&shown(&next)).await?;
        links += 1;
        if links > MAX_LINKS || (target.starts_with('/') && !is_inside(backend, &target)) {
            return Ok(asked);
        }
        if target.starts_with('/') {
            target = backend.parse_path(&target)?.as_str().to_owned();
            real = WsPath::root();
        }
        for segment in target.rsplit('/').filter(|segment| !matches!(*segment, "" | ".")) {
            rest.push_front(segment.to_owned());
        }
    }
    Ok(real)
}

/// Whether an absolute host path is inside the workspace.
fn is_inside(backend: &Backend, path: &str) -> bool {
    // A workspace whose root is named `/` has no host path that links could name.
    let info = backend.info();
    info.root_aliases.iter().filter(|alias| *alias != "/").any(|alias| {
        path.strip_prefix(alias.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The text of a link to create. An absolute target is relative to `/` as clients see it. It is
/// made relative, so that it leads to the same file for commands too.
pub(super) fn link_text(backend: &Backend, link: &WsPath, target: &str) -> Result<String, Refusal> {
    if !target.starts_with('/') || is_inside(backend, target) {
        return Ok(target.to_owned());
    }
    let target = backend.parse_path(target)?;
    let (from, to): (Vec<&str>, Vec<&str>) =
        (link.segments().rev().skip(1).collect(), target.segments().collect());
    let from: Vec<&str> = from.into_iter().rev().collect();
    let common = from.iter().zip(&to).take_while(|(one, two)| one == two).count();
    let up = from.iter().skip(common).map(|_| "..");
    let words: Vec<&str> = up.chain(to.iter().skip(common).copied()).collect();
    Ok(if words.is_empty() { ".".to_owned() } else { words.join("/") })
}

#[cfg(test)]
mod tests {
    use ab_core::MemoryDriver;

    use super::*;

    #[test]
    fn clients_have_their_own_order() {
        assert_eq!(LinkOrder::of(b"SSH-2.0-OpenSSH_9.2p1"), LinkOrder::TargetFirst);
        assert_eq!(LinkOrder::of(b"SSH-2.0-paramiko_4.0"), LinkOrder::TargetFirst);
        assert_eq!(LinkOrder::of(b"SSH-2.0-ssh2js1.17.0"), LinkOrder::LinkFirst);
        assert_eq!(LinkOrder::of(b"SSH-2.0-AsyncSSH_2.21"), LinkOrder::LinkFirst);
    }

    #[test]
    fn absolute_links_are_meant_from_the_root() {
        let backend = Backend::new(MemoryDriver::new());
        for (link, target, expect) in [
            ("l", "a/b", "a/b"),
            ("l", "../x", "../x"),
            ("l", "/a/b", "a/b"),
            ("d/l", "/a/b", "../a/b"),
            ("d/e/l", "/d/f", "../f"),
            ("d/l", "/d", "."),
            ("l", "/", "."),
        ] {
            let link = backend.parse_path(link).unwrap();
            assert_eq!(link_text(&backend, &link, target).unwrap(), expect, "{link} {target}");
        }
    }
}
