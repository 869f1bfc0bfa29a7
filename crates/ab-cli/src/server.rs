//! The server that `task`, `session`, `wait` and other commands use: this is the server that a flag
//! or the environment names, or otherwise the server on this machine.

use std::env;
use std::path::{Path, PathBuf};

use ab_core::{Error, ErrorCode, ErrorKind};
use agent_backend::remote::CleartextTokenPolicy;
use agent_backend::{ServeClient, ServeClientSettings};
use clap::Args;

use crate::failure::Failure;
use crate::token;
use crate::{config, data_dir};

/// The environment variable with the URL of the server. Used if no flag names it.
const VARIABLE: &str = "AGENT_BACKEND_SERVER";

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// URL of the server [default: the server on this machine]
    ///
    /// For example https://host:3001. The environment variable AGENT_BACKEND_SERVER sets it too.
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,

    /// Data directory of the server on this machine
    ///
    /// The default is the directory in the configuration file, or ~/.local/state/agent-backend (below $XDG_STATE_HOME if
    /// that is set). The environment variable AGENT_BACKEND_DATA_DIR sets it too.
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,

    /// File whose first line is the token of the server; use '-' for standard input
    ///
    /// The token can also be in the environment variable AGENT_BACKEND_AUTH_TOKEN.
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,

    /// Allow sending the token to another machine without encryption
    #[arg(long, global = true)]
    allow_insecure_token: bool,
}

impl ServerFlags {
    /// A client of the server. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if no server is named and no server is running on this machine.
    pub(crate) fn client(&self) -> Result<ServeClient, Failure> {
        let named = self.server.clone().or_else(from_environment);
        let mut token = match &self.token_file {
            Some(path) => Some(token::in_file(path)?),
            None => token::in_environment()?,
        };
        let url = match named {
            Some(url) => url,
            None => {
                let directory = config::data_dir(self.data_dir.as_deref())?;
                let Some(url) = data_dir::running_server(&directory) else {
                    return Err(not_running(&directory));
                };
                if token.is_none() {
                    token = data_dir::token(&directory)?;
                }
                url
            }
        };
        let mut settings = ServeClientSettings::new(url);
        settings.token = token.map(Into::into);
        if self.allow_insecure_token {
            settings.cleartext_token_policy = CleartextTokenPolicy::Accepted;
        }
        Ok(ServeClient::new(settings)?)
    }

    /// The flags with which a later command can reach the same server. A space precedes each flag.
    pub(crate) fn repeated(&self) -> String {
        let mut flags = String::new();
        if let Some(server) = &self.server {
            flags.push_str(&format!(" --server {server}"));
        }
        for (flag, path) in [("--data-dir", &self.data_dir), ("--token-file", &self.token_file)] {
            if let Some(path) = path {
                flags.push_str(&format!(" {flag} {}", path.display()));
            }
        }
        flags
    }
}

fn not_running(directory: &Path) -> Failure {
    let message = format!("no server runs with the data directory {}", directory.display());
    let error = Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unavailable, message);
    Failure::from(error)
        .with_hint("start one with `agent-backend serve`, or name one with --server URL")
}

fn from_environment() -> Option<String> {
    env::var(VARIABLE).ok().filter(|url| !url.is_empty())
}
