//! Maps errors to the status codes of SFTP version 3.

use ab_core::{Error, ErrorKind};

pub(crate) const OK: u32 = 0;
pub(crate) const EOF: u32 = 1;
pub(crate) const NO_SUCH_FILE: u32 = 2;
pub(crate) const PERMISSION_DENIED: u32 = 3;
pub(crate) const FAILURE: u32 = 4;
pub(crate) const BAD_MESSAGE: u32 = 5;
pub(crate) const UNSUPPORTED: u32 = 8;

/// Maximum length of a status message in bytes. It is needed because the output of failed commands
/// can be long.
const LONGEST_MESSAGE: usize = 4096;

/// The refusal of a request, which is sent to the client as a status.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: u32,
    pub(super) message: String,
    /// The complete error, for agent-backend clients. Other clients get only the code and the
    /// message.
    pub(super) error: Option<Error>,
}

impl Refusal {
    pub(super) fn new(code: u32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), error: None }
    }

    /// The end of a file or a directory. SFTP reports it as a status.
    pub(super) fn end() -> Self {
        Self::new(EOF, "end of file")
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let mut message = error.to_string();
        if message.len() > LONGEST_MESSAGE {
            let end = (0..=LONGEST_MESSAGE).rev().find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or(0));
        }
        Self { code: code(error.kind()), message, error: Some(error) }
    }
}

/// The closest status code. OpenSSH's server uses the same codes.
fn code(kind: ErrorKind) -> u32 {
    match kind {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::LinkLoop => NO_SUCH_FILE,
        ErrorKind::Escape
        | ErrorKind::PermissionDenied
        | ErrorKind::Denied
        | ErrorKind::Rejected
        | ErrorKind::Pending => PERMISSION_DENIED,
        ErrorKind::Unsupported => UNSUPPORTED,
        ErrorKind::AlreadyExists
        | ErrorKind::IsADirectory
        | ErrorKind::NotEmpty
        | ErrorKind::SpecialFile
        | ErrorKind::InvalidPath
        | ErrorKind::TooLarge
        | ErrorKind::NoSpace
        | ErrorKind::Conflict
        | ErrorKind::NoMatch
        | ErrorKind::Ambiguous
        | ErrorKind::Invalid
        | ErrorKind::Failed
        | ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Cancelled
        | ErrorKind::Disconnected
        | ErrorKind::Destroyed
        | ErrorKind::Io => FAILURE,
    }
}
