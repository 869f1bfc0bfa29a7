//! `fs mv`: give a file or directory another path.

use std::ffi::OsString;

use ab_core::options::{Overwrite, RenameOptions};
use ab_core::{Backend, Error, Kind};
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Move or rename a file or directory
///
/// The target is the new path itself, not a directory to move into.
#[derive(Args, Debug)]
pub(crate) struct Mv {
    /// What to move
    #[arg(value_name = "FROM")]
    from: OsString,

    /// Its new path
    #[arg(value_name = "TO")]
    to: OsString,

    /// Replace a file, or an empty directory, that is there
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn run(
    command: &Mv,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let (from, to) = (path_text(&command.from)?, path_text(&command.to)?);
    let overwrite = if command.force { Overwrite::Replace } else { Overwrite::Refuse };
    let options = RenameOptions { overwrite };
    let renamed = backend.rename_with(from, to, options).await.map_err(with_flag_hint)?;
    if terminal.format() == Format::Text {
        return Ok(());
    }
    terminal.value(&json!({
        "from": backend.resolve(from)?.to_string(),
        "to": backend.resolve(to)?.to_string(),
        "atomic": renamed.atomic,
    }))
}

fn with_flag_hint(error: Error) -> Failure {
    match error.kind() {
        Kind::AlreadyExists => Failure::from(error).with_hint("replace what is there: --force"),
        _ => error.into(),
    }
}
