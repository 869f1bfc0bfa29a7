//! `fs touch`: makes sure that files exist.

use std::ffi::{OsStr, OsString};

use ab_core::Backend;
use clap::Args;
use serde_json::Value;

use super::paths::Outcomes;
use crate::failure::Failure;
use crate::json;
use crate::terminal::Terminal;
use crate::workspace::path_text;

/// Create empty files; existing files are not changed
#[derive(Args, Debug)]
pub(crate) struct Touch {
    /// Files to create
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

pub(crate) async fn run(
    command: &Touch,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut outcomes = Outcomes::of(&command.paths);
    for path in &command.paths {
        outcomes.record(touch(path, backend).await, terminal)?;
    }
    outcomes.finish(terminal)
}

async fn touch(path: &OsStr, backend: &Backend) -> Result<Value, Failure> {
    let path = path_text(path)?;
    let stat = backend.touch(path).await?;
    Ok(json::stat(&backend.parse_path(path)?.to_string(), &stat))
}
