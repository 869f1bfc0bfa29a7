//! Sandboxes on an SSH host: one directory for each session.

use ab_core::{Backend, FileKind, Result};
use async_trait::async_trait;

use super::{ExternalSandbox, SandboxProvider};
use crate::RemoteConfig;
use crate::agent::SessionContext;

/// Gives each session a directory on an SSH host, named after the session's id. The permissions of
/// the SSH user limit what a session can do: a plain SSH server does not restrict it to its
/// directory.
#[derive(Clone, Debug)]
pub struct SshSandboxProvider {
    config: RemoteConfig,
    base: String,
}

impl SshSandboxProvider {
    /// Uses directories below `base`, an absolute path on the host of `config`.
    pub fn new(config: RemoteConfig, base: impl Into<String>) -> Self {
        let base = base.into();
        Self { config, base: base.trim_end_matches('/').to_owned() }
    }

    fn sandbox(&self, session: &SessionContext) -> SshSandbox {
        let home = format!("{}/{}", self.base, session.session_id);
        SshSandbox { config: self.config.clone(), home }
    }

    async fn base(&self) -> Result<Backend> {
        let base = if self.base.is_empty() { "/" } else { self.base.as_str() };
        let backend = crate::remote_with(self.config.clone().root(base))?;
        backend.connect().await?;
        Ok(backend)
    }
}

#[async_trait]
impl SandboxProvider for SshSandboxProvider {
    async fn find_existing(
        &self,
        session: &SessionContext,
    ) -> Result<Option<Box<dyn ExternalSandbox>>> {
        let base = self.base().await?;
        let home = base.stat(session.session_id.as_str()).await;
        base.destroy().await?;
        match home {
            Ok(stat) if stat.kind == FileKind::Dir => Ok(Some(Box::new(self.sandbox(session)))),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ab_core::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, session: &SessionContext) -> Result<Box<dyn ExternalSandbox>> {
        let base = self.base().await?;
        base.mkdir(session.session_id.as_str()).await?;
        base.destroy().await?;
        Ok(Box::new(self.sandbox(session)))
    }
}

#[derive(Debug)]
struct SshSandbox {
    config: RemoteConfig,
    home: String,
}

#[async_trait]
impl ExternalSandbox for SshSandbox {
    /// Does nothing, because the host is already running.
    async fn start(&self) -> Result<()> {
        Ok(())
    }

    fn working_directory(&self) -> &str {
        &self.home
    }

    async fn backend(&self) -> Result<Backend> {
        let backend = crate::remote_with(self.config.clone().root(&self.home))?;
        backend.connect().await?;
        Ok(backend)
    }
}
