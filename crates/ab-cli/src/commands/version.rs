//! `version`: shows which build this is.

use std::env::consts::{ARCH, OS};

use clap::Args;
use serde_json::json;

use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

/// Print the version and the build
#[derive(Args, Debug)]
pub(crate) struct Version {
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

impl CliCommand for Version {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(async move { run(&self, terminal) })
    }
}

fn run(_: &Version, terminal: &mut Terminal) -> Result<(), Failure> {
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
