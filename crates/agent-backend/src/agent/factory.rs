//! Backend factories: any async function, or one of the predefined factories.

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

/// The backend of a session, and the values that must live as long as the session.
#[derive(Debug)]
pub struct SessionBackend {
    pub(super) backend: Backend,
    pub(super) overlay: Option<OverlayWorkspace>,
    /// Writes long results of tools, if `backend` cannot write. Tools never get this handle.
    pub(super) result_storage: Option<Backend>,
    /// The lease, if the backend comes from a pool. It counts the backend as in use.
    pub(super) _lease: Option<BackendLease>,
    /// The backend of the parent session, if this backend is a part of it.
    pub(super) _parent: Option<Arc<SessionBackend>>,
}

impl SessionBackend {
    /// A backend for a sub-agent. It keeps the backend of the parent session alive.
    pub(super) fn part_of(
        parent: Arc<SessionBackend>,
        backend: Backend,
        result_storage: Option<Backend>,
    ) -> Self {
        Self { _parent: Some(parent), result_storage, ..backend.into() }
    }

    /// The handle that writes long results of tools.
    pub(super) fn result_storage(&self) -> &Backend {
        self.result_storage.as_ref().unwrap_or(&self.backend)
    }
}

impl From<Backend> for SessionBackend {
    fn from(backend: Backend) -> Self {
        Self { backend, overlay: None, result_storage: None, _lease: None, _parent: None }
    }
}

impl From<OverlayWorkspace> for SessionBackend {
    fn from(overlay: OverlayWorkspace) -> Self {
        Self { overlay: Some(overlay.clone()), ..overlay.backend().clone().into() }
    }
}

impl From<BackendLease> for SessionBackend {
    /// The lease is released when the session, its tools and its sub-agents are dropped.
    fn from(lease: BackendLease) -> Self {
        let backend = Backend::clone(&lease);
        Self { _lease: Some(lease), ..backend.into() }
    }
}

/// Gives each session a directory on this machine, named after the session's id. The directory is
/// created if it is missing.
#[derive(Clone, Debug)]
pub struct DirectoryPerSession {
    config: LocalWorkspaceConfig,
}

impl DirectoryPerSession {
    /// Uses directories below `base`, which is created if it is missing.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self::with_config(LocalWorkspaceConfig::new(base))
    }

    /// Uses directories below the root of `config`, with its other settings.
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

/// Gives each session a subdirectory of one workspace, named after the session's id.
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

/// Uses one workspace for all sessions, and keeps the changes of each session in a separate layer.
/// [`AgentSession::overlay`](super::AgentSession::overlay) shows, commits or discards them.
#[derive(Clone)]
pub struct OverlayPerSession {
    lower: Backend,
    uppers: Arc<dyn BackendFactory>,
}

impl OverlayPerSession {
    /// Uses `lower` as the shared workspace and stores changes in memory.
    pub fn new(lower: Backend) -> Self {
        Self { lower, uppers: Arc::new(MemoryPerSession) }
    }

    /// Stores changes in the backends that `uppers` makes, instead of in memory.
    pub fn with_upper_factory(mut self, uppers: impl BackendFactory + 'static) -> Self {
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

/// Gives each session an empty workspace in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryPerSession;

#[async_trait]
impl BackendFactory for MemoryPerSession {
    async fn make_backend(&self, _: SessionContext) -> Result<SessionBackend> {
        Ok(crate::memory().into())
    }
}

/// Gives each session a directory of a remote workspace, named after the session's id. Each session
/// has its own connection.
#[derive(Clone, Debug)]
pub struct RemotePerSession {
    config: RemoteConfig,
}

impl RemotePerSession {
    /// Uses directories in the workspace of `config`, which is a daemon or any SSH server.
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

/// Gives each session the backend of a pool whose key is the session's id. The session, its tools
/// and its sub-agents hold a lease. The pool may destroy the backend when none of them holds the
/// lease.
///
/// The factory of the pool does not get the key. It makes all backends from the same configuration,
/// for example in the same directory, unless [`configure_if_created`](Self::configure_if_created)
/// changes the configuration.
pub struct PooledPerSession<C> {
    pool: Arc<BackendPool<C>>,
    configure: Option<Arc<ConfigureForSession<C>>>,
}

type ConfigureForSession<C> = dyn Fn(&mut C, &SessionContext) + Send + Sync;

impl<C> PooledPerSession<C> {
    pub fn new(pool: Arc<BackendPool<C>>) -> Self {
        Self { pool, configure: None }
    }

    /// Changes a copy of the pool's configuration if a backend is created for a session, for
    /// example to its own directory.
    pub fn configure_if_created(
        mut self,
        change: impl Fn(&mut C, &SessionContext) + Send + Sync + 'static,
    ) -> Self {
        self.configure = Some(Arc::new(change));
        self
    }
}

#[async_trait]
impl<C: Clone + Send + Sync + 'static> BackendFactory for PooledPerSession<C> {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        let mut request = BackendLeaseRequest::for_key(context.session_id.as_str());
        if let Some(configure) = self.configure.clone() {
            request = request.configure_if_created(move |config| configure(config, &context));
        }
        Ok(self.pool.acquire(request).await?.into())
    }
}

impl<C> fmt::Debug for PooledPerSession<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledPerSession").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Uses the workspace of a session of `agent-backend serve` on this machine, for example to inspect
/// or continue the work of a coding agent. Commands run in a sandbox of this process, not in the
/// sandbox of the coding agent.
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
