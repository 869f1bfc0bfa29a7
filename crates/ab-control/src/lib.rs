//! What should run: the session state machine, and one driver task per session that makes it so.
//!
//! [`machine`] is pure: [`machine::apply_input`] says what is legal, [`machine::next_action`] what should be done next. A driver
//! task owns each session that has not ended. It stores every new state together with the events that describe it,
//! and performs what the machine wants through an [`Executor`](ab_executor::Executor). After a restart it asks the
//! machine again.

mod control;
mod crash;
mod driver;
pub mod machine;
mod settings;
mod token;

pub use control::{ControlPlane, ControlPlaneError, SessionIdempotencyKey};
pub use crash::{CrashHook, CrashPoint, UnknownCrashPoint};
pub use settings::ControlPlaneSettings;
