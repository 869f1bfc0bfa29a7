//! The session state machine, and one driver task per session that performs its actions.
//!
//! [`session_machine`] is pure: [`session_machine::apply_session_input`] decides which inputs are valid,
//! [`session_machine::next_session_action`] what should be done next. A driver task owns each session that has not
//! ended. It stores every new state together with the events that describe it, and performs the
//! actions of the machine through an [`Executor`](ab_executor::Executor). After a restart it
//! continues from the stored state.

mod control;
mod crash;
mod driver;
pub mod session_machine;
mod settings;
mod token;

pub use control::{ControlPlane, ControlPlaneError, SessionIdempotencyKey};
pub use crash::{CrashTestHook, CrashTestPoint, UnknownCrashTestPoint};
pub use settings::ControlPlaneSettings;
