//! A directory that `serve` makes available at `/mcp` and `/ssh`, in addition to its sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ab_core::process::PathRestrictions;
use ab_core::{Backend, ConcurrentCommandLimit, NarrowOptions};
use ab_host::LocalExecSettings;
use ab_mcp::McpHttpSettings;
use ab_remote::{HostKey, SshAccess, SshConnectionThreads, SshServer, SshServerSettings};
use ab_server::{DaemonRoutes, ServedDirectory};
use agent_backend::{CommandPolicySettings, LocalWorkspaceConfig, PolicyProfile};

use super::defaults;
use crate::config::{Config, Origin};
use crate::failure::Failure;
use crate::restricted_paths::RestrictedPaths;
use crate::{process, wire};

/// The name of the file in the data directory with the SSH host key of the server.
const HOST_KEY: &str = "ssh_host_ed25519_key";

/// An opened directory, with the limits that `daemon` has by default, and the isolation, network and rules of sessions.
#[derive(Debug)]
pub(crate) struct ServedRoot {
    root: PathBuf,
    backend: Backend,
    /// The handle that callers use. If the data directory lies inside the directory, this handle
    /// hides it.
    handle: Backend,
    /// The path of the data directory inside the directory. `None` if it lies elsewhere.
    hidden: Option<String>,
    ssh: SshServer,
    lanes: SshConnectionThreads,
}

impl ServedRoot {
    /// Opens an existing directory. If the data directory is inside it, the data directory is
    /// hidden, because it contains the token.
    ///
    /// # Errors
    ///
    /// A usage error if the root is inside the data directory. Also fails if the workspace cannot
    /// be opened.
    pub(crate) async fn open(
        root: &Path,
        data_dir: &Path,
        config: &Config,
    ) -> Result<ServedRoot, Failure> {
        let real = |path: &Path| {
            path.canonicalize().map_err(|error| {
                Failure::input(format!("open the directory {}", path.display()), error)
            })
        };
        let (root, data) = (real(root)?, real(data_dir)?);
        if root.starts_with(&data) {
            let message = format!(
                "--root {} is inside the data directory {}, which belongs to the server",
                root.display(),
                data.display()
            );
            return Err(Failure::usage(message).with_hint("serve another directory"));
        }
        let commands = &config.commands;
        let asked = commands.limits();
        let mut workspace = LocalWorkspaceConfig::new(&root);
        let mut exec = wire::exec_settings(config);
        // The default of the configuration is meant for sessions. Use the default of a workspace
        // here, so that a host that cannot run sessions can still serve a directory.
        if config.sessions.minimum_isolation.origin == Origin::Default {
            exec.minimum_isolation = LocalExecSettings::default().minimum_isolation;
        }
        workspace.options.exec = LocalExecSettings {
            limits: defaults::completed(asked),
            optional_limits: defaults::unasked(asked),
            mounts: commands.bind.value.mounts.clone(),
            ..exec
        };
        workspace.policy = CommandPolicySettings {
            profile: PolicyProfile::Guarded,
            rules: config.sessions.rules.value.file.clone(),
            ..CommandPolicySettings::default()
        };
        let most = usize::try_from(defaults::MAX_COMMANDS).unwrap_or(usize::MAX);
        workspace.backend_options.guards.limits.push(Arc::new(ConcurrentCommandLimit::new(most)));
        let backend = agent_backend::local_with(workspace)?;
        let env = commands.env.value.0.clone();
        let mut handle = backend.narrow(NarrowOptions { env, ..NarrowOptions::default() })?;
        let hide = commands.hide.value.iter().map(String::as_str);
        let hide = RestrictedPaths::parse("hide", hide, &handle).await?;
        let read_only = commands.read_only.value.iter().map(String::as_str);
        let read_only = RestrictedPaths::parse("read-only", read_only, &handle).await?;
        for note in hide.notes.iter().chain(&read_only.notes) {
            tracing::warn!("{note}");
        }
        let restrictions = PathRestrictions {
            hidden: hide.paths,
            read_only: read_only.paths,
            ..PathRestrictions::default()
        };
        if !restrictions.is_empty() {
            handle = handle.restrict(restrictions)?;
        }
        let mut hidden_path = None;
        if let Ok(inside) = data.strip_prefix(&root) {
            let Some(inside) = inside.to_str() else {
                return Err(Failure::usage("the path of the data directory is not valid UTF-8"));
            };
            hidden_path = Some(inside.to_owned());
            let hidden = vec![handle.parse_path(inside)?];
            handle = handle.restrict(PathRestrictions { hidden, ..PathRestrictions::default() })?;
        }
        let key = HostKey::load_or_create(&data.join(HOST_KEY)).map_err(|error| {
            Failure::input(format!("use the SSH host key {}", data.join(HOST_KEY).display()), error)
        })?;
        let lanes = SshConnectionThreads::start(process::threads())
            .map_err(|error| Failure::input("start the threads for SSH", error))?;
        // Any SSH login is accepted here, because the server checks the token before it upgrades
        // the connection.
        let settings = SshServerSettings::new(key, SshAccess::AnyUser);
        let ssh = SshServer::with_threads(handle.clone(), settings, lanes.clone());
        Ok(ServedRoot { root, backend, handle, hidden: hidden_path, ssh, lanes })
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    /// The path inside the directory that is hidden from callers.
    pub(crate) fn hidden(&self) -> Option<&str> {
        self.hidden.as_deref()
    }

    /// The files of the directory, as callers may access them.
    pub(crate) fn files(&self) -> ServedDirectory {
        ServedDirectory::new(self.handle.clone(), &self.root.to_string_lossy())
    }

    /// The routes of the directory.
    pub(crate) fn surface(&self) -> DaemonRoutes {
        let root = self.root.to_string_lossy().into_owned();
        DaemonRoutes::new(self.handle.clone(), root, &McpHttpSettings::default())
            .with_ssh(self.ssh.clone())
    }

    /// Ends every command in the directory. Called after the port is closed.
    pub(crate) async fn close(self) {
        if let Err(error) = self.backend.destroy().await {
            tracing::warn!(%error, "cannot close the served directory");
        }
        drop(self.lanes);
    }
}
