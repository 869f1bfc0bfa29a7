//! `fs stat`: shows the attributes of files and directories.

use std::ffi::{OsStr, OsString};

use ab_core::options::{LinkHandling, StatOptions};
use ab_core::{Backend, FileKind};
use clap::Args;
use serde_json::{Value, json};

use super::paths::Outcomes;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Show the kind, size, permissions, times and version of a file
///
/// The version changes with every write. fs write --expect and fs edit --expect fail if the file has
/// another version.
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Describe a symbolic link itself, not its target
    #[arg(long)]
    no_follow: bool,
}

pub(crate) async fn run(
    command: &Stat,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut outcomes = Outcomes::of(&command.paths);
    let mut printed = false;
    for path in &command.paths {
        let outcome = describe(command, path, backend).await;
        if let (Format::Text, Ok(value)) = (terminal.format(), &outcome) {
            if printed {
                terminal.line("")?;
            }
            print(value, terminal)?;
            printed = true;
        }
        outcomes.record(outcome, terminal)?;
    }
    outcomes.finish(terminal)
}

async fn describe(command: &Stat, path: &OsStr, backend: &Backend) -> Result<Value, Failure> {
    let path = path_text(path)?;
    let links = if command.no_follow { LinkHandling::NoFollow } else { LinkHandling::Follow };
    let stat = backend.stat_with(path, StatOptions { links }).await?;
    let mut value = json::stat(&backend.parse_path(path)?.to_string(), &stat);
    if stat.kind == FileKind::Symlink {
        value["target"] = json!(backend.read_link(path).await?);
    }
    Ok(value)
}

/// Prints one line for each field.
fn print(value: &Value, terminal: &mut Terminal) -> Result<(), Failure> {
    for (key, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => terminal.shown(text).into_owned(),
            other => other.to_string(),
        };
        terminal.line(&format!("{key:<9} {text}"))?;
    }
    Ok(())
}
