//! One call on one path of a plain SSH server: sends its requests, and makes the errors for
//! refusals.

use ab_core::error::escape_unprintable;
use ab_core::metadata::FileKind;
use ab_core::{Error, ErrorKind, LostCallEffect, Result, Verb, WsPath};
use bytes::Bytes;

use super::Plain;
use crate::client::context::CallContext;
use crate::client::reply::{Reply, Status};
use crate::client::session::Session;
use crate::sftp::SftpAttributes;
use crate::sftp::packet::SftpRequest;
use crate::sftp::status;

/// A status code of SFTP version 3 that needs special handling.
const BAD_MESSAGE: u32 = 5;

#[derive(Clone, Copy)]
pub(super) struct Act<'a> {
    pub(super) session: &'a Session,
    pub(super) context: CallContext<'a>,
    pub(super) plain: &'a Plain,
    pub(super) verb: Verb,
    pub(super) path: &'a WsPath,
}

impl<'a> Act<'a> {
    /// The same call on another path.
    pub(super) fn about(self, path: &'a WsPath) -> Self {
        Self { path, ..self }
    }

    /// The same call, which does not record requests. It is used for requests whose changes are not
    /// visible in the workspace.
    pub(super) fn aside(self) -> Self {
        Self { context: self.context.without_recording(), ..self }
    }

    pub(super) fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::for_path(self.verb, self.path, kind, message)
    }

    pub(super) fn missing(&self) -> Error {
        self.error(ErrorKind::NotFound, "no such file or directory")
    }

    pub(super) fn not_a_directory(&self) -> Error {
        self.error(
            ErrorKind::NotADirectory,
            "not a directory: the path or one of its parents is a file",
        )
    }

    pub(super) fn is_a_directory(&self) -> Error {
        self.error(ErrorKind::IsADirectory, "is a directory")
    }

    pub(super) fn already_exists(&self) -> Error {
        self.error(ErrorKind::AlreadyExists, "the path already exists")
    }

    /// Adds the verb and the path to an error.
    pub(super) fn named(&self, error: Error) -> Error {
        error.with_verb(self.verb).with_path(self.path.to_string())
    }

    /// The error for a status with which the server refuses a request, with the verb and the path.
    pub(super) fn refused(&self, status: &Status) -> Error {
        self.named(refusal(self.verb, status.code, &status.message))
    }

    pub(super) fn nonsense(&self) -> Error {
        self.wrong("with an invalid message")
    }

    /// The error for an answer that violates the protocol.
    pub(super) fn wrong(&self, how: &str) -> Error {
        let error = self.named(self.session.wrong(self.verb, how));
        if self.context.has_changed() {
            error.with_lost_call_effect(LostCallEffect::Unknown, None)
        } else {
            error
        }
    }

    pub(super) async fn ask(&self, request: &SftpRequest) -> Result<Reply> {
        let reply = self.session.ask(self.context, self.verb, request).await;
        reply.map_err(|error| self.named(error))
    }

    /// Sends a request whose answer is a status.
    pub(super) async fn status(&self, request: &SftpRequest) -> Result<Status> {
        match self.ask(request).await? {
            Reply::Status(status) => Ok(status),
            _ => Err(self.nonsense()),
        }
    }

    pub(super) async fn done(&self, request: &SftpRequest) -> Result<()> {
        let status = self.status(request).await?;
        match status.code {
            status::OK => Ok(()),
            _ => Err(self.refused(&status)),
        }
    }

    /// Sends a request whose answer is a handle or a refusal.
    pub(super) async fn handle(&self, request: &SftpRequest) -> Result<Result<Bytes, Status>> {
        match self.ask(request).await? {
            Reply::Handle(handle) => Ok(Ok(handle)),
            Reply::Status(status) => Ok(Err(status)),
            _ => Err(self.nonsense()),
        }
    }

    /// The attributes of the file at a path on the server. `None` if it does not exist.
    pub(super) async fn lstat(&self, at: String) -> Result<Option<SftpAttributes>> {
        match self.ask(&SftpRequest::Lstat { path: at.into() }).await? {
            Reply::Attributes(attributes) => Ok(Some(attributes)),
            Reply::Status(status) if status.code == status::NO_SUCH_FILE => Ok(None),
            Reply::Status(status) => Err(self.refused(&status)),
            _ => Err(self.nonsense()),
        }
    }

    pub(super) async fn fstat(&self, handle: &Bytes) -> Result<SftpAttributes> {
        match self.ask(&SftpRequest::Fstat { handle: handle.clone() }).await? {
            Reply::Attributes(attributes) => Ok(attributes),
            Reply::Status(status) => Err(self.refused(&status)),
            _ => Err(self.nonsense()),
        }
    }

    /// The target of the symbolic link at a path on the server.
    pub(super) async fn link_text(&self, at: String) -> Result<String> {
        match self.ask(&SftpRequest::ReadLink { path: at.into() }).await? {
            Reply::Names(names) => {
                let target = names.into_iter().next().ok_or_else(|| self.nonsense())?.name;
                String::from_utf8(target.into()).map_err(|_| {
                    self.error(ErrorKind::Invalid, "the link's target is not valid UTF-8")
                })
            }
            Reply::Status(status) => Err(self.refused(&status)),
            _ => Err(self.nonsense()),
        }
    }
}

/// The error for a status with which the server refuses a request. Makes no further requests.
pub(crate) fn refusal(verb: Verb, code: u32, message: &str) -> Error {
    let (kind, words) = match code {
        status::NO_SUCH_FILE => (ErrorKind::NotFound, "no such file or directory".to_owned()),
        status::PERMISSION_DENIED => {
            (ErrorKind::PermissionDenied, "permission denied by the system".to_owned())
        }
        BAD_MESSAGE => {
            (ErrorKind::InvalidPath, "the name is too long for the file system".to_owned())
        }
        status::UNSUPPORTED => (ErrorKind::Unsupported, "the server cannot do that".to_owned()),
        _ => {
            let said = escape_unprintable(message.trim());
            (ErrorKind::Io, format!("the server answered '{said}' (status {code})"))
        }
    };
    Error::for_path(verb, &WsPath::root(), kind, words)
}

pub(super) fn kind(attributes: &SftpAttributes) -> FileKind {
    match attributes.mode.unwrap_or(0o100_000) & 0o170_000 {
        0o040_000 => FileKind::Dir,
        0o120_000 => FileKind::Symlink,
        0o100_000 => FileKind::File,
        _ => FileKind::Other,
    }
}
