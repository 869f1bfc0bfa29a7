//! Tests of the store on real files.

#![allow(clippy::expect_used, reason = "a test ends at the first unexpected result")]

mod approvals;
mod crash;
mod fixture;
mod log;
mod retention;
mod sessions;
mod spaces;
mod storage;
mod uploads;
