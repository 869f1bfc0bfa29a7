//! The token of a daemon, given so that others on this host do not see it.

use std::path::Path;

use crate::commands::input;
use crate::failure::Failure;

/// Where a token can be given without others seeing it among the processes of the host.
const VARIABLE: &str = "AGENT_BACKEND_AUTH_TOKEN";

/// The first line of a file.
pub(crate) fn in_file(path: &Path) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(&input::file(path)?).into_owned();
    checked(text.lines().next().unwrap_or_default())
}

/// From the environment, if it is there.
pub(crate) fn in_environment() -> Result<Option<String>, Failure> {
    std::env::var(VARIABLE).ok().map(|token| checked(&token)).transpose()
}

/// A token without the space around it. One of nothing else protects nobody.
pub(crate) fn checked(text: &str) -> Result<String, Failure> {
    match text.trim() {
        "" => Err(Failure::usage("the token is empty")
            .with_hint("leave it out to serve this host only, or give one")),
        token => Ok(token.to_owned()),
    }
}
