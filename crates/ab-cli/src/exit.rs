//! Exit codes: the one mapping from kinds of failure to what a shell sees.

use std::process::ExitCode;

use ab_core::Kind;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Success = 0,
    /// The operation failed, or the answer is no.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// A path or a rule does not allow it.
    Refused = 3,
    /// Something that is needed is missing or out of reach.
    Unavailable = 4,
    /// A bug of ours.
    Bug = 70,
    /// Ended by the interrupt key.
    Interrupted = 130,
    /// Ended by a request to terminate.
    Terminated = 143,
}

impl Exit {
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
            Kind::InvalidPath | Kind::Escape | Kind::Denied | Kind::Rejected => Exit::Refused,
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
        ExitCode::from(exit as u8)
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
            (3, vec![Kind::InvalidPath, Kind::Escape, Kind::Denied, Kind::Rejected]),
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
                assert_eq!(Exit::of(kind) as u8, code, "{kind:?}");
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
        ] {
            assert_eq!(exit as u8, number);
        }
    }
}
