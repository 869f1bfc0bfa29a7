//! The one error of the system: what was tried, on what, and why it did not work.
//!
//! [`Kind`] is what callers branch on; [`Code`] is the published string. Each rim maps kinds to its
//! own vocabulary in one exhaustive function.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::approval::ApprovalId;
use crate::backend::ExecOutput;
use crate::call::Verb;
use crate::driver::BackendKind;
use crate::path::WsPath;
use crate::process::Exit;
use crate::ticket::{CallEffect, Retry, Ticket};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Published error codes; the list is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
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

impl Code {
    pub const ALL: [Code; 19] = [
        Code::EmptyCommand,
        Code::UnsafeCommand,
        Code::ExecFailed,
        Code::ExecError,
        Code::ReadFailed,
        Code::WriteFailed,
        Code::LsFailed,
        Code::PathEscapeAttempt,
        Code::MissingUtilities,
        Code::InvalidConfiguration,
        Code::DangerousOperation,
        Code::ConnectionClosed,
        Code::KeyNotFound,
        Code::InvalidPath,
        Code::NotImplemented,
        Code::AuthFailed,
        Code::Timeout,
        Code::TooLarge,
        Code::Conflict,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Code::EmptyCommand => "EMPTY_COMMAND",
            Code::UnsafeCommand => "UNSAFE_COMMAND",
            Code::ExecFailed => "EXEC_FAILED",
            Code::ExecError => "EXEC_ERROR",
            Code::ReadFailed => "READ_FAILED",
            Code::WriteFailed => "WRITE_FAILED",
            Code::LsFailed => "LS_FAILED",
            Code::PathEscapeAttempt => "PATH_ESCAPE_ATTEMPT",
            Code::MissingUtilities => "MISSING_UTILITIES",
            Code::InvalidConfiguration => "INVALID_CONFIGURATION",
            Code::DangerousOperation => "DANGEROUS_OPERATION",
            Code::ConnectionClosed => "CONNECTION_CLOSED",
            Code::KeyNotFound => "KEY_NOT_FOUND",
            Code::InvalidPath => "INVALID_PATH",
            Code::NotImplemented => "NOT_IMPLEMENTED",
            Code::AuthFailed => "AUTH_FAILED",
            Code::Timeout => "TIMEOUT",
            Code::TooLarge => "TOO_LARGE",
            Code::Conflict => "CONFLICT",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a call failed; the same failure has the same kind on every driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    NotFound,
    AlreadyExists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    /// A FIFO, socket or device where a regular file is needed.
    SpecialFile,
    /// A chain of links that is too long or goes in a circle.
    LinkLoop,
    InvalidPath,
    /// The path or a link on it leaves the workspace or the scope.
    Escape,
    /// The operating system said no.
    PermissionDenied,
    /// Policy said no.
    Denied,
    /// A person, or a deadline for one, said no.
    Rejected,
    /// A person has not decided yet. The error has the [id](Error::approval) of the approval.
    Pending,
    Unsupported,
    TooLarge,
    NoSpace,
    /// The file is not the version that the caller expected.
    Conflict,
    /// The text to replace is not there.
    NoMatch,
    /// The text to replace is there more than once.
    Ambiguous,
    /// An argument or a setting makes no sense.
    Invalid,
    /// A command ended with a non-zero status.
    Failed,
    /// Something the host should offer is missing.
    Unavailable,
    Timeout,
    Cancelled,
    Disconnected,
    Destroyed,
    /// The disk or the kernel failed in a way that has no kind of its own.
    Io,
}

impl Kind {
    pub const ALL: [Kind; 27] = [
        Kind::NotFound,
        Kind::AlreadyExists,
        Kind::NotADirectory,
        Kind::IsADirectory,
        Kind::NotEmpty,
        Kind::SpecialFile,
        Kind::LinkLoop,
        Kind::InvalidPath,
        Kind::Escape,
        Kind::PermissionDenied,
        Kind::Denied,
        Kind::Rejected,
        Kind::Pending,
        Kind::Unsupported,
        Kind::TooLarge,
        Kind::NoSpace,
        Kind::Conflict,
        Kind::NoMatch,
        Kind::Ambiguous,
        Kind::Invalid,
        Kind::Failed,
        Kind::Unavailable,
        Kind::Timeout,
        Kind::Cancelled,
        Kind::Disconnected,
        Kind::Destroyed,
        Kind::Io,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::NotFound => "not_found",
            Kind::AlreadyExists => "already_exists",
            Kind::NotADirectory => "not_a_directory",
            Kind::IsADirectory => "is_a_directory",
            Kind::NotEmpty => "not_empty",
            Kind::SpecialFile => "special_file",
            Kind::LinkLoop => "link_loop",
            Kind::InvalidPath => "invalid_path",
            Kind::Escape => "escape",
            Kind::PermissionDenied => "permission_denied",
            Kind::Denied => "denied",
            Kind::Rejected => "rejected",
            Kind::Pending => "pending",
            Kind::Unsupported => "unsupported",
            Kind::TooLarge => "too_large",
            Kind::NoSpace => "no_space",
            Kind::Conflict => "conflict",
            Kind::NoMatch => "no_match",
            Kind::Ambiguous => "ambiguous",
            Kind::Invalid => "invalid",
            Kind::Failed => "failed",
            Kind::Unavailable => "unavailable",
            Kind::Timeout => "timeout",
            Kind::Cancelled => "cancelled",
            Kind::Disconnected => "disconnected",
            Kind::Destroyed => "destroyed",
            Kind::Io => "io",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed call. Cheap to pass around and to clone.
#[derive(Clone)]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    code: Code,
    kind: Kind,
    message: String,
    hint: Option<String>,
    backend: Option<BackendKind>,
    verb: Option<Verb>,
    path: Option<String>,
    command: Option<String>,
    exit: Option<Exit>,
    output: Option<Box<ExecOutput>>,
    approval: Option<ApprovalId>,
    fate: Option<(CallEffect, Option<Ticket>)>,
    transient: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error whose code does not follow from a file operation.
    pub fn new(code: Code, kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            kind,
            message: message.into(),
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

    /// A failed operation on a path: the code follows from the kind, or else from the verb.
    pub fn for_path(verb: Verb, path: &WsPath, kind: Kind, message: impl Into<String>) -> Self {
        Self::new(code_of(verb, kind), kind, message).with_verb(verb).with_path(path.to_string())
    }

    /// The handle of the call does not let it change what is there.
    pub fn protected(verb: Verb, path: &WsPath) -> Self {
        let message = "not to be changed through this handle";
        Self::for_path(verb, path, Kind::PermissionDenied, message)
    }

    /// The driver cannot do this at all.
    pub fn unsupported(backend: BackendKind, verb: Verb) -> Self {
        let message = format!("{verb} is not supported by a {backend} backend");
        Self::new(Code::NotImplemented, Kind::Unsupported, message)
            .with_verb(verb)
            .with_backend(backend)
    }

    /// The backend was destroyed before the call.
    pub fn destroyed(verb: Verb) -> Self {
        Self::new(Code::ConnectionClosed, Kind::Destroyed, "the backend was destroyed")
            .with_verb(verb)
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub fn with_backend(mut self, backend: BackendKind) -> Self {
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

    /// Renames the path, for a view that shows it under another name.
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

    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.0.exit = Some(exit);
        self
    }

    pub fn with_output(mut self, output: ExecOutput) -> Self {
        self.0.output = Some(Box::new(output));
        self
    }

    /// The approval to wait for before the call is repeated.
    pub fn with_approval(mut self, approval: ApprovalId) -> Self {
        self.0.approval = Some(approval);
        self
    }

    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// The cause is one of the moment, such as a busy host: the same call may succeed later.
    pub fn passing(mut self) -> Self {
        self.0.transient = true;
        self
    }

    /// The answer to the call was lost: what is known of its effect, and what to ask by for more.
    pub fn with_effect(mut self, effect: CallEffect, ticket: Option<Ticket>) -> Self {
        self.0.fate = Some((effect, ticket));
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The reason alone, without the act and the path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do about it, when there is something.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    pub fn backend(&self) -> Option<BackendKind> {
        self.0.backend
    }

    pub fn verb(&self) -> Option<Verb> {
        self.0.verb
    }

    /// The path as the caller knows it.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    pub fn command(&self) -> Option<&str> {
        self.0.command.as_deref()
    }

    pub fn exit(&self) -> Option<&Exit> {
        self.0.exit.as_ref()
    }

    /// What a command said before it failed.
    pub fn output(&self) -> Option<&ExecOutput> {
        self.0.output.as_deref()
    }

    /// The approval that a [pending](Kind::Pending) call waits for.
    pub fn approval(&self) -> Option<&ApprovalId> {
        self.0.approval.as_ref()
    }

    /// Whether the call took effect, where its answer was lost with the connection.
    pub fn effect(&self) -> Option<CallEffect> {
        Some(self.0.fate.as_ref()?.0)
    }

    /// What to ask [`Backend::outcome`](crate::Backend::outcome) by, where the effect is not known.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.0.fate.as_ref()?.1.as_ref()
    }

    /// Whether the same call may be repeated. A call that was interrupted, changes something and
    /// has no known effect is never repeated: it may have been done.
    pub fn retry(&self) -> Retry {
        let interrupted = matches!(self.0.kind, Kind::Timeout | Kind::Disconnected);
        match &self.0.fate {
            Some((CallEffect::Applied, _) | (CallEffect::Unknown, None)) => Retry::Never,
            Some((CallEffect::Unknown, Some(ticket))) => Retry::AskFirst(ticket.clone()),
            Some((CallEffect::NotApplied, _)) if interrupted => Retry::Safe,
            _ if self.0.transient || self.0.kind == Kind::Conflict => Retry::Safe,
            None if interrupted && !self.0.verb.is_some_and(Verb::modifies) => Retry::Safe,
            _ => Retry::Never,
        }
    }
}

/// The published code of a file operation that failed for `kind`.
fn code_of(verb: Verb, kind: Kind) -> Code {
    match kind {
        Kind::Escape => Code::PathEscapeAttempt,
        Kind::InvalidPath => Code::InvalidPath,
        Kind::Unsupported => Code::NotImplemented,
        Kind::TooLarge => Code::TooLarge,
        Kind::Conflict => Code::Conflict,
        Kind::Timeout => Code::Timeout,
        Kind::Disconnected | Kind::Destroyed => Code::ConnectionClosed,
        Kind::Denied | Kind::Rejected | Kind::Pending => Code::DangerousOperation,
        Kind::Unavailable => Code::MissingUtilities,
        Kind::NotFound
        | Kind::AlreadyExists
        | Kind::NotADirectory
        | Kind::IsADirectory
        | Kind::NotEmpty
        | Kind::SpecialFile
        | Kind::LinkLoop
        | Kind::PermissionDenied
        | Kind::NoSpace
        | Kind::NoMatch
        | Kind::Ambiguous
        | Kind::Invalid
        | Kind::Failed
        | Kind::Cancelled
        | Kind::Io => verb.failure_code(),
    }
}

/// Text on one line. Control characters, and those that reorder others, are escaped, so that no name can fake a line, a
/// colour or another name.
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() || reorders(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

/// Whether a character changes the order in which others are shown. Such characters can make a line look like
/// another one.
pub fn reorders(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Display for Error {
    /// One line: the act, the object, the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        if let Some(verb) = parts.verb {
            write!(f, "{verb}")?;
        }
        if let Some(path) = &parts.path {
            let space = if parts.verb.is_some() { " " } else { "" };
            write!(f, "{space}'{}'", printable(path))?;
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
        let optional: [(&str, Option<&dyn fmt::Debug>); 9] = [
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
    fn reads_as_act_object_reason() {
        let path = crate::path::PathRules::lenient().parse("notes/a b.txt").unwrap();
        let error = Error::for_path(Verb::Read, &path, Kind::NotFound, "no such file");
        assert_eq!(error.to_string(), "read 'notes/a b.txt': no such file");
        assert_eq!((error.code(), error.kind()), (Code::ReadFailed, Kind::NotFound));
        let odd =
            Error::new(Code::InvalidPath, Kind::InvalidPath, "odd").with_path("it's\n\u{1b}[31m");
        assert_eq!(odd.to_string(), "'it's\\n\\u{1b}[31m': odd");
        let error = Error::unsupported(BackendKind::Memory, Verb::Exec);
        assert_eq!(error.to_string(), "exec: exec is not supported by a memory backend");
        assert_eq!((error.verb(), error.backend()), (Some(Verb::Exec), Some(BackendKind::Memory)));
    }

    #[test]
    fn only_a_call_without_effect_is_safe_to_repeat() {
        let error = |kind, verb| Error::new(Code::Timeout, kind, "").with_verb(verb);
        let lost = || error(Kind::Disconnected, Verb::Write);
        let ticket = Ticket::new("t");
        for (error, expect) in [
            (lost(), Retry::Never),
            (lost().with_effect(CallEffect::Applied, None), Retry::Never),
            (lost().with_effect(CallEffect::NotApplied, None), Retry::Safe),
            (lost().with_effect(CallEffect::Unknown, None), Retry::Never),
            (
                lost().with_effect(CallEffect::Unknown, Some(ticket.clone())),
                Retry::AskFirst(ticket),
            ),
            (error(Kind::Disconnected, Verb::Read), Retry::Safe),
            (error(Kind::Timeout, Verb::Exec), Retry::Never),
            (error(Kind::Timeout, Verb::Connect), Retry::Safe),
            (Error::new(Code::Timeout, Kind::Timeout, ""), Retry::Safe),
            (error(Kind::Conflict, Verb::Write), Retry::Safe),
            (error(Kind::Unavailable, Verb::Exec), Retry::Never),
            (error(Kind::Unavailable, Verb::Exec).passing(), Retry::Safe),
            (error(Kind::Pending, Verb::Exec), Retry::Never),
        ] {
            assert_eq!(error.retry(), expect, "{error:?}");
        }
    }

    #[test]
    fn codes_follow_from_kind_then_verb() {
        for (verb, kind, code) in [
            (Verb::List, Kind::NotFound, Code::LsFailed),
            (Verb::Mkdir, Kind::NotADirectory, Code::WriteFailed),
            (Verb::Stat, Kind::NotFound, Code::ReadFailed),
            (Verb::Write, Kind::Conflict, Code::Conflict),
            (Verb::Read, Kind::Escape, Code::PathEscapeAttempt),
            (Verb::Exec, Kind::Failed, Code::ExecFailed),
        ] {
            assert_eq!(code_of(verb, kind), code);
        }
    }
}
