//! The view that hides paths and keeps others from being changed.
//!
//! For files it looks where the links on a path lead just before each call; whoever may change
//! links meanwhile can win that race. For commands the restrictions travel with the request, and
//! the sandbox makes walls of them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::call::Verb;
use crate::driver::{Driver, File, Info};
use crate::effective::EffectivePolicy;
use crate::error::{Code, Error, Kind, Result};
use crate::metadata::{Content, FileKind, Listing, Removed, Renamed, Space, Stat};
use crate::options::{
    Attributes, Links, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteMode, WriteOptions,
};
use crate::path::{PathRules, WsPath};
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo, Restrictions};
use crate::search::{Found, Query};
use crate::status::StatusHub;
use crate::ticket::{Effect, Ticket};

/// Links that are followed on one path before it counts as a circle.
const MAX_LINKS: usize = 40;
/// Paths that one handle may restrict.
pub const MAX_RESTRICTIONS: usize = 256;

#[derive(Debug)]
pub(crate) struct Restricted {
    inner: Arc<dyn Driver>,
    restrictions: Restrictions,
}

impl From<Restricted> for Arc<dyn Driver> {
    fn from(restricted: Restricted) -> Self {
        Arc::new(restricted)
    }
}

impl Restricted {
    pub(crate) fn new(inner: Arc<dyn Driver>, restrictions: Restrictions) -> Result<Self> {
        let refused =
            |message: String| Err(Error::new(Code::InvalidConfiguration, Kind::Invalid, message));
        let Restrictions { hidden, read_only, binds } = &restrictions;
        if hidden.len() + read_only.len() + binds.len() > MAX_RESTRICTIONS {
            return refused(format!("more than {MAX_RESTRICTIONS} restrictions"));
        }
        if hidden.iter().any(WsPath::is_root) {
            return refused("the root of a workspace cannot be hidden".to_owned());
        }
        if let Some(bind) = binds.iter().find(|bind| !bind.path.starts_with('/')) {
            return refused(format!("the directory to bind is not absolute: '{}'", bind.path));
        }
        Ok(Self { inner, restrictions })
    }

    fn hides(&self, path: &WsPath) -> bool {
        self.restrictions.hidden.iter().any(|hidden| path.starts_with(hidden))
    }

    fn keeps(&self, path: &WsPath) -> bool {
        self.restrictions.read_only.iter().any(|kept| path.starts_with(kept))
    }

    /// Whether something below `path` is restricted, so that moving or removing `path` would do to
    /// it what may not be done.
    fn holds_restricted(&self, path: &WsPath) -> bool {
        let Restrictions { hidden, read_only, .. } = &self.restrictions;
        hidden.iter().chain(read_only).any(|restricted| restricted.starts_with(path))
    }

