//! Workspace tokens. A token names everything that will be made for a workspace, and is created
//! before the workspace.

use std::fmt;

use ab_core::{Error, ErrorCode, ErrorKind};

use crate::error::Result;

/// How a workspace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkspaceCopyMethod {
    /// A clone that borrows objects from a cached bare repository.
    Git,
    /// A copy of a directory, with shared blocks if the file system supports that.
    Copy,
}

impl WorkspaceCopyMethod {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkspaceCopyMethod::Git => "git",
            WorkspaceCopyMethod::Copy => "copy",
        }
    }
}

impl fmt::Display for WorkspaceCopyMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Number of random bytes in a token.
const BYTES: usize = 16;

/// Names a workspace, for example for [`cleanup`](crate::SessionWorkspaceStore::remove_workspace).
/// The caller stores the token before the workspace is made, so that everything can be found and
/// removed after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkspaceToken {
    provider: WorkspaceCopyMethod,
    text: String,
}

impl WorkspaceToken {
    /// Creates a new token. The token is hard to guess. It is also the name of a directory.
    pub fn new(provider: WorkspaceCopyMethod) -> Result<WorkspaceToken> {
        let mut bytes = [0_u8; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::new(
                ErrorCode::ExecError,
                ErrorKind::Io,
                format!("cannot get random bytes: {error}"),
            )
        })?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(WorkspaceToken { provider, text: format!("{provider}-{hex}") })
    }

    /// Parses a stored token.
    pub fn parse(text: &str) -> Result<WorkspaceToken> {
        let provider =
            [WorkspaceCopyMethod::Git, WorkspaceCopyMethod::Copy].into_iter().find(|provider| {
                let hex =
                    text.strip_prefix(provider.as_str()).and_then(|rest| rest.strip_prefix('-'));
                let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                hex.is_some_and(|hex| hex.len() == 2 * BYTES && hex.bytes().all(digit))
            });
        match provider {
            Some(provider) => Ok(WorkspaceToken { provider, text: text.to_owned() }),
            None => {
                let message = format!("invalid cleanup token {text:?}");
                Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message).into())
            }
        }
    }

    pub fn copy_method(&self) -> WorkspaceCopyMethod {
        self.provider
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for WorkspaceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_storage_and_nothing_else_is_one() {
        for provider in [WorkspaceCopyMethod::Git, WorkspaceCopyMethod::Copy] {
            let token = WorkspaceToken::new(provider).unwrap();
            assert_eq!(WorkspaceToken::parse(token.as_str()).unwrap(), token);
            assert_ne!(WorkspaceToken::new(provider).unwrap(), token);
        }
        let hex = "0".repeat(32);
        for text in ["", "git-", "git-..", "git-0", &format!("zfs-{hex}"), &format!("git-{hex}/..")]
        {
            assert!(WorkspaceToken::parse(text).is_err(), "{text}");
        }
    }
}
