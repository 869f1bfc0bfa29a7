//! A view that hides paths, protects paths from changes, and sets environment variables of
//! commands.
//!
//! The view checks the paths of a call by their names. It also adds the restrictions to each path
//! as access rules. The driver follows links, and uses these rules to check the file that it has
//! really opened. For commands, the restrictions are part of the request, and the sandbox enforces
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::call::Verb;
use crate::driver::{BackendInfo, Driver, File};
use crate::effective_policy::EffectivePolicy;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{
    DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat, WalkProblem,
};
use crate::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteMode, WriteOptions,
};
use crate::path::{AccessRules, WsPath};
use crate::process::{ExecRequest, PathRestrictions, Process, ProcessId, ProcessInfo};
use crate::search::{SearchQuery, SearchResults};
use crate::status::StatusPublisher;

/// Maximum number of paths that one handle may restrict.
pub const MAX_PATH_RESTRICTIONS: usize = 256;

/// A set of paths that is defined by a function.
#[derive(Clone)]
pub struct PathFilter(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl PathFilter {
    /// A filter that contains the paths for which `hides` returns `true`.
    pub fn new(hides: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(hides))
    }

    pub(crate) fn hides(&self, path: &str) -> bool {
        (self.0)(path)
    }
}

/// Two filters are equal if one is a clone of the other.
impl PartialEq for PathFilter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PathFilter {}

impl std::fmt::Debug for PathFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PathFilter")
    }
}

/// The filters that a handle applies to paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathFilters {
    /// Paths that are omitted from listings and search results. Other calls on them are refused by
    /// a guard.
    pub hidden_from_listings: Option<PathFilter>,
    /// Paths that do not exist for the caller. The local driver checks the path of the file that it
    /// has really opened. The file can therefore not be reached by another path. Commands can use
    /// these files.
    pub hidden: Option<PathFilter>,
}

impl PathFilters {
    pub(crate) fn is_empty(&self) -> bool {
        self.hidden_from_listings.is_none() && self.hidden.is_none()
    }
}

#[derive(Debug)]
pub(crate) struct Restricted {
    inner: Arc<dyn Driver>,
    restrictions: PathRestrictions,
    env: BTreeMap<String, String>,
    rules: Arc<AccessRules>,
    filter: Option<PathFilter>,
}

