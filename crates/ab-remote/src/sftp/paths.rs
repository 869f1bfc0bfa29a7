//! Converts names in packets to paths of the workspace.

use std::collections::VecDeque;

use ab_core::options::{LinkHandling, StatOptions};
use ab_core::{Backend, FileKind, WsPath};
use bytes::Bytes;

use super::status::{FAILURE, Refusal};

/// Which of the two names in a SYMLINK request is the link. In the specification the link is the
/// first name. In OpenSSH the link is the second name, and most clients follow OpenSSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkOrder {
    TargetFirst,
    LinkFirst,
}

impl LinkOrder {
    /// Chooses by the identification of the client. These two clients follow the specification for
    /// every server except OpenSSH.
    pub(crate) fn of(client: &[u8]) -> Self {
        let client = client.strip_prefix(b"SSH-2.0-").unwrap_or(client);
        if client.starts_with(b"ssh2js") || client.starts_with(b"AsyncSSH") {
            LinkOrder::LinkFirst
        } else {
            LinkOrder::TargetFirst
        }
    }
}

/// Converts a name to text. Names that are not UTF-8 are refused, because workspaces do not support
/// them.
pub(super) fn text(name: &Bytes) -> Result<&str, Refusal> {
    match std::str::from_utf8(name) {
        Ok("") => Ok("."),
        Ok(text) => Ok(text),
        Err(_) => Err(Refusal::new(FAILURE, "names must be valid UTF-8")),
    }
}

/// The path in the form that clients see, beginning with `/`.
pub(super) fn shown(path: &WsPath) -> String {
    format!("/{}", path.as_str())
}

/// Maximum number of links that are followed for one file. The Linux kernel has the same limit.
const MAX_LINKS: usize = 40;

/// The path with its links resolved, as far as it exists. If a link leads out of the workspace or
/// forms a loop, the path is returned unchanged.
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
    // If the root of the workspace is named `/`, there is no host path that a link could contain.
    let info = backend.info();
    info.root_aliases.iter().filter(|alias| *alias != "/").any(|alias| {
        path.strip_prefix(alias.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The target text of a link that is to be created. An absolute target is relative to the `/` that
/// clients see. The target is made relative, so that the link also leads to this file for commands.
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
