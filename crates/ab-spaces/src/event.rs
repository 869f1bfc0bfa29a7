//! Events: the results of operations.

use ab_api::{ApprovalId, RunId, RunStatus, Time};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::operation::{ContentEncoding, OperationType};

/// The answer to an operations message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventsMessage {
    #[schema(example = "1.0")]
    pub protocol_version: String,
    pub run_id: RunId,
    pub status: MessageStatus,
    pub events: Vec<ProtocolEvent>,
}

/// The status of a run, as an events message reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// Every operation has its event. Some may have failed.
    Completed,
    AwaitingApproval,
    /// The run ended early.
    Error,
}

impl From<RunStatus> for MessageStatus {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Completed => Self::Completed,
            RunStatus::Queued | RunStatus::Running | RunStatus::AwaitingApproval => {
                Self::AwaitingApproval
            }
            RunStatus::Cancelled | RunStatus::Error => Self::Error,
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum ProtocolEvent {
    /// The result of a message operation.
    Message {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        success: bool,
    },
    CreateFile {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        path: String,
        success: bool,
        #[serde(default, rename = "bytesWritten", skip_serializing_if = "Option::is_none")]
        bytes_written: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    ReadFile {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        path: String,
        success: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        encoding: Option<ContentEncoding>,
        /// Bytes of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    EditFile {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        path: String,
        success: bool,
        #[serde(default, rename = "editsApplied", skip_serializing_if = "Option::is_none")]
        edits_applied: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    DeleteFile {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        path: String,
        success: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    Shell {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        command: String,
        success: bool,
        /// The exit code of the command: 124 after a timeout, 128 plus the signal number after a
        /// signal.
        #[serde(default, rename = "exitCode", skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stdout: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stderr: Option<String>,
        #[serde(default, rename = "durationMs", skip_serializing_if = "Option::is_none")]
        duration_ms: Option<u64>,
        #[serde(default, rename = "timedOut", skip_serializing_if = "Option::is_none")]
        timed_out: Option<bool>,
        /// Why the command could not be started or was stopped. A command that itself failed has no
        /// error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The run waits until a person decides.
    ApprovalRequired {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        #[serde(rename = "operationType")]
        operation_type: OperationType,
        reason: String,
        details: ApprovalDetails,
        /// The id of the approval to decide, if the run is on a server.
        #[serde(default, rename = "approvalId", skip_serializing_if = "Option::is_none")]
        approval_id: Option<ApprovalId>,
    },
    /// A rule or a person refused the operation.
    PolicyDenied {
        timestamp: Time,
        #[serde(rename = "operationId")]
        operation_id: String,
        #[serde(rename = "operationType")]
        operation_type: OperationType,
        reason: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        suggestion: Option<String>,
    },
    /// Something other than the operation itself failed.
    Error {
        timestamp: Time,
        category: ErrorCategory,
        message: String,
        #[serde(default, rename = "operationId", skip_serializing_if = "Option::is_none")]
        operation_id: Option<String>,
        #[serde(default)]
        details: Map<String, Value>,
    },
}

/// What an approval is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDetails {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The name of the rule that requires the approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// The kind of an `error` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErrorCategory {
    /// The message does not fit the protocol.
    Validation,
    /// An approved operation is no longer what was approved.
    Policy,
    /// The workspace or a command could not be started, or the run was cancelled.
    Execution,
    /// The run took longer than a run may take.
    Timeout,
    /// The server cannot keep the event.
    System,
}

impl ProtocolEvent {
    /// The value of the event's `type` field.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Message { .. } => "message",
            Self::CreateFile { .. } => "createFile",
            Self::ReadFile { .. } => "readFile",
            Self::EditFile { .. } => "editFile",
            Self::DeleteFile { .. } => "deleteFile",
            Self::Shell { .. } => "shell",
            Self::ApprovalRequired { .. } => "approvalRequired",
            Self::PolicyDenied { .. } => "policyDenied",
            Self::Error { .. } => "error",
        }
    }

    /// The operation that the event is about.
    pub fn operation_id(&self) -> Option<&str> {
        match self {
            Self::Message { operation_id, .. }
            | Self::CreateFile { operation_id, .. }
            | Self::ReadFile { operation_id, .. }
            | Self::EditFile { operation_id, .. }
            | Self::DeleteFile { operation_id, .. }
            | Self::Shell { operation_id, .. }
            | Self::ApprovalRequired { operation_id, .. }
            | Self::PolicyDenied { operation_id, .. } => Some(operation_id),
            Self::Error { operation_id, .. } => operation_id.as_deref(),
        }
    }

    /// Whether the operation succeeded. `None` for events that do not report the end of an
    /// operation.
    pub fn success(&self) -> Option<bool> {
        match self {
            Self::Message { success, .. }
            | Self::CreateFile { success, .. }
            | Self::ReadFile { success, .. }
            | Self::EditFile { success, .. }
            | Self::DeleteFile { success, .. }
            | Self::Shell { success, .. } => Some(*success),
            Self::PolicyDenied { .. } => Some(false),
            Self::ApprovalRequired { .. } | Self::Error { .. } => None,
        }
    }

    pub(crate) fn error(
        category: ErrorCategory,
        message: impl Into<String>,
        operation_id: Option<String>,
    ) -> Self {
        let (timestamp, details) = (Time::now(), Map::new());
        Self::Error { timestamp, category, message: message.into(), operation_id, details }
    }
}

impl EventsMessage {
    pub fn new(run_id: RunId, status: MessageStatus, events: Vec<ProtocolEvent>) -> Self {
        let protocol_version = crate::PROTOCOL_VERSION.to_owned();
        Self { protocol_version, run_id, status, events }
    }
}