    /// Where `path` leads, by the links that are there now.
    async fn landing(&self, verb: Verb, path: &WsPath, last: Links) -> Result<WsPath> {
        let mut rest: Vec<String> = path.segments().rev().map(str::to_owned).collect();
        let mut at = WsPath::root();
        let mut links = 0;
        while let Some(segment) = rest.pop() {
            let next = at.child(&segment)?;
            if rest.is_empty() && last == Links::Keep {
                return Ok(next);
            }
            // Along the fences of the path itself, so that no look leaves them.
            let seen = self.inner.stat(&next, StatOptions { links: Links::Keep }).await;
            match seen {
                Ok(stat) if stat.kind == FileKind::Symlink => {}
                _ => {
                    at = next;
                    continue;
                }
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Error::on(verb, path, Kind::LinkLoop, "links in a circle"));
            }
            let target = self.inner.read_link(&next).await?;
            let Some(target) = self.target(&at, &target) else {
                // It leaves the workspace: whoever opens it is refused.
                return Ok(next);
            };
            rest.extend(target.segments().rev().map(str::to_owned));
            at = WsPath::root();
        }
        Ok(at)
    }

    /// A link's target as a path of the workspace, where it is one.
    fn target(&self, directory: &WsPath, target: &str) -> Option<WsPath> {
        if !target.starts_with('/') {
            let joined = match directory.is_root() {
                true => target.to_owned(),
                false => format!("{directory}/{target}"),
            };
            return PathRules::lenient().parse(&joined).ok();
        }
        let aliases = self.inner.info().root_aliases;
        let below = aliases.iter().find_map(|alias| {
            let rest = target.strip_prefix(alias.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
        })?;
        PathRules::lenient().parse(if below.is_empty() { "." } else { below }).ok()
    }

    async fn look(&self, verb: Verb, path: &WsPath, last: Links) -> Result<()> {
        if self.hides(path) || self.hides(&self.landing(verb, path, last).await?) {
            return Err(Error::on(verb, path, Kind::NotFound, "no such file or directory"));
        }
        Ok(())
    }

    async fn change(&self, verb: Verb, path: &WsPath, last: Links) -> Result<()> {
        let landing = self.landing(verb, path, last).await?;
        for each in [path, &landing] {
            if self.hides(each) || self.keeps(each) {
                return Err(self.kept(verb, path));
            }
        }
        Ok(())
    }

    /// Moving or removing: also what is below must be free.
    async fn displace(&self, verb: Verb, path: &WsPath) -> Result<()> {
        self.change(verb, path, Links::Keep).await?;
        let landing = self.landing(verb, path, Links::Keep).await?;
        match self.holds_restricted(path) || self.holds_restricted(&landing) {
            true => Err(self.kept(verb, path)),
            false => Ok(()),
        }
    }

    fn kept(&self, verb: Verb, path: &WsPath) -> Error {
        let message = "not to be changed through this handle";
        Error::on(verb, path, Kind::PermissionDenied, message)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Restricted {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        self.look(Verb::Stat, path, options.links).await?;
        self.inner.stat(path, options).await
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        self.look(Verb::List, path, Links::Follow).await?;
        let mut listing = self.inner.list(path, options).await?;
        listing.entries.retain(|entry| !self.hides(&entry.path));
        Ok(listing)
    }

    async fn search(&self, query: &Query) -> Result<Found> {
        self.look(Verb::Search, &query.root, Links::Follow).await?;
        let mut found = self.inner.search(query).await?;
        found.matches.retain(|item| !self.hides(item.path()));
        Ok(found)
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<Content> {
        self.look(Verb::Read, path, Links::Follow).await?;
        self.inner.read(path, options).await
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        let verb = match options.mode {
            WriteMode::CreateIfMissing => Verb::Touch,
            WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::Replace => Verb::Write,
        };
        self.change(verb, path, Links::Follow).await?;
        self.inner.write(path, content, options).await
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        match options.access.writes() {
            true => self.change(Verb::Open, path, Links::Follow).await?,
            false => self.look(Verb::Open, path, Links::Follow).await?,
        }
        self.inner.open(path, options).await
    }

    async fn set_attributes(&self, path: &WsPath, attributes: Attributes) -> Result<Stat> {
        self.change(Verb::SetAttributes, path, Links::Follow).await?;
        self.inner.set_attributes(path, attributes).await
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        self.look(Verb::ReadLink, path, Links::Keep).await?;
        self.inner.read_link(path).await
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        self.change(Verb::Symlink, path, Links::Keep).await?;
        self.inner.symlink(path, target).await
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        self.change(Verb::Mkdir, path, Links::Follow).await?;
        self.inner.create_dir(path).await
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<Removed> {
        self.displace(Verb::Delete, path).await?;
        self.inner.remove(path, options).await
    }

    async fn rename(&self, from: &WsPath, to: &WsPath, options: RenameOptions) -> Result<Renamed> {
        self.displace(Verb::Rename, from).await?;
        self.displace(Verb::Rename, to).await?;
        self.inner.rename(from, to, options).await
    }

    async fn space(&self) -> Result<Space> {
        self.inner.space().await
    }

    async fn exec(&self, mut request: ExecRequest) -> Result<Process> {
        self.look(Verb::Exec, &request.cwd, Links::Follow).await?;
        request.restrictions = request.restrictions.and(self.restrictions.clone());
        self.inner.exec(request).await
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        self.inner.processes().await
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        self.inner.attach(id, from).await
    }

    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.inner.effective_policy().await
    }

    fn status(&self) -> &StatusHub {
        self.inner.status()
    }

    async fn outcome(&self, ticket: &Ticket) -> Result<Effect> {
        self.inner.outcome(ticket).await
    }

    async fn connect(&self) -> Result<()> {
        self.inner.connect().await
    }

    /// Holds nothing of its own, and must not end what it restricts.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
