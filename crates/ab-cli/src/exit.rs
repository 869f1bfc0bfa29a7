//! Exit codes: the one mapping from kinds of failure to what a shell sees.

use std::process::ExitCode;

use ab_core::Kind;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// The operation failed, or the answer is no.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// A path or a rule does not allow it.
    Refused,
    /// Something that is needed is missing or out of reach.
    Unavailable,
    /// A bug of ours.
    Bug,
    /// Ended by the interrupt key.
    Interrupted,
    /// Ended by a request to terminate.
    Terminated,
    /// As the command that was run.
    Command(u8),
}

impl Exit {
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

    pub(crate) fn of(kind: Kind) -> Exit {
        match kind {
            Kind::NotFound
            | Kind::AlreadyExists
            | Kind::NotADirectory
            | Kind::IsADirectory
            | Kind::NotEmpty
            | Kind::SpecialFile
            | Kind::LinkLoop
            | Kind::PermissionDenied
            | Kind::TooLarge
            | Kind::NoSpace
            | Kind::Conflict
            | Kind::NoMatch
            | Kind::Ambiguous
            | Kind::Invalid
            | Kind::Failed
            | Kind::Cancelled
            | Kind::Io => Exit::Failed,
            Kind::InvalidPath | Kind::Escape | Kind::Denied | Kind::Rejected | Kind::Pending => {
                Exit::Refused
            }
            Kind::Unsupported
            | Kind::Unavailable
            | Kind::Timeout
            | Kind::Disconnected
            | Kind::Destroyed => Exit::Unavailable,
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
                    Kind::NotFound,
                    Kind::AlreadyExists,
                    Kind::NotADirectory,
                    Kind::IsADirectory,
                    Kind::NotEmpty,
                    Kind::SpecialFile,
                    Kind::LinkLoop,
                    Kind::PermissionDenied,
                    Kind::TooLarge,
                    Kind::NoSpace,
                    Kind::Conflict,
                    Kind::NoMatch,
                    Kind::Ambiguous,
                    Kind::Invalid,
                    Kind::Failed,
                    Kind::Cancelled,
                    Kind::Io,
                ],
            ),
            (3, vec![Kind::InvalidPath, Kind::Escape, Kind::Denied, Kind::Rejected, Kind::Pending]),
            (
                4,
                vec![
                    Kind::Unsupported,
                    Kind::Unavailable,
                    Kind::Timeout,
                    Kind::Disconnected,
                    Kind::Destroyed,
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
