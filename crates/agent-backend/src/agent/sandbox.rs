//! Sandboxes of other providers: found by the session's id and started, or created.
//!
//! Implement [`SandboxProvider`] and [`ExternalSandbox`] for your own provider;
//! `examples/sandbox_provider.rs` shows how.

mod daemon;
mod ssh;

use std::fmt;

use ab_core::{Backend, Result};
use async_trait::async_trait;

use super::context::SessionContext;
use super::factory::{BackendFactory, SessionBackend};

pub use daemon::DaemonSandboxProvider;
pub use ssh::SshSandboxProvider;

/// Provides sandboxes that outlive their sessions.
#[async_trait]
pub trait SandboxProvider: fmt::Debug + Send + Sync {
    /// The sandbox of this session, if it exists, running or not.
    async fn find_existing(
        &self,
        session: &SessionContext,
    ) -> Result<Option<Box<dyn ExternalSandbox>>>;

    /// Creates a sandbox that [`find_existing`](Self::find_existing) finds from now on.
    async fn create(&self, session: &SessionContext) -> Result<Box<dyn ExternalSandbox>>;
}

/// A sandbox of another provider.
#[async_trait]
pub trait ExternalSandbox: fmt::Debug + Send + Sync {
    /// Starts the sandbox. Does nothing if it is running.
    async fn start(&self) -> Result<()>;

    /// The directory in which a session works, as a path inside the sandbox.
    fn working_directory(&self) -> &str;

    /// A backend for the home directory. The sandbox must be running.
    async fn backend(&self) -> Result<Backend>;
}

/// The factory for a provider: it starts the session's sandbox, or creates one.
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
