//! What a workspace is.
//!
//! Implementors write a [`Driver`]; everyone else holds a [`Backend`]. Paths are parsed once into
//! [`WsPath`]. [`guard::Guard`]s see every call and may refuse it; views such as a scope change what
//! a path means. This crate performs no input or output of its own.

pub mod accepted_cache;
pub mod approval;
pub mod backend;
pub mod call;
pub mod command_limit;
pub mod command_screen;
pub mod compare;
pub mod driver;
pub mod edit;
pub mod effective;
pub mod environment;
pub mod error;
pub mod guard;
mod guarded;
pub mod journal;
mod life;
pub mod memory;
pub mod metadata;
mod mounts;
pub mod options;
pub mod overlay;
pub mod path;
pub mod principal;
pub mod process;
mod recipe;
mod restricted;
mod scoped;
pub mod search;
mod stack;
pub mod status;
pub mod stream;
mod ticket;
mod transfer;

pub use approval::{
    Answer, ApprovalId, Approver, Asked, AskedCall, AskingRule, DenyAll, Digest, Verdict,
};
pub use backend::{
    Backend, BackendOptions, CapturedOutput, ExecOptions, ExecOutput, LineRange, Narrow,
    OverlayWorkspace, ScopeOptions, TextWindow, WriteBody,
};
pub use call::{Actor, Call, CallOutcome, Verb};
pub use command_limit::CommandLimit;
pub use command_screen::{CommandScreen, ScreenContext};
pub use driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
pub use edit::{Edit, EditOptions, Edited};
pub use effective::{
    ControlStrength, ControlSubject, EffectiveControl, EffectivePolicy, EnforcedControls,
    Isolation, Network,
};
pub use error::{Code, Error, Kind, Result};
pub use guard::{Guard, Guards};
pub use life::{Closeable, TrackId};
pub use memory::{Memory, MemoryOptions};
pub use metadata::{Entry, FileContent, FileKind, Listing, Stat, Version};
pub use overlay::{Change, ChangeKind};
pub use path::{PathRules, WsPath};
pub use principal::{Principal, PrincipalKind, Role, TenantId};
pub use recipe::{WorkspaceOpener, WorkspaceRecipe};
pub use restricted::MAX_RESTRICTIONS;
pub use status::{Status, StatusChange, Subscription};
pub use ticket::{CallEffect, Retry, Ticket};
