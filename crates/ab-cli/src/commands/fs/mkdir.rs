//! `fs mkdir`: makes directories.

use std::ffi::{OsStr, OsString};

use ab_core::Backend;
use clap::Args;
use serde_json::{Value, json};

use super::paths::Outcomes;
use crate::failure::Failure;
use crate::terminal::Terminal;
use crate::workspace::path_text;

/// Create directories and their missing parents
#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    /// Directories to create
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Accepted for compatibility: missing parents are always created
    #[arg(short, long)]
    parents: bool,
}

pub(crate) async fn run(
    command: &Mkdir,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut outcomes = Outcomes::of(&command.paths);
    for path in &command.paths {
        outcomes.record(make(path, backend).await, terminal)?;
    }
    outcomes.finish(terminal)
}

async fn make(path: &OsStr, backend: &Backend) -> Result<Value, Failure> {
    let path = path_text(path)?;
    backend.mkdir(path).await?;
    Ok(json!({ "path": backend.parse_path(path)?.to_string() }))
}
