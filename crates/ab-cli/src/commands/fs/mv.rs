//! `fs mv`: renames or moves a file or directory.

use std::ffi::OsString;

use ab_core::options::{LinkHandling, OverwriteMode, RenameOptions, StatOptions};
use ab_core::{Backend, Error, ErrorKind};
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Move or rename a file or directory
///
/// TO is the new path itself, not a directory to move into.
#[derive(Args, Debug)]
pub(crate) struct Mv {
    /// File or directory to move
    #[arg(value_name = "FROM")]
    from: OsString,

    /// New path
    #[arg(value_name = "TO")]
    to: OsString,

    /// Replace an existing file or empty directory
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn run(
    command: &Mv,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let (from, to) = (path_text(&command.from)?, path_text(&command.to)?);
    let overwrite = if command.force { OverwriteMode::Replace } else { OverwriteMode::Refuse };
    let options = RenameOptions { overwrite };
    let renamed = match backend.rename_with(from, to, options).await {
        Ok(renamed) => renamed,
        Err(error) => return Err(with_hint(error, backend, from, to).await),
    };
    if terminal.format() == Format::Text {
        return Ok(());
    }
    terminal.value(&json!({
        "from": backend.parse_path(from)?.to_string(),
        "to": backend.parse_path(to)?.to_string(),
        "atomic": renamed.atomic,
    }))
}

/// Adds a hint to an error. The hint depends on what exists at the target path.
async fn with_hint(error: Error, backend: &Backend, from: &str, to: &str) -> Failure {
    let is_in_the_way = matches!(
        error.kind(),
        ErrorKind::AlreadyExists | ErrorKind::IsADirectory | ErrorKind::NotADirectory
    );
    if !is_in_the_way {
        return error.into();
    }
    let Ok(target) = backend.stat_with(to, StatOptions { links: LinkHandling::NoFollow }).await
    else {
        return error.into();
    };
    let source = backend.stat_with(from, StatOptions { links: LinkHandling::NoFollow }).await;
    let moves_a_dir = source.is_ok_and(|source| source.kind.is_dir());
    let hint = match (moves_a_dir, target.kind.is_dir()) {
        (false, true) => "to move it into the directory, name the full new path",
        (true, true) => "name a path inside it, or pass --force to replace it if it is empty",
        (true, false) => {
            "a directory cannot replace a file; choose another path, or remove the file with fs rm"
        }
        (false, false) => "to replace it, pass --force",
    };
    Failure::from(error).with_hint(hint)
}
