//! The session state machine, and one driver task per session that performs its actions.
//!
//! [`machine`] is pure: [`machine::apply_input`] decides which inputs are valid,
//! [`machine::next_action`] what should be done next. A driver task owns each session that has not
//! ended. It stores every new state together with the events that describe it, and performs the
//! actions of the machine through an [`Executor`](ab_executor::Executor). After a restart it
//! continues from the stored state.

mod control;
mod crash;
mod driver;
pub mod machine;
mod settings;
mod token;

pub use control::{ControlPlane, ControlPlaneError, SessionIdempotencyKey};
pub use crash::{CrashHook, CrashPoint, UnknownCrashPoint};
pub use settings::ControlPlaneSettings;
