//! Resolves a path on a plain SSH server: looks up every name on the server, and follows links on
//! the client.
//!
//! All names of a path are requested at the same time, so most paths take one round trip. Links
//! must not lead out of the workspace or out of the path's scope roots. Files on the server may
//! change between this lookup and the operation that follows. The check therefore protects against
//! mistakes but not against attacks. This also applies to the paths that access rules hide or
//! protect.

use std::collections::VecDeque;

use ab_core::error::escape_unprintable;
use ab_core::metadata::{FileKind, Stat};
use ab_core::{Error, ErrorKind, Result, Verb, WsPath};
use futures_util::{StreamExt, stream};

use super::act::{Act, kind};
use super::look;
use crate::sftp::SftpAttributes;
use crate::sftp::packet::SftpRequest;
use crate::sftp::status;

/// Number of names that are requested at the same time.
const TOGETHER: usize = 64;
/// Maximum number of links that the resolution of one path may follow. The Linux kernel has the
/// same limit.
const MAX_LINKS: usize = 40;

/// Whether a link at the end of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Final {
    Follow,
    Keep,
}

/// The result of resolving a path: the file or directory to which the path leads.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The path from the root, without links. Empty for the root.
    pub(super) real: String,
    /// The attributes of the file or directory. `None` if it does not exist.
    pub(super) found: Option<SftpAttributes>,
    /// The path from the root, without links, and with the access rules of the call.
    pub(super) place: WsPath,
    /// How many names at the end of the path do not exist.
    missing: usize,
    /// The target of the link in which the path ends, if the target does not exist.
    dangling: Option<String>,
}

impl Spot {
    pub(super) fn kind(&self) -> Option<FileKind> {
        self.found.as_ref().map(kind)
    }

    /// The path of the parent directory.
    pub(super) fn parent(&self) -> &str {
        self.real.rsplit_once('/').map_or("", |(parent, _)| parent)
    }
}

