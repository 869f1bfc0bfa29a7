//! The core of workspaces: the contract of drivers, the handle for callers, and views.
//!
//! A [`Driver`] gives access to one kind of workspace, and callers use it through a [`Backend`].
//! Paths are parsed once into a [`WsPath`]. [`guard::Guard`]s see every call and may refuse it. A
//! view is a driver over other drivers. It changes the meaning of paths. For example, a scope shows
//! a subdirectory as a whole workspace. This crate performs no I/O itself.

pub mod approval;
pub mod backend;
pub mod call;
pub mod command_limit;
pub mod command_line_check;
pub mod compare;
pub mod driver;
pub mod edit;
pub mod effective_policy;
pub mod environment;
pub mod error;
pub mod guard;
mod guarded;
pub mod journal;
mod life;
pub mod line_range;
mod locator;
mod lost_call;
pub mod memory;
pub mod metadata;
mod mounts;
pub mod options;
pub mod overlay;
pub mod passed_check_cache;
pub mod path;
pub mod principal;
pub mod process;
mod restricted;
mod scoped;
pub mod search;
mod stack;
pub mod status;
pub mod stream;
pub mod tar;
mod transfer;

pub use approval::{
    ApprovalAnswer, ApprovalId, ApprovalRequest, Approver, CallDigest, NoApprover, OwnedCall,
    TriggeringRule, Verdict,
};
pub use backend::{
    Backend, BackendOptions, CapturedOutput, ExecOptions, ExecOutput, LineWindow, NarrowOptions,
    OverlayWorkspace, ScopeOptions, WriteContent,
};
pub use call::{Actor, Call, CallOutcome, Verb};
pub use command_limit::ConcurrentCommandLimit;
pub use command_line_check::{CommandLineCheck, CommandLineCheckContext};
pub use driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
pub use edit::{Edit, EditOptions, EditReport};
pub use effective_policy::{
    EffectivePolicy, EffectivePolicyControl, EnforcedControls, Isolation, NetworkAccess,
    PolicyControlKind, PolicyControlStrength,
};
pub use error::{Error, ErrorCause, ErrorCode, ErrorKind, Result};
pub use guard::{Guard, Guards};
pub use life::{Closeable, CloseableId};
pub use line_range::LineRange;
pub use locator::{WorkspaceLocator, WorkspaceOpener};
pub use lost_call::{LostCallEffect, LostCallId, RetryAdvice};
pub use memory::{MemoryDriver, MemoryDriverOptions};
pub use metadata::{DirEntry, FileContent, FileKind, FileVersion, Listing, Stat};
pub use overlay::{OverlayChange, OverlayChangeKind};
pub use path::{PathInput, PathParser, WsPath};
pub use principal::{Principal, PrincipalKind, Role, TenantId};
pub use restricted::{MAX_PATH_RESTRICTIONS, PathFilter, PathFilters};
pub use status::{ConnectionStatus, ConnectionStatusChange, StatusSubscription};
