//! `fs rm`: removes files and directories.

use std::ffi::{OsStr, OsString};

use ab_core::options::{OnMissingTarget, RemoveDepth, RemoveOptions};
use ab_core::{Backend, Error, ErrorKind};
use clap::Args;
use serde_json::{Value, json};

use super::paths::Outcomes;
use crate::count::counted;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Remove files and directories
///
/// A symbolic link is removed, not its target.
#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// Files and directories to remove
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Remove directories with their content
    #[arg(short, long)]
    recursive: bool,

    /// Ignore paths that do not exist
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn run(
    command: &Rm,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut outcomes = Outcomes::of(&command.paths);
    for path in &command.paths {
        let outcome = remove(command, path, backend, terminal).await;
        outcomes.record(outcome, terminal)?;
    }
    outcomes.finish(terminal)
}

async fn remove(
    command: &Rm,
    path: &OsStr,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<Value, Failure> {
    let path = path_text(path)?;
    let parsed = backend.parse_path(path)?;
    let options = RemoveOptions {
        depth: if command.recursive { RemoveDepth::Recursive } else { RemoveDepth::NonRecursive },
        missing: if command.force { OnMissingTarget::Ignore } else { OnMissingTarget::Fail },
    };
    let removed = backend.rm(path, options).await.map_err(with_flag_hint)?;
    if command.recursive && terminal.format() == Format::Text {
        let entries = counted(removed.count, "entry", "entries");
        terminal.note(&format!("removed '{parsed}': {entries}"));
    }
    Ok(json!({ "path": parsed.to_string(), "removed": removed.count }))
}

fn with_flag_hint(error: Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::NotEmpty | ErrorKind::IsADirectory => {
            "to remove it with its content, pass --recursive"
        }
        _ => return error.into(),
    };
    Failure::from(error).with_hint(hint)
}
