//! `fs cat`: prints the content of files.

use std::ffi::{OsStr, OsString};
use std::pin::pin;

use ab_core::LineRange;
use ab_core::options::{OpenOptions, ReadOptions};
use ab_core::{Backend, Error, ErrorKind, Verb};
use clap::Args;
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::paths::Outcomes;
use crate::commands::exec::amount;
use crate::failure::Failure;
use crate::progress::{Progress, Wanted};
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Print files
///
/// Whole files are printed unchanged, whatever their content and size. --offset, --limit and --json
/// need UTF-8 text.
#[derive(Args, Debug)]
pub(crate) struct Cat {
    /// Files to print
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,

    /// Lines to skip
    #[arg(long, value_name = "N", value_parser = amount::any_count)]
    offset: Option<u64>,

    /// Lines to print
    #[arg(long, value_name = "N", value_parser = amount::any_count)]
    limit: Option<u64>,

    /// Number the lines of each file
    #[arg(short, long)]
    number: bool,
}

impl Cat {
    fn range(&self) -> Option<LineRange> {
        if self.offset.is_none() && self.limit.is_none() {
            return None;
        }
        let offset = self.offset.unwrap_or(0);
        Some(LineRange { skip_lines: offset, max_lines: self.limit.unwrap_or(u64::MAX) })
    }
}

pub(crate) async fn run(
    command: &Cat,
    backend: &Backend,
    wanted: Wanted,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let wanted = if terminal.is_watched() { Wanted::No } else { wanted };
    let mut outcomes = Outcomes::of(&command.paths);
    for path in &command.paths {
        let outcome = match terminal.format() {
            Format::Json => value(command, path, backend).await,
            Format::Text => {
                let printed = print(command, path, backend, wanted, terminal).await;
                printed.map(|()| Value::Null)
            }
        };
        outcomes.record(outcome, terminal)?;
    }
    outcomes.finish(terminal)
}

async fn print(
    command: &Cat,
    path: &OsStr,
    backend: &Backend,
    wanted: Wanted,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(path)?;
    if let Some(range) = command.range() {
        let window = backend.read_lines(path, range).await?;
        let mut printer = Printer::new(command.number, window.first_line);
        printer.print(window.text.as_bytes(), terminal)?;
        if let Some(next) = window.next_offset {
            terminal.note(&format!("there are more lines; to continue, pass --offset {next}"));
        }
        return Ok(());
    }
    let file = backend.open(path, OpenOptions::default()).await;
    let file = file.map_err(|error| error.with_verb(Verb::Read))?;
    let size = file.stat().await?.size;
    // Files that the kernel generates, such as those in `/proc`, report the size 0.
    let total = (size > 0).then_some(size);
    let mut progress = Progress::new(wanted, total);
    let mut printer = Printer::new(command.number, 1);
    let mut pieces = pin!(ab_core::stream::read_file_chunks(file.as_ref(), total));
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        printer.print(&piece, terminal)?;
        progress.advance(piece.len() as u64);
    }
    Ok(())
}

async fn value(command: &Cat, path: &OsStr, backend: &Backend) -> Result<Value, Failure> {
    let path = path_text(path)?;
    let parsed = backend.parse_path(path)?;
    if let Some(range) = command.range() {
        let window = backend.read_lines(path, range).await?;
        return Ok(json!({
            "path": parsed.to_string(),
            "first_line": window.first_line,
            "last_line": window.last_line,
            "total_lines": window.total_lines,
            "next_offset": window.next_offset,
            "text": window.text,
        }));
    }
    let content = backend.read_with(path, ReadOptions::default()).await?;
    let text = str::from_utf8(&content.bytes).map_err(|error| {
        let message =
            format!("the file is not UTF-8 text: byte {} is invalid", error.valid_up_to());
        Error::for_path(Verb::Read, &parsed, ErrorKind::Invalid, message)
            .with_hint("to print the bytes unchanged, remove --json")
    })?;
    Ok(json!({
        "path": parsed.to_string(),
        "size": content.stat.size,
        "version": content.stat.version.to_string(),
        "text": text,
    }))
}

/// Prints bytes, with a number before each line if requested.
struct Printer {
    numbered: bool,
    next_line: u64,
    at_line_start: bool,
}

impl Printer {
    fn new(numbered: bool, first_line: u64) -> Printer {
        Printer { numbered, next_line: first_line, at_line_start: true }
    }

    fn print(&mut self, bytes: &[u8], terminal: &mut Terminal) -> Result<(), Failure> {
        if !self.numbered {
            return terminal.bytes(bytes);
        }
        self.pieces(bytes, |piece| terminal.bytes(piece))
    }

    fn pieces(
        &mut self,
        bytes: &[u8],
        mut send: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.at_line_start {
                send(format!("{:>6}\t", self.next_line).as_bytes())?;
                self.next_line += 1;
            }
            send(line)?;
            self.at_line_start = line.ends_with(b"\n");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_depend_on_the_pieces() {
        let text = b"one\n\nthree\nfour";
        for size in [1, 2, 5, 100] {
            let mut printer = Printer::new(true, 7);
            let mut printed = Vec::new();
            for chunk in text.chunks(size) {
                let send = |piece: &[u8]| {
                    printed.extend_from_slice(piece);
                    Ok(())
                };
                printer.pieces(chunk, send).unwrap();
            }
            let printed = String::from_utf8(printed).unwrap();
            assert_eq!(printed, "     7\tone\n     8\t\n     9\tthree\n    10\tfour");
        }
    }
}
