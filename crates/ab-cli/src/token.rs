//! Reads the token of a daemon from sources that other users of this host cannot see.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::commands::input;
use crate::failure::Failure;
use crate::secrets;

/// Maximum length of a token on standard input, in bytes.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Reads the first line of a file. For `-`, reads the first line of standard input. Standard input
/// stays open, because its end may have another meaning for the command.
pub(crate) fn in_file(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") { line_of_input()? } else { input::secret_file(path)? };
    let Ok(text) = String::from_utf8(read) else {
        return Err(no_text(&format!("the token in {}", path.display())));
    };
    checked(text.lines().next().unwrap_or_default())
}

/// Reads standard input up to the end of its first line.
fn line_of_input() -> Result<Vec<u8>, Failure> {
    let mut line = Vec::new();
    while line.len() < MAX_TOKEN_BYTES {
        let mut byte = [0];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut byte));
        let length = read.map_err(|error| Failure::input("read the token", error.into()))?;
        if length == 0 || byte[0] == b'\n' {
            break;
        }
        line.push(byte[0]);
    }
    Ok(line)
}

/// The token from the environment, if it is set.
pub(crate) fn in_environment() -> Result<Option<String>, Failure> {
    match secrets::token().map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(token)) => checked(&token).map(Some),
        // An invalid token is an error. If it were ignored, the daemon would accept every caller.
        Some(Err(_)) => Err(no_text(&format!("the token in {}", secrets::TOKEN_VARIABLE))),
    }
}

fn no_text(what: &str) -> Failure {
    Failure::usage(format!("{what} is not valid UTF-8")).with_hint("use letters and digits")
}

/// Trims the token. An empty token is an error.
pub(crate) fn checked(text: &str) -> Result<String, Failure> {
    secrets::shield();
    match text.trim() {
        "" => Err(Failure::usage("the token is empty")
            .with_hint("set a token, or remove it to accept only callers on this machine")),
        token => Ok(token.to_owned()),
    }
}
