//! `fs write`: writes a whole file at once.

mod large;

use std::ffi::OsString;
use std::io;

use ab_core::metadata::Stat;
use ab_core::options::{Durability, WriteMode, WriteOptions};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, FileVersion};
use clap::Args;

use crate::commands::input::{self, Blocks};
use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::progress::{Progress, Wanted};
use crate::signals::Signals;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Write a whole file
///
/// The content comes from standard input or from --content. Missing directories are created. Readers
/// see the old content or the new content, never a mixture.
#[derive(Args, Debug)]
pub(crate) struct Write {
    /// File to write
    #[arg(value_name = "PATH")]
    path: OsString,

    /// The content, instead of standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    content: Option<String>,

    /// Fail if the file exists
    #[arg(long, conflicts_with = "expect")]
    create_new: bool,

    /// Fail if the file has another version; fs stat prints the version
    #[arg(long, value_name = "VERSION", value_parser = version)]
    expect: Option<FileVersion>,

    /// Wait until the content is on the disk
    #[arg(long)]
    sync: bool,
}

impl Write {
    fn options(&self) -> WriteOptions {
        let mode = if self.create_new { WriteMode::CreateNew } else { WriteMode::CreateOrReplace };
        let durability =
            if self.sync { Durability::SurvivesPowerLoss } else { Durability::SurvivesProcessExit };
        WriteOptions { mode, expected_version: self.expect, permissions: None, durability }
    }
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputOptions {
    /// Files with more bytes than this are written in pieces.
    pub(crate) at_once: u64,
    pub(crate) progress: Wanted,
}

impl InputOptions {
    /// Input options. Large input for a remote workspace is written in pieces, so that progress can
    /// be shown.
    pub(crate) fn of(elsewhere: bool, progress: Wanted) -> InputOptions {
        InputOptions { at_once: if elsewhere { PIECEWISE } else { input::LIMIT }, progress }
    }
}

/// Larger files are written to a remote workspace in pieces.
const PIECEWISE: u64 = 16 * 1024 * 1024;

pub(crate) async fn run(
    command: &Write,
    backend: &Backend,
    input_options: InputOptions,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(&command.path)?;
    // Check the path before the user types any content.
    let parsed = backend.parse_path(path)?;
    let mut signals = Signals::watch();
    let written = match &command.content {
        Some(text) => {
            let writing = backend.write_with(path, text.as_str(), command.options());
            tokio::select! {
                stat = writing => stat.map_err(|error| about(error, path))?,
                exit = signals.next() => return Err(Failure::Told(exit)),
            }
        }
        None => {
            input::announce(&io::stdin(), terminal);
            from_input(command, backend, path, input_options, (&mut signals, terminal)).await?
        }
    };
    match terminal.format() {
        Format::Json => terminal.value(&json::stat(&parsed.to_string(), &written)),
        Format::Text => {
            let size = counted(written.size, "byte", "bytes");
            terminal.note(&format!("wrote {size} to '{parsed}'"));
            Ok(())
        }
    }
}

/// Writes small input in one call. Larger input is written to a temporary file next to the target,
/// which is then renamed.
async fn from_input(
    command: &Write,
    backend: &Backend,
    path: &str,
    input_options: InputOptions,
    (signals, terminal): (&mut Signals, &mut Terminal),
) -> Result<Stat, Failure> {
    let mut blocks = Blocks::of_stdin()?;
    let mut begun = Vec::new();
    let whole = async {
        let more = blocks.fill(&mut begun, input_options.at_once).await?;
        let in_pieces = more && large::possible(command, backend, path).await?;
        if in_pieces {
            return Ok(None);
        }
        if more && blocks.fill(&mut begun, input::LIMIT).await? {
            let message = format!(
                "standard input is larger than {} bytes; such content cannot be written through a link or with --expect",
                input::LIMIT
            );
            return Err(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message).into());
        }
        let content = std::mem::take(&mut begun);
        let written = backend.write_with(path, content, command.options()).await;
        Ok::<_, Failure>(Some(written.map_err(|error| about(error, path))?))
    };
    let written = tokio::select! {
        written = whole => written?,
        exit = signals.next() => return Err(Failure::Told(exit)),
    };
    match written {
        Some(stat) => Ok(stat),
        None => {
            let progress = Progress::new(input_options.progress, blocks.total());
            let whom = (signals, terminal);
            large::write(command, backend, path, (begun, blocks), progress, whom).await
        }
    }
}

/// Adds the path to an error that does not contain a path.
fn about(error: Error, path: &str) -> Error {
    match error.path() {
        Some(_) => error,
        None => error.with_path(path),
    }
}

/// Parses a version in the form in which the commands print it.
pub(crate) fn version(text: &str) -> Result<FileVersion, String> {
    FileVersion::parse(text).ok_or_else(|| "must be 32 hexadecimal digits".to_owned())
}
