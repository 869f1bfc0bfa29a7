//! Confines the access to workspace files: every file is opened relative to a directory handle and
//! cannot lie outside of that directory.
//!
//! The kernel resolves paths (`openat2` with `RESOLVE_BENEATH`). There is no separate check before
//! the use, so no process can replace a directory by a link between a check and the use. [`walk`]
//! resolves the path one component at a time by handles if the kernel does not have this call, or
//! if it reports that the path leaves the directory. Unlike the kernel, [`walk`] also follows
//! absolute links that point inside. No path is ever compared with a prefix as text.
//!
//! A path may carry the rules of restricted handles. The rules are applied to the real path of each
//! file, not to the caller's text. The real path is known in both cases: either the kernel met no
//! link, or [`walk`] followed each link itself.

mod access;
mod walk;

use std::path::Path;

use ab_core::WsPath;
use ab_core::path::ScopedPathParts;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

pub(crate) use access::Purpose;
pub(crate) use walk::{Final, Missing, Spot};

/// How often a resolution is repeated if it raced with a rename.
const RACE_RETRIES: usize = 8;

/// Why a path could not be opened.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A link in the path leads out of the workspace or the scope.
    Escape,
    /// A link leads to a missing file, which a change must not create.
    Dangling(String),
    /// The access rules of the path forbid the change.
    Kept,
    Os(Errno),
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Fault::Os(errno)
    }
}

/// How paths are resolved on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolver {
    /// The kernel resolves a path in one call.
    Kernel,
    /// Our code resolves a path, one component at a time.
    Walk,
}

/// A directory. Files that are opened through it cannot lie outside of it.
#[derive(Debug)]
pub(crate) struct Jail {
    root: OwnedFd,
    /// The absolute paths of the root, as segments. They are used to recognize absolute links that
    /// point inside.
    aliases: Vec<Vec<String>>,
    resolver: Resolver,
}

/// The directory below which the last part of a path is resolved. This is the root, or the
/// innermost scope root.
enum Base<'a> {
    Root(BorrowedFd<'a>),
    ScopeRoot(OwnedFd),
}

impl AsFd for Base<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Base::Root(root) => *root,
            Base::ScopeRoot(scope_root) => scope_root.as_fd(),
        }
    }
}

/// A path whose scope roots have been opened: the innermost one (`base`), and the rest of the path,
/// which is resolved below it.
struct Way<'a, 'p> {
    base: Base<'a>,
    /// The real path of the base, with the rules that apply below it. If the path has no rules,
    /// this is the root.
    place: WsPath,
    /// The path of the base in the workspace, as segments. It is needed for absolute links that
    /// name the base.
    above: Vec<&'p str>,
    rest: &'p str,
}

impl Jail {
    pub(crate) fn new(root: OwnedFd, aliases: &[impl AsRef<Path>]) -> Self {
        let segments = |alias: &Path| -> Option<Vec<String>> {
            alias
                .to_str()
                .map(|text| text.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect())
        };
        let resolver = match probe(root.as_fd()) {
            // These errors mean that an old kernel or a sandbox refuses the call. Any other error
            // is temporary.
            Err(Errno::NOSYS | Errno::PERM | Errno::NOTSUP | Errno::INVAL) => Resolver::Walk,
            Ok(()) | Err(_) => Resolver::Kernel,
        };
        let aliases = aliases.iter().filter_map(|alias| segments(alias.as_ref())).collect();
        Self { root, aliases, resolver }
    }

