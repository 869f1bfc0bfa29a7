//! Sandboxes of external providers. Each session has its own sandbox. It is looked up by the
//! session's id, created if there is none, and then started.
//!
//! To use your own provider, implement [`SandboxProvider`] and [`ExternalSandbox`], as
//! `examples/sandbox_provider.rs` shows.

mod daemon;
mod ssh;

use std::fmt;

use ab_core::{Backend, Result};
use async_trait::async_trait;

use super::context::SessionContext;
use super::factory::{BackendFactory, SessionBackend};

pub use daemon::DaemonSandboxProvider;
pub use ssh::SshSandboxProvider;

/// A provider of sandboxes that can outlive their sessions.
#[async_trait]
pub trait SandboxProvider: fmt::Debug + Send + Sync {
    /// Finds the sandbox of this session, running or not. Returns `None` if the session has none.
    async fn find_existing(
        &self,
        session: &SessionContext,
    ) -> Result<Option<Box<dyn ExternalSandbox>>>;

    /// Creates a sandbox for this session. From now on [`find_existing`](Self::find_existing) finds
    /// it.
    async fn create(&self, session: &SessionContext) -> Result<Box<dyn ExternalSandbox>>;
}

/// A sandbox of an external provider.
#[async_trait]
pub trait ExternalSandbox: fmt::Debug + Send + Sync {
    /// Starts the sandbox. Does nothing if it is running.
    async fn start(&self) -> Result<()>;

    /// The working directory of the session, as a path inside the sandbox.
    fn working_directory(&self) -> &str;

    /// Opens a backend on the home directory. The sandbox must be running.
    async fn backend(&self) -> Result<Backend>;
}

/// A backend factory that starts the sandbox of each session. Creates the sandbox first if there is
/// none.
#[derive(Debug)]
pub struct SandboxPerSession<P> {
    provider: P,
}

impl<P: SandboxProvider> SandboxPerSession<P> {
    pub fn new(provider: P) -> Self {
        Self { provider }
    }
}

#[async_trait]
impl<P: SandboxProvider> BackendFactory for SandboxPerSession<P> {
    async fn make_backend(&self, context: SessionContext) -> Result<SessionBackend> {
        let sandbox = match self.provider.find_existing(&context).await? {
            Some(existing) => existing,
            None => self.provider.create(&context).await?,
        };
        sandbox.start().await?;
        Ok(sandbox.backend().await?.into())
    }
}
