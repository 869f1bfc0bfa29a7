//! Backend factories: any async function, or one of the ready-made factories.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use ab_api::SessionId;
use ab_core::backend::OverlayWorkspace;
use ab_core::{Backend, Error, ErrorCode, ErrorKind, Result, ScopeOptions};
use ab_host::MissingRootPolicy;
use ab_local::LocalWorkspaceConfig;
use async_trait::async_trait;

use super::context::SessionContext;
use crate::pool::{BackendLease, BackendLeaseRequest, BackendPool};
use crate::{RemoteConfig, ServeClient};

/// Makes the backend of a session. Called once, when the session starts.
///
/// A closure that takes a [`SessionContext`] and returns a future is a factory. So is a
/// [`Backend`], which all sessions of the definition then share.
#[async_trait]
pub trait BackendFactory: Send + Sync {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend>;
}

#[async_trait]
impl<F, Made, B> BackendFactory for F
where
    F: Fn(SessionContext) -> Made + Send + Sync,
    Made: Future<Output = Result<B>> + Send,
    B: Into<SessionBackend>,
{
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        Ok(self(context).await?.into())
    }
}

#[async_trait]
impl BackendFactory for Backend {
    async fn make_backend(&self, _: SessionContext) -> Result<SessionBackend> {
        Ok(self.clone().into())
    }
}

/// The backend of a session, with the values that must live as long as the session.
#[derive(Debug)]
pub struct SessionBackend {
    pub(super) backend: Backend,
    pub(super) overlay: Option<OverlayWorkspace>,
    /// Counts the backend as in use.
    pub(super) _lease: Option<BackendLease>,
    /// The backend that this one is a part of.
    pub(super) _parent: Option<Arc<SessionBackend>>,
}

impl SessionBackend {
    /// A handle for a sub-agent, which keeps the backend of its parent in use.
    pub(super) fn part_of(parent: Arc<SessionBackend>, backend: Backend) -> Self {
        Self { _parent: Some(parent), ..backend.into() }
    }
}

impl From<Backend> for SessionBackend {
    fn from(backend: Backend) -> Self {
        Self { backend, overlay: None, _lease: None, _parent: None }
    }
}

impl From<OverlayWorkspace> for SessionBackend {
    fn from(overlay: OverlayWorkspace) -> Self {
        Self { overlay: Some(overlay.clone()), ..overlay.backend().clone().into() }
    }
}

impl From<BackendLease> for SessionBackend {
    /// The lease ends with the session, its tools and its sub-agents.
    fn from(lease: BackendLease) -> Self {
        let backend = Backend::clone(&lease);
        Self { _lease: Some(lease), ..backend.into() }
    }
}

/// A directory on this machine for each session, named by the session's id. It is created if it is
/// missing.
#[derive(Clone, Debug)]
pub struct DirectoryPerSession {
    config: LocalWorkspaceConfig,
}

impl DirectoryPerSession {
    /// Directories below `base`, which is created if it is missing.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self::with_config(LocalWorkspaceConfig::new(base))
    }

    /// The same with all settings. The root of `config` is the base.
    pub fn with_config(config: LocalWorkspaceConfig) -> Self {
        Self { config }
    }
}

#[async_trait]
impl BackendFactory for DirectoryPerSession {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        let mut config = self.config.clone();
        config.root.push(context.session_id.as_str());
        config.options.missing_root = MissingRootPolicy::Create;
        Ok(crate::local_with(config)?.into())
    }
}

/// A subdirectory of one workspace for each session, named by the session's id.
#[derive(Clone, Debug)]
pub struct ScopePerSession {
    workspace: Backend,
}

impl ScopePerSession {
    pub fn new(workspace: Backend) -> Self {
        Self { workspace }
    }
}

#[async_trait]
impl BackendFactory for ScopePerSession {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        Ok(self.workspace.scope(context.session_id.as_str(), ScopeOptions::default())?.into())
    }
}

