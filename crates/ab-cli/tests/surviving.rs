//! Sessions of the built server under everything that goes wrong: it is killed, its callers and agents misbehave,
//! its sources are hostile, its disk is full.

mod agents;
mod answers;
mod approvals;
mod beginning;
mod callers;
mod crashes;
mod disk;
mod endings;
pub(crate) mod fixture;
mod full_disk;
mod http;
mod programs;
mod queue;
mod served_root;
mod several;
mod sources;
mod space_crashes;
mod space_escapes;
mod space_messages;
mod space_requests;
mod spaces;
mod storm;
mod together;
mod uploads;
