//! Test support: the behaviour suite that every driver, view and transport runs, test doubles and
//! small tools.
//!
//! Other crates use it only in their tests. Checks panic, so that a failed case looks like a failed
//! assertion.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first thing that is not as it must be"
)]

pub mod behaviour;
pub mod commands;
pub mod crowd;
pub mod escapes;
pub mod every_call;
pub mod expect;
pub mod fuzz;
pub mod gate;
mod heard;
pub mod host;
pub mod http_remote;
pub mod model;
pub mod operations;
pub mod peers;
pub mod recording;
pub mod schema;
pub mod scripted_model;
pub mod sshd;
mod world;

pub use gate::{GuardEvent, GuardLog, ScriptedGuard, ScriptedGuardBehavior};
pub use heard::ConnectionStatusRecorder;
pub use recording::{RecordedCall, RecordingDriver, ScriptedCommand};
pub use world::TestBackend;
