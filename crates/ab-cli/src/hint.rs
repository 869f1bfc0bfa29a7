//! Hints for errors that have none of their own.

use ab_core::{Error, ErrorKind, LostCallEffect};

/// `error` with its own hint, or with ours if it has none.
pub(crate) fn added(error: &Error) -> Error {
    let ours = error.lost_call_effect().map(for_effect).or_else(|| for_kind(error.kind()));
    match (error.hint(), ours) {
        (None, Some(hint)) => error.clone().with_hint(hint),
        (Some(_), _) | (None, None) => error.clone(),
    }
}

/// The hint about a call whose answer was lost.
fn for_effect(effect: LostCallEffect) -> &'static str {
    match effect {
        LostCallEffect::Applied => "it was done all the same",
        LostCallEffect::NotApplied => "nothing was changed: try again",
        LostCallEffect::Unknown => "it may have been done or not: look before trying again",
    }
}

pub(crate) fn for_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotFound => Some("see what is there: fs ls, or fs tree"),
        ErrorKind::AlreadyExists => Some("choose another path, or remove what is there: fs rm"),
        ErrorKind::NotADirectory => Some("a file stands where a directory is needed: fs stat"),
        ErrorKind::IsADirectory => Some("see what the directory holds: fs ls"),
        ErrorKind::NotEmpty => Some("see what the directory holds: fs ls"),
        ErrorKind::SpecialFile => Some("only regular files can be read and written"),
        ErrorKind::LinkLoop => Some("see where the links lead: fs stat --no-follow"),
        ErrorKind::InvalidPath => {
            Some("a path is UTF-8 text, taken from the root of the workspace")
        }
        ErrorKind::Escape => Some("paths cannot leave the workspace; name another with --root"),
        ErrorKind::PermissionDenied => Some("see its permissions: fs stat, or fs ls -l"),
        ErrorKind::NoSpace => Some("make room; what was there is unchanged"),
        ErrorKind::Conflict => Some("somebody else wrote it: read it again, then decide"),
        ErrorKind::Denied
        | ErrorKind::Rejected
        | ErrorKind::Pending
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge
        | ErrorKind::NoMatch
        | ErrorKind::Ambiguous
        | ErrorKind::Invalid
        | ErrorKind::Failed
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
        let error = Error::new(ErrorCode::ReadFailed, ErrorKind::NotFound, "no such file");
        assert_eq!(added(&error).hint(), Some("see what is there: fs ls, or fs tree"));
        let error = error.with_hint("its own");
        assert_eq!(added(&error).hint(), Some("its own"));
        let error = Error::new(ErrorCode::ReadFailed, ErrorKind::Io, "the disk is broken");
        assert_eq!(added(&error).hint(), None);
    }
}