    /// Returns the same jail, but without the use of `openat2`.
    pub(crate) fn walking(mut self) -> Self {
        self.resolver = Resolver::Walk;
        self
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens the file at `path` to read it or its metadata.
    pub(crate) fn open(&self, path: &WsPath, flags: OFlags, last: Final) -> Result<OwnedFd, Fault> {
        self.open_to(Purpose::Look, path, flags, last)
    }

    /// Opens the file at `path` for the given purpose.
    pub(crate) fn open_to(
        &self,
        purpose: Purpose,
        path: &WsPath,
        flags: OFlags,
        last: Final,
    ) -> Result<OwnedFd, Fault> {
        let way = self.way(path, Missing::Fail)?;
        Ok(self.open_on(&way, flags, last, purpose)?.0)
    }

    /// Opens the file at `path` to read it and everything below it. Also returns its real path with
    /// the rules that apply there. If the path has no rules, this is the root.
    pub(crate) fn locate(
        &self,
        path: &WsPath,
        flags: OFlags,
        last: Final,
    ) -> Result<(OwnedFd, WsPath), Fault> {
        let way = self.way(path, Missing::Fail)?;
        let (handle, place) = self.open_on(&way, flags, last, Purpose::Look)?;
        let rules = path.access_rules_if_path_is_scope_root();
        if rules.is_empty() {
            return Ok((handle, place));
        }
        let above: Vec<&str> = path.segments().collect();
        let place = self.with_rules(place, handle.as_fd(), rules, &above);
        Ok((handle, place))
    }

    fn open_on(
        &self,
        way: &Way<'_, '_>,
        flags: OFlags,
        last: Final,
        purpose: Purpose,
    ) -> Result<(OwnedFd, WsPath), Fault> {
        let flags = flags | OFlags::CLOEXEC;
        let kernel_flags = match last {
            Final::Follow => flags,
            Final::Keep => flags | OFlags::NOFOLLOW,
        };
        let (place, resolve) = if way.place.has_access_rules() {
            // If no part of the path is a link, the path is the real path.
            (way.place.join_unchecked(way.rest), ResolveFlags::NO_SYMLINKS)
        } else {
            (WsPath::root(), ResolveFlags::empty())
        };
        purpose.judge(&place)?;
        match self.kernel(way.base.as_fd(), way.rest, kernel_flags, resolve) {
            Some(Ok(fd)) => return Ok((fd, place)),
            Some(Err(Errno::XDEV)) | None => {}
            Some(Err(Errno::LOOP)) if way.place.has_access_rules() => {}
            Some(Err(errno)) => return Err(errno.into()),
        }
        for _ in 0..RACE_RETRIES {
            let spot = self.walk(way, last, Missing::Fail, purpose)?;
            match spot.open(flags) {
                // Another process has put a link at this name, so resolve the path again.
                Err(Fault::Os(Errno::LOOP)) if last == Final::Follow => {}
                result => return result.map(|handle| (handle, spot.place)),
            }
        }
        Err(Errno::LOOP.into())
    }

    /// Opens the file at `path` if this needs no disk access. Otherwise returns `None`, and the
    /// caller must use [`open`](Self::open).
    pub(crate) fn open_cached(&self, path: &WsPath, flags: OFlags) -> Option<OwnedFd> {
        if self.resolver != Resolver::Kernel {
            return None;
        }
        let mut resolve = beneath() | ResolveFlags::CACHED;
        if path.has_access_rules() {
            if path.is_hidden() || access::may_lead_through_links(path) {
                return None;
            }
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        let open = |base: BorrowedFd<'_>, part: &str, flags| {
            openat2(base, or_dot(part), flags | OFlags::CLOEXEC, Mode::empty(), resolve).ok()
        };
        if !path.has_scope_root() {
            return open(self.root(), path.as_str(), flags);
        }
        let ScopedPathParts { scopes: scope_roots, rest } = path.split_at_scope_roots();
        let mut base = Base::Root(self.root());
        for scope_root in scope_roots {
            base =
                Base::ScopeRoot(open(base.as_fd(), scope_root, OFlags::PATH | OFlags::DIRECTORY)?);
        }
        open(base.as_fd(), rest, flags)
    }

    /// Resolves `path` to a directory and a name, to read the file or its metadata.
    pub(crate) fn spot(&self, path: &WsPath, last: Final, missing: Missing) -> Result<Spot, Fault> {
        self.spot_to(Purpose::Look, path, last, missing)
    }

    /// Resolves `path` to the directory and the name that a change acts on.
    pub(crate) fn spot_to(
        &self,
        purpose: Purpose,
        path: &WsPath,
        last: Final,
        missing: Missing,
    ) -> Result<Spot, Fault> {
        let way = self.way(path, missing)?;
        let (parent, name) = way.rest.rsplit_once('/').unwrap_or(("", way.rest));
        if name.is_empty() {
            // The path is the root, and only the walk returns a spot without a name.
            return self.walk(&way, last, missing, purpose);
        }
        let place = if way.place.has_access_rules() {
            way.place.join_unchecked(way.rest)
        } else {
            WsPath::root()
        };
        purpose.judge(&place)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = self.kernel(way.base.as_fd(), parent, flags, ResolveFlags::NO_SYMLINKS);
        if let Some(Ok(directory)) = directory {
            let spot = Spot::at(directory, name, place);
            if last == Final::Keep || !spot.is_link()? {
                return Ok(spot);
            }
        }
        self.walk(&way, last, missing, purpose)
    }

    /// Creates a directory, including its missing parents.
    pub(crate) fn make_dir(&self, path: &WsPath) -> Result<(), Fault> {
        let way = self.way(path, Missing::MakeAll)?;
        self.make_on(&way)
    }

    fn make_on(&self, way: &Way<'_, '_>) -> Result<(), Fault> {
        if !way.place.has_access_rules() {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let there = self.kernel(way.base.as_fd(), way.rest, flags, ResolveFlags::empty());
            if let Some(Ok(_)) = there {
                return Ok(());
            }
        }
        self.walk(way, Final::Follow, Missing::MakeAll, Purpose::Change).map(|_| ())
    }

    /// Returns whether an absolute link target points below `scope_root`.
    pub(crate) fn points_inside(&self, target: &str, scope_root: &WsPath) -> bool {
        let above: Vec<&str> = scope_root.segments().collect();
        let inside = self.inside(target, &above);
        inside.is_some_and(|segments| !segments.iter().any(|segment| segment == ".."))
    }

    /// Opens the scope roots of `path`. Each scope root is opened relative to the previous one, so
    /// that no link between them leads out of a scope root. Missing scope roots are created unless
    /// `missing` is [`Missing::Fail`].
    fn way<'p>(&self, path: &'p WsPath, missing: Missing) -> Result<Way<'_, 'p>, Fault> {
        let ScopedPathParts { scopes: scope_roots, rest } = path.split_at_scope_roots();
        let place = if path.has_access_rules() {
            self.with_rules(WsPath::root(), self.root(), path.access_rules_of_scope_root(0), &[])
        } else {
            WsPath::root()
        };
        let mut way = Way { base: Base::Root(self.root()), place, above: Vec::new(), rest };
        for (index, scope_root) in scope_roots.into_iter().enumerate() {
            way.rest = scope_root;
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let opened = match self.open_on(&way, flags, Final::Follow, Purpose::Look) {
                Err(Fault::Os(Errno::NOENT)) if missing != Missing::Fail => {
                    self.make_on(&way)?;
                    self.open_on(&way, flags, Final::Follow, Purpose::Look)
                }
                result => result,
            };
            let (handle, mut place) = opened?;
            way.above.extend(scope_root.split('/'));
            if path.has_access_rules() {
                // If no rules applied so far, the real path is not known. It is not needed for the
                // rules that start here.
                let rules = path.access_rules_of_scope_root(index + 1);
                place = self.with_rules(place, handle.as_fd(), rules, &way.above);
            }
            way.place = place;
            way.base = Base::ScopeRoot(handle);
            way.rest = rest;
        }
        Ok(way)
    }

