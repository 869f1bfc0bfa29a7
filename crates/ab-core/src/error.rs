//! The error type of all crates. An error says what was attempted, on which object, and why it
//! failed.
//!
//! Callers branch on [`ErrorKind`]. [`ErrorCode`] is the published string. Each outer layer maps
//! kinds to its own codes in a single exhaustive function.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::approval::ApprovalId;
use crate::backend::ExecOutput;
use crate::call::Verb;
use crate::driver::BackendKind;
use crate::lost_call::{LostCallEffect, LostCallId, RetryAdvice};
use crate::path::WsPath;
use crate::process::ProcessExit;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Published error codes. The list is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    EmptyCommand,
    UnsafeCommand,
    ExecFailed,
    ExecError,
    ReadFailed,
    WriteFailed,
    LsFailed,
    PathEscapeAttempt,
    MissingUtilities,
    InvalidConfiguration,
    DangerousOperation,
    ConnectionClosed,
    KeyNotFound,
    InvalidPath,
    NotImplemented,
    AuthFailed,
    Timeout,
    TooLarge,
    Conflict,
}

impl ErrorCode {
    pub const ALL: [ErrorCode; 19] = [
        ErrorCode::EmptyCommand,
        ErrorCode::UnsafeCommand,
        ErrorCode::ExecFailed,
        ErrorCode::ExecError,
        ErrorCode::ReadFailed,
        ErrorCode::WriteFailed,
        ErrorCode::LsFailed,
        ErrorCode::PathEscapeAttempt,
        ErrorCode::MissingUtilities,
        ErrorCode::InvalidConfiguration,
        ErrorCode::DangerousOperation,
        ErrorCode::ConnectionClosed,
        ErrorCode::KeyNotFound,
        ErrorCode::InvalidPath,
        ErrorCode::NotImplemented,
        ErrorCode::AuthFailed,
        ErrorCode::Timeout,
        ErrorCode::TooLarge,
        ErrorCode::Conflict,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::EmptyCommand => "EMPTY_COMMAND",
            ErrorCode::UnsafeCommand => "UNSAFE_COMMAND",
            ErrorCode::ExecFailed => "EXEC_FAILED",
            ErrorCode::ExecError => "EXEC_ERROR",
            ErrorCode::ReadFailed => "READ_FAILED",
            ErrorCode::WriteFailed => "WRITE_FAILED",
            ErrorCode::LsFailed => "LS_FAILED",
            ErrorCode::PathEscapeAttempt => "PATH_ESCAPE_ATTEMPT",
            ErrorCode::MissingUtilities => "MISSING_UTILITIES",
            ErrorCode::InvalidConfiguration => "INVALID_CONFIGURATION",
            ErrorCode::DangerousOperation => "DANGEROUS_OPERATION",
            ErrorCode::ConnectionClosed => "CONNECTION_CLOSED",
            ErrorCode::KeyNotFound => "KEY_NOT_FOUND",
            ErrorCode::InvalidPath => "INVALID_PATH",
            ErrorCode::NotImplemented => "NOT_IMPLEMENTED",
            ErrorCode::AuthFailed => "AUTH_FAILED",
            ErrorCode::Timeout => "TIMEOUT",
            ErrorCode::TooLarge => "TOO_LARGE",
            ErrorCode::Conflict => "CONFLICT",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a call failed. The same failure has the same kind on every driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    NotFound,
    AlreadyExists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    /// The file is a FIFO, a socket or a device instead of a regular file.
    SpecialFile,
    /// A chain of links that is too long or forms a loop.
    LinkLoop,
    InvalidPath,
    /// The path, or a link on it, leads out of the workspace or the scope.
    PathEscape,
    /// The operating system refused the operation.
    PermissionDenied,
    /// The policy refused the operation.
    DeniedByPolicy,
    /// A person refused the operation, or did not decide in time.
    RejectedByPerson,
    /// A person has not decided yet. The error contains the [id](Error::pending_approval_id) of the
    /// approval.
    ApprovalPending,
    Unsupported,
    TooLarge,
    NoSpace,
    /// The file does not have the version that the caller expected.
    Conflict,
    /// The text to replace does not occur in the file.
    TextNotFound,
    /// The text to replace occurs more than once.
    TextNotUnique,
    /// An argument or a setting is invalid.
    Invalid,
    /// A command ended with a non-zero status.
    CommandFailed,
    /// Something that the operation needs is missing on the host.
    Unavailable,
    Timeout,
    Cancelled,
    Disconnected,
    Destroyed,
    /// A failure of the disk or the kernel for which there is no other kind.
    Io,
}

impl ErrorKind {
    pub const ALL: [ErrorKind; 27] = [
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::NotADirectory,
        ErrorKind::IsADirectory,
        ErrorKind::NotEmpty,
        ErrorKind::SpecialFile,
        ErrorKind::LinkLoop,
        ErrorKind::InvalidPath,
        ErrorKind::PathEscape,
        ErrorKind::PermissionDenied,
        ErrorKind::DeniedByPolicy,
        ErrorKind::RejectedByPerson,
        ErrorKind::ApprovalPending,
        ErrorKind::Unsupported,
        ErrorKind::TooLarge,
        ErrorKind::NoSpace,
        ErrorKind::Conflict,
        ErrorKind::TextNotFound,
        ErrorKind::TextNotUnique,
        ErrorKind::Invalid,
        ErrorKind::CommandFailed,
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
        ErrorKind::Cancelled,
        ErrorKind::Disconnected,
        ErrorKind::Destroyed,
        ErrorKind::Io,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "not_found",
            ErrorKind::AlreadyExists => "already_exists",
            ErrorKind::NotADirectory => "not_a_directory",
            ErrorKind::IsADirectory => "is_a_directory",
            ErrorKind::NotEmpty => "not_empty",
            ErrorKind::SpecialFile => "special_file",
            ErrorKind::LinkLoop => "link_loop",
            ErrorKind::InvalidPath => "invalid_path",
            ErrorKind::PathEscape => "escape",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::DeniedByPolicy => "denied",
            ErrorKind::RejectedByPerson => "rejected",
            ErrorKind::ApprovalPending => "pending",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::TooLarge => "too_large",
            ErrorKind::NoSpace => "no_space",
            ErrorKind::Conflict => "conflict",
            ErrorKind::TextNotFound => "no_match",
            ErrorKind::TextNotUnique => "ambiguous",
            ErrorKind::Invalid => "invalid",
            ErrorKind::CommandFailed => "failed",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Disconnected => "disconnected",
            ErrorKind::Destroyed => "destroyed",
            ErrorKind::Io => "io",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Distinguishes causes that have the same [`ErrorKind`] and [`ErrorCode`].
///
/// The cause is known only in the process in which the error occurred. Over a connection only the
/// kind, the message and the hint are transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCause {
    /// The file is not UTF-8 text.
    NotUtf8,
    /// The host name cannot be resolved.
    HostNotFound,
    /// The peer does not speak TLS.
    NotTls,
    /// The peer does not speak the WebSocket protocol.
    NotWebSocket,
    /// The connection ended before the WebSocket handshake was complete.
    HandshakeInterrupted,
    /// The SSH handshake with the program at the other end failed.
    SshHandshakeFailed,
    /// The certificate of the peer is not accepted.
    CertificateRefused,
    /// The host key is not known.
    HostKeyUnknown,
    /// The host key differs from the expected one, or is revoked.
    HostKeyRefused,
    /// The private key cannot be read.
    PrivateKeyUnreadable,
}

/// A failed call. Cheap to move and to clone.
#[derive(Clone)]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    code: ErrorCode,
    kind: ErrorKind,
    message: String,
    detail: Option<ErrorCause>,
    hint: Option<String>,
    backend: Option<BackendKind>,
    verb: Option<Verb>,
    path: Option<String>,
    command: Option<String>,
    exit: Option<ProcessExit>,
    output: Option<Box<ExecOutput>>,
    approval: Option<ApprovalId>,
    fate: Option<(LostCallEffect, Option<LostCallId>)>,
    transient: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error with this code. For an operation on a path, see
    /// [`for_path`](Self::for_path). The message may contain the text of a system error. The number
    /// of the system error is removed, because it tells a reader nothing.
    pub fn new(code: ErrorCode, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            kind,
            message: without_os_error_numbers(message.into()),
            detail: None,
            hint: None,
            backend: None,
            verb: None,
            path: None,
            command: None,
            exit: None,
            output: None,
            approval: None,
            fate: None,
            transient: false,
            source: None,
        }))
    }

    /// Creates an error for a failed operation on a path. The code is determined by the kind, or
    /// otherwise by the verb.
    pub fn for_path(
        verb: Verb,
        path: &WsPath,
        kind: ErrorKind,
        message: impl Into<String>,
    ) -> Self {
        Self::new(code_of(verb, kind), kind, message).with_verb(verb).with_path(path.to_string())
    }

    /// The error if the handle does not permit changes at this path.
    pub fn for_write_protected_path(verb: Verb, path: &WsPath) -> Self {
        let message = "this handle cannot change it";
        Self::for_path(verb, path, ErrorKind::PermissionDenied, message)
    }

    /// The error if the driver does not support the operation of `verb`.
    pub fn for_unsupported_verb(backend: BackendKind, verb: Verb) -> Self {
        let message = format!("{verb} is not supported by a {backend} backend");
        Self::new(ErrorCode::NotImplemented, ErrorKind::Unsupported, message)
            .with_verb(verb)
            .with_backend_kind(backend)
    }

    /// The error if the backend was destroyed before the call.
    pub fn for_destroyed_backend(verb: Verb) -> Self {
        Self::new(ErrorCode::ConnectionClosed, ErrorKind::Destroyed, "the backend was destroyed")
            .with_verb(verb)
    }

    pub fn with_cause(mut self, cause: ErrorCause) -> Self {
        self.0.detail = Some(cause);
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub fn with_backend_kind(mut self, backend: BackendKind) -> Self {
        self.0.backend = Some(backend);
        self
    }

    pub fn with_verb(mut self, verb: Verb) -> Self {
        self.0.verb = Some(verb);
        self
    }

    pub fn with_path(mut self, path: impl Into<String>) -> Self {
        self.0.path = Some(path.into());
        self
    }

    /// Replaces the path. This is used by a view in which the file has a different path.
    pub(crate) fn map_path(mut self, rename: impl FnOnce(&str) -> Option<String>) -> Self {
        if let Some(renamed) = self.0.path.as_deref().and_then(rename) {
            self.0.path = Some(renamed);
        }
        self
    }

    pub fn with_command(mut self, command: impl Into<String>) -> Self {
        self.0.command = Some(command.into());
        self
    }

    pub fn with_process_exit(mut self, exit: ProcessExit) -> Self {
        self.0.exit = Some(exit);
        self
    }

    pub fn with_exec_output(mut self, output: ExecOutput) -> Self {
        self.0.output = Some(Box::new(output));
        self
    }

    /// Sets the approval that the caller must wait for before it repeats the call.
    pub fn with_pending_approval_id(mut self, approval: ApprovalId) -> Self {
        self.0.approval = Some(approval);
        self
    }

    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Marks the cause as temporary, such as a busy host. The same call may succeed later.
    pub fn mark_transient(mut self) -> Self {
        self.0.transient = true;
        self
    }

    /// Sets what is known about the effect of a call whose answer was lost. If `id` is given, the
    /// caller can use it to ask for the effect later.
    pub fn with_lost_call_effect(mut self, effect: LostCallEffect, id: Option<LostCallId>) -> Self {
        self.0.fate = Some((effect, id));
        self
    }

    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The reason, without the verb and the path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The cause, if the kind does not already determine it.
    pub fn cause(&self) -> Option<ErrorCause> {
        self.0.detail
    }

    /// What the caller can do about the error, if this is known.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub fn backend_kind(&self) -> Option<BackendKind> {
        self.0.backend
    }

    pub fn verb(&self) -> Option<Verb> {
        self.0.verb
    }

    /// The path in the form in which the caller wrote it.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    pub fn command(&self) -> Option<&str> {
        self.0.command.as_deref()
    }

    pub fn process_exit(&self) -> Option<&ProcessExit> {
        self.0.exit.as_ref()
    }

    /// The output that a command wrote before it failed.
    pub fn exec_output(&self) -> Option<&ExecOutput> {
        self.0.output.as_deref()
    }

    /// The approval that a [pending](ErrorKind::ApprovalPending) call waits for.
    pub fn pending_approval_id(&self) -> Option<&ApprovalId> {
        self.0.approval.as_ref()
    }

    /// What is known about the effect of the call, if the connection broke before its answer
    /// arrived. Otherwise `None`.
    pub fn lost_call_effect(&self) -> Option<LostCallEffect> {
        Some(self.0.fate.as_ref()?.0)
    }

    /// The id for [`Backend::query_lost_call`](crate::Backend::query_lost_call), if the effect is
    /// unknown.
    pub fn lost_call_id(&self) -> Option<&LostCallId> {
        self.0.fate.as_ref()?.1.as_ref()
    }

    /// Whether the same call may be repeated. A call that changes something must not be repeated if
    /// it was interrupted and its effect is unknown, because it may have taken effect.
    pub fn retry_advice(&self) -> RetryAdvice {
        let interrupted = matches!(self.0.kind, ErrorKind::Timeout | ErrorKind::Disconnected);
        match &self.0.fate {
            Some((LostCallEffect::Applied, _) | (LostCallEffect::Unknown, None)) => {
                RetryAdvice::Never
            }
            Some((LostCallEffect::Unknown, Some(ticket))) => {
                RetryAdvice::AskEffectFirst(ticket.clone())
            }
            Some((LostCallEffect::NotApplied, _)) if interrupted => RetryAdvice::Safe,
            _ if self.0.transient || self.0.kind == ErrorKind::Conflict => RetryAdvice::Safe,
            None if interrupted && !self.0.verb.is_some_and(Verb::modifies_workspace) => {
                RetryAdvice::Safe
            }
            _ => RetryAdvice::Never,
        }
    }
}

