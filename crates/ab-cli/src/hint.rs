//! What to do next, for errors that do not say so themselves.

use ab_core::{CallEffect, Error, Kind};

/// `error` with a hint, its own or ours.
pub(crate) fn added(error: &Error) -> Error {
    let ours = error.effect().map(for_effect).or_else(|| for_kind(error.kind()));
    match (error.hint(), ours) {
        (None, Some(hint)) => error.clone().with_hint(hint),
        (Some(_), _) | (None, None) => error.clone(),
    }
}

/// What became of a call whose answer was lost.
fn for_effect(effect: CallEffect) -> &'static str {
    match effect {
        CallEffect::Applied => "it was done all the same",
        CallEffect::NotApplied => "nothing was changed: try again",
        CallEffect::Unknown => "it may have been done or not: look before trying again",
    }
}

pub(crate) fn for_kind(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::NotFound => Some("see what is there: fs ls, or fs tree"),
        Kind::AlreadyExists => Some("choose another path, or remove what is there: fs rm"),
        Kind::NotADirectory => Some("a file stands where a directory is needed: fs stat"),
        Kind::IsADirectory => Some("see what the directory holds: fs ls"),
        Kind::NotEmpty => Some("see what the directory holds: fs ls"),
        Kind::SpecialFile => Some("only regular files can be read and written"),
        Kind::LinkLoop => Some("see where the links lead: fs stat --no-follow"),
        Kind::InvalidPath => Some("a path is UTF-8 text, taken from the root of the workspace"),
        Kind::Escape => Some("paths cannot leave the workspace; name another with --root"),
        Kind::PermissionDenied => Some("see its permissions: fs stat, or fs ls -l"),
        Kind::NoSpace => Some("make room; what was there is unchanged"),
        Kind::Conflict => Some("somebody else wrote it: read it again, then decide"),
        Kind::Denied
        | Kind::Rejected
        | Kind::Pending
        | Kind::Unsupported
        | Kind::TooLarge
        | Kind::NoMatch
        | Kind::Ambiguous
        | Kind::Invalid
        | Kind::Failed
        | Kind::Unavailable
        | Kind::Timeout
        | Kind::Cancelled
        | Kind::Disconnected
        | Kind::Destroyed
        | Kind::Io => None,
    }
}

#[cfg(test)]
mod tests {
    use ab_core::Code;

    use super::*;

    #[test]
    fn a_hint_is_added_only_where_there_is_none() {
        let error = Error::new(Code::ReadFailed, Kind::NotFound, "no such file");
        assert_eq!(added(&error).hint(), Some("see what is there: fs ls, or fs tree"));
        let error = error.with_hint("its own");
        assert_eq!(added(&error).hint(), Some("its own"));
        let error = Error::new(Code::ReadFailed, Kind::Io, "the disk is broken");
        assert_eq!(added(&error).hint(), None);
    }
}
