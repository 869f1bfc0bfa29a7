//! Errors of the store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ab_api::{Approval, ApprovalId, ApprovalStatus, PromptStatus};

use crate::uploads::UploadRefusal;

/// The SQLite result code for a full disk.
const SQLITE_FULL: &str = "13";
/// The SQLite result code for a value that is too large.
const SQLITE_TOO_BIG: &str = "18";

/// Why the decision of an approval cannot be used for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseDecisionError {
    /// The approval is not granted. This is its status.
    NotApproved(ApprovalStatus),
    /// The approval was already used.
    AlreadyUsed,
    /// The approval was granted, but expired before it was used.
    Expired,
    /// The approval belongs to another session, space, run or program.
    DifferentOwner,
    /// The operation is not the one that was approved.
    DifferentOperation,
}

impl fmt::Display for UseDecisionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApproved(status) => write!(f, "the approval is {}", status.as_str()),
            Self::AlreadyUsed => f.write_str("the approval was used: one yes counts once"),
            Self::Expired => f.write_str("the approval was not used in time"),
            Self::DifferentOwner => {
                f.write_str("the approval is for another session, run or program")
            }
            Self::DifferentOperation => {
                f.write_str("the approval is for another operation: it was changed")
            }
        }
    }
}

/// Why a call on the store failed.
#[derive(Debug, Clone)]
pub enum StoreError {
    /// There is no such object.
    NotFound,
    /// An object with this id already exists.
    AlreadyExists,
    /// The approval was already decided, or has expired.
    AlreadyDecided(Box<Approval>),
    /// The approval cannot be granted, because a part of its subject is not shown.
    SubjectNotFullyShown(Box<Approval>),
    /// The decision of the approval cannot be used for this operation.
    UseDecision(UseDecisionError),
    /// A question about the same digest exists with a different text.
    DigestReused(ApprovalId),
    /// Too many approvals wait for a decision.
    TooManyPending { limit: i64 },
    /// The space has so many tokens that no more are stored.
    TooManyTokens { limit: i64 },
    /// The idempotency key was used for a different request.
    IdempotencyKeyReused,
    /// The prompt is no longer in the queue.
    PromptNotQueued(PromptStatus),
    /// The session has no workspace that another session could continue. The workspace was removed,
    /// or another session has already taken it over.
    NoWorkspaceToContinue,
    /// The state of an upload does not allow the request.
    UploadRefused(UploadRefusal),
    /// A text is larger than its limit.
    TooLarge { what: &'static str, bytes: usize, limit: usize },
    /// Another process uses the data directory.
    Locked { path: PathBuf, pid: Option<u32> },
    /// The data directory cannot be used.
    DataDir { path: PathBuf, problem: String },
    /// Other users can enter the data directory, and it contains other files, so it is not made private.
    DataDirNotPrivate { path: PathBuf },
    /// A stored value cannot be read.
    Corrupt { what: &'static str, problem: String },
    /// The database failed.
    Database(Arc<sqlx::Error>),
    /// The database was made by a newer version, or its migrations failed.
    Schema(String),
    /// The store is closed.
    Closed,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::AlreadyExists => f.write_str("an object with this id exists"),
            Self::AlreadyDecided(approval) => {
                write!(f, "the approval is already {}", approval.status.as_str())
            }
            Self::SubjectNotFullyShown(_) => f.write_str(
                "a part of what is asked about is too large to be shown: it can only be denied",
            ),
            Self::UseDecision(refusal) => refusal.fmt(f),
            Self::DigestReused(id) => {
                write!(
                    f,
                    "the approval {id} has the same digest and another title, action or detail"
                )
            }
            Self::TooManyPending { limit } => {
                write!(f, "{limit} approvals of programs are pending: decide some first")
            }
            Self::TooManyTokens { limit } => {
                write!(f, "the space has {limit} tokens: revoke some first")
            }
            Self::IdempotencyKeyReused => {
                f.write_str("the idempotency key was used for a different request")
            }
            Self::PromptNotQueued(status) => {
                write!(f, "the prompt is {status}: only a queued one can be changed")
            }
            Self::NoWorkspaceToContinue => f.write_str(
                "the workspace of the session was removed, or another session continues it",
            ),
            Self::UploadRefused(refusal) => refusal.fmt(f),
            Self::TooLarge { what, bytes, limit } => {
                write!(f, "{what} has {bytes} bytes: at most {limit} are stored")
            }
            Self::Locked { path, pid } => {
                write!(f, "the data directory {} is in use", path.display())?;
                match pid {
                    Some(pid) => write!(f, " by process {pid}"),
                    None => f.write_str(" by another process"),
                }
            }
            Self::DataDir { path, problem } => {
                write!(f, "cannot use the data directory {}: {problem}", path.display())
            }
            Self::DataDirNotPrivate { path } => write!(
                f,
                "cannot use the data directory {}: other users can enter it, and it contains other files",
                path.display()
            ),
            Self::Corrupt { what, problem } => write!(f, "a stored {what} is invalid: {problem}"),
            Self::Database(error) => write!(f, "the database failed: {error}"),
            Self::Schema(problem) => write!(f, "cannot migrate the database: {problem}"),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Database(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::RowNotFound => Self::NotFound,
            sqlx::Error::PoolClosed => Self::Closed,
            sqlx::Error::Database(error) if error.is_unique_violation() => Self::AlreadyExists,
            error => Self::Database(Arc::new(error)),
        }
    }
}

impl StoreError {
    /// Whether the store itself failed. `false` if it works and refuses this request.
    pub fn is_server_fault(&self) -> bool {
        match self {
            Self::NotFound
            | Self::AlreadyExists
            | Self::AlreadyDecided(_)
            | Self::SubjectNotFullyShown(_)
            | Self::UseDecision(_)
            | Self::DigestReused(_)
            | Self::TooManyPending { .. }
            | Self::TooManyTokens { .. }
            | Self::IdempotencyKeyReused
            | Self::PromptNotQueued(_)
            | Self::NoWorkspaceToContinue
            | Self::TooLarge { .. } => false,
            Self::UploadRefused(refusal) => matches!(refusal, UploadRefusal::FileError { .. }),
            Self::Locked { .. }
            | Self::DataDir { .. }
            | Self::DataDirNotPrivate { .. }
            | Self::Corrupt { .. }
            | Self::Database(_)
            | Self::Schema(_)
            | Self::Closed => true,
        }
    }

    /// Whether the disk of the database is full.
    pub fn is_disk_full(&self) -> bool {
        let Self::Database(error) = self else { return false };
        let code = error.as_database_error().and_then(|error| error.code());
        code.as_deref() == Some(SQLITE_FULL)
    }

    /// Whether the same request fails again, because the reason is the request or the stored data,
    /// not the condition of the database.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Corrupt { .. } => true,
            Self::Database(error) => match error.as_ref() {
                sqlx::Error::Database(error) => {
                    error.kind() != sqlx::error::ErrorKind::Other
                        || error.code().as_deref() == Some(SQLITE_TOO_BIG)
                }
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. } => true,
                _ => false,
            },
            Self::UploadRefused(_) => false,
            error => !error.is_server_fault(),
        }
    }

    /// Whether the database itself failed, so that the transaction cannot continue.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self, Self::Database(_))
    }
}
