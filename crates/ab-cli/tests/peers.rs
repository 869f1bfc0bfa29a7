//! Programs of others, beside the built binary: the scripts they run are in this folder.

mod clients;
mod conformance;
mod daemon;
mod inspector;
mod metrics;
mod official;
mod published;
mod pythons;
pub(crate) mod sandbox_agent;
mod schemathesis;
mod sdk_agents;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::{Ran, run};

/// A script of this folder.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(name)
}

/// What a peer printed that succeeded.
#[track_caller]
fn succeeds(command: Command) -> String {
    let shown = format!("{command:?}");
    let Ran { code, out, err } = run(command, b"");
    let out = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(code, 0, "{shown}\n{out}{err}");
    out
}