impl Act<'_> {
    pub(super) async fn spot(&self, last: Final) -> Result<Spot> {
        let confined = self.path.split_at_scope_roots();
        let mut trail = Trail::default();
        let mut base =
            WsPath::root().add_access_rules_for_subtree(self.path.access_rules_of_scope_root(0));
        for (index, scope_root) in confined.scopes.into_iter().enumerate() {
            self.walk(&mut trail, scope_root, Final::Follow).await?;
            let below = trail.names[trail.base..].join("/");
            base = base
                .join_unchecked(&below)
                .add_access_rules_for_subtree(self.path.access_rules_of_scope_root(index + 1));
            trail.base = trail.names.len();
        }
        self.walk(&mut trail, confined.rest, last).await?;
        let Trail { names, found, missing, dangling, base: top, .. } = trail;
        let real = names.join("/");
        let place = base.join_unchecked(&names[top..].join("/"));
        self.judge(&place)?;
        let place =
            place.add_access_rules_for_subtree(self.path.access_rules_if_path_is_scope_root());
        let found = match (missing, found) {
            (0, None) => Some(self.root_or_parent(&real).await?),
            (0, found) => found,
            (_, _) => None,
        };
        Ok(Spot { real, found, place, missing, dangling })
    }

    /// Fails if the access rules forbid the call at this path.
    fn judge(&self, place: &WsPath) -> Result<()> {
        let changes = match self.verb {
            Verb::Write | Verb::Touch | Verb::Mkdir | Verb::SetAttributes | Verb::Symlink => {
                place.is_write_protected()
            }
            Verb::Delete | Verb::Rename => {
                place.is_write_protected() || place.is_or_contains_restricted_path()
            }
            _ => false,
        };
        match (changes, place.is_hidden()) {
            (true, _) => Err(Error::for_write_protected_path(self.verb, self.path)),
            (false, true) => Err(self.missing()),
            (false, false) => Ok(()),
        }
    }

    /// Resolves a path that must exist.
    pub(super) async fn existing(&self, last: Final) -> Result<(Spot, SftpAttributes)> {
        let spot = self.spot(last).await?;
        match spot.found.clone() {
            Some(found) => Ok((spot, found)),
            None => Err(self.nothing(&spot)),
        }
    }

    pub(super) fn nothing(&self, spot: &Spot) -> Error {
        match &spot.dangling {
            Some(target) => {
                let target = escape_unprintable(target);
                let message = format!("a symbolic link leads to '{target}', which does not exist");
                self.error(ErrorKind::NotFound, &message)
                    .with_hint("links are not followed to create files; name the target instead")
            }
            None => self.missing(),
        }
    }

    pub(super) fn described(&self, spot: &Spot, found: &SftpAttributes) -> Stat {
        look::stat(self.plain, &spot.real, found)
    }

    /// Creates the missing parent directories.
    pub(super) async fn make_parents(&self, spot: &Spot) -> Result<()> {
        self.make_names(spot, spot.missing.saturating_sub(1), 1).await
    }

    /// Creates all missing directories, including the last one of the path.
    pub(super) async fn make_all(&self, spot: &Spot) -> Result<()> {
        self.make_names(spot, spot.missing, 0).await
    }

    async fn make_names(&self, spot: &Spot, count: usize, left: usize) -> Result<()> {
        if spot.dangling.is_some() {
            return Err(self.nothing(spot));
        }
        let names: Vec<&str> = spot.real.split('/').collect();
        for end in names.len() - left - count + 1..=names.len() - left {
            self.make_directory(&names[..end].join("/")).await?;
        }
        Ok(())
    }

    async fn make_directory(&self, real: &str) -> Result<()> {
        let path = self.plain.at(real);
        let request = SftpRequest::MakeDir {
            path: path.clone().into(),
            attributes: SftpAttributes::default(),
        };
        let status = self.status(&request).await?;
        if status.code == status::OK {
            return Ok(());
        }
        // Another client may have created the directory first.
        match self.lstat(path).await? {
            Some(found) if kind(&found) == FileKind::Dir => Ok(()),
            Some(_) => Err(self.not_a_directory()),
            None => Err(self.refused(&status)),
        }
    }

    async fn root_or_parent(&self, real: &str) -> Result<SftpAttributes> {
        self.lstat(self.plain.at(real)).await?.ok_or_else(|| self.missing())
    }

    async fn walk(&self, trail: &mut Trail, text: &str, last: Final) -> Result<()> {
        let mut ahead: VecDeque<String> = names(text).collect();
        while let Some(next) = ahead.front() {
            if trail.missing > 0 {
                if next == ".." {
                    return Err(self.missing());
                }
                trail.missing += 1;
                let name = trail.take(&mut ahead);
                trail.names.extend(name);
                continue;
            }
            if trail.found.as_ref().is_some_and(|found| kind(found) != FileKind::Dir) {
                return Err(self.not_a_directory());
            }
            if next == ".." {
                if trail.names.len() <= trail.base {
                    return Err(self.escape());
                }
                trail.take(&mut ahead);
                trail.names.pop();
                trail.found = None;
                continue;
            }
            self.stretch(trail, &mut ahead, last).await?;
        }
        Ok(())
    }

    /// Looks up the next names, up to the first that is missing or not a directory.
    async fn stretch(
        &self,
        trail: &mut Trail,
        ahead: &mut VecDeque<String>,
        last: Final,
    ) -> Result<()> {
        let mut real = trail.names.join("/");
        let mut places = Vec::new();
        for name in ahead.iter().take_while(|name| *name != "..").take(TOGETHER) {
            if !real.is_empty() {
                real.push('/');
            }
            real.push_str(name);
            places.push(self.plain.at(&real));
        }
        let mut looks = stream::iter(places).map(|at| self.lstat(at)).buffered(TOGETHER);
        while let Some(found) = looks.next().await {
            let of_link = trail.linked > 0;
            let Some(name) = trail.take(ahead) else { break };
            let Some(found) = found? else {
                trail.names.push(name);
                trail.missing = 1;
                trail.dangling = trail.link.take().filter(|_| of_link);
                return Ok(());
            };
            let kind = kind(&found);
            let keep = ahead.is_empty() && last == Final::Keep;
            trail.names.push(name);
            if kind == FileKind::Symlink && !keep {
                drop(looks);
                return self.follow(trail, ahead).await;
            }
            trail.found = Some(found);
            if ahead.is_empty() || kind != FileKind::Dir {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Replaces the last name of the trail by the names in its target. The last name is a link.
    async fn follow(&self, trail: &mut Trail, ahead: &mut VecDeque<String>) -> Result<()> {
        trail.links += 1;
        if trail.links > MAX_LINKS {
            let message = "too many symbolic links, or a loop of links";
            return Err(self.error(ErrorKind::LinkLoop, message));
        }
        let target = self.link_text(self.plain.at(&trail.names.join("/"))).await?;
        trail.names.pop();
        trail.found = None;
        let inside = if target.starts_with('/') {
            let scope_root = trail.names[..trail.base].join("/");
            trail.names.truncate(trail.base);
            self.plain.inside(&target, &scope_root).ok_or_else(|| self.escape())?
        } else {
            target.as_str()
        };
        for name in names(inside).collect::<Vec<_>>().into_iter().rev() {
            ahead.push_front(name);
            trail.linked += 1;
        }
        trail.link = Some(target);
        Ok(())
    }

    fn escape(&self) -> Error {
        self.error(ErrorKind::PathEscape, "a symbolic link in the path leads out of the workspace")
    }
}

impl super::Plain {
    /// The part of an absolute path below a directory of the workspace. `None` if the path is not
    /// below it.
    pub(super) fn inside<'t>(&self, text: &'t str, real: &str) -> Option<&'t str> {
        let roots = std::iter::once(self.root.as_str()).chain(self.alias.as_deref());
        let mut below = roots.filter_map(|root| beneath(text, root));
        below.find_map(|rest| {
            if real.is_empty() {
                Some(rest)
            } else {
                beneath(&text[text.len() - rest.len()..], &format!("/{real}"))
            }
        })
    }
}

/// The part of `text` below `base`, with its leading slash. `None` if `text` is not below `base`.
fn beneath<'t>(text: &'t str, base: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

fn names(text: &str) -> impl Iterator<Item = String> {
    text.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned)
}

/// The state of a resolution: the names that have been resolved.
#[derive(Default)]
struct Trail {
    names: Vec<String>,
    /// The number of names that lead to the scope root. `..` must not lead above it.
    base: usize,
    /// The attributes of the file that `names` leads to. `None` for a directory that was not looked
    /// up.
    found: Option<SftpAttributes>,
    missing: usize,
    links: usize,
    /// The target of the last link, and how many of the next names come from it.
    link: Option<String>,
    linked: usize,
    dangling: Option<String>,
}

impl Trail {
    fn take(&mut self, ahead: &mut VecDeque<String>) -> Option<String> {
        self.linked = self.linked.saturating_sub(1);
        ahead.pop_front()
    }
}
