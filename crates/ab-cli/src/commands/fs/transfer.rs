//! `fs get` and `fs put`: copy a file out of the workspace, or into it.
//!
//! The content is first written to a file beside the target. The name of that file contains the
//! version of the source. If a transfer is interrupted, the next transfer of the same version
//! continues it.

use std::ffi::OsString;
use std::fs::{self, File as HostFile, OpenOptions as HostOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ab_core::backend::ReadStreamOptions;
use ab_core::options::{
    ByteRange, FileAccess, FileCreationMode, OpenOptions, OverwriteMode, RenameOptions,
};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, Verb, WsPath};
use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use serde_json::json;

use crate::failure::Failure;
use crate::progress::{Progress, Wanted, size};
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Bytes that are written at a time.
const BLOCK: usize = 256 * 1024;
/// Permission bits of a file.
const PERMISSIONS: u32 = 0o777;

/// Copy a file out of the workspace
///
/// A transfer that was cut off is continued when the same command is run again, unless the file has changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent-backend fs get build/report.html
  agent-backend fs get build/report.html ~/Downloads/ --remote wss://box.example/ssh --token-file token")]
pub(crate) struct Get {
    /// File in the workspace
    #[arg(value_name = "PATH")]
    from: OsString,

    /// File or directory on this machine [default: the current directory]
    #[arg(value_name = "TARGET")]
    to: Option<PathBuf>,

    /// Replace a file that exists
    #[arg(short, long)]
    force: bool,
}

/// Copy a file of this machine into the workspace
///
/// A transfer that was cut off is continued when the same command is run again, unless the file has changed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent-backend fs put ~/data.csv
  agent-backend fs put ~/data.csv input/data.csv --remote wss://box.example/ssh --token-file token")]
pub(crate) struct Put {
    /// File on this machine
    #[arg(value_name = "FILE")]
    from: PathBuf,

    /// Path or directory in the workspace [default: the root]
    #[arg(value_name = "TARGET")]
    to: Option<OsString>,

    /// Replace a file that exists
    #[arg(short, long)]
    force: bool,
}

pub(crate) async fn get(
    command: &Get,
    backend: &Backend,
    wanted: Wanted,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let from = backend.parse_path(path_text(&command.from)?)?;
    let stat = backend.stat(&from).await?;
    if stat.kind.is_dir() {
        return Err(directory_refused(&from));
    }
    let name = from.name().unwrap_or_default().to_owned();
    let to = host_target(command.to.as_deref(), &name);
    let fails = |act: &str, path: &Path, error: io::Error| {
        Failure::input(format!("{act} {}", path.display()), error)
    };
    // Without following links: the copy would take the place of the link, device or pipe itself.
    if let Ok(there) = to.symlink_metadata() {
        let shown = to.display().to_string();
        if !there.is_file() {
            return Err(Failure::usage(format!("'{shown}' is not a regular file"))
                .with_hint("fs get writes files only; fs cat prints to standard output"));
        }
        if !command.force {
            return Err(exists(&shown));
        }
    }
    let part = beside(&to, &stat.version.to_string());
    let mode = stat.mode.unwrap_or(0o644) & PERMISSIONS;
    let mut options = HostOptions::new();
    options.append(true).create(true).mode(mode);
    let mut file = options.open(&part).map_err(|error| fails("write", &to, error))?;
    let begun = file.metadata().map_err(|error| fails("read", &part, error))?.len();
    let begun = if begun <= stat.size {
        begun
    } else {
        file.set_len(0).map_err(|error| fails("write", &part, error))?;
        0
    };
    told_continued(begun, stat.size, terminal);
    let mut progress = Progress::new(wanted, Some(stat.size));
    progress.advance(begun);
    let range = Some(ByteRange { start: begun, length: stat.size - begun });
    let mut pieces = backend.read_stream(&from, ReadStreamOptions { range }).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| cut_off(error, begun))?;
        file.write_all(&piece).map_err(|error| fails("write", &part, error))?;
        progress.advance(piece.len() as u64);
    }
    drop(progress);
    let got = file.metadata().map_err(|error| fails("read", &part, error))?.len();
    if got != stat.size {
        // The source was shortened meanwhile, so the partial copy is useless.
        let _ = fs::remove_file(&part);
        let message = "it was changed while it was read";
        let error = Error::for_path(Verb::Read, &from, ErrorKind::Conflict, message);
        return Err(Failure::from(error).with_hint("run the command again"));
    }
    fs::rename(&part, &to).map_err(|error| fails("write", &to, error))?;
    done(&from.to_string(), &to.display().to_string(), stat.size, terminal)
}

