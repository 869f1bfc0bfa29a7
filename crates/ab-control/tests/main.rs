//! Tests of the control plane: the machine by itself, and the drivers with a scripted executor.

#![allow(clippy::expect_used, reason = "a test ends at the first unexpected result")]

mod document;
mod driving;
mod fake;
mod housekeeping;
mod machine;
mod queue;
mod restart;
