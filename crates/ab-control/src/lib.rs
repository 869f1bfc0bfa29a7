//! The session state machine, and one driver task per session that performs its actions.
//!
//! [`session_machine`] does no I/O: [`session_machine::apply_session_input`] decides which inputs
//! are valid, and [`session_machine::next_session_action`] decides what to do next. Each session
//! that has not ended is owned by a driver task. The driver task stores every new state together
//! with the events that describe the state, and performs the actions of the machine through an
//! [`Executor`](ab_executor::Executor). After a restart of the server, a new driver task continues
//! from the stored state.

mod audit;
mod control;
mod crash;
mod driver;
mod housekeeping;
mod observation;
mod retention;
pub mod session_machine;
mod settings;
mod timeline;
mod token;

pub use control::{ControlPlane, ControlPlaneError, SessionIdempotencyKey};
pub use crash::{CrashTestHook, CrashTestPoint, UnknownCrashTestPoint};
pub use housekeeping::CleanupMode;
pub use observation::{
    DURATION_BUCKETS, DurationHistogram, EndedSessionTraceSender, SessionMetrics,
};
pub use retention::RetentionSettings;
pub use settings::ControlPlaneSettings;
pub use timeline::{SessionSpan, SessionSpanKind, SessionTrace};