impl Restricted {
    pub(crate) fn new(
        inner: Arc<dyn Driver>,
        restrictions: PathRestrictions,
        env: BTreeMap<String, String>,
        filters: PathFilters,
    ) -> Result<Self> {
        let refused = |message: String| {
            Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message))
        };
        let PathRestrictions { hidden, read_only, host_directories: binds } = &restrictions;
        if hidden.len() + read_only.len() + binds.len() > MAX_PATH_RESTRICTIONS {
            return refused(format!("more than {MAX_PATH_RESTRICTIONS} restrictions"));
        }
        if hidden.iter().any(WsPath::is_root) {
            return refused("the root of a workspace cannot be hidden".to_owned());
        }
        if let Some(bind) = binds.iter().find(|bind| !bind.path.starts_with('/')) {
            let path = &bind.path;
            return refused(format!("cannot bind '{path}': the path must be absolute"));
        }
        let rules = AccessRules::new(hidden, read_only);
        let PathFilters { hidden_from_listings: unlisted, hidden } = filters;
        let rules = match hidden {
            Some(hidden) => rules.with_filter(hidden),
            None => rules,
        };
        Ok(Self { inner, restrictions, env, rules: Arc::new(rules), filter: unlisted })
    }

    /// The same restrictions over `inner`, which is another driver of the same workspace.
    pub(crate) fn over(&self, inner: Arc<dyn Driver>) -> Self {
        let (restrictions, env) = (self.restrictions.clone(), self.env.clone());
        let (rules, filter) = (self.rules.clone(), self.filter.clone());
        Self { inner, restrictions, env, rules, filter }
    }

    /// Adds the access rules to the path. Fails if the path is hidden.
    fn look(&self, verb: Verb, path: &WsPath) -> Result<WsPath> {
        let ruled = path.clone().with_access_rules(&self.rules);
        if ruled.is_hidden() {
            Err(Error::for_path(verb, path, ErrorKind::NotFound, "no such file or directory"))
        } else {
            Ok(ruled)
        }
    }

    /// Adds the access rules to the path. Fails if the path must not be changed.
    fn change(&self, verb: Verb, path: &WsPath) -> Result<WsPath> {
        let ruled = path.clone().with_access_rules(&self.rules);
        if ruled.is_write_protected() {
            Err(Error::for_write_protected_path(verb, path))
        } else {
            Ok(ruled)
        }
    }

    /// Like `change`, for a rename or removal. Fails also if something below the path is
    /// restricted.
    fn displace(&self, verb: Verb, path: &WsPath) -> Result<WsPath> {
        let ruled = self.change(verb, path)?;
        if ruled.is_or_contains_restricted_path() {
            Err(Error::for_write_protected_path(verb, path))
        } else {
            Ok(ruled)
        }
    }

    /// Whether a path in a result may be shown. Most drivers have already removed hidden paths.
    fn shows(&self, path: &mut WsPath) -> bool {
        let ruled = std::mem::take(path).without_access_rules().with_access_rules(&self.rules);
        let hidden = ruled.is_hidden();
        *path = ruled.without_access_rules();
        !hidden && !self.is_filtered(path.as_str())
    }

    fn shows_problem(&self, problem: &WalkProblem) -> bool {
        !WsPath::from_key(&problem.path).with_access_rules(&self.rules).is_hidden()
            && !self.is_filtered(&problem.path)
    }

    fn is_filtered(&self, path: &str) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.hides(path))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Restricted {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        self.inner.stat(&self.look(Verb::Stat, path)?, options).await
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        let mut listing = self.inner.list(&self.look(Verb::List, path)?, options).await?;
        listing.entries.retain_mut(|entry| self.shows(&mut entry.path));
        listing.problems.retain(|problem| self.shows_problem(problem));
        Ok(listing)
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        let root = self.look(Verb::Search, &query.root)?;
        let mut found = self.inner.search(&SearchQuery { root, ..query.clone() }).await?;
        found.matches.retain_mut(|item| self.shows(item.path_mut()));
        found.problems.retain(|problem| self.shows_problem(problem));
        Ok(found)
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        self.inner.read(&self.look(Verb::Read, path)?, options).await
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        let verb = match options.mode {
            WriteMode::CreateIfMissing => Verb::Touch,
            WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::Replace => Verb::Write,
        };
        self.inner.write(&self.change(verb, path)?, content, options).await
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        let path = if options.may_modify() {
            self.change(Verb::Open, path)?
        } else {
            self.look(Verb::Open, path)?
        };
        self.inner.open(&path, options).await
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        self.inner.set_attributes(&self.change(Verb::SetAttributes, path)?, attributes).await
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        self.inner.read_link(&self.look(Verb::ReadLink, path)?).await
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        self.inner.symlink(&self.change(Verb::Symlink, path)?, target).await
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        self.inner.create_dir(&self.change(Verb::Mkdir, path)?).await
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        self.inner.remove(&self.displace(Verb::Delete, path)?, options).await
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let from = self.displace(Verb::Rename, from)?;
        let to = self.displace(Verb::Rename, to)?;
        self.inner.rename(&from, &to, options).await
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        self.inner.disk_space().await
    }

    async fn exec(&self, mut request: ExecRequest) -> Result<Process> {
        request.cwd = self.look(Verb::Exec, &request.cwd)?;
        request.restrictions = request.restrictions.merged_with(self.restrictions.clone());
        for (name, value) in &self.env {
            request.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self.inner.exec(request).await
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        self.inner.processes().await
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        self.inner.attach(id, from).await
    }

    fn info(&self) -> BackendInfo {
        self.inner.info()
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.inner.effective_policy().await
    }

    fn status_publisher(&self) -> &StatusPublisher {
        self.inner.status_publisher()
    }

    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect> {
        self.inner.query_lost_call(ticket).await
    }

    async fn connect(&self) -> Result<()> {
        self.inner.connect().await
    }

    /// Does nothing, because a view must not destroy the workspace that it restricts.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
