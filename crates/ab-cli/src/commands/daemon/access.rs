//! Flags that decide which callers may use the port: the token, and the allowed host names and
//! origins.

use std::net::IpAddr;
use std::path::PathBuf;

use ab_server::{AccessToken, AllowedWebOrigin, HttpAccessPolicy};
use clap::Args;

use crate::failure::Failure;
use crate::token;

#[derive(Args, Debug)]
#[command(next_help_heading = "Access")]
pub(crate) struct Access {
    /// Token that callers must send; other users can see it while the daemon starts
    #[arg(long, value_name = "TOKEN")]
    auth_token: Option<String>,

    /// File with the token that callers must send; use '-' for standard input
    ///
    /// The token can also be in the environment variable AGENT_BACKEND_AUTH_TOKEN.
    #[arg(
        long = "token-file",
        visible_alias = "auth-token-file",
        value_name = "FILE",
        conflicts_with = "auth_token"
    )]
    auth_token_file: Option<PathBuf>,

    /// Require no token: every program that can reach the port has full access
    #[arg(long, conflicts_with_all = ["auth_token", "auth_token_file"])]
    no_auth: bool,

    /// Host name under which callers may reach the port
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',', value_parser = name)]
    allowed_hosts: Vec<String>,

    /// Origin whose web pages can send requests, such as https://app.example.com
    #[arg(long = "allowed-origin", value_name = "ORIGIN", value_delimiter = ',')]
    allowed_origins: Vec<AllowedWebOrigin>,
}

/// Parses a host name. A scheme, a port or a path in it is an error.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !text.is_empty() && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("must be a host name of letters, digits, '-' and '.', without scheme and port"
            .to_owned())
    }
}

impl Access {
    pub(crate) fn gate(
        &self,
        host: IpAddr,
        token: Option<&str>,
    ) -> Result<HttpAccessPolicy, Failure> {
        if token.is_none() && !self.no_auth && !host.is_loopback() {
            let message = format!("other machines can reach {host}, and there is no token");
            return Err(Failure::usage(message)
                .with_hint("pass --token-file FILE, or --no-auth to accept every caller"));
        }
        let token = token.map(AccessToken::new);
        let (hosts, origins) = (self.allowed_hosts.clone(), self.allowed_origins.clone());
        Ok(HttpAccessPolicy {
            token,
            allowed_hosts: hosts,
            allowed_origins: origins,
            ..HttpAccessPolicy::default()
        })
    }

    /// Reads the token that callers must send. Can be called only once, because the token may be on
    /// standard input.
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        match (&self.auth_token, &self.auth_token_file) {
            (Some(token), _) => token::checked(token).map(Some),
            (None, Some(path)) => token::in_file(path).map(Some),
            (None, None) if self.no_auth => match token::in_environment()? {
                Some(_) => Err(Failure::usage(
                    "--no-auth cannot be used while AGENT_BACKEND_AUTH_TOKEN is set",
                )
                .with_hint("unset the variable, or remove --no-auth")),
                None => Ok(None),
            },
            (None, None) => token::in_environment(),
        }
    }
}