/// One workspace for all sessions, with the changes of each session in a separate layer.
/// [`AgentSession::overlay`](super::AgentSession::overlay) shows, commits or discards them.
#[derive(Clone)]
pub struct OverlayPerSession {
    lower: Backend,
    uppers: Arc<dyn BackendFactory>,
}

impl OverlayPerSession {
    /// Changes are stored in memory.
    pub fn new(lower: Backend) -> Self {
        Self { lower, uppers: Arc::new(MemoryPerSession) }
    }

    /// Changes are stored in the backends that `uppers` makes.
    pub fn keep_changes_in(mut self, uppers: impl BackendFactory + 'static) -> Self {
        self.uppers = Arc::new(uppers);
        self
    }
}

#[async_trait]
impl BackendFactory for OverlayPerSession {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        let upper = self.uppers.make_backend(context).await?;
        let overlay = self.lower.overlay(&upper.backend)?;
        Ok(SessionBackend { _lease: upper._lease, _parent: upper._parent, ..overlay.into() })
    }
}

impl fmt::Debug for OverlayPerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayPerSession").field("lower", &self.lower).finish_non_exhaustive()
    }
}

/// An empty workspace in memory for each session.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryPerSession;

#[async_trait]
impl BackendFactory for MemoryPerSession {
    async fn make_backend(&self, _: SessionContext) -> Result<SessionBackend> {
        Ok(crate::memory().into())
    }
}

/// A directory of a remote workspace for each session, named by the session's id. Each session has
/// its own connection.
#[derive(Clone, Debug)]
pub struct RemotePerSession {
    config: RemoteConfig,
}

impl RemotePerSession {
    /// Directories in the workspace of `config`: a daemon, or any SSH server.
    pub fn new(config: RemoteConfig) -> Self {
        Self { config }
    }
}

#[async_trait]
impl BackendFactory for RemotePerSession {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        let backend = crate::remote_with(self.config.clone())?;
        backend.connect().await?;
        Ok(backend.scope(context.session_id.as_str(), ScopeOptions::default())?.into())
    }
}

/// The backend of a pool with the session's id as the key. The session, its tools and its sub-agents
/// hold a lease: the pool cleans up backends that none of them uses.
#[derive(Debug)]
pub struct PooledPerSession<C> {
    pool: Arc<BackendPool<C>>,
}

impl<C> PooledPerSession<C> {
    pub fn new(pool: Arc<BackendPool<C>>) -> Self {
        Self { pool }
    }
}

#[async_trait]
impl<C: Clone + Send + Sync + 'static> BackendFactory for PooledPerSession<C> {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        let lease =
            self.pool.acquire(BackendLeaseRequest::for_key(context.session_id.as_str())).await?;
        Ok(lease.into())
    }
}

/// The workspace of a session of `agent-backend serve` on this machine, for example to inspect or
/// continue the work of a coding agent. Commands run in a sandbox of this process, not in that of
/// the coding agent.
#[derive(Clone, Debug)]
pub struct ServeSessionWorkspace {
    client: ServeClient,
    session: SessionId,
}

impl ServeSessionWorkspace {
    pub fn new(client: ServeClient, session: SessionId) -> Self {
        Self { client, session }
    }
}

#[async_trait]
impl BackendFactory for ServeSessionWorkspace {
    async fn make_backend(&self, _: SessionContext) -> Result<SessionBackend> {
        let session = self.client.session(self.session).await?;
        let Some(directory) = session.workspace.mount_path else {
            let message = format!("session {} has no workspace yet", self.session);
            return Err(Error::new(ErrorCode::Conflict, ErrorKind::Conflict, message)
                .with_hint("wait until its status is running"));
        };
        let opened = crate::local(&directory).map_err(|error| {
            error.with_hint(
                "the session must run on this machine, and its workspace must not be removed",
            )
        });
        Ok(opened?.into())
    }
}
