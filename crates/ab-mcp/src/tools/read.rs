//! `read_text_file`: reads lines of a text file.

use std::ops::ControlFlow;

use ab_core::line_range::{LineRange, LineRangeExtractor};
use ab_core::options::{ByteRange, ReadOptions};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, FileVersion, Stat, Verb};
use bytes::Bytes;

use super::Outcome;
use super::media::mime_type;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::{
    COUNTED_BYTES, DEFAULT_MAX_READ_LINES, DEFAULT_MAX_RESULT_BYTES, NUMBERED_TAIL_BYTES,
};
use crate::catalog::With;
use crate::failure::Failure;
use crate::quantity::size;
use crate::window::{self, Chosen, FIRST_LINES, Numbers, Shape, Wanted, Window, WindowBuilder};

/// If a file has a NUL in this many bytes at its start, it is treated as binary.
const PROBE: usize = 8192;

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments, with: &With<'_>) -> Outcome {
    let path = arguments.text("path")?;
    let (head, tail) = (arguments.count("head")?, arguments.count("tail")?);
    let (offset, limit) = (arguments.count("offset")?, arguments.count("limit")?);
    let numbers =
        if arguments.flag("lineNumbers", false)? { Numbers::With } else { Numbers::Without };
    let (wanted, chosen) = match (head, tail, offset, limit) {
        (None, None, None, None) => (None, Chosen::Nothing),
        (Some(head), None, None, None) => {
            (Some(Wanted::From(LineRange { skip_lines: 0, max_lines: head })), Chosen::Ends)
        }
        (None, Some(tail), None, None) => (Some(Wanted::Last(tail)), Chosen::Ends),
        (None, None, offset, limit) => {
            let skip = offset.unwrap_or(1) - 1;
            let limit = limit.unwrap_or(DEFAULT_MAX_READ_LINES);
            (
                Some(Wanted::From(LineRange { skip_lines: skip, max_lines: limit })),
                Chosen::Range { skip },
            )
        }
        _ => {
            let message = "give one of: head, tail, or offset and limit; they exclude each other";
            return Err(Failure::misuse(message));
        }
    };
    let explicit = head.or(tail).or(limit).is_some();
    let bound = if explicit { with.max_requested_bytes } else { DEFAULT_MAX_RESULT_BYTES };
    let wanted = wanted.unwrap_or(Wanted::From(FIRST_LINES));
    let ReadLines { window, size, version } = read(backend, &path, wanted, bound, numbers).await?;
    if let Some(ledger) = with.ledger {
        ledger.remember_text(backend, &path, version);
    }
    let note = window::note(&window, Shape { size, chosen });
    let whole = window.whole() || window.last == 0;
    let (first, last, total) = (window.first, window.last, window.total);
    let answer = ToolAnswer::noted(window.text, note);
    if whole {
        return Ok(answer);
    }
    let answer = answer.with("firstLine", first).with("lastLine", last);
    let answer = match total {
        Some(total) => answer.with("totalLines", total),
        None => answer,
    };
    Ok(if total.is_some_and(|total| last >= total) {
        answer
    } else {
        answer.with("nextOffset", last + 1)
    })
}

/// The selected lines of a file, and the attributes that the file had when it was opened.
pub(crate) struct ReadLines {
    pub(crate) window: Window,
    pub(crate) size: u64,
    pub(crate) version: FileVersion,
}

/// Reads the selected lines of a file, at most `bound` bytes of them.
pub(crate) async fn read(
    backend: &Backend,
    path: &str,
    wanted: Wanted,
    bound: usize,
    numbers: Numbers,
) -> Result<ReadLines, Failure> {
    let (bytes, stat) = range(backend, path, 0, COUNTED_BYTES).await?;
    refuse_binary(backend, path, &bytes, &stat)?;
    if (bytes.len() as u64) < COUNTED_BYTES {
        let (window, size) = (window::select(&bytes, wanted, bound, numbers), bytes.len() as u64);
        return Ok(ReadLines { window, size, version: stat.version });
    }
    let window = match (wanted, numbers) {
        (Wanted::From(lines), _) => {
            let mut start = WindowBuilder::new(lines, bound, numbers);
            start.feed(&bytes);
            drop(bytes);
            if start.is_done() {
                start.finish()
            } else {
                stream(backend, path, lines, bound, numbers).await?
            }
        }
        (Wanted::Last(count), Numbers::Without) => {
            last_of_large(backend, path, &stat, count, bound).await?
        }
        (Wanted::Last(_), Numbers::With) if stat.size > NUMBERED_TAIL_BYTES => {
            let message = format!(
                "lineNumbers cannot be had with tail in a file of {}; choose lines with offset",
                size(stat.size)
            );
            return Err(Failure::misuse(message));
        }
        (Wanted::Last(count), Numbers::With) => {
            let none = LineRange { skip_lines: 0, max_lines: 0 };
            let mut counter = LineRangeExtractor::new(none, 0);
            let mut chunks = backend.read_chunks(path).await?;
            while let Some(chunk) = chunks.next().await? {
                counter.feed(&chunk, |_| ControlFlow::Break(()));
            }
            let total = counter.finish_and_count(|_| ControlFlow::Break(()));
            let lines = LineRange { skip_lines: total.saturating_sub(count), max_lines: count };
            stream(backend, path, lines, bound, numbers).await?
        }
    };
    Ok(ReadLines { window, size: stat.size, version: stat.version })
}

/// Reads lines of a file of any size. The file is read only up to the last of these lines.
async fn stream(
    backend: &Backend,
    path: &str,
    lines: LineRange,
    bound: usize,
    numbers: Numbers,
) -> Result<Window, Failure> {
    let mut window = WindowBuilder::new(lines, bound, numbers);
    let mut chunks = backend.read_chunks(path).await?;
    while let Some(chunk) = chunks.next().await? {
        window.feed(&chunk);
        if window.is_done() {
            break;
        }
    }
    Ok(window.finish())
}

/// Reads the last lines of a file that is too large for counting its lines.
async fn last_of_large(
    backend: &Backend,
    path: &str,
    stat: &Stat,
    count: u64,
    bound: usize,
) -> Result<Window, Failure> {
    let start = stat.size.saturating_sub(bound as u64);
    let (bytes, _) = range(backend, path, start, bound as u64).await?;
    // Skip the first line in these bytes, because it is probably incomplete.
    let from = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut window = window::select(&bytes[from..], Wanted::Last(count), bound, Numbers::Without);
    // Remove the line numbers, because they count from `start` and not from the start of the file.
    window.full = window.last < count;
    (window.first, window.last, window.total) = (0, 0, None);
    Ok(window)
}

async fn range(
    backend: &Backend,
    path: &str,
    start: u64,
    length: u64,
) -> Result<(Bytes, Stat), Failure> {
    let range = Some(ByteRange { start, length });
    let content = backend.read_with(path, ReadOptions { range, ..ReadOptions::default() }).await?;
    Ok((content.bytes, content.stat))
}

/// Fails if a file is not text.
fn refuse_binary(backend: &Backend, path: &str, bytes: &[u8], stat: &Stat) -> Result<(), Failure> {
    if !bytes[..bytes.len().min(PROBE)].contains(&0) {
        return Ok(());
    }
    let message = format!("a binary file ({}, {})", mime_type(path), size(stat.size));
    let shown = backend.parse_path(path)?;
    Err(Error::new(ErrorCode::ReadFailed, ErrorKind::Invalid, message)
        .with_verb(Verb::Read)
        .with_path(shown.to_string())
        .with_hint("read_media_file returns its bytes in base64")
        .into())
}
