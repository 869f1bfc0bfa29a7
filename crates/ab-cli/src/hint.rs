//! Adds hints to errors that have no hint.

use ab_core::{Error, ErrorKind, LostCallEffect, Verb};

/// Returns `error` with its own hint. If it has none, a hint for its kind is added.
pub(crate) fn added(error: &Error) -> Error {
    // An error about something else, such as a session or a program, gets no hint for its kind.
    let is_about_file = error.verb().is_some() || error.path().is_some();
    let by_kind = || match (error.kind(), error.verb()) {
        (ErrorKind::IsADirectory, Some(Verb::Write)) => Some("name a file in the directory"),
        (kind, _) => for_kind(kind).filter(|_| is_about_file),
    };
    let ours = error.lost_call_effect().map(for_effect).or_else(by_kind);
    match (error.hint(), ours) {
        (None, Some(hint)) => error.clone().with_hint(hint),
        (Some(_), _) | (None, None) => error.clone(),
    }
}

/// The hint for a call whose answer was lost.
fn for_effect(effect: LostCallEffect) -> &'static str {
    match effect {
        LostCallEffect::Applied => "the change was made nevertheless",
        LostCallEffect::NotApplied => "nothing was changed; try again",
        LostCallEffect::Unknown => {
            "it is unknown whether the change was made: check before you try again"
        }
    }
}

pub(crate) fn for_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotFound => {
            Some("list the files: agent-backend fs ls, or agent-backend fs tree")
        }
        ErrorKind::AlreadyExists => {
            Some("choose another path, or remove the existing file: agent-backend fs rm")
        }
        ErrorKind::NotADirectory => {
            Some("find out which part of the path is a file: agent-backend fs stat")
        }
        ErrorKind::IsADirectory => Some("list the directory: agent-backend fs ls"),
        ErrorKind::NotEmpty => Some("list the directory: agent-backend fs ls"),
        ErrorKind::SpecialFile => Some("only regular files can be read and written"),
        ErrorKind::LinkLoop => {
            Some("show the target of each link: agent-backend fs stat --no-follow")
        }
        ErrorKind::InvalidPath => {
            Some("paths must be UTF-8 and are relative to the root of the workspace")
        }
        ErrorKind::PathEscape => {
            Some("the path must be inside the workspace; to use another workspace, pass --root")
        }
        ErrorKind::PermissionDenied => Some("show the permissions: agent-backend fs stat"),
        ErrorKind::NoSpace => Some("free some disk space; the old content is unchanged"),
        ErrorKind::Conflict => Some("another program changed it meanwhile: read it again"),
        ErrorKind::DeniedByPolicy
        | ErrorKind::RejectedByPerson
        | ErrorKind::ApprovalPending
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge
        | ErrorKind::TextNotFound
        | ErrorKind::TextNotUnique
        | ErrorKind::Invalid
        | ErrorKind::CommandFailed
        | ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Cancelled
        | ErrorKind::Disconnected
        | ErrorKind::Destroyed
        | ErrorKind::Io => None,
    }
}

#[cfg(test)]
mod tests {
    use ab_core::ErrorCode;

    use super::*;

    #[test]
    fn a_hint_is_added_only_where_there_is_none() {
        let error = Error::new(ErrorCode::ExecError, ErrorKind::NotFound, "no such program");
        assert_eq!(added(&error).hint(), None);
        let error = error.with_path("a.txt");
        assert_eq!(
            added(&error).hint(),
            Some("list the files: agent-backend fs ls, or agent-backend fs tree")
        );
        let error = error.with_hint("its own");
        assert_eq!(added(&error).hint(), Some("its own"));
        let error = Error::new(ErrorCode::ReadFailed, ErrorKind::Io, "the disk is broken");
        assert_eq!(added(&error).hint(), None);
    }
}
