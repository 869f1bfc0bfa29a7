//! `fs cp`: copies files and directories inside the workspace.

use std::ffi::OsString;

use ab_core::backend::ReadStreamOptions;
use ab_core::options::{LinkHandling, ListOptions, StatOptions, WriteMode, WriteOptions};
use ab_core::{Backend, Error, ErrorKind, FileKind, Stat, Verb, WsPath};
use clap::Args;
use serde_json::json;

use crate::count::counted;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Copy a file or a directory inside the workspace
///
/// If TO is a directory, the copy is created in it. Permissions are kept. A symbolic link is copied as a
/// link.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent-backend fs cp config.toml config.old.toml
  agent-backend fs cp -r src backup

To copy from or to files outside the workspace, use fs get and fs put.")]
pub(crate) struct Copy {
    /// File or directory to copy
    #[arg(value_name = "FROM")]
    from: OsString,

    /// Path of the copy, or a directory for it
    #[arg(value_name = "TO")]
    to: OsString,

    /// Copy directories with their content
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Replace existing files
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn run(
    command: &Copy,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let from = backend.parse_path(path_text(&command.from)?)?;
    let source = backend.stat_with(&from, no_follow()).await?;
    let to = target(backend, &from, backend.parse_path(path_text(&command.to)?)?).await?;
    let mut files = 0;
    match source.kind {
        FileKind::Dir if !command.recursive => {
            let message = "is a directory";
            let error = Error::for_path(Verb::Read, &from, ErrorKind::IsADirectory, message);
            return Err(Failure::from(error).with_hint("to copy it with its content, pass -r"));
        }
        FileKind::Dir => files += directory(command, backend, &from, &to).await?,
        FileKind::File | FileKind::Symlink | FileKind::Other => {
            one(command, backend, (&from, &source), &to).await?;
            files += 1;
        }
    }
    match terminal.format() {
        Format::Json => {
            let (from, to) = (from.to_string(), to.to_string());
            terminal.value(&json!({ "from": from, "to": to, "files": files }))
        }
        Format::Text => {
            if source.kind.is_dir() {
                terminal.note(&format!("copied {} to '{to}'", counted(files, "file", "files")));
            }
            Ok(())
        }
    }
}

fn no_follow() -> StatOptions {
    StatOptions { links: LinkHandling::NoFollow }
}

/// The path of the copy. If `to` is a directory, the copy is created inside it. Otherwise the path
/// is `to`.
async fn target(backend: &Backend, from: &WsPath, to: WsPath) -> Result<WsPath, Failure> {
    match (backend.stat(&to).await, from.name()) {
        (Ok(stat), Some(name)) if stat.kind.is_dir() => Ok(to.child(name)?),
        _ => Ok(to),
    }
}

async fn directory(
    command: &Copy,
    backend: &Backend,
    from: &WsPath,
    to: &WsPath,
) -> Result<u64, Failure> {
    if to.strip_prefix(from).is_some() {
        let message = format!("'{from}' cannot be copied into itself");
        return Err(Error::for_path(Verb::Write, to, ErrorKind::Invalid, message).into());
    }
    let options = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
    let listing = backend.list(from, options).await?;
    if let Some(problem) = listing.problems.first() {
        return Err(problem.error.clone().into());
    }
    if listing.truncated.is_some() {
        let message = format!("contains more than {} entries", listing.entries.len());
        let error = Error::for_path(Verb::List, from, ErrorKind::TooLarge, message);
        return Err(Failure::from(error).with_hint("copy its subdirectories one by one"));
    }
    backend.mkdir(to).await?;
    let mut files = 0;
    for entry in &listing.entries {
        let Some(below) = entry.path.strip_prefix(from) else { continue };
        let mut target = to.clone();
        for segment in below.segments() {
            target = target.child(segment)?;
        }
        if entry.kind.is_dir() {
            backend.mkdir(&target).await?;
        } else {
            let stat = backend.stat_with(&entry.path, no_follow()).await?;
            one(command, backend, (&entry.path, &stat), &target).await?;
            files += 1;
        }
    }
    Ok(files)
}

async fn one(
    command: &Copy,
    backend: &Backend,
    (from, stat): (&WsPath, &Stat),
    to: &WsPath,
) -> Result<(), Failure> {
    if stat.kind == FileKind::Symlink {
        let leads_to = backend.read_link(from).await?;
        return Ok(backend.symlink(to, &leads_to).await?);
    }
    let mode = if command.force { WriteMode::CreateOrReplace } else { WriteMode::CreateNew };
    let options = WriteOptions { mode, permissions: stat.mode, ..WriteOptions::default() };
    let content = backend.read_stream(from, ReadStreamOptions::default()).await?;
    let written = backend.write_stream(to, content, options).await;
    written.map(drop).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::from(error).with_hint("to replace it, pass --force"),
        _ => error.into(),
    })
}
