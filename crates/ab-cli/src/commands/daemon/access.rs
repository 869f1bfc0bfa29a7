//! Who may use the port: the token, and the names and pages that are allowed.

use std::net::IpAddr;
use std::path::PathBuf;

use ab_server::{AccessToken, HttpAccessPolicy, Origin};
use clap::Args;

use crate::failure::Failure;
use crate::token;

#[derive(Args, Debug)]
#[command(next_help_heading = "Access")]
pub(crate) struct Access {
    /// The token that callers must show; others on this host can see it in the list of processes
    /// while the daemon starts
    #[arg(long, value_name = "TOKEN")]
    auth_token: Option<String>,

    /// A file that holds the token, on its first line; - is standard input
    /// [env: AGENT_BACKEND_AUTH_TOKEN holds one]
    #[arg(long, value_name = "FILE", conflicts_with = "auth_token")]
    auth_token_file: Option<PathBuf>,

    /// Listen on any address without a token: whoever reaches the port may do everything
    #[arg(long, conflicts_with_all = ["auth_token", "auth_token_file"])]
    no_auth: bool,

    /// A name under which the port is reached, beside localhost and addresses
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',', value_parser = name)]
    allowed_hosts: Vec<String>,

    /// An origin whose pages may ask, such as https://app.example.com
    #[arg(long = "allowed-origin", value_name = "ORIGIN", value_delimiter = ',')]
    allowed_origins: Vec<Origin>,
}

/// A name, without what may stand around it in an address.
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
            let message = format!("{host} can be reached by others, and there is no token");
            return Err(Failure::usage(message)
                .with_hint("give one with --auth-token-file, or say --no-auth"));
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
                Some(_) => {
                    Err(Failure::usage("there is a token in the environment, and --no-auth")
                        .with_hint("unset AGENT_BACKEND_AUTH_TOKEN, or leave --no-auth out"))
                }
                None => Ok(None),
            },
            (None, None) => token::in_environment(),
        }
    }
}