    /// Calls `openat2`, and repeats the call if a concurrent rename made it fail. Returns `None` if
    /// the call is not available, or if all repetitions fail because of renames.
    fn kernel(
        &self,
        base: BorrowedFd<'_>,
        below: &str,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Option<Result<OwnedFd, Errno>> {
        if self.resolver == Resolver::Walk {
            return None;
        }
        for _ in 0..RACE_RETRIES {
            match openat2(base, or_dot(below), flags, Mode::empty(), beneath() | resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Some(result),
            }
        }
        None
    }

    fn walk(
        &self,
        way: &Way<'_, '_>,
        last: Final,
        missing: Missing,
        purpose: Purpose,
    ) -> Result<Spot, Fault> {
        let inside = |target: &str| self.inside(target, &way.above);
        let from = walk::Start { base: way.base.as_fd(), place: &way.place };
        walk::walk(from, way.rest, walk::WalkOptions { last, missing, purpose }, &inside)
    }

    /// Returns the segments of an absolute link target below `above`. `None` if the target is
    /// elsewhere.
    fn inside(&self, target: &str, above: &[&str]) -> Option<Vec<String>> {
        let segments: Vec<&str> =
            target.split('/').filter(|s| !s.is_empty() && *s != ".").collect();
        self.aliases.iter().find_map(|alias| {
            let rest = strip(&segments, alias.iter().map(String::as_str))?;
            let rest = strip(rest, above.iter().copied())?;
            Some(rest.iter().map(|s| (*s).to_owned()).collect())
        })
    }
}

fn strip<'a, 's>(
    segments: &'a [&'s str],
    prefix: impl ExactSizeIterator<Item = &'a str>,
) -> Option<&'a [&'s str]> {
    let length = prefix.len();
    let matches = segments.len() >= length && prefix.zip(segments).all(|(a, b)| a == *b);
    matches.then(|| &segments[length..])
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS
}

fn or_dot(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

/// Checks that the kernel can confine an open to a directory: `.` must work, and `..` must be
/// refused.
pub(crate) fn probe(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(directory, ".", flags, Mode::empty(), beneath())?;
    match openat2(directory, "..", flags, Mode::empty(), beneath()) {
        Err(Errno::XDEV) => Ok(()),
        Err(errno) => Err(errno),
        Ok(_) => Err(Errno::NOTSUP),
    }
}

/// Opens a file below a directory without following any link, including a link at the end of the
/// path.
pub(crate) fn open_plain(
    top: BorrowedFd<'_>,
    below: &WsPath,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = beneath() | ResolveFlags::NO_SYMLINKS;
    match openat2(top, or_dot(below.as_str()), flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::AGAIN | Errno::PERM) => {}
        result => return result,
    }
    let mut handle = openat(top, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let mut segments = below.segments().peekable();
    while let Some(segment) = segments.next() {
        let flags = match segments.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            None => flags,
        };
        handle = openat(&handle, segment, flags, Mode::empty())?;
    }
    Ok(handle)
}

/// Opens a directory of the host outside of any jail, for example the root of a jail.
pub(crate) fn open_host_dir(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(rustix::fs::CWD, path, flags, Mode::empty())
}
