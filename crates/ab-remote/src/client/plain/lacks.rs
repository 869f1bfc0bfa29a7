//! Errors for operations that a plain SSH server does not support, with hints.

use ab_core::driver::BackendKind;
use ab_core::{Error, ErrorCode, ErrorKind, Verb};

const HINT: &str = "run `agent-backend daemon` on that machine and connect to it";

/// The error for detached processes. On a plain SSH server, every process ends when the caller
/// drops it.
pub(crate) fn keeps_nothing(who: &str, verb: Verb) -> Error {
    let message =
        format!("{who} is a plain SSH server: background commands need an agent-backend daemon");
    unsupported(message, verb).with_hint(format!("{HINT}, or start the command without --detach"))
}

/// The error if the server refuses to run commands.
pub(super) fn runs_nothing(who: &str) -> Error {
    let message = format!("{who} runs no commands: the remote side serves files only");
    unsupported(message, Verb::Exec)
        .with_hint(format!("{HINT}, or log in as a user who may run commands"))
}

fn unsupported(message: String, verb: Verb) -> Error {
    Error::new(ErrorCode::NotImplemented, ErrorKind::Unsupported, message)
        .with_verb(verb)
        .with_backend_kind(BackendKind::Remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn say_what_is_there_and_what_to_do() {
        for (error, words) in [
            (
                keeps_nothing("box:22", Verb::Exec),
                ["plain SSH server", "need an agent-backend daemon"],
            ),
            (runs_nothing("box:22"), ["runs no commands", "files only"]),
        ] {
            assert_eq!(
                (error.code(), error.kind()),
                (ErrorCode::NotImplemented, ErrorKind::Unsupported)
            );
            assert!(error.message().starts_with("box:22 "), "{error}");
            for word in words {
                assert!(error.message().contains(word), "{error}");
            }
            assert!(error.hint().unwrap().contains("agent-backend daemon"), "{error:?}");
        }
    }
}
