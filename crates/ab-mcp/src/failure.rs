//! The failure of a call, as a text that helps a model to correct the call.

use std::fmt;

use ab_core::{Backend, Error, ErrorCause, ErrorCode, ErrorKind, Verb};
use rmcp::model::{CallToolResult, ContentBlock};

use crate::answer::{ToolAnswer, refusal, waiting_for};
use crate::catalog::prefixed;
use crate::nearest::nearest;
use crate::outgoing::Crowded;

pub(crate) const CROWDED: &str =
    "answers that their callers have not taken yet take all the room: try again later";

#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are invalid.
    Misuse(String),
    /// The workspace returned an error. If the text is set, it replaces the verb of the error in
    /// the message.
    Call(Error, Option<&'static str>),
    /// There is no memory for this answer, because too many large answers wait for their clients.
    Crowded,
    /// A failure with an additional note for the caller.
    Noted(Box<Failure>, String),
    /// A command ran and failed. The answer contains its output.
    Ran(Box<ToolAnswer>),
}

impl Failure {
    pub(crate) fn misuse(message: impl Into<String>) -> Failure {
        Failure::Misuse(message.into())
    }

    /// Sets the name of the action for the message, such as "edit".
    pub(crate) fn of(self, act: Option<&'static str>) -> Failure {
        match self {
            Failure::Call(error, None) => Failure::Call(error, act),
            failure => failure,
        }
    }

    pub(crate) fn noted(self, note: String) -> Failure {
        match self {
            Failure::Call(..) => Failure::Noted(Box::new(self), note),
            failure => failure,
        }
    }

    /// Converts the failure to a result. If a file is missing, the result suggests existing files.
    /// Names of tools in hints have `prefix`.
    pub(crate) async fn into_result(self, backend: &Backend, prefix: &str) -> CallToolResult {
        match self {
            Failure::Misuse(message) => {
                let code = ErrorCode::InvalidConfiguration.as_str();
                refusal(message, code, ErrorKind::Invalid.as_str())
            }
            Failure::Call(error, act) => {
                let text = explained(&error, act, backend, prefix).await;
                let result = refusal(text, error.code().as_str(), error.kind().as_str());
                match error.pending_approval_id() {
                    Some(approval) => waiting_for(result, approval.as_str()),
                    None => result,
                }
            }
            Failure::Crowded => {
                let (code, kind) = (ErrorCode::ReadFailed, ErrorKind::Unavailable);
                refusal(CROWDED.to_owned(), code.as_str(), kind.as_str())
            }
            Failure::Noted(failure, note) => {
                let mut result = Box::pin(failure.into_result(backend, prefix)).await;
                result.content.push(ContentBlock::text(format!("[{note}]")));
                result
            }
            Failure::Ran(answer) => answer.into_error(),
        }
    }
}

/// The error message with all hints, on several lines.
pub(crate) async fn explained(
    error: &Error,
    act: Option<&'static str>,
    backend: &Backend,
    prefix: &str,
) -> String {
    let mut text = said(error, act);
    let near = match (error.kind(), error.path()) {
        (ErrorKind::NotFound, Some(path)) => nearest(backend, path).await,
        _ => None,
    };
    let hint = by_argument(error).or(error.hint()).or(advice(error.kind()));
    let hint = hint.map(|hint| prefixed(hint.to_owned(), prefix));
    for line in [hint, near].into_iter().flatten() {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

/// One line that contains the action, the object and the reason.
fn said(error: &Error, act: Option<&'static str>) -> String {
    match (act, error.path(), error.verb()) {
        (None, _, _) => error.to_string(),
        // For `exec`, a path in the error can only be the working directory.
        (Some(_), None, Some(Verb::Exec)) => error.to_string(),
        (Some(act), None, _) => format!("{act}: {}", error.message()),
        (Some(act), Some(path), _) => {
            format!("{act} '{}': {}", ab_core::error::escape_unprintable(path), error.message())
        }
    }
}

/// A hint that refers to an argument of the tool. The workspace cannot give this hint, because it
/// does not know the arguments.
fn by_argument(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::TooLarge if error.verb() == Some(Verb::Read) => {
            Some("read_text_file shows a part of it, by offset and limit; grep finds text in it")
        }
        ErrorKind::Invalid
            if error.verb() == Some(Verb::Write) && error.cause() == Some(ErrorCause::NotUtf8) =>
        {
            Some("only text can be edited; write_file replaces the whole file")
        }
        ErrorKind::TextNotUnique => {
            Some("include more lines until the text occurs only once, or set replaceAll: true")
        }
        ErrorKind::NotEmpty => Some("to remove it with its content, pass recursive: true"),
        _ => None,
    }
}

/// A hint about the next step, which refers to our tools by name.
fn advice(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::AlreadyExists => Some("choose another path, or delete the existing file first"),
        ErrorKind::NotADirectory => Some("a part of the path is a file: get_file_info shows which"),
        ErrorKind::IsADirectory => Some("list_directory shows its content"),
        ErrorKind::SpecialFile => Some("only regular files can be read and written"),
        ErrorKind::LinkLoop => Some("the links lead in a circle: delete one of them"),
        ErrorKind::InvalidPath => {
            Some("a path is UTF-8 text, relative to the root of the workspace")
        }
        ErrorKind::PathEscape => {
            Some("the path must be inside the workspace: see list_allowed_directories")
        }
        ErrorKind::PermissionDenied => Some("see its permissions with get_file_info"),
        ErrorKind::NoSpace => Some("free some disk space; the old content is unchanged"),
        ErrorKind::Conflict => Some("another program changed it meanwhile: read it again"),
        ErrorKind::Unsupported => {
            Some("this workspace cannot do that; the tools it has are listed")
        }
        ErrorKind::TooLarge => Some("ask for less of it"),
        ErrorKind::NotFound
        | ErrorKind::DeniedByPolicy
        | ErrorKind::RejectedByPerson
        | ErrorKind::ApprovalPending
        | ErrorKind::NotEmpty
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

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Call(error, None)
    }
}

impl From<Crowded> for Failure {
    fn from(_: Crowded) -> Self {
        Failure::Crowded
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Misuse(message) => f.write_str(message),
            Failure::Call(error, _) => error.fmt(f),
            Failure::Crowded => f.write_str(CROWDED),
            Failure::Noted(failure, _) => failure.fmt(f),
            Failure::Ran(_) => f.write_str("the command failed"),
        }
    }
}