pub(crate) async fn put(
    command: &Put,
    backend: &Backend,
    wanted: Wanted,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let shown = command.from.display().to_string();
    let fails = |error: io::Error| Failure::input(format!("read {shown}"), error);
    let file = HostFile::open(&command.from).map_err(fails)?;
    let about = file.metadata().map_err(fails)?;
    let name = command.from.file_name().and_then(|name| name.to_str());
    let (Some(name), true) = (name, about.is_file()) else {
        return Err(Failure::usage(format!("'{shown}' is not a regular file"))
            .with_hint("fs put copies one file; fs write takes standard input"));
    };
    let to = match &command.to {
        Some(to) => backend.parse_path(path_text(to)?)?,
        None => backend.parse_path(".")?,
    };
    let to = match backend.stat(&to).await {
        Ok(stat) if stat.kind.is_dir() => to.child(name)?,
        _ if command.to.as_ref().is_some_and(|to| to.to_string_lossy().ends_with('/')) => {
            to.child(name)?
        }
        _ => to,
    };
    if !command.force && backend.exists(&to).await? {
        return Err(exists(&to.to_string()));
    }
    let mut identity = DefaultHasher::new();
    (about.dev(), about.ino(), about.len(), about.mtime(), about.mtime_nsec()).hash(&mut identity);
    let part_name =
        part_name(to.name().unwrap_or_default(), &format!("{:016x}", identity.finish()));
    let part = match to.parent() {
        Some(parent) => parent.child(&part_name)?,
        None => backend.parse_path(&part_name)?,
    };
    if let Some(parent) = to.parent() {
        backend.mkdir(&parent).await?;
    }
    let there = match backend.stat(&part).await {
        Ok(stat) => stat.size.min(about.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error.into()),
    };
    let options = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::IfMissing,
        permissions: Some(about.permissions().mode() & PERMISSIONS),
        ..OpenOptions::default()
    };
    let target = backend.open(&part, options).await?;
    told_continued(there, about.len(), terminal);
    let mut progress = Progress::new(wanted, Some(about.len()));
    progress.advance(there);
    let mut at = there;
    while at < about.len() {
        let room = usize::try_from(about.len() - at).unwrap_or(BLOCK).min(BLOCK);
        let mut block = vec![0; room];
        file.read_exact_at(&mut block, at).map_err(fails)?;
        target.write_at(at, Bytes::from(block)).await.map_err(|error| cut_off(error, at))?;
        at += room as u64;
        progress.advance(room as u64);
    }
    drop(progress);
    drop(target);
    let overwrite = if command.force { OverwriteMode::Replace } else { OverwriteMode::Refuse };
    backend.rename_with(&part, &to, RenameOptions { overwrite }).await?;
    done(&shown, &to.to_string(), about.len(), terminal)
}

/// The file on this machine that a file named `name` is copied to.
fn host_target(to: Option<&Path>, name: &str) -> PathBuf {
    match to {
        None => PathBuf::from(name),
        Some(to) if to.is_dir() || to.to_string_lossy().ends_with('/') => to.join(name),
        Some(to) => to.to_owned(),
    }
}

fn beside(path: &Path, version: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(part_name(&name, version))
}

/// A hidden name for the partial copy of one version of a file.
fn part_name(name: &str, version: &str) -> String {
    let short: String = name.chars().take(48).collect();
    let version: String = version.chars().take(16).collect();
    format!(".{short}.{version}.part")
}

fn told_continued(begun: u64, total: u64, terminal: &mut Terminal) {
    if begun > 0 && terminal.format() == Format::Text {
        terminal.note(&format!("continuing after {} of {}", size(begun), size(total)));
    }
}

fn done(from: &str, to: &str, bytes: u64, terminal: &mut Terminal) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => terminal.value(&json!({ "from": from, "to": to, "bytes": bytes })),
        Format::Text => {
            terminal.note(&format!("copied {} to '{to}'", size(bytes)));
            Ok(())
        }
    }
}

fn exists(path: &str) -> Failure {
    let message = format!("'{path}' exists already");
    let error = Error::new(ErrorCode::WriteFailed, ErrorKind::AlreadyExists, message);
    Failure::from(error).with_hint("replace it: --force")
}

fn directory_refused(path: &WsPath) -> Failure {
    let error = Error::for_path(Verb::Read, path, ErrorKind::IsADirectory, "is a directory");
    Failure::from(error).with_hint("fs get copies one file; pack a directory first: exec tar")
}

/// The failure for an interrupted transfer, with a hint if it can be continued.
fn cut_off(error: Error, at: u64) -> Failure {
    match error.kind() {
        ErrorKind::Disconnected | ErrorKind::Timeout => {
            let hint = format!("run the same command again: it goes on after {}", size(at));
            Failure::from(error).with_hint(hint)
        }
        _ => error.into(),
    }
}
