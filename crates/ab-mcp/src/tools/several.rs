//! `read_multiple_files`: reads several files independently.

use ab_core::Backend;

use super::read::ReadLines;
use super::{Outcome, read};
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::{DEFAULT_MAX_RESULT_BYTES, FILES_AT_ONCE};
use crate::catalog::With;
use crate::failure::{Failure, explained};
use crate::window::{self, Chosen, FIRST_LINES, Numbers, Shape, Wanted};

/// If fewer bytes than this are left in the result, the remaining files are not read.
const LEAST: usize = 1024;

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments, with: &With<'_>) -> Outcome {
    let paths = arguments.texts("paths", FILES_AT_ONCE)?;
    if paths.is_empty() {
        return Err(arguments.missing("paths", "an array of at least one path"));
    }
    let mut parts = Vec::with_capacity(paths.len());
    let mut left = DEFAULT_MAX_RESULT_BYTES;
    let mut unread = Vec::new();
    for path in paths {
        if left < LEAST {
            unread.push(path);
            continue;
        }
        let part = one(backend, &path, left, with).await;
        left = left.saturating_sub(part.len());
        parts.push(part);
    }
    let note = (!unread.is_empty())
        .then(|| format!("no room for {}: read them in another call", unread.join(", ")));
    Ok(ToolAnswer::noted(parts.join("\n---\n"), note))
}

async fn one(backend: &Backend, path: &str, bound: usize, with: &With<'_>) -> String {
    let wanted = Wanted::From(FIRST_LINES);
    match read::read(backend, path, wanted, bound, Numbers::Without).await {
        Ok(ReadLines { mut window, size, version }) => {
            if let Some(ledger) = with.ledger {
                ledger.remember_text(backend, path, version);
            }
            let note = window::note(&window, Shape { size, chosen: Chosen::Nothing });
            if let Some(note) = note {
                if !window.text.ends_with('\n') {
                    window.text.push('\n');
                }
                window.text.push_str(&format!("[{note}]"));
            }
            format!("{path}:\n{}\n", window.text)
        }
        Err(Failure::Call(error, act)) => {
            format!("{path}: Error - {}", explained(&error, act, backend, with.name_prefix).await)
        }
        Err(failure) => format!("{path}: Error - {failure}"),
    }
}