/// The published code for an operation on a file that failed with `kind`.
fn code_of(verb: Verb, kind: ErrorKind) -> ErrorCode {
    match kind {
        ErrorKind::PathEscape => ErrorCode::PathEscapeAttempt,
        ErrorKind::InvalidPath => ErrorCode::InvalidPath,
        ErrorKind::Unsupported => ErrorCode::NotImplemented,
        ErrorKind::TooLarge => ErrorCode::TooLarge,
        ErrorKind::Conflict => ErrorCode::Conflict,
        ErrorKind::Timeout => ErrorCode::Timeout,
        ErrorKind::Disconnected | ErrorKind::Destroyed => ErrorCode::ConnectionClosed,
        ErrorKind::DeniedByPolicy | ErrorKind::RejectedByPerson | ErrorKind::ApprovalPending => {
            ErrorCode::DangerousOperation
        }
        ErrorKind::Unavailable => ErrorCode::MissingUtilities,
        ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::NotEmpty
        | ErrorKind::SpecialFile
        | ErrorKind::LinkLoop
        | ErrorKind::PermissionDenied
        | ErrorKind::NoSpace
        | ErrorKind::TextNotFound
        | ErrorKind::TextNotUnique
        | ErrorKind::Invalid
        | ErrorKind::CommandFailed
        | ErrorKind::Cancelled
        | ErrorKind::Io => verb.default_error_code(),
    }
}

