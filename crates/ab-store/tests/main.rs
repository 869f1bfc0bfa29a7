//! Tests of the store on real files.

mod approvals;
mod crash;
mod fixture;
mod log;
mod sessions;
mod storage;
