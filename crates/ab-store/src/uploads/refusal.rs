//! The reasons why the store refuses a request about an upload.

use std::fmt;
use std::io;

use ab_api::UploadId;

/// Why the store refuses a request about an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadRefusal {
    /// Too many uploads are waiting for their tasks.
    TooManyUploads { limit: u64 },
    /// All uploads together would exceed this number of bytes.
    TotalTooLarge { limit: u64 },
    /// Another request is sending content right now.
    BeingWritten,
    /// All bytes have arrived and were checked. They cannot be replaced.
    Complete,
    /// A task has used the upload.
    Used,
    /// The content must continue at a different offset.
    WrongOffset { expected: u64 },
    /// The content is longer than the declared size of the upload.
    TooLong { size: u64 },
    /// The content does not have the declared digest. It was removed.
    DigestMismatch { found: String },
    /// The content is not an acceptable archive. It was removed.
    InvalidArchive { problem: String },
    /// No task can use the upload: it is incomplete, was used, or has expired.
    NotUsable(UploadId),
    /// The disk is full.
    NoSpace,
    /// The file cannot be read or written.
    FileError { problem: String },
}

impl fmt::Display for UploadRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyUploads { limit } => {
                write!(f, "{limit} uploads wait for their tasks, which is the most: remove one")
            }
            Self::TotalTooLarge { limit } => {
                write!(f, "the uploads together would have more than {limit} bytes: remove one")
            }
            Self::BeingWritten => {
                f.write_str("another request is sending the content at this moment")
            }
            Self::Complete => f.write_str("the upload is complete: it takes no more content"),
            Self::Used => f.write_str("the upload was used by a task"),
            Self::WrongOffset { expected } => {
                write!(f, "the content continues at offset {expected}")
            }
            Self::TooLong { size } => {
                write!(f, "the content has more than the {size} bytes of the upload")
            }
            Self::DigestMismatch { found } => {
                write!(f, "the content has the digest {found}: it was dropped, send it again")
            }
            Self::InvalidArchive { problem } => {
                write!(
                    f,
                    "the content is not an archive that is accepted, and was dropped: {problem}"
                )
            }
            Self::NotUsable(id) => {
                write!(f, "the upload {id} is incomplete, was used, or has expired")
            }
            Self::NoSpace => f.write_str("the disk of the server is full"),
            Self::FileError { problem } => write!(f, "the file of the upload failed: {problem}"),
        }
    }
}

impl From<io::Error> for UploadRefusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::NoSpace,
            _ => Self::FileError { problem: error.to_string() },
        }
    }
}
