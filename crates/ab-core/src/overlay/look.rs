//! Resolves a path in the merged tree, one directory at a time from the root downwards. Looks in
//! both layers and follows links on the way.

use std::collections::VecDeque;

use futures_util::future::join;

use super::{Layer, Overlay, marks};
use crate::call::Verb;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{FileKind, FileVersion, Stat};
use crate::options::{LinkHandling, StatOptions};
use crate::path::{ScopedPathParts, WsPath, is_mark};

/// Maximum number of links that the resolution of one path may follow. The Linux kernel has the
/// same limit.
const MAX_LINKS: usize = 40;
pub(super) const KEEP: StatOptions = StatOptions { links: LinkHandling::NoFollow };

/// A path in the merged tree, and what each layer contains there.
#[derive(Debug)]
pub(super) struct Spot {
    /// The path without links. It has the scope roots and access rules of the requested path.
    pub(super) path: WsPath,
    pub(super) upper: Option<Stat>,
    /// The entry in the lower layer. `None` if there is none, or if a marker file hides it.
    pub(super) lower: Option<Stat>,
    /// The parent directories that exist only in the lower layer, from the top down.
    pub(super) above: Vec<(WsPath, Stat)>,
    /// Whether the parent directory is visible in the lower layer.
    pub(super) is_in_lower_dir: bool,
}

impl Spot {
    pub(super) fn kind(&self) -> Option<FileKind> {
        self.upper.as_ref().or(self.lower.as_ref()).map(|stat| stat.kind)
    }

    /// The layer from which this path is read.
    pub(super) fn layer(&self) -> Option<Layer> {
        match (&self.upper, &self.lower) {
            (Some(_), _) => Some(Layer::Upper),
            (None, Some(_)) => Some(Layer::Lower),
            (None, None) => None,
        }
    }

    pub(super) fn is_dir_in_upper(&self) -> bool {
        is_dir(self.upper.as_ref())
    }

    /// Whether the entries of this directory in the lower layer are visible.
    pub(super) fn shows_lower(&self) -> bool {
        shows_lower(self.upper.as_ref(), self.lower.as_ref())
    }
}

fn is_dir(stat: Option<&Stat>) -> bool {
    stat.is_some_and(|stat| stat.kind.is_dir())
}

fn shows_lower(upper: Option<&Stat>, lower: Option<&Stat>) -> bool {
    is_dir(lower) && (upper.is_none() || is_dir(upper))
}

impl Overlay {
    /// Looks up `path`. A missing file is not an error, so that it can be created. It is an error
    /// if a parent directory is a file. It is also an error if a link is dangling, because nothing
    /// is created through a link.
    pub(super) async fn look(&self, verb: Verb, path: &WsPath, last: LinkHandling) -> Result<Spot> {
        self.alive(verb)?;
        Walk::new(self, verb, path, last).run().await
    }

    /// The attributes of the file or directory at `spot`, as callers see them.
    pub(super) async fn describe(&self, spot: &Spot) -> Result<Option<Stat>> {
        match (&spot.upper, &spot.lower) {
            (Some(upper), lower) if upper.kind.is_dir() => {
                self.describe_dir(&spot.path, upper, lower.as_ref()).await.map(Some)
            }
            (Some(stat), _) | (None, Some(stat)) => Ok(Some(stat.clone())),
            (None, None) => Ok(None),
        }
    }

    /// The attributes of a directory in the upper layer. If the layer does not support empty
    /// directories, the attributes come from the marker file in the directory (the keeper). If
    /// there is no keeper, they come from the lower layer.
    pub(super) async fn describe_dir(
        &self,
        path: &WsPath,
        upper: &Stat,
        lower: Option<&Stat>,
    ) -> Result<Stat> {
        if self.has_real_dirs {
            return Ok(upper.clone());
        }
        let keeper = found(self.upper.stat(&marks::keeper_in(path), KEEP).await)?;
        Ok(match (keeper, lower) {
            (Some(keeper), _) => as_dir(keeper),
            (None, Some(lower)) if lower.kind.is_dir() => lower.clone(),
            (None, _) => upper.clone(),
        })
    }
}

/// The attributes of a directory, taken from the marker file that keeps it in existence (the
/// keeper).
pub(super) fn as_dir(keeper: Stat) -> Stat {
    Stat { kind: FileKind::Dir, size: 0, version: FileVersion::new(0), ..keeper }
}

