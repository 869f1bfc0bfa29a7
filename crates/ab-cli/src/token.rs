//! The token of a daemon, passed so that other users of this host do not see it.

use std::ffi::OsString;
use std::path::Path;

use crate::commands::input;
use crate::failure::Failure;
use crate::secrets;

/// Reads the first line of a file, or of standard input for `-`.
pub(crate) fn in_file(path: &Path) -> Result<String, Failure> {
    let Ok(text) = String::from_utf8(input::secret_file(path)?) else {
        return Err(no_text(&format!("the token in {}", path.display())));
    };
    checked(text.lines().next().unwrap_or_default())
}

/// The token from the environment, if it is set.
pub(crate) fn in_environment() -> Result<Option<String>, Failure> {
    match secrets::token().map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(token)) => checked(&token).map(Some),
        // An unusable token is an error. Without a token, the daemon would accept every caller.
        Some(Err(_)) => Err(no_text(&format!("the token in {}", secrets::TOKEN_VARIABLE))),
    }
}

fn no_text(what: &str) -> Failure {
    Failure::usage(format!("{what} is no UTF-8 text")).with_hint("use letters and digits")
}

/// Trims the token. An empty token is an error.
pub(crate) fn checked(text: &str) -> Result<String, Failure> {
    secrets::shield();
    match text.trim() {
        "" => Err(Failure::usage("the token is empty")
            .with_hint("leave it out to serve this host only, or give one")),
        token => Ok(token.to_owned()),
    }
}
