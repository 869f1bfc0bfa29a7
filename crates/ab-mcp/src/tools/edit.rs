//! `edit_file`: replaces texts and returns a diff. Either all edits are made or none.

use ab_core::{Backend, Edit, EditOptions, EditReport, Error};
use serde_json::{Map, Value};

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::{DEFAULT_MAX_RESULT_BYTES, EDITS_AT_ONCE};
use crate::failure::Failure;
use crate::files_read_tracker::LedgerView;
use crate::quantity::{counted, grouped};

const EDITS: &str = "an array of { oldText, newText }";

pub(crate) async fn call(
    backend: &Backend,
    mut arguments: Arguments,
    ledger: Option<&LedgerView>,
) -> Outcome {
    let path = arguments.text("path")?;
    let dry_run = arguments.flag("dryRun", false)?;
    let Some(items) = arguments.items("edits", EDITS, EDITS_AT_ONCE)? else {
        return Err(arguments.missing("edits", EDITS));
    };
    if items.is_empty() {
        return Err(arguments.missing("edits", "at least one { oldText, newText }"));
    }
    let edits: Result<Vec<Edit>, Failure> =
        items.into_iter().enumerate().map(|(index, item)| edit(&arguments, index, item)).collect();
    let edited = match ledger {
        Some(ledger) if !dry_run => after_read(backend, &path, &edits?, ledger).await?,
        Some(_) | None => {
            let options = EditOptions { dry_run, ..EditOptions::default() };
            backend.edit(&path, &edits?, options).await?
        }
    };
    let (diff, note) = bounded(&edited.diff);
    let fence = fence(diff);
    let done = if dry_run { "nothing was written: this was a dry run" } else { "written" };
    let summary = format!(
        "{} replaced; {done}",
        counted(edited.replacement_count, "occurrence", "occurrences")
    );
    let line_end = if diff.is_empty() || diff.ends_with('\n') { "" } else { "\n" };
    let text = format!("{fence}diff\n{diff}{line_end}{fence}\n\n{summary}");
    Ok(ToolAnswer::noted(text, note).with("replaced", edited.replacement_count as u64))
}

/// Edits a file. Fails if the file has changed since the caller read it.
async fn after_read(
    backend: &Backend,
    path: &str,
    edits: &[Edit],
    ledger: &LedgerView,
) -> Result<EditReport, Error> {
    let path = backend.parse_path(path)?;
    let begun = ledger.begin_edit(backend, &path).await?;
    let edited = backend.edit(&path, edits, begun.options()).await;
    let edited = edited.map_err(|error| ledger.stale(&path, &begun.known, error))?;
    if let Some(stat) = &edited.stat {
        ledger.wrote(backend, &begun.known, Some(begun.version), stat.version).await;
    }
    Ok(edited)
}

fn edit(arguments: &Arguments, index: usize, item: Value) -> Result<Edit, Failure> {
    let place = format!("edits[{index}]");
    let mut fields: Map<String, Value> = match item {
        Value::Object(fields) => fields,
        other => return Err(arguments.wrong(&place, "{ oldText, newText }", &other)),
    };
    let mut text = |name: &str| match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(arguments.wrong(&format!("{place}.{name}"), "a string", &other)),
        None => Err(arguments.missing(&format!("{place}.{name}"), "a string")),
    };
    let edit = Edit::new(text("oldText")?, text("newText")?);
    let edit = match fields.remove("replaceAll") {
        None | Some(Value::Null | Value::Bool(false)) => edit,
        Some(Value::Bool(true)) => edit.replace_all(),
        Some(other) => {
            return Err(arguments.wrong(&format!("{place}.replaceAll"), "true or false", &other));
        }
    };
    match fields.keys().next() {
        None => Ok(edit),
        Some(name) => Err(Failure::misuse(format!(
            "{place} has no field '{name}'; it takes oldText, newText, replaceAll"
        ))),
    }
}

/// The start of a long diff, truncated at the end of a line, and a note.
fn bounded(diff: &str) -> (&str, Option<String>) {
    if diff.len() <= DEFAULT_MAX_RESULT_BYTES {
        return (diff, None);
    }
    let end = diff.as_bytes()[..DEFAULT_MAX_RESULT_BYTES].iter().rposition(|byte| *byte == b'\n');
    let shown = &diff[..end.map_or(0, |at| at + 1)];
    let note = format!(
        "the diff has {} bytes; read_text_file shows the file itself",
        grouped(diff.len() as u64)
    );
    (shown, Some(note))
}

/// A code fence with more backticks than any sequence of backticks in the diff.
fn fence(diff: &str) -> String {
    let longest = diff.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_any_inside() {
        for (diff, expect) in [("", "```"), ("a ```` b", "`````"), ("`a``", "```")] {
            assert_eq!(fence(diff), expect);
        }
    }
}