/// Rewrites the texts of system errors in a message for use inside a sentence: `: No such file or
/// directory (os error 2)` becomes `: no such file or directory`.
pub fn without_os_error_numbers(mut message: String) -> String {
    const NUMBER: &str = " (os error ";
    let mut from = 0;
    while let Some(start) = message[from..].find(NUMBER).map(|at| from + at) {
        let rest = &message[start + NUMBER.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || !rest[digits..].starts_with(')') {
            from = start + NUMBER.len();
            continue;
        }
        message.replace_range(start..start + NUMBER.len() + digits + 1, "");
        if let Some(colon) = message[..start].rfind(": ") {
            let first = colon + ": ".len();
            // A word of capitals, such as an abbreviation, is not changed.
            let mut letters = message[first..].bytes();
            let is_word = letters.next().is_some_and(|letter| letter.is_ascii_uppercase())
                && letters.next().is_some_and(|letter| letter.is_ascii_lowercase());
            if is_word {
                message[first..=first].make_ascii_lowercase();
            }
        }
        from = start;
    }
    message
}

/// Converts a text to one line. Control characters, line separators and characters that reorder
/// text are escaped, so
/// that a name cannot imitate another line, a colour or another name.
pub fn escape_unprintable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() || is_bidi_control(c) || matches!(c, '\u{2028}' | '\u{2029}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

/// Whether a character changes the order in which other characters are displayed. Such characters
/// can make a line look like a different one.
pub fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Display for Error {
    /// Writes one line: the verb, the path and the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        if let Some(verb) = parts.verb {
            write!(f, "{verb}")?;
        }
        if let Some(path) = &parts.path {
            let space = match parts.verb {
                // The path is the working directory of the command.
                Some(Verb::Exec) => " in ",
                Some(_) => " ",
                None => "",
            };
            write!(f, "{space}'{}'", escape_unprintable(path))?;
        }
        if parts.verb.is_some() || parts.path.is_some() {
            f.write_str(": ")?;
        }
        f.write_str(&parts.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        let mut out = f.debug_struct("Error");
        out.field("code", &parts.code).field("kind", &parts.kind);
        out.field("message", &parts.message);
        let optional: [(&str, Option<&dyn fmt::Debug>); 10] = [
            ("detail", parts.detail.as_ref().map(|v| v as _)),
            ("hint", parts.hint.as_ref().map(|v| v as _)),
            ("backend", parts.backend.as_ref().map(|v| v as _)),
            ("verb", parts.verb.as_ref().map(|v| v as _)),
            ("path", parts.path.as_ref().map(|v| v as _)),
            ("command", parts.command.as_ref().map(|v| v as _)),
            ("exit", parts.exit.as_ref().map(|v| v as _)),
            ("approval", parts.approval.as_ref().map(|v| v as _)),
            ("effect", parts.fate.as_ref().map(|v| v as _)),
            ("source", parts.source.as_ref().map(|v| v as _)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                out.field(name, value);
            }
        }
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_system_errors_are_removed() {
        let check = |message: &str, expect: &str| {
            let error = Error::new(ErrorCode::ReadFailed, ErrorKind::Io, message);
            assert_eq!(error.message(), expect);
        };
        let missing = std::io::Error::from_raw_os_error(2);
        check(&format!("cannot read a: {missing}"), "cannot read a: no such file or directory");
        check(&format!("{missing} (in a)"), "No such file or directory (in a)");
        check(
            &format!("a: {missing}; b: {missing}"),
            "a: no such file or directory; b: no such file or directory",
        );
        check("a: RPC failed (os error 5)", "a: RPC failed");
        check("see (os error x) and (os error 1", "see (os error x) and (os error 1");
    }

    #[test]
    fn reads_as_act_object_reason() {
        let path = crate::path::PathParser::lenient().parse("notes/a b.txt").unwrap();
        let error = Error::for_path(Verb::Read, &path, ErrorKind::NotFound, "no such file");
        assert_eq!(error.to_string(), "read 'notes/a b.txt': no such file");
        assert_eq!((error.code(), error.kind()), (ErrorCode::ReadFailed, ErrorKind::NotFound));
        let odd = Error::new(ErrorCode::InvalidPath, ErrorKind::InvalidPath, "odd")
            .with_path("it's\n\u{1b}[31m");
        assert_eq!(odd.to_string(), "'it's\\n\\u{1b}[31m': odd");
        let error = Error::for_unsupported_verb(BackendKind::Memory, Verb::Exec);
        assert_eq!(error.to_string(), "exec: exec is not supported by a memory backend");
        assert_eq!(
            (error.verb(), error.backend_kind()),
            (Some(Verb::Exec), Some(BackendKind::Memory))
        );
    }

    #[test]
    fn only_a_call_without_effect_is_safe_to_repeat() {
        let error = |kind, verb| Error::new(ErrorCode::Timeout, kind, "").with_verb(verb);
        let lost = || error(ErrorKind::Disconnected, Verb::Write);
        let ticket = LostCallId::new("t");
        for (error, expect) in [
            (lost(), RetryAdvice::Never),
            (lost().with_lost_call_effect(LostCallEffect::Applied, None), RetryAdvice::Never),
            (lost().with_lost_call_effect(LostCallEffect::NotApplied, None), RetryAdvice::Safe),
            (lost().with_lost_call_effect(LostCallEffect::Unknown, None), RetryAdvice::Never),
            (
                lost().with_lost_call_effect(LostCallEffect::Unknown, Some(ticket.clone())),
                RetryAdvice::AskEffectFirst(ticket),
            ),
            (error(ErrorKind::Disconnected, Verb::Read), RetryAdvice::Safe),
            (error(ErrorKind::Timeout, Verb::Exec), RetryAdvice::Never),
            (error(ErrorKind::Timeout, Verb::Connect), RetryAdvice::Safe),
            (Error::new(ErrorCode::Timeout, ErrorKind::Timeout, ""), RetryAdvice::Safe),
            (error(ErrorKind::Conflict, Verb::Write), RetryAdvice::Safe),
            (error(ErrorKind::Unavailable, Verb::Exec), RetryAdvice::Never),
            (error(ErrorKind::Unavailable, Verb::Exec).mark_transient(), RetryAdvice::Safe),
            (error(ErrorKind::ApprovalPending, Verb::Exec), RetryAdvice::Never),
        ] {
            assert_eq!(error.retry_advice(), expect, "{error:?}");
        }
    }

    #[test]
    fn codes_follow_from_kind_then_verb() {
        for (verb, kind, code) in [
            (Verb::List, ErrorKind::NotFound, ErrorCode::LsFailed),
            (Verb::Mkdir, ErrorKind::NotADirectory, ErrorCode::WriteFailed),
            (Verb::Stat, ErrorKind::NotFound, ErrorCode::ReadFailed),
            (Verb::Write, ErrorKind::Conflict, ErrorCode::Conflict),
            (Verb::Read, ErrorKind::PathEscape, ErrorCode::PathEscapeAttempt),
            (Verb::Exec, ErrorKind::CommandFailed, ErrorCode::ExecFailed),
        ] {
            assert_eq!(code_of(verb, kind), code);
        }
    }
}
