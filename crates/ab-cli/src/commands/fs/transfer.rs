//! `fs get` and `fs put`: copy a file out of the workspace, or into it.
//!
//! The content is first written to a partial file next to the target. The name of the partial file
//! contains the version of the source. If a transfer is interrupted, the next transfer of the same
//! version continues it.

use std::ffi::OsString;
use std::fs::{self, File as HostFile, OpenOptions as HostOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ab_core::backend::ReadStreamOptions;
use ab_core::options::{
    ByteRange, FileAccess, FileCreationMode, ListOptions, OpenOptions, OverwriteMode,
    RemoveOptions, RenameOptions,
};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, Verb, WsPath};
use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use serde_json::json;

use crate::failure::Failure;
use crate::progress::{Progress, Wanted, size};
use crate::signals::Signals;
use crate::terminal::{Format, Terminal, talk};
use crate::workspace::path_text;

/// Number of bytes that are written at a time.
const BLOCK: usize = 256 * 1024;
const PART_SUFFIX: &str = ".part";
/// Number of characters of the version in the name of a partial file.
const VERSION: usize = 16;
/// Flags to open a file that may be a link or a pipe. With these flags a link is not followed, and
/// opening a pipe does not block.
const WITHOUT_LINKS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
/// Permission bits of a file.
const PERMISSIONS: u32 = 0o777;

/// Copy a file from the workspace to this machine
///
/// To continue an interrupted transfer, run the same command again. If the file has changed since,
/// the transfer starts from the beginning.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Example:
  agent-backend fs get build/report.html ~/Downloads/",
    after_long_help = "\
Examples:
  agent-backend fs get build/report.html
  agent-backend fs get build/report.html ~/Downloads/ --force
  agent-backend fs get --remote ssh://ada@box.example/srv build/report.html"
)]
pub(crate) struct Get {
    /// File in the workspace
    #[arg(value_name = "PATH")]
    from: OsString,

    /// File or directory on this machine [default: the current directory]
    #[arg(value_name = "TARGET")]
    to: Option<PathBuf>,

    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
}

/// Copy a file from this machine to the workspace
///
/// To continue an interrupted transfer, run the same command again. If the file has changed since,
/// the transfer starts from the beginning.
#[derive(Args, Debug)]
#[command(
    after_help = "\
Example:
  agent-backend fs put ~/data.csv input/data.csv",
    after_long_help = "\
Examples:
  agent-backend fs put ~/data.csv
  agent-backend fs put ~/data.csv input/data.csv --force
  agent-backend fs put --remote ssh://ada@box.example/srv ~/data.csv"
)]
pub(crate) struct Put {
    /// File on this machine
    #[arg(value_name = "FILE")]
    from: PathBuf,

    /// Path or directory in the workspace [default: the root]
    #[arg(value_name = "TARGET")]
    to: Option<OsString>,

    /// Replace an existing file
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
    // Refuse links, devices and pipes, because the copy would replace them.
    if let Ok(there) = to.symlink_metadata() {
        let shown = to.display().to_string();
        if !there.is_file() {
            return Err(Failure::usage(format!("'{shown}' is not a regular file"))
                .with_hint("name a file or a directory; fs cat prints a file to standard output"));
        }
        if !command.force {
            return Err(exists(&shown));
        }
    }
    let mode = stat.mode.unwrap_or(0o644) & PERMISSIONS;
    let opened = PartFile::open(&to, &stat.version.to_string(), mode);
    let mut part = opened.map_err(|error| fails("write", &to, error))?;
    let begun = part.begun(stat.size).map_err(|error| fails("write", &part.path, error))?;
    told_continued(begun, stat.size, terminal);
    let mut progress = Progress::new(wanted, Some(stat.size));
    progress.advance(begun);
    let range = Some(ByteRange { start: begun, length: stat.size - begun });
    let mut pieces = backend.read_stream(&from, ReadStreamOptions { range }).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| cut_off(error, begun))?;
        part.file.write_all(&piece).map_err(|error| fails("write", &part.path, error))?;
        progress.advance(piece.len() as u64);
    }
    drop(progress);
    let got = part.file.metadata().map_err(|error| fails("read", &part.path, error))?.len();
    if got != stat.size {
        // The source has become shorter, so the partial file is useless.
        let _ = fs::remove_file(&part.path);
        let message = "it was changed while it was read";
        let error = Error::for_path(Verb::Read, &from, ErrorKind::Conflict, message);
        return Err(Failure::from(error).with_hint("run the command again"));
    }
    match part.finish(&to, command.force) {
        Ok(()) => remove_stale(&to),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(exists(&to.display().to_string()));
        }
        Err(error) => return Err(fails("write", &to, error)),
    }
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
    if about.is_dir() {
        return Err(Failure::usage(format!("'{shown}' is a directory"))
            .with_hint("fs put copies one file at a time; pack the directory with tar first"));
    }
    let (Some(name), true) = (name, about.is_file()) else {
        return Err(Failure::usage(format!("'{shown}' is not a regular file"))
            .with_hint("fs put copies regular files; fs write copies standard input"));
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
    let name = to.name().unwrap_or_default();
    let part_name = part_name(name, &format!("{:016x}", identity.finish()));
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
    match backend.rename_with(&part, &to, RenameOptions { overwrite }).await {
        Ok(_) => {}
        // Another transfer of the same file to the same target finished first.
        Err(error) if error.kind() == ErrorKind::NotFound && backend.exists(&to).await? => {
            if !command.force {
                return Err(exists(&to.to_string()));
            }
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(exists(&to.to_string()));
        }
        Err(error) => return Err(error.into()),
    }
    remove_stale_in(backend, &to).await;
    done(&shown, &to.to_string(), about.len(), terminal)
}

