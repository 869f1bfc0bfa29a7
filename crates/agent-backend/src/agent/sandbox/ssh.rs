//! Sandboxes on an SSH host: one directory for each session.

use ab_core::{Backend, ErrorCode, ErrorKind, FileKind, Result};
use async_trait::async_trait;

use super::{ExternalSandbox, SandboxProvider};
use crate::RemoteConfig;
use crate::agent::SessionContext;

/// Gives each session a directory on an SSH host, named after the session's id. A plain SSH server
/// does not restrict a session to its directory. Only the permissions of the SSH user limit what
/// the session can do.
#[derive(Clone, Debug)]
pub struct SshSandboxProvider {
    config: RemoteConfig,
    base: String,
}

impl SshSandboxProvider {
    /// Uses directories below `base`, an absolute path on the host of `config`. If `base` is
    /// missing, it is created together with the first sandbox.
    pub fn new(config: RemoteConfig, base: impl Into<String>) -> Self {
        let base = base.into();
        Self { config, base: base.trim_end_matches('/').to_owned() }
    }

    fn sandbox(&self, session: &SessionContext) -> SshSandbox {
        let home = format!("{}/{}", self.base, session.session_id);
        SshSandbox { config: self.config.clone(), home }
    }

    async fn connect(&self, root: &str) -> Result<Backend> {
        let backend = crate::remote_with(self.config.clone().root(root))?;
        backend.connect().await?;
        Ok(backend)
    }

    /// The workspace that contains the directory of a session, and the path of the directory in it.
    async fn directory(&self, session: &SessionContext) -> Result<(Backend, String)> {
        let name = session.session_id.to_string();
        if self.base.is_empty() {
            return Ok((self.connect("/").await?, name));
        }
        let error = match self.connect(&self.base).await {
            Ok(base) => return Ok((base, name)),
            Err(error) if error.code() == ErrorCode::InvalidConfiguration => error,
            Err(error) => return Err(error),
        };
        // A plain server refuses a root that is missing. A daemon serves one directory and has no other root.
        let Some(base) = self.base.strip_prefix('/') else { return Err(error) };
        let Ok(top) = self.connect("/").await else { return Err(error) };
        match top.stat(base).await {
            Err(missing) if missing.kind() == ErrorKind::NotFound => {
                let path = format!("{base}/{name}");
                Ok((top, path))
            }
            _ => {
                top.destroy().await?;
                Err(error)
            }
        }
    }
}

#[async_trait]
impl SandboxProvider for SshSandboxProvider {
    async fn find_existing(
        &self,
        session: &SessionContext,
    ) -> Result<Option<Box<dyn ExternalSandbox>>> {
        let (workspace, path) = self.directory(session).await?;
        let home = workspace.stat(&path).await;
        workspace.destroy().await?;
        match home {
            Ok(stat) if stat.kind == FileKind::Dir => Ok(Some(Box::new(self.sandbox(session)))),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, session: &SessionContext) -> Result<Box<dyn ExternalSandbox>> {
        let (workspace, path) = self.directory(session).await?;
        let made = workspace.mkdir(&path).await;
        workspace.destroy().await?;
        made?;
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
