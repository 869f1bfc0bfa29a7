//! Errors that name the field of the task that caused them.

use std::fmt;

use ab_core::{Error, ErrorCode, ErrorKind};

pub type Result<T, E = SnapshotError> = std::result::Result<T, E>;

/// The field of a task that caused an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GitTaskField {
    RepoUrl,
    RepoBranch,
    RepoCommit,
    TargetBranch,
    RepoUpload,
    Attachments,
}

impl GitTaskField {
    pub fn as_str(self) -> &'static str {
        match self {
            GitTaskField::RepoUrl => "repo.url",
            GitTaskField::RepoBranch => "repo.branch",
            GitTaskField::RepoCommit => "repo.commit",
            GitTaskField::TargetBranch => "delivery.targetBranch",
            GitTaskField::RepoUpload => "repo.uploadId",
            GitTaskField::Attachments => "attachments",
        }
    }
}

impl fmt::Display for GitTaskField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of a failed step of a workspace or a delivery.
#[derive(Clone, Debug)]
pub struct SnapshotError {
    /// The field of the task that caused the error. `None` if no field did.
    pub field: Option<GitTaskField>,
    pub error: Error,
}

impl SnapshotError {
    /// The error for a field whose value cannot be used.
    pub(crate) fn field(field: GitTaskField, kind: ErrorKind, message: impl Into<String>) -> Self {
        let error = Error::new(ErrorCode::InvalidConfiguration, kind, message);
        Self { field: Some(field), error }
    }

    /// The error for a tool or a file operation that failed.
    pub(crate) fn failed(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { field: None, error: Error::new(ErrorCode::ExecFailed, kind, message) }
    }

    /// Returns the same error, but with `field` as the field that caused it.
    pub(crate) fn about(self, field: GitTaskField) -> Self {
        Self { field: Some(field), ..self }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { error: self.error.with_hint(hint), ..self }
    }

    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }
}

impl From<Error> for SnapshotError {
    fn from(error: Error) -> Self {
        Self { field: None, error }
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(self.error.message())?;
        match self.error.hint() {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}
