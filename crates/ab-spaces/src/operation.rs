//! Operations: what an agent asks a space to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The only version of the protocol.
pub const PROTOCOL_VERSION: &str = "1.0";
/// Default timeout of a command in milliseconds.
pub const DEFAULT_COMMAND_TIMEOUT_MS: u64 = 30_000;

/// A list of operations to perform in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationsMessage {
    #[schema(example = "1.0")]
    pub protocol_version: String,
    pub operations: Vec<Operation>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Operation {
    /// Tells people something. The workspace is not changed.
    Message {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        content: String,
    },
    /// Creates a file, and the directories above it.
    CreateFile {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        path: String,
        content: String,
        #[serde(default)]
        encoding: ContentEncoding,
        #[serde(default)]
        overwrite: bool,
    },
    ReadFile {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        path: String,
        #[serde(default)]
        encoding: ContentEncoding,
    },
    /// Replaces texts in a file. Either all replacements are made or none.
    EditFile {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        path: String,
        edits: Vec<TextEdit>,
    },
    DeleteFile {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        path: String,
    },
    /// Runs a command line in the sandbox of the space.
    Shell {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        command: String,
        /// The working directory, relative to the root of the workspace. Default: the root.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// The timeout in milliseconds.
        #[serde(default = "default_timeout")]
        timeout: u64,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
}

/// How the content of a file is written in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ContentEncoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// One replacement: the first occurrence of `old_content` becomes `new_content`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextEdit {
    pub old_content: String,
    pub new_content: String,
}

/// The `type` of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum OperationType {
    Message,
    CreateFile,
    ReadFile,
    EditFile,
    DeleteFile,
    Shell,
}

fn default_timeout() -> u64 {
    DEFAULT_COMMAND_TIMEOUT_MS
}

impl OperationType {
    /// Every type, in the order of the protocol.
    pub const ALL: [Self; 6] = [
        Self::Message,
        Self::CreateFile,
        Self::ReadFile,
        Self::EditFile,
        Self::DeleteFile,
        Self::Shell,
    ];

    /// The name of the type in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::CreateFile => "createFile",
            Self::ReadFile => "readFile",
            Self::EditFile => "editFile",
            Self::DeleteFile => "deleteFile",
            Self::Shell => "shell",
        }
    }
}

impl Operation {
    /// The type of the operation.
    pub fn operation_type(&self) -> OperationType {
        match self {
            Self::Message { .. } => OperationType::Message,
            Self::CreateFile { .. } => OperationType::CreateFile,
            Self::ReadFile { .. } => OperationType::ReadFile,
            Self::EditFile { .. } => OperationType::EditFile,
            Self::DeleteFile { .. } => OperationType::DeleteFile,
            Self::Shell { .. } => OperationType::Shell,
        }
    }

    /// The id of the operation, if the agent or the server assigned one.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Message { id, .. }
            | Self::CreateFile { id, .. }
            | Self::ReadFile { id, .. }
            | Self::EditFile { id, .. }
            | Self::DeleteFile { id, .. }
            | Self::Shell { id, .. } => id.as_deref(),
        }
    }

    pub(crate) fn set_id(&mut self, new: String) {
        match self {
            Self::Message { id, .. }
            | Self::CreateFile { id, .. }
            | Self::ReadFile { id, .. }
            | Self::EditFile { id, .. }
            | Self::DeleteFile { id, .. }
            | Self::Shell { id, .. } => *id = Some(new),
        }
    }
}
