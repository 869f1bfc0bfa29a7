//! Working places of other providers: found again by the session's id and started, or made.
//!
//! Implement [`SandboxProvider`] and [`ExternalSandbox`] for a provider of your own; `examples/sandbox_provider.rs`
//! shows how.

mod daemon;
mod ssh;

use std::fmt;

use ab_core::{Backend, Result};
use async_trait::async_trait;

use super::context::SessionContext;
use super::factory::{AttachedBackend, BackendFactory};

pub use daemon::DaemonSandboxes;
pub use ssh::SshSandboxes;

/// Gives sessions sandboxes that outlive them.
#[async_trait]
pub trait SandboxProvider: fmt::Debug + Send + Sync {
    /// The sandbox that this session has, running or not.
    async fn get(&self, session: &SessionContext) -> Result<Option<Box<dyn ExternalSandbox>>>;

    /// Makes a sandbox that [`get`](Self::get) finds from now on.
    async fn create(&self, session: &SessionContext) -> Result<Box<dyn ExternalSandbox>>;
}

/// A place to work at another provider.
#[async_trait]
pub trait ExternalSandbox: fmt::Debug + Send + Sync {
    /// Starts the sandbox. One that runs is left as it is.
    async fn start(&self) -> Result<()>;

    /// The directory that a session works in, as the sandbox names it.
    fn home(&self) -> &str;

    /// The files and commands of the home, once the sandbox runs.
    async fn backend(&self) -> Result<Backend>;
}

/// The factory for a provider: the session's own sandbox, started, or a new one.
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
    async fn make_backend(&self, context: SessionContext) -> Result<AttachedBackend> {
        let sandbox = match self.provider.get(&context).await? {
            Some(existing) => existing,
            None => self.provider.create(&context).await?,
        };
        sandbox.start().await?;
        Ok(sandbox.backend().await?.into())
    }
}