/// Removes partial files of other versions from the workspace. Errors are ignored, because the
/// files do no harm.
async fn remove_stale_in(backend: &Backend, to: &WsPath) {
    let Some(name) = to.name() else { return };
    let parent = to.parent().unwrap_or_else(WsPath::root);
    let Ok(listing) = backend.list(&parent, ListOptions::default()).await else { return };
    for entry in &listing.entries {
        if entry.path.name().is_some_and(|found| is_part_of(found, name)) {
            let _ = backend.rm(&entry.path, RemoveOptions::default()).await;
        }
    }
}

/// Runs a transfer until it ends or a signal arrives. The transferred part is kept.
pub(crate) async fn interruptible(
    transfer: impl Future<Output = Result<(), Failure>>,
    notes: bool,
) -> Result<(), Failure> {
    let mut signals = Signals::watch();
    tokio::select! {
        ended = transfer => ended,
        exit = signals.next() => {
            if notes {
                talk("note: interrupted; to continue the transfer, run the same command again\n");
            }
            Err(Failure::Told(exit))
        }
    }
}

/// The path on this machine of the copy of a file with this name.
fn host_target(to: Option<&Path>, name: &str) -> PathBuf {
    match to {
        None => PathBuf::from(name),
        Some(to) if to.is_dir() || to.to_string_lossy().ends_with('/') => to.join(name),
        Some(to) => to.to_owned(),
    }
}

/// The file that a transfer to this machine writes to. The transfer locks the file, so that two
/// transfers never write to the same file.
struct PartFile {
    path: PathBuf,
    file: HostFile,
    /// Whether no later transfer can continue it.
    is_own: bool,
}

impl PartFile {
    /// Opens the partial file of an earlier transfer, or creates a new one. If another transfer is
    /// using the partial file, a separate file is created.
    ///
    /// An agent may be able to write to the directory. So if a link, a pipe or a device has the
    /// name of a partial file, it is neither followed nor opened for writing.
    fn open(to: &Path, version: &str, mode: u32) -> io::Result<PartFile> {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let path = to.with_file_name(part_name(&name, version));
        let mut options = HostOptions::new();
        options.append(true).mode(mode).custom_flags(WITHOUT_LINKS);
        if let Ok(file) = options.clone().create(true).open(&path) {
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            let is_file = file.metadata().is_ok_and(|found| found.is_file());
            // Another transfer may have renamed the file before this one took the lock.
            if locked && is_file && is_at(&file, &path) {
                return Ok(PartFile { path, file, is_own: false });
            }
        }
        let own = format!("{:08x}{version}", std::process::id());
        let path = to.with_file_name(part_name(&name, &own));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = options.create_new(true).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(PartFile { path, file, is_own: true })
    }

    /// The number of bytes that an earlier transfer has written.
    fn begun(&self, size: u64) -> io::Result<u64> {
        let begun = self.file.metadata()?.len();
        if begun <= size && !self.is_own {
            return Ok(begun);
        }
        self.file.set_len(0)?;
        Ok(0)
    }