/// Converts the result of a `stat` in a layer. `None` if the path does not exist there.
pub(super) fn found(result: Result<Stat>) -> Result<Option<Stat>> {
    match result {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn ask(layer: &dyn Driver, path: &WsPath) -> Result<Option<Stat>> {
    found(layer.stat(path, KEEP).await)
}

enum Step {
    Name(String, Origin),
    Up,
    /// Marks a scope root. Later steps must not lead above the directory that is reached here.
    ScopeRoot,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Caller,
    Link,
}

struct Level {
    path: WsPath,
    upper: Option<Stat>,
    lower: Option<Stat>,
}

impl Level {
    fn kind(&self) -> Option<FileKind> {
        self.upper.as_ref().or(self.lower.as_ref()).map(|stat| stat.kind)
    }
}

struct Walk<'a> {
    overlay: &'a Overlay,
    verb: Verb,
    path: &'a WsPath,
    last: LinkHandling,
    steps: VecDeque<Step>,
    /// The directories from the root down to the current one.
    levels: Vec<Level>,
    /// The number of `levels` from the root down to the scope root. `..` must not lead above the
    /// scope root.
    floor: usize,
    /// The number of scope roots that have been passed.
    scope_roots: usize,
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(overlay: &'a Overlay, verb: Verb, path: &'a WsPath, last: LinkHandling) -> Self {
        let ScopedPathParts { scopes: scope_roots, rest } = path.split_at_scope_roots();
        let mut steps = VecDeque::new();
        for scope_root in scope_roots {
            steps.extend(names(scope_root));
            steps.push_back(Step::ScopeRoot);
        }
        steps.extend(names(rest));
        // A scope root at the end of the path applies only to what is below it.
        let is_own_scope_root = path.has_scope_root() && path.part_below_scope_root().is_empty();
        steps.extend(is_own_scope_root.then_some(Step::ScopeRoot));
        let dir = Some(root());
        let top = WsPath::root().add_access_rules_for_subtree(path.access_rules_of_scope_root(0));
        let levels = vec![Level { path: top, upper: dir.clone(), lower: dir }];
        Self { overlay, verb, path, last, steps, levels, floor: 1, scope_roots: 0, links: 0 }
    }

    async fn run(mut self) -> Result<Spot> {
        while let Some(step) = self.steps.pop_front() {
            match step {
                Step::Name(name, origin) => self.enter(&name, origin).await?,
                Step::Up => self.climb()?,
                Step::ScopeRoot => {
                    self.floor = self.levels.len();
                    self.scope_roots += 1;
                    let rules = if self.steps.is_empty() {
                        self.path.access_rules_if_path_is_scope_root()
                    } else {
                        self.path.access_rules_of_scope_root(self.scope_roots)
                    };
                    if let Some(here) = self.levels.last_mut() {
                        here.path = std::mem::take(&mut here.path)
                            .into_scope_root()
                            .add_access_rules_for_subtree(rules);
                    }
                }
            }
        }
        self.arrive().await
    }

    async fn arrive(mut self) -> Result<Spot> {
        let Some(here) = self.levels.pop() else { return Err(self.escape()) };
        let Level { path, mut upper, mut lower } = here;
        if path.is_root() {
            upper = self.told(ask(&*self.overlay.upper, &path).await)?;
            lower = self.told(ask(&*self.overlay.lower, &path).await)?;
        }
        let parent = self.levels.last();
        let is_in_lower_dir =
            parent.is_some_and(|dir| shows_lower(dir.upper.as_ref(), dir.lower.as_ref()));
        let only_in_lower = |level: Level| match (level.upper, level.lower) {
            (None, Some(stat)) => Some((level.path, stat)),
            (Some(_), _) | (None, None) => None,
        };
        let above = self.levels.into_iter().filter_map(only_in_lower).collect();
        Ok(Spot { path, upper, lower, above, is_in_lower_dir })
    }

    async fn enter(&mut self, name: &str, origin: Origin) -> Result<()> {
        let level = self.child(name).await?;
        match level.kind() {
            None if origin == Origin::Link => {
                let message = "a symbolic link in the path leads to a path that does not exist";
                return Err(self.error(ErrorKind::NotFound, message));
            }
            Some(FileKind::Symlink) if self.must_follow() => self.follow(&level).await?,
            None | Some(FileKind::File | FileKind::Dir | FileKind::Symlink | FileKind::Other) => {
                self.levels.push(level);
            }
        }
        Ok(())
    }

    fn climb(&mut self) -> Result<()> {
        self.must_be_dir()?;
        if self.levels.len() == self.floor {
            return Err(self.escape());
        }
        self.levels.pop();
        Ok(())
    }

    /// Fails unless the current level is a directory, or a directory can be created there.
    fn must_be_dir(&self) -> Result<()> {
        match self.levels.last().and_then(Level::kind) {
            None | Some(FileKind::Dir) => Ok(()),
            Some(FileKind::File | FileKind::Symlink | FileKind::Other) => {
                let message = "a parent is a file, not a directory";
                Err(self.error(ErrorKind::NotADirectory, message))
            }
        }
    }

    /// Whether a link must be followed. It is not followed only if it is at the end of the path and
    /// the caller asked for the link itself.
    fn must_follow(&self) -> bool {
        let goes_on = |step: &Step| match step {
            Step::Name(..) | Step::Up => true,
            Step::ScopeRoot => false,
        };
        self.last == LinkHandling::Follow || self.steps.iter().any(goes_on)
    }

    async fn child(&self, name: &str) -> Result<Level> {
        if is_mark(name) {
            let message = "the name is reserved for overlays";
            return Err(self.error(ErrorKind::InvalidPath, message));
        }
        self.must_be_dir()?;
        let Some(here) = self.levels.last() else { return Err(self.escape()) };
        let path = here.path.with_name(name);
        if path.is_hidden() {
            return Err(self.error(ErrorKind::NotFound, "no such file or directory"));
        }
        let (u, l) = (&*self.overlay.upper, &*self.overlay.lower);
        let in_lower = shows_lower(here.upper.as_ref(), here.lower.as_ref());
        let (upper, lower) = match (is_dir(here.upper.as_ref()), in_lower) {
            (true, true) => {
                let whiteout = here.path.with_name(&marks::whiteout(name).name);
                let (upper, hidden) = join(ask(u, &path), ask(u, &whiteout)).await;
                // Look in the lower layer last, because a commit first writes to the lower layer
                // and then removes the file from the upper layer.
                let lower = match self.told(hidden)? {
                    Some(_) => None,
                    None => self.told(ask(l, &path).await)?,
                };
                (self.told(upper)?, lower)
            }
            (true, false) => (self.told(ask(u, &path).await)?, None),
            (false, true) => (None, self.told(ask(l, &path).await)?),
            (false, false) => (None, None),
        };
        Ok(Level { path, upper, lower })
    }

    async fn follow(&mut self, link: &Level) -> Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            let message = "too many symbolic links, or a loop of links";
            return Err(self.error(ErrorKind::LinkLoop, message));
        }
        let holder = match link.upper {
            Some(_) => &self.overlay.upper,
            None => &self.overlay.lower,
        };
        let text = self.told(holder.read_link(&link.path).await)?;
        let segments = if text.starts_with('/') {
            let inside = self.inside(&text).ok_or_else(|| self.escape())?;
            self.levels.truncate(self.floor);
            inside
        } else {
            text.split('/').map(str::to_owned).collect()
        };
        for segment in segments.into_iter().rev() {
            match segment.as_str() {
                "" | "." => {}
                ".." => self.steps.push_front(Step::Up),
                _ => self.steps.push_front(Step::Name(segment, Origin::Link)),
            }
        }
        Ok(())
    }

    /// The segments of an absolute link target below the scope root. `None` if the target is not
    /// below the scope root.
    fn inside(&self, target: &str) -> Option<Vec<String>> {
        let segments: Vec<&str> =
            target.split('/').filter(|s| !s.is_empty() && *s != ".").collect();
        let scope_root: Vec<&str> =
            self.levels.get(self.floor - 1).map_or_else(Vec::new, |l| l.path.segments().collect());
        self.overlay.link_roots.iter().find_map(|root| {
            let length = root.len() + scope_root.len();
            let whole = root.iter().map(String::as_str).chain(scope_root.iter().copied());
            let matches = segments.len() >= length && whole.zip(&segments).all(|(a, b)| a == *b);
            matches.then(|| segments[length..].iter().map(|s| (*s).to_owned()).collect())
        })
    }

    fn told<T>(&self, result: Result<T>) -> Result<T> {
        super::named(self.verb, self.path, result)
    }

    fn escape(&self) -> Error {
        self.error(ErrorKind::PathEscape, "a symbolic link in the path leads out of the workspace")
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::for_path(self.verb, self.path, kind, message)
    }
}

fn names(part: &str) -> impl Iterator<Item = Step> {
    let name = |name: &str| Step::Name(name.to_owned(), Origin::Caller);
    part.split('/').filter(|name| !name.is_empty()).map(name)
}

/// Placeholder attributes for the root. The real ones are read only when they are needed.
fn root() -> Stat {
    Stat {
        kind: FileKind::Dir,
        size: 0,
        modified: std::time::SystemTime::UNIX_EPOCH,
        accessed: None,
        created: None,
        mode: None,
        version: FileVersion::new(0),
    }
}
