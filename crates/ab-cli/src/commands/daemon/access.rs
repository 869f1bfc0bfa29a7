//! Who may use the port: the token, and the names and pages that are allowed.

use std::net::IpAddr;
use std::path::PathBuf;

use ab_server::{Gate, Token};
use clap::Args;

use crate::commands::input;
use crate::failure::Failure;

/// Where a token can be given without others seeing it among the processes of the host.
const TOKEN_VARIABLE: &str = "AGENT_BACKEND_AUTH_TOKEN";

#[derive(Args, Debug)]
#[command(next_help_heading = "Access")]
pub(crate) struct Access {
    /// The token that callers must show; others on this host can see it in the list of processes
    #[arg(long, value_name = "TOKEN")]
    auth_token: Option<String>,

    /// A file that holds the token, on its first line [env: AGENT_BACKEND_AUTH_TOKEN holds one]
    #[arg(long, value_name = "FILE", conflicts_with = "auth_token")]
    auth_token_file: Option<PathBuf>,

    /// Listen on any address without a token: whoever reaches the port may do everything
    #[arg(long, conflicts_with_all = ["auth_token", "auth_token_file"])]
    no_auth: bool,

    /// A name under which the port is reached, beside localhost and addresses
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',')]
    allowed_hosts: Vec<String>,

    /// An origin whose pages may ask, such as https://app.example.com
    #[arg(long = "allowed-origin", value_name = "ORIGIN", value_delimiter = ',')]
    allowed_origins: Vec<String>,
}

impl Access {
    pub(crate) fn gate(&self, host: IpAddr) -> Result<Gate, Failure> {
        let token = self.token()?;
        if token.is_none() && !self.no_auth && !host.is_loopback() {
            let message = format!("{host} can be reached by others, and there is no token");
            return Err(Failure::usage(message)
                .with_hint("give one with --auth-token-file, or say --no-auth"));
        }
        let token = token.map(|token| Token::new(&token));
        let (hosts, origins) = (self.allowed_hosts.clone(), self.allowed_origins.clone());
        Ok(Gate { token, hosts, origins })
    }

    /// Whether callers must show a token.
    pub(crate) fn is_guarded(&self) -> bool {
        self.token().is_ok_and(|token| token.is_some())
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        let from_environment = || match self.no_auth {
            true => None,
            false => std::env::var(TOKEN_VARIABLE).ok(),
        };
        let given = match (&self.auth_token, &self.auth_token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => {
                let text = String::from_utf8_lossy(&input::file(path)?).into_owned();
                Some(text.lines().next().unwrap_or_default().to_owned())
            }
            (None, None) => from_environment(),
        };
        match given.as_deref().map(str::trim) {
            Some("") => Err(Failure::usage("the token is empty")
                .with_hint("leave it out to serve this host only, or give one")),
            Some(token) => Ok(Some(token.to_owned())),
            None => Ok(None),
        }
    }
}
