//! The operations/events protocol: messages, their validation, and runs in spaces.
//!
//! An agent sends an [`OperationsMessage`]. The operations are performed in order on the workspace
//! of a space, and each results in a [`ProtocolEvent`]. The policy of the space is a guard on the
//! backend of the space, so the same rules apply to every access to the space.
//! [`run_operations_message`] runs a message in this process; [`Spaces`] keeps spaces and runs in a
//! store.

mod approver;
mod area;
mod cancellation;
mod crash;
mod event;
mod gate;
mod in_process;
mod live;
mod operation;
mod perform;
mod request;
mod run_log;
mod run_task;
mod schema;
mod service;
mod validate;
mod workspace;

pub use crash::{SpaceCrashTestHook, SpaceCrashTestPoint};
pub use event::{ApprovalDetails, ErrorCategory, EventsMessage, MessageStatus, ProtocolEvent};
pub use in_process::{
    OperationApprovalDecision, RunObserver, event_for_invalid_message, run_operations_message,
};
pub use operation::{
    ContentEncoding, DEFAULT_COMMAND_TIMEOUT_MS, Operation, OperationType, OperationsMessage,
    PROTOCOL_VERSION, TextEdit,
};
pub use request::SpaceRequest;
pub use schema::{events_message_schema, operations_message_schema};
pub use service::{CreateRunResult, Spaces, SpacesError, SpacesSettings};
pub use validate::{
    InvalidMessage, MAX_FILE_BYTES, MAX_MESSAGE_BYTES, MAX_OPERATIONS, MAX_PATH_CHARS,
    ValidationIssue, ValidationResult, parse_operation, parse_operations_bytes,
    parse_operations_message, validate_operation, validate_operations_message,
};
pub use workspace::SpaceWorkspace;
