//! `fs write`: a whole file, at once.

use std::ffi::OsString;
use std::io;

use ab_core::options::{Durability, WriteMode, WriteOptions};
use ab_core::{Backend, Version};
use clap::Args;

use crate::commands::input;
use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Write a whole file
///
/// The content comes from standard input, or from --content. Missing directories are made. Readers
/// see the old content or the new, never a part.
#[derive(Args, Debug)]
pub(crate) struct Write {
    /// The file
    #[arg(value_name = "PATH")]
    path: OsString,

    /// The content, instead of standard input
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    content: Option<String>,

    /// Fail when something is there already
    #[arg(long, conflicts_with = "expect")]
    create_new: bool,

    /// Fail unless the file is this version, as `fs stat` shows it
    #[arg(long, value_name = "VERSION", value_parser = version)]
    expect: Option<Version>,

    /// Return only when the content would survive a loss of power
    #[arg(long)]
    sync: bool,
}

pub(crate) async fn run(
    command: &Write,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(&command.path)?;
    // A path that will be refused is refused before anybody types the content.
    let parsed = backend.resolve(path)?;
    let content = match &command.content {
        Some(text) => text.clone().into_bytes(),
        None => {
            input::announce(&io::stdin(), terminal);
            input::standard().await?
        }
    };
    let options = WriteOptions {
        mode: if command.create_new { WriteMode::CreateNew } else { WriteMode::CreateOrReplace },
        expect: command.expect,
        permissions: None,
        durability: if command.sync { Durability::Power } else { Durability::Process },
    };
    let stat = backend.write_with(path, content, options).await?;
    match terminal.format() {
        Format::Json => terminal.value(&json::stat(&parsed.to_string(), &stat)),
        Format::Text => {
            let size = counted(stat.size, "byte", "bytes");
            terminal.note(&format!("wrote {size} to '{parsed}'"));
            Ok(())
        }
    }
}

/// A version as it is shown everywhere.
pub(crate) fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| "a version is 32 hexadecimal digits".to_owned())
}
