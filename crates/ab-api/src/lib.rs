//! Wire types of the control plane: tasks, sessions, events, approvals, and what an executor offers.
//!
//! The types say what travels as JSON, and [`NewTask::check`] says which requests are acceptable. Field names
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

pub use approval::{Approval, ApprovalStatus, ApprovalSubject, Choice, DecidedBy, Decision};
pub use available::{Offers, UNAVAILABLE, Unavailable};
pub use catalog::{
    AgentListing, ExecutorHealth, ExecutorListing, Overlay, OverlayState, RuntimeListing,
};
pub use event::{
    DeliveryResult, Event, EventKind, FenceHost, FenceState, FollowerHost, LogLevel, LogSource,
    OutputStream, PlanEntry, PlanStatus, ToolStatus,
};
pub use id::{ApprovalId, Id, IdError, IdKind, SessionId};
pub use page::{Page, PageRequest};
pub use session::{
    Activity, Changes, EndReason, Endpoints, Fleet, FleetMember, Session, SessionAgent,
    SessionInfo, SessionLimits, SessionLinks, SessionStatus, SessionTask, SessionVcs,
    SessionWorkspace,
};
pub use task::{
    AgentChoice, Continuation, DeliveryChoice, DeliveryMode, FollowUp, LoginLink, NetworkType,
    NewRepo, NewTask, Provider, RepoMode, RepoSource, Resources, RuntimeChoice, RuntimeType, Task,
    TaskCreated, Webhook, WorkspaceChoice,
};
pub use time::{Time, TimeError};
pub use violation::{Violation, ViolationKind, Violations};
