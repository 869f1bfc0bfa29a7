//! The exit codes. This is the only place where kinds of failures are mapped to exit codes.

use std::process::ExitCode;

use ab_core::{Error, ErrorCode, ErrorKind, Verb};

/// How the process exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// The operation failed, or the answer is no.
    Failed,
    /// The command line is invalid.
    Usage,
    /// A path check or a rule refused the operation.
    Refused,
    /// Something that the command needs is missing or unreachable.
    Unavailable,
    /// A bug in this program.
    Bug,
    /// Ended by SIGINT.
    Interrupted,
    /// Ended by SIGTERM.
    Terminated,
    /// The exit code of the command that `exec` ran.
    Command(u8),
}

impl Exit {
    /// `exec` itself failed, before or during its command.
    pub(crate) const OWN_FAILURE: Exit = Exit::Command(125);
    /// The command was refused, or the program is not executable.
    pub(crate) const NOT_EXECUTED: Exit = Exit::Command(126);
    /// The program does not exist.
    pub(crate) const NO_PROGRAM: Exit = Exit::Command(127);

    /// The exit code of `exec` for an error. Unlike the codes of [`Exit::of`], it is not a code
    /// that commands commonly use.
    pub(crate) fn of_exec(error: &Error) -> Exit {
        let about_program = error.path().is_none() && error.code() == ErrorCode::ExecError;
        match (error.verb(), error.kind()) {
            (Some(Verb::Exec), ErrorKind::NotFound) if about_program => Exit::NO_PROGRAM,
            (Some(Verb::Exec), ErrorKind::PermissionDenied) if about_program => Exit::NOT_EXECUTED,
            (
                Some(Verb::Exec),
                ErrorKind::DeniedByPolicy
                | ErrorKind::RejectedByPerson
                | ErrorKind::ApprovalPending,
            ) => Exit::NOT_EXECUTED,
            _ => Exit::OWN_FAILURE,
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Refused => 3,
            Exit::Unavailable => 4,
            Exit::Bug => 70,
            Exit::Interrupted => 130,
            Exit::Terminated => 143,
            Exit::Command(number) => number,
        }
    }

    pub(crate) fn of(kind: ErrorKind) -> Exit {
        match kind {
            ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::NotEmpty
            | ErrorKind::SpecialFile
            | ErrorKind::LinkLoop
            | ErrorKind::PermissionDenied
            | ErrorKind::TooLarge
            | ErrorKind::NoSpace
            | ErrorKind::Conflict
            | ErrorKind::TextNotFound
            | ErrorKind::TextNotUnique
            | ErrorKind::Invalid
            | ErrorKind::CommandFailed
            | ErrorKind::Cancelled
            | ErrorKind::Io => Exit::Failed,
            ErrorKind::InvalidPath
            | ErrorKind::PathEscape
            | ErrorKind::DeniedByPolicy
            | ErrorKind::RejectedByPerson
            | ErrorKind::ApprovalPending => Exit::Refused,
            ErrorKind::Unsupported
            | ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Disconnected
            | ErrorKind::Destroyed => Exit::Unavailable,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_exit_code() {
        for (code, kinds) in [
            (
                1,
                vec![
                    ErrorKind::NotFound,
                    ErrorKind::AlreadyExists,
                    ErrorKind::NotADirectory,
                    ErrorKind::IsADirectory,
                    ErrorKind::NotEmpty,
                    ErrorKind::SpecialFile,
                    ErrorKind::LinkLoop,
                    ErrorKind::PermissionDenied,
                    ErrorKind::TooLarge,
                    ErrorKind::NoSpace,
                    ErrorKind::Conflict,
                    ErrorKind::TextNotFound,
                    ErrorKind::TextNotUnique,
                    ErrorKind::Invalid,
                    ErrorKind::CommandFailed,
                    ErrorKind::Cancelled,
                    ErrorKind::Io,
                ],
            ),
            (
                3,
                vec![
                    ErrorKind::InvalidPath,
                    ErrorKind::PathEscape,
                    ErrorKind::DeniedByPolicy,
                    ErrorKind::RejectedByPerson,
                    ErrorKind::ApprovalPending,
                ],
            ),
            (
                4,
                vec![
                    ErrorKind::Unsupported,
                    ErrorKind::Unavailable,
                    ErrorKind::Timeout,
                    ErrorKind::Disconnected,
                    ErrorKind::Destroyed,
                ],
            ),
        ] {
            for kind in kinds {
                assert_eq!(Exit::of(kind).number(), code, "{kind:?}");
            }
        }
    }

    #[test]
    fn the_numbers_are_the_documented_ones() {
        for (exit, number) in [
            (Exit::Success, 0),
            (Exit::Failed, 1),
            (Exit::Usage, 2),
            (Exit::Refused, 3),
            (Exit::Unavailable, 4),
            (Exit::Bug, 70),
            (Exit::Interrupted, 130),
            (Exit::Terminated, 143),
            (Exit::Command(42), 42),
        ] {
            assert_eq!(exit.number(), number);
        }
    }
}
