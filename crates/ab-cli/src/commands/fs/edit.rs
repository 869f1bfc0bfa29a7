//! `fs edit`: replaces text in a file, and shows the change.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use ab_core::edit::EditOccurrences;
use ab_core::{Backend, EditOptions, ErrorCause, FileVersion};
use clap::Args;
use serde_json::{Map, Value, json};

use super::patch;
use super::write::version;
use crate::commands::input;
use crate::count::counted;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Replace text in a file
///
/// The old text must occur exactly once, unless --all or --first is given. Several edits from
/// --edits are made one after the other, all or none. The change is printed as a unified diff.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  echo '[{\"old\": \"a\", \"new\": \"b\"}]' | agent-backend fs edit a.txt --edits -")]
pub(crate) struct Edit {
    /// File to change
    #[arg(value_name = "PATH")]
    path: OsString,

    /// Text to replace
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "new")]
    #[arg(required_unless_present = "edits")]
    old: Option<String>,

    /// New text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "old")]
    new: Option<String>,

    /// Replace every occurrence
    #[arg(long, conflicts_with = "first")]
    all: bool,

    /// Replace only the first occurrence
    #[arg(long)]
    first: bool,

    /// Read a JSON array of {old, new, all, first} from a file; use '-' for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["old", "new", "all", "first"])]
    edits: Option<PathBuf>,

    /// Print the change without writing it
    #[arg(long)]
    dry_run: bool,

    /// Fail if the file has another version; fs stat prints the version
    #[arg(long, value_name = "VERSION", value_parser = version)]
    expect: Option<FileVersion>,
}

pub(crate) async fn run(
    command: &Edit,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(&command.path)?;
    let parsed = backend.parse_path(path)?;
    let edits = command.edits(terminal).await?;
    let options = EditOptions { dry_run: command.dry_run, expected_version: command.expect };
    let edited =
        backend.edit(path, &edits, options).await.map_err(|error| match error.cause() {
            Some(ErrorCause::NotUtf8) => {
                error.with_hint("only UTF-8 text can be edited; fs write replaces the whole file")
            }
            _ => error,
        })?;
    match terminal.format() {
        Format::Json => terminal.value(&json!({
            "path": parsed.to_string(),
            "replaced": edited.replacement_count,
            "dry_run": command.dry_run,
            "diff": edited.diff,
            "version": edited.stat.map(|stat| stat.version.to_string()),
        })),
        Format::Text => {
            patch::print(&edited.diff, terminal)?;
            let count = counted(edited.replacement_count as u64, "occurrence", "occurrences");
            let verb = if command.dry_run { "would replace" } else { "replaced" };
            terminal.note(&format!("{verb} {count} in '{parsed}'"));
            Ok(())
        }
    }
}

impl Edit {
    async fn edits(&self, terminal: &mut Terminal) -> Result<Vec<ab_core::Edit>, Failure> {
        let (Some(old), Some(new)) = (&self.old, &self.new) else {
            let source = self.edits.clone().unwrap_or_default();
            let text = if source.as_os_str() == "-" {
                input::announce(&io::stdin(), terminal);
                input::standard().await?
            } else {
                input::file(&source)?
            };
            return parsed_edits(&text);
        };
        let mut edit = ab_core::Edit::new(old, new);
        edit.occurrences = which(self.all, self.first);
        Ok(vec![edit])
    }
}

fn which(all: bool, first: bool) -> EditOccurrences {
    match (all, first) {
        (true, _) => EditOccurrences::All,
        (false, true) => EditOccurrences::First,
        (false, false) => EditOccurrences::Unique,
    }
}

/// Parses edits from JSON. Unknown keys are errors, because a misspelt key could change the wrong
/// text.
fn parsed_edits(text: &[u8]) -> Result<Vec<ab_core::Edit>, Failure> {
    let refused = |message: String| {
        Failure::usage(format!("invalid --edits: {message}"))
            .with_hint("give a JSON array such as [{\"old\": \"a\", \"new\": \"b\"}]")
    };
    let value: Value =
        serde_json::from_slice(text).map_err(|error| refused(format!("not JSON: {error}")))?;
    let Value::Array(items) = value else {
        return Err(refused("not an array".to_owned()));
    };
    let edits = items.iter().enumerate().map(|(index, item)| {
        parsed_edit(item).map_err(|message| refused(format!("edit {}: {message}", index + 1)))
    });
    edits.collect()
}

fn parsed_edit(item: &Value) -> Result<ab_core::Edit, String> {
    let object = item.as_object().ok_or("not an object")?;
    let known = ["old", "new", "all", "first"];
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(format!("unknown key '{key}'"));
    }
    let mut edit = ab_core::Edit::new(text_of(object, "old")?, text_of(object, "new")?);
    let (all, first) = (flag_of(object, "all")?, flag_of(object, "first")?);
    if all && first {
        return Err("'all' and 'first' cannot be used together".to_owned());
    }
    edit.occurrences = which(all, first);
    Ok(edit)
}

fn text_of<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    let text = object.get(key).ok_or_else(|| format!("'{key}' is missing"))?;
    text.as_str().ok_or_else(|| format!("'{key}' is not a string"))
}

fn flag_of(object: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match object.get(key) {
        None => Ok(false),
        Some(flag) => flag.as_bool().ok_or_else(|| format!("'{key}' is not true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_come_from_json() {
        let text = br#"[{"old":"a","new":"b"},{"old":"$1","new":"","all":true},
            {"old":"x","new":"y","first":true,"all":false}]"#;
        let edits = parsed_edits(text).unwrap();
        let expect = [
            ab_core::Edit::new("a", "b"),
            ab_core::Edit::new("$1", "").replace_all(),
            ab_core::Edit::new("x", "y").replace_first(),
        ];
        assert_eq!(edits, expect);
        assert_eq!(parsed_edits(b"[]").unwrap(), []);
    }

    #[test]
    fn odd_edits_are_named() {
        for (text, reason) in [
            ("", "not JSON"),
            ("{}", "not an array"),
            ("[1]", "edit 1: not an object"),
            (r#"[{"old":"a","new":"b"},{"old":"a"}]"#, "edit 2: 'new' is missing"),
            (r#"[{"old":1,"new":"b"}]"#, "edit 1: 'old' is not a string"),
            (r#"[{"old":"a","new":"b","all":"yes"}]"#, "edit 1: 'all' is not true or false"),
            (r#"[{"old":"a","new":"b","replaceAll":true}]"#, "edit 1: unknown key 'replaceAll'"),
            (r#"[{"old":"a","new":"b","all":true,"first":true}]"#, "cannot be used together"),
        ] {
            let failure = parsed_edits(text.as_bytes()).unwrap_err();
            let told = failure.error().map(ToString::to_string).unwrap_or_default();
            assert!(told.contains(reason), "{text}: {told}");
        }
    }
}
