//! The line that tells what the daemon serves, at which address, and with which isolation.

use std::net::SocketAddr;

use ab_core::effective_policy::{
    EffectivePolicy, Isolation, PolicyControlKind, PolicyControlStrength,
};
use ab_server::RunningHttpServer;

use super::logs::LogFormat;
use super::ssh::{SshLogin, SshServers};
use super::{Daemon, Kind};
use crate::failure::Failure;
use crate::terminal::talk;

/// What is known before the port accepts connections.
pub(crate) struct Known {
    encrypted: bool,
    /// Whether callers must send a token.
    pub(crate) guarded: bool,
    /// Whether SSH over WebSockets is served.
    socket: bool,
    /// Where plain SSH listens.
    pub(crate) ssh: Option<SocketAddr>,
    /// How users log in there, in words.
    login: Option<String>,
    fingerprint: Option<String>,
    /// Whether the daemon created the directory that it serves.
    pub(crate) is_created: bool,
}

impl Known {
    pub(crate) fn of(ssh_servers: &SshServers, encrypted: bool) -> Known {
        Known {
            encrypted,
            guarded: false,
            socket: ssh_servers.socket.is_some(),
            ssh: ssh_servers.address(),
            login: ssh_servers.login.as_ref().map(SshLogin::words),
            fingerprint: ssh_servers.fingerprint.clone(),
            is_created: false,
        }
    }

    /// The part of the line about SSH.
    fn ssh(&self) -> String {
        let mut ways = Vec::new();
        if self.socket {
            ways.push("at /ssh".to_owned());
        }
        let login = self.login.as_deref().unwrap_or_default();
        ways.extend(self.ssh.map(|address| format!("on {address} ({login})")));
        match &self.fingerprint {
            Some(fingerprint) => {
                format!(", SSH {} with host key {fingerprint}", ways.join(" and "))
            }
            None => String::new(),
        }
    }
}

/// Prints the line. Fails if commands cannot run with the requested isolation.
pub(crate) async fn tell(
    daemon: &Daemon,
    opened: &mut RunningHttpServer,
    known: &Known,
) -> Result<(), Failure> {
    let Some(policy) = opened.wait_for_effective_policy().await? else { return Ok(()) };
    let address = opened.address();
    let isolation = policy.isolation.map_or("no commands", Isolation::as_str);
    let scheme = if known.encrypted { "https" } else { "http" };
    let access = if known.guarded { "token required" } else { "no token" };
    let safety = match policy.isolation {
        Some(_) => daemon.rules.profile_name(),
        None => "none",
    };
    let unlimited = unlimited(&policy);
    let root = daemon.root_dir.display().to_string();
    let scope = daemon.scope_path.as_deref();
    match daemon.log_format {
        LogFormat::Json => tracing::info!(
            root,
            scope,
            backend = daemon.backend.as_str(),
            url = format!("{scheme}://{address}"),
            isolation,
            safety,
            access,
            ssh = known.ssh.map(|address| address.to_string()),
            ssh_login = known.login,
            host_key = known.fingerprint,
            unlimited,
            "serving"
        ),
        LogFormat::Text => {
            let scope = scope.map(|scope| format!(" (scope {scope})")).unwrap_or_default();
            let kept = match daemon.backend {
                // Say so, because the user may have misspelt the name of an existing directory.
                Kind::Local if known.is_created => " (a new directory)",
                Kind::Local => "",
                // A workspace in memory does not contain the files of the host directory with the
                // same path.
                Kind::Memory => " (in memory, gone when this ends)",
            };
            let needed = if known.guarded { access } else { "no token needed" };
            talk(&format!(
                "agent-backend serves {root}{scope}{kept} at {scheme}://{address}/mcp, \
                 isolation {isolation}, rules {safety}, {needed}{}{}\n",
                known.ssh(),
                unlimited
                    .map(|what| format!(", without an enforced limit of {what}"))
                    .unwrap_or_default()
            ));
        }
    }
    Ok(())
}

/// Names the limits that this host does not enforce, whether they were requested or are defaults.
fn unlimited(policy: &EffectivePolicy) -> Option<String> {
    policy.isolation?;
    let open = |subject: PolicyControlKind| {
        let mut controls = policy.controls.iter().filter(|control| control.kind == subject);
        controls.any(|control| control.strength != PolicyControlStrength::Enforced)
    };
    let names =
        [(PolicyControlKind::Memory, "memory"), (PolicyControlKind::ProcessCount, "processes")];
    let open: Vec<&str> =
        names.into_iter().filter(|(subject, _)| open(*subject)).map(|(_, name)| name).collect();
    (!open.is_empty()).then(|| open.join(" and "))
}
