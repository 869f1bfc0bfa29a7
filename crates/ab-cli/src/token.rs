//! The token of a daemon, given so that others on this host do not see it.

use std::env::VarError;
use std::path::Path;

use crate::commands::input;
use crate::failure::Failure;

/// Where a token can be given without others seeing it among the processes of the host.
const VARIABLE: &str = "AGENT_BACKEND_AUTH_TOKEN";

/// The first line of a file.
pub(crate) fn in_file(path: &Path) -> Result<String, Failure> {
    let Ok(text) = String::from_utf8(input::file(path)?) else {
        return Err(no_text(&format!("the token in {}", path.display())));
    };
    checked(text.lines().next().unwrap_or_default())
}

/// From the environment, if it is there.
pub(crate) fn in_environment() -> Result<Option<String>, Failure> {
    match std::env::var(VARIABLE) {
        Ok(token) => checked(&token).map(Some),
        Err(VarError::NotPresent) => Ok(None),
        // One that cannot be used is not the same as none: that would let everybody in.
        Err(VarError::NotUnicode(_)) => Err(no_text(&format!("the token in {VARIABLE}"))),
    }
}

fn no_text(what: &str) -> Failure {
    Failure::usage(format!("{what} is no UTF-8 text")).with_hint("use letters and digits")
}

/// A token without the space around it. One of nothing else protects nobody.
pub(crate) fn checked(text: &str) -> Result<String, Failure> {
    match text.trim() {
        "" => Err(Failure::usage("the token is empty")
            .with_hint("leave it out to serve this host only, or give one")),
        token => Ok(token.to_owned()),
    }
}
