//! Wire types of the control plane: tasks, sessions, events, approvals, and what an executor offers.
//!
//! The types say what travels as JSON, and [`NewTask::parse`] says which requests are acceptable. Field names
//! follow the REST specification: camelCase, except the snake_case names that it gives itself
//! (`recent_events`, `tool_name`, `file_path`, …).

mod approval;
mod available;
mod catalog;
mod event;
mod fields;
mod id;
mod page;
mod session;
mod task;
mod time;
mod violation;

pub use approval::{
    Approval, ApprovalChoice, ApprovalDecision, ApprovalStatus, ApprovalSubject, DecidedBy,
};
pub use available::{AvailableChoices, UNAVAILABLE_FIELDS, UnavailableField};
pub use catalog::{
    AgentListing, ExecutorHealth, ExecutorListing, OverlayNetwork, OverlayNetworkState,
    RuntimeListing,
};
pub use event::{
    DeliveryResult, Event, EventKind, FenceHostResult, FenceState, FollowerHost, LogLevel,
    LogSource, OutputStream, PlanEntry, PlanStatus, ToolStatus,
};
pub use id::{ApprovalId, Id, IdError, IdKind, SessionId};
pub use page::{Page, PageRequest};
pub use session::{
    ChangeCounts, Fleet, FleetMember, Session, SessionActivity, SessionAgent, SessionEndReason,
    SessionInfo, SessionLimits, SessionLinks, SessionStatus, SessionTask, SessionUrls, SessionVcs,
    SessionWorkspace,
};
pub use task::{
    AgentChoice, ContinueRequest, DeliveryChoice, DeliveryMode, LoginLink, NetworkType, NewRepo,
    NewTask, PromptRequest, RepoMode, RepoSource, ResourceLimits, RuntimeChoice, RuntimeType,
    SnapshotProvider, Task, TaskCreated, Webhook, WorkspaceChoice,
};
pub use time::{Time, TimeError};
pub use violation::{Violation, ViolationKind, Violations};
