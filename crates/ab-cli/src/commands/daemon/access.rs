//! Who may use the port: the token, and the allowed host names and origins.

use std::net::IpAddr;
use std::path::PathBuf;

use ab_server::{AccessToken, HttpAccessPolicy, Origin};
use clap::Args;

use crate::failure::Failure;
use crate::token;

#[derive(Args, Debug)]
#[command(next_help_heading = "Access")]
pub(crate) struct Access {
    /// Token that callers must send; other users of this machine can see it while the daemon starts
    #[arg(long, value_name = "TOKEN")]
    auth_token: Option<String>,

    /// File with the token that callers must send
    ///
    /// - is standard input. [env: AGENT_BACKEND_AUTH_TOKEN]
    #[arg(
        long = "token-file",
        visible_alias = "auth-token-file",
        value_name = "FILE",
        conflicts_with = "auth_token"
    )]
    auth_token_file: Option<PathBuf>,

    /// Need no token: everyone who reaches the port can do everything
    #[arg(long, conflicts_with_all = ["auth_token", "auth_token_file"])]
    no_auth: bool,

    /// Host name under which callers may reach the port
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',', value_parser = name)]
    allowed_hosts: Vec<String>,

    /// Origin whose web pages may call, such as https://app.example.com
    #[arg(long = "allowed-origin", value_name = "ORIGIN", value_delimiter = ',')]
    allowed_origins: Vec<Origin>,
}

/// Parses a host name. A scheme, a port or a path is an error.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !text.is_empty() && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("a name has letters, digits, '-' and '.', and no scheme or port".to_owned())
    }
}

impl Access {
    pub(crate) fn gate(&self, host: IpAddr) -> Result<HttpAccessPolicy, Failure> {
        let token = self.token()?;
        if token.is_none() && !self.no_auth && !host.is_loopback() {
            let message = format!("other machines can reach {host}, and there is no token");
            return Err(Failure::usage(message)
                .with_hint("pass --token-file FILE, or --no-auth to serve everyone"));
        }
        let token = token.map(|token| AccessToken::new(&token));
        let (hosts, origins) = (self.allowed_hosts.clone(), self.allowed_origins.clone());
        Ok(HttpAccessPolicy { token, hosts, origins, ..HttpAccessPolicy::default() })
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        match (&self.auth_token, &self.auth_token_file) {
            (Some(token), _) => token::checked(token).map(Some),
            (None, Some(path)) => token::in_file(path).map(Some),
            (None, None) if self.no_auth => match token::in_environment()? {
                Some(_) => Err(Failure::usage(
                    "--no-auth cannot be used while AGENT_BACKEND_AUTH_TOKEN is set",
                )
                .with_hint("unset the variable, or leave --no-auth out")),
                None => Ok(None),
            },
            (None, None) => token::in_environment(),
        }
    }
}
