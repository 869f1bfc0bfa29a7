//! `clock`: the time of this machine.

use ab_api::Time;
use clap::Args;
use serde_json::json;

use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const EXAMPLE: &str = "\
Example:
  agent-backend clock --json";

/// Print the time of this machine
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Clock {
    /// Print one JSON value
    #[arg(long)]
    json: bool,
}

impl CliCommand for Clock {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(async move { run(terminal) })
    }
}

fn run(terminal: &mut Terminal) -> Result<(), Failure> {
    let now = Time::now();
    match terminal.format() {
        Format::Json => terminal.value(&json!(now)),
        Format::Text => terminal.line(&now.to_string()),
    }
}
