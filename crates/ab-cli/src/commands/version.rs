//! `version`: which build this is.

use std::env::consts::{ARCH, OS};

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

/// Say which build this is
#[derive(Args, Debug)]
pub(crate) struct Version {
    /// Print one JSON value
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(_: &Version, terminal: &mut Terminal) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let target = format!("{ARCH}-{OS}");
    match terminal.format() {
        Format::Json => terminal.value(&json!({
            "name": "agent-backend",
            "version": version,
            "target": target,
        })),
        Format::Text => terminal.line(&format!("agent-backend {version} ({target})")),
    }
}
