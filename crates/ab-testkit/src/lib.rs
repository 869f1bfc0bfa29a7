//! Shared proofs: the behaviour suite that every driver, view and transport runs, with the doubles
//! and the small machinery that tests need.
//!
//! Test support only; no crate depends on it except for its tests. What it checks it checks by
//! panicking, so that a failed case reads like a failed assertion.

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
pub mod model;
pub mod peers;
pub mod recording;
pub mod scripted_model;
mod world;

pub use gate::{GuardEvent, GuardLog, ScriptedGuard, ScriptedGuardBehavior};
pub use heard::ConnectionStatusRecorder;
pub use recording::{RecordedCall, RecordingDriver, ScriptedCommand};
pub use world::TestBackend;
