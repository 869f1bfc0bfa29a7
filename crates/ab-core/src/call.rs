//! Calls, in the form in which guards, the journal, the policy and errors see them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{Error, ErrorCode};
use crate::path::WsPath;
use crate::principal::{Principal, PrincipalKind};
use crate::process::{ExecRequest, ProcessExit};

/// What a call does, such as reading a file or starting a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Stat,
    List,
    Search,
    Read,
    Write,
    Touch,
    Open,
    SetAttributes,
    ReadLink,
    Symlink,
    Mkdir,
    Delete,
    Rename,
    DiskSpace,
    Exec,
    Processes,
    Attach,
    Connect,
}

impl Verb {
    pub const ALL: [Verb; 18] = [
        Verb::Stat,
        Verb::List,
        Verb::Search,
        Verb::Read,
        Verb::Write,
        Verb::Touch,
        Verb::Open,
        Verb::SetAttributes,
        Verb::ReadLink,
        Verb::Symlink,
        Verb::Mkdir,
        Verb::Delete,
        Verb::Rename,
        Verb::DiskSpace,
        Verb::Exec,
        Verb::Processes,
        Verb::Attach,
        Verb::Connect,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Stat => "stat",
            Verb::List => "list",
            Verb::Search => "search",
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Touch => "touch",
            Verb::Open => "open",
            Verb::SetAttributes => "set_attributes",
            Verb::ReadLink => "read_link",
            Verb::Symlink => "symlink",
            Verb::Mkdir => "mkdir",
            Verb::Delete => "delete",
            Verb::Rename => "rename",
            Verb::DiskSpace => "space",
            Verb::Exec => "exec",
            Verb::Processes => "processes",
            Verb::Attach => "attach",
            Verb::Connect => "connect",
        }
    }

    /// Whether the verb changes the workspace or runs something in it. For `Open` this depends on
    /// the options. See [`Call::modifies`].
    pub fn modifies_workspace(self) -> bool {
        match self {
            Verb::Write
            | Verb::Touch
            | Verb::SetAttributes
            | Verb::Symlink
            | Verb::Mkdir
            | Verb::Delete
            | Verb::Rename
            | Verb::Exec => true,
            Verb::Stat
            | Verb::List
            | Verb::Search
            | Verb::Read
            | Verb::Open
            | Verb::ReadLink
            | Verb::DiskSpace
            | Verb::Processes
            | Verb::Attach
            | Verb::Connect => false,
        }
    }

    /// The error code of a failure that has no more specific code.
    pub fn default_error_code(self) -> ErrorCode {
        match self {
            Verb::List | Verb::Search => ErrorCode::LsFailed,
            Verb::Stat | Verb::Read | Verb::Open | Verb::ReadLink | Verb::DiskSpace => {
                ErrorCode::ReadFailed
            }
            Verb::Write
            | Verb::Touch
            | Verb::SetAttributes
            | Verb::Symlink
            | Verb::Mkdir
            | Verb::Delete
            | Verb::Rename => ErrorCode::WriteFailed,
            Verb::Exec => ErrorCode::ExecFailed,
            Verb::Processes | Verb::Attach => ErrorCode::ExecError,
            Verb::Connect => ErrorCode::ConnectionClosed,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The actor of a call: a [`Principal`] that is bound to a handle, and its text form. Cheap to
/// clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Actor(Arc<Identity>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Identity {
    principal: Principal,
    name: String,
}

impl Actor {
    /// The actor for a process with this name.
    pub fn for_process(name: &str) -> Self {
        Self::from(Principal::new(PrincipalKind::Process, name))
    }

    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// The principal as text, for journals and messages.
    pub fn as_str(&self) -> &str {
        &self.0.name
    }
}

impl From<Principal> for Actor {
    fn from(principal: Principal) -> Self {
        let name = principal.to_string();
        Self(Arc::new(Identity { principal, name }))
    }
}

impl Default for Actor {
    /// The process that created the handle.
    fn default() -> Self {
        Self::for_process("local")
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The id of a call. With it, guards can match the end of a call to its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(u64);

impl CallId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

/// A call, in the form in which guards see it. Borrowed and read-only.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    pub id: CallId,
    pub actor: &'a Actor,
    pub verb: Verb,
    /// The path of the call. For `exec`, the working directory.
    pub path: Option<&'a WsPath>,
    /// The new path. Only for `rename`.
    pub to: Option<&'a WsPath>,
    pub command: Option<&'a str>,
    /// The whole request. Only for `exec`. Present at the beginning of the call and absent at its
    /// end.
    pub request: Option<&'a ExecRequest>,
    /// The number of bytes that the call writes.
    pub size: Option<u64>,
    /// Whether the call may change the workspace.
    pub modifies: bool,
    /// Whether the call includes everything below `path`.
    pub recursive: bool,
}

impl<'a> Call<'a> {
    pub fn new(actor: &'a Actor, verb: Verb) -> Self {
        Self {
            id: CallId::next(),
            actor,
            verb,
            path: None,
            to: None,
            command: None,
            request: None,
            size: None,
            modifies: verb.modifies_workspace(),
            recursive: false,
        }
    }

    pub fn for_path(actor: &'a Actor, verb: Verb, path: &'a WsPath) -> Self {
        Self { path: Some(path), ..Self::new(actor, verb) }
    }
}

/// How a call ended.
#[derive(Clone, Debug)]
pub struct CallOutcome<'a> {
    pub result: CallResult<'a>,
    /// The number of bytes that were read or written.
    pub bytes: u64,
    pub duration: Duration,
    /// The exit of the command. Only for `exec`.
    pub exit: Option<&'a ProcessExit>,
}

#[derive(Clone, Copy, Debug)]
pub enum CallResult<'a> {
    Done,
    /// The driver failed, or a later guard refused the call.
    Failed(&'a Error),
    /// The caller dropped the future before the call ended.
    Cancelled,
}

impl CallOutcome<'_> {
    pub fn succeeded(&self) -> bool {
        matches!(self.result, CallResult::Done) && self.exit.is_none_or(ProcessExit::success)
    }
}