    /// Renames the complete copy to its target.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if the target exists and must not be replaced.
    fn finish(mut self, to: &Path, force: bool) -> io::Result<()> {
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = match renameat_with(CWD, &self.path, CWD, to, flags) {
            // The file system does not support the flag.
            Err(Errno::INVAL) => fs::rename(&self.path, to),
            renamed => renamed.map_err(io::Error::from),
        };
        // If another transfer created the target first, this copy is removed.
        let lost = renamed.as_ref().is_err_and(|it| it.kind() == io::ErrorKind::AlreadyExists);
        self.is_own = lost;
        renamed
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.is_own {
            // Ignore this error, because the file may already have been renamed or removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(file: &HostFile, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Removes partial files of other versions, which no transfer will continue. Files that are in use
/// are kept. Errors are ignored, because the files do no harm.
fn remove_stale(to: &Path) {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(entries) = fs::read_dir(directory.unwrap_or(Path::new("."))) else { return };
    for entry in entries.flatten().filter(|it| is_part_of(&it.file_name().to_string_lossy(), &name))
    {
        let unused = HostOptions::new()
            .read(true)
            .custom_flags(WITHOUT_LINKS)
            .open(entry.path())
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if unused {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether `name` is the name of a partial file for the target `of`.
fn is_part_of(name: &str, of: &str) -> bool {
    let version = name
        .strip_suffix(PART_SUFFIX)
        .and_then(|name| name.strip_prefix(&format!(".{}.", shortened(of))));
    version.is_some_and(is_version)
}

/// A hidden name for the partial file of one version.
fn part_name(name: &str, version: &str) -> String {
    let short: String = version.chars().take(VERSION).collect();
    let version = if is_version(&short) {
        short
    } else {
        let mut identity = DefaultHasher::new();
        version.hash(&mut identity);
        format!("{:016x}", identity.finish())
    };
    format!(".{}.{version}{PART_SUFFIX}", shortened(name))
}

fn is_version(text: &str) -> bool {
    text.len() == VERSION && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn shortened(name: &str) -> String {
    name.chars().take(48).collect()
}

fn told_continued(begun: u64, total: u64, terminal: &mut Terminal) {
    if begun > 0 && terminal.format() == Format::Text {
        terminal.note(&format!(
            "continuing an interrupted transfer at {} of {}",
            size(begun),
            size(total)
        ));
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
    let message = format!("'{path}' already exists");
    let error = Error::new(ErrorCode::WriteFailed, ErrorKind::AlreadyExists, message);
    Failure::from(error).with_hint("to replace it, pass --force")
}

fn directory_refused(path: &WsPath) -> Failure {
    let error = Error::for_path(Verb::Read, path, ErrorKind::IsADirectory, "is a directory");
    Failure::from(error).with_hint(
        "fs get copies one file at a time; pack the directory first: agent-backend exec tar",
    )
}

/// The failure for an interrupted transfer. It contains a hint if the transfer can be continued.
fn cut_off(error: Error, at: u64) -> Failure {
    match error.kind() {
        ErrorKind::Disconnected | ErrorKind::Timeout => {
            let hint = format!("to continue at {}, run the same command again", size(at));
            Failure::from(error).with_hint(hint)
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, Mode, mknodat};

    use super::*;

    const VERSION: &str = "0123456789abcdef";

    /// The directory that a file is copied to, and a file beside it that must not change.
    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let keep = tempfile::tempdir().unwrap();
        let (directory, outside) = (keep.path().join("here"), keep.path().join("outside"));
        fs::create_dir(&directory).unwrap();
        fs::write(&outside, "kept").unwrap();
        (keep, directory, outside)
    }

    fn parts(directory: &Path, version: &str) -> [PathBuf; 2] {
        let own = format!("{:08x}{version}", std::process::id());
        [version, &own].map(|version| directory.join(part_name("file", version)))
    }

    fn copy(to: &Path) -> io::Result<()> {
        let mut part = PartFile::open(to, VERSION, 0o600)?;
        assert_eq!(part.begun(100)?, 0);
        part.file.write_all(b"copied")?;
        part.finish(to, false)?;
        remove_stale(to);
        Ok(())
    }

    #[test]
    fn links_in_the_place_of_partial_files_are_not_followed() {
        for target in ["outside", "missing"] {
            let (keep, directory, outside) = place();
            let target = keep.path().join(target);
            let to = directory.join("file");
            for link in parts(&directory, VERSION) {
                symlink(&target, link).unwrap();
            }
            copy(&to).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), "copied");
            assert!(to.symlink_metadata().unwrap().is_file());
            assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
            assert!(!keep.path().join("missing").exists());
        }
    }

    #[test]
    fn pipes_in_the_place_of_partial_files_are_not_waited_for() {
        let (_keep, directory, _) = place();
        let [part, own] = parts(&directory, VERSION);
        for pipe in [part, own, parts(&directory, "fedcba9876543210")[0].clone()] {
            mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let to = directory.join("file");
        copy(&to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "copied");
    }

    #[test]
    fn partial_file_of_an_earlier_transfer_is_continued() {
        let (_keep, directory, _) = place();
        let to = directory.join("file");
        let mut part = PartFile::open(&to, VERSION, 0o600).unwrap();
        part.file.write_all(b"half").unwrap();
        let other = PartFile::open(&to, VERSION, 0o600).unwrap();
        assert_eq!(other.begun(100).unwrap(), 0, "the part is in use");
        drop((part, other));
        let part = PartFile::open(&to, VERSION, 0o600).unwrap();
        assert_eq!(part.begun(100).unwrap(), 4);
    }
}
