//! `read_text_file`: lines of a text file.

use ab_core::options::{ByteRange, ReadOptions};
use ab_core::{Backend, Code, Error, Kind, Stat, Verb};
use bytes::Bytes;

use super::Outcome;
use super::media::mime_type;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::{COUNTED_BYTES, DEFAULT_LINES, DEFAULT_RESULT_BYTES, REQUESTED_RESULT_BYTES};
use crate::failure::Failure;
use crate::quantity::size;
use crate::window::{self, Chosen, Numbers, Passing, Shape, Wanted, Window};

/// Bytes at the start of a file in which a NUL makes it binary.
const PROBE: usize = 8192;

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let path = arguments.text("path")?;
    let (head, tail) = (arguments.count("head")?, arguments.count("tail")?);
    let (offset, limit) = (arguments.count("offset")?, arguments.count("limit")?);
    let numbers =
        if arguments.flag("lineNumbers", false)? { Numbers::With } else { Numbers::Without };
    let (wanted, chosen) = match (head, tail, offset, limit) {
        (None, None, None, None) => (None, Chosen::Nothing),
        (Some(head), None, None, None) => {
            (Some(Wanted::From { skip: 0, limit: head }), Chosen::Ends)
        }
        (None, Some(tail), None, None) => (Some(Wanted::Last(tail)), Chosen::Ends),
        (None, None, offset, limit) => {
            let skip = offset.unwrap_or(1) - 1;
            let limit = limit.unwrap_or(DEFAULT_LINES);
            (Some(Wanted::From { skip, limit }), Chosen::Range { skip })
        }
        _ => {
            let message = "give one of: head, tail, or offset and limit; they exclude each other";
            return Err(Failure::misuse(message));
        }
    };
    let explicit = head.or(tail).or(limit).is_some();
    let bound = if explicit { REQUESTED_RESULT_BYTES } else { DEFAULT_RESULT_BYTES };
    let wanted = wanted.unwrap_or(Wanted::From { skip: 0, limit: DEFAULT_LINES });
    let (window, size) = read(backend, &path, wanted, bound, numbers).await?;
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

/// Lines of a file within bounds, and the size of the file.
pub(crate) async fn read(
    backend: &Backend,
    path: &str,
    wanted: Wanted,
    bound: usize,
    numbers: Numbers,
) -> Result<(Window, u64), Failure> {
    let content = range(backend, path, 0, COUNTED_BYTES).await?;
    let (bytes, stat) = content;
    refuse_binary(backend, path, &bytes, &stat)?;
    if (bytes.len() as u64) < COUNTED_BYTES {
        return Ok((window::select(&bytes, wanted, bound, numbers), bytes.len() as u64));
    }
    drop(bytes);
    let window = match wanted {
        Wanted::From { skip, limit } => {
            let mut passing = Passing::new(skip, limit, bound, numbers);
            let mut chunks = backend.chunks(path).await?;
            while let Some(chunk) = chunks.next().await? {
                if passing.feed(&chunk).is_break() {
                    break;
                }
            }
            passing.finish()
        }
        Wanted::Last(_) if numbers == Numbers::With => {
            let message = format!(
                "lineNumbers cannot be had with tail in a file of {}; choose lines with offset",
                size(stat.size)
            );
            return Err(Failure::misuse(message));
        }
        Wanted::Last(count) => last_of_large(backend, path, &stat, count, bound).await?,
    };
    Ok((window, stat.size))
}

/// The end of a file that is too large to count its lines.
async fn last_of_large(
    backend: &Backend,
    path: &str,
    stat: &Stat,
    count: u64,
    bound: usize,
) -> Result<Window, Failure> {
    let start = stat.size.saturating_sub(bound as u64);
    let (bytes, _) = range(backend, path, start, bound as u64).await?;
    // The first line there is most likely cut.
    let from = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut window = window::select(&bytes[from..], Wanted::Last(count), bound, Numbers::Without);
    // Counted from where we began, which is not where the file begins.
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

/// What is no text is named, not shown.
fn refuse_binary(backend: &Backend, path: &str, bytes: &[u8], stat: &Stat) -> Result<(), Failure> {
    if !bytes[..bytes.len().min(PROBE)].contains(&0) {
        return Ok(());
    }
    let message = format!("a binary file ({}, {})", mime_type(path), size(stat.size));
    let shown = backend.resolve(path)?;
    Err(Error::new(Code::ReadFailed, Kind::Invalid, message)
        .with_verb(Verb::Read)
        .with_path(shown.to_string())
        .with_hint("read_media_file returns its bytes in base64")
        .into())
}
