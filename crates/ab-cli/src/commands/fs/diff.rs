//! `fs diff`: shows the differences between two files or directories, or the changes in an overlay.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ab_core::compare::{
    CompareDetailLevel, CompareOptions, ComparedEntry, ContentDifference, OptionalDiffText,
    PathDifference, TreeComparison,
};
use ab_core::edit::DiffLineCounts;
use ab_core::error::escape_unprintable;
use ab_core::metadata::TruncationCause;
use ab_core::search::DEFAULT_MAX_TOTAL_MATCH_BYTES;
use ab_core::{Backend, FileKind, OverlayWorkspace, WsPath};
use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::{Value, json};

use super::ls::at_least_one;
use super::patch;
use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, Terminal};
use crate::workspace::{open_directory, path_text};

/// Default of the maximum number of entries in each directory.
const DEFAULT_ENTRIES: usize = 100_000;
/// Default of the maximum number of bytes of all diffs.
const DEFAULT_BYTES: usize = DEFAULT_MAX_TOTAL_MATCH_BYTES;

const CHANGED: Style = AnsiColor::Yellow.on_default();

/// Compare two files, two directories, or an overlay with its base
///
/// Changes in text are printed as unified diffs. For directories, a line before each diff says what
/// was added, removed or changed, with its path in the compared directories. Two links are equal if
/// they have the same target. Permissions and times are not compared. For files that are binary or
/// larger than 1 MiB, only the fact that they differ is printed.
///
/// With --upper, shows what the upper directory of an overlay adds to, changes in and removes from
/// the workspace, which is the base. Permissions are then compared too. For a removed directory, the
/// content is not listed.
///
/// The exit code is 0 if both are equal, and 1 if they differ or if something could not be compared.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent-backend fs diff old.toml new.toml
  agent-backend fs diff release-1 release-2 --stat
  agent-backend fs diff before after > changes.diff
  agent-backend fs diff --root project --upper project-changes")]
pub(crate) struct Diff {
    /// Old file or directory
    #[arg(value_name = "FROM", required_unless_present = "upper")]
    from: Option<OsString>,

    /// New file or directory
    #[arg(value_name = "TO", required_unless_present = "upper")]
    to: Option<OsString>,

    /// Directory with the changes of an overlay
    #[arg(long, value_name = "DIR", conflicts_with_all = ["from", "to"])]
    upper: Option<PathBuf>,

    /// Print only the names of files that differ
    #[arg(long, conflicts_with = "stat")]
    name_only: bool,

    /// Print only the numbers of added and removed lines
    #[arg(long)]
    stat: bool,

    /// Compare at most this many entries of each directory
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_ENTRIES,
        value_parser = at_least_one
    )]
    limit: usize,

    /// Print at most this many bytes of diffs
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_BYTES,
        value_parser = at_least_one
    )]
    bytes: usize,
}

impl Diff {
    fn bounds(&self) -> CompareOptions {
        CompareOptions { detail: self.depth(), max_entries: self.limit, max_diff_bytes: self.bytes }
    }

    fn depth(&self) -> CompareDetailLevel {
        match (self.name_only, self.stat) {
            (true, _) => CompareDetailLevel::NameOnly,
            (false, true) => CompareDetailLevel::LineCounts,
            (false, false) => CompareDetailLevel::Diff,
        }
    }
}

pub(crate) async fn run(
    command: &Diff,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match (&command.upper, &command.from, &command.to) {
        (Some(upper), ..) => {
            let (overlaid, upper) = lay_over(backend, upper)?;
            let comparison =
                TreeComparison::for_overlay(backend, &overlaid, command.bounds()).await;
            let result = match comparison {
                Ok(comparison) => {
                    let names = (WsPath::root(), WsPath::root());
                    show(command, comparison, &names, terminal).await
                }
                Err(error) => Err(error.into()),
            };
            result.and(upper.destroy().await.map_err(Failure::from))
        }
        (None, Some(from), Some(to)) => {
            let (from, to) = (path_text(from)?, path_text(to)?);
            let names = (backend.parse_path(from)?, backend.parse_path(to)?);
            let comparison = TreeComparison::new(backend, from, to, command.bounds()).await?;
            show(command, comparison, &names, terminal).await
        }
        (None, ..) => Err(Failure::usage("missing arguments: name two paths, or pass --upper")),
    }
}

fn lay_over(backend: &Backend, upper: &Path) -> Result<(OverlayWorkspace, Backend), Failure> {
    let upper = open_directory(upper, "--upper")?;
    Ok((backend.overlay(&upper)?, upper))
}

async fn show(
    command: &Diff,
    mut comparison: TreeComparison<'_>,
    names: &(WsPath, WsPath),
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut totals = Totals::default();
    let mut values = Vec::new();
    while let Some(change) = comparison.next().await {
        totals.add(&change);
        match terminal.format() {
            Format::Json => values.push(value(&change)),
            Format::Text => print(&change, names, command.depth(), terminal)?,
        }
    }
    let complete = comparison.problems.is_empty() && comparison.truncated.is_none();
    let equal = totals.is_zero() && complete;
    match terminal.format() {
        Format::Json => terminal.value(&json!({
            "from": names.0.to_string(),
            "to": names.1.to_string(),
            "equal": equal,
            "changes": values,
            "truncated": comparison.truncated.map(|cut| cut.as_str()),
            "problems": json::problems(&comparison.problems),
        }))?,
        Format::Text => tell(command, &comparison, &totals, terminal),
    }
    if equal { Ok(()) } else { Err(Failure::No) }
}

fn print(
    change: &PathDifference,
    names: &(WsPath, WsPath),
    depth: CompareDetailLevel,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let name = name(change, names);
    // Escape the name, so that it cannot look like another line.
    let plain = escape_unprintable(&name);
    let (word, style) = word(change);
    match depth {
        CompareDetailLevel::NameOnly => terminal.line(&terminal.shown(&name)),
        CompareDetailLevel::LineCounts => {
            let word = terminal.painted(style, &format!("{word:<7}"));
            terminal.line(&format!("{word}  {:<12}  {plain}", measure(change)))
        }
        CompareDetailLevel::Diff => {
            let diff = diff_of(change);
            // A diff of two files already contains their names.
            if !(change.path.is_root() && diff.is_some()) {
                let word = terminal.painted(style, word);
                terminal.line(&format!("{word} {plain}{}", aside(change)))?;
            }
            patch::print(diff.unwrap_or_default(), terminal)
        }
    }
}

/// Prints warnings and notes about the comparison.
fn tell(command: &Diff, comparison: &TreeComparison<'_>, totals: &Totals, terminal: &mut Terminal) {
    for problem in &comparison.problems {
        terminal.warn(&problem.error);
    }
    match comparison.truncated {
        Some(TruncationCause::Count) => {
            let entries = counted(command.limit as u64, "entry", "entries");
            terminal.note(&format!("stopped after {entries}; to compare more, raise --limit"));
        }
        Some(TruncationCause::Bytes) => {
            let bytes = counted(command.bytes as u64, "byte", "bytes");
            terminal.note(&format!(
                "diffs after the first {bytes} are omitted; to see more, raise --bytes"
            ));
        }
        Some(TruncationCause::Time) => terminal.note("stopped by the time limit"),
        None => {}
    }
    if totals.below {
        terminal.note(&totals.text(command.depth()));
    }
}

fn word(change: &PathDifference) -> (&'static str, Style) {
    match (&change.from, &change.to) {
        (None, _) => ("added", patch::ADDED),
        (_, None) => ("removed", patch::REMOVED),
        (Some(_), Some(_)) => ("changed", CHANGED),
    }
}

/// The name of a change. In a comparison of directories this is the path relative to them.
/// Otherwise it is the two compared paths.
fn name(change: &PathDifference, (from, to): &(WsPath, WsPath)) -> String {
    let is_dir = |side: &Option<ComparedEntry>| side.as_ref().is_none_or(|side| side.kind.is_dir());
    if change.path.is_root() {
        format!("{from} → {to}")
    } else if is_dir(&change.from) && is_dir(&change.to) {
        format!("{}/", change.path)
    } else {
        change.path.to_string()
    }
}

fn diff_of(change: &PathDifference) -> Option<&str> {
    match &change.content {
        Some(ContentDifference::Text { diff: OptionalDiffText::Shown(diff), .. }) => Some(diff),
        Some(
            ContentDifference::Text { .. }
            | ContentDifference::Binary
            | ContentDifference::TooLarge,
        )
        | None => None,
    }
}

/// A note for a change without a diff. It says why there is no diff, and how the mode changed.
fn aside(change: &PathDifference) -> String {
    let modes = modes(change).map(|modes| format!(" (mode {modes})"));
    format!("{}{}", content_aside(change), modes.unwrap_or_default())
}

/// The permissions on both sides, if they differ.
fn modes(change: &PathDifference) -> Option<String> {
    match (&change.from.as_ref()?.mode, &change.to.as_ref()?.mode) {
        (Some(from), Some(to)) if from != to => {
            Some(format!("{} → {}", json::mode(*from), json::mode(*to)))
        }
        (Some(_) | None, Some(_) | None) => None,
    }
}

fn content_aside(change: &PathDifference) -> String {
    match (&change.content, &change.from, &change.to) {
        (Some(ContentDifference::Binary), ..) => " (binary)".to_owned(),
        (Some(ContentDifference::TooLarge), ..) => " (larger than 1 MiB)".to_owned(),
        (Some(ContentDifference::Text { diff: OptionalDiffText::OverLimit, .. }), ..) => {
            " (diff left out)".to_owned()
        }
        (Some(ContentDifference::Text { .. }), ..) => String::new(),
        (None, Some(from), Some(to)) if described(from) == described(to) => String::new(),
        (None, Some(from), Some(to)) => format!(" ({} → {})", described(from), described(to)),
        (None, Some(side), None) | (None, None, Some(side)) => match side.kind {
            FileKind::Symlink | FileKind::Other => format!(" ({})", described(side)),
            FileKind::File | FileKind::Dir => String::new(),
        },
        (None, None, None) => String::new(),
    }
}

fn described(side: &ComparedEntry) -> String {
    match &side.link_target {
        Some(target) => format!("link to {}", escape_unprintable(target)),
        None => side.kind.to_string(),
    }
}

/// The size of a change in a few characters, such as the numbers of added and removed lines.
fn measure(change: &PathDifference) -> String {
    match (&change.content, &change.from, &change.to) {
        (
            Some(ContentDifference::Text {
                line_counts: Some(DiffLineCounts { added, removed }),
                ..
            }),
            ..,
        ) => {
            format!("+{added} -{removed}")
        }
        (
            Some(ContentDifference::Text { line_counts: None, .. } | ContentDifference::TooLarge),
            ..,
        ) => "large".to_owned(),
        (Some(ContentDifference::Binary), ..) => "binary".to_owned(),
        (None, Some(side), _) | (None, None, Some(side)) => match &change.to {
            Some(to) if to.kind != side.kind => "kind".to_owned(),
            Some(to) if to.mode != side.mode => "mode".to_owned(),
            _ => side.kind.to_string(),
        },
        (None, None, None) => String::new(),
    }
}

fn value(change: &PathDifference) -> Value {
    let side = |side: &ComparedEntry| {
        let (kind, size) = (side.kind.as_str(), side.size);
        let mode = side.mode.map(json::mode);
        json!({ "kind": kind, "size": size, "target": side.link_target, "mode": mode })
    };
    let content = change.content.as_ref().map(|content| match content {
        ContentDifference::Text { diff: OptionalDiffText::OverLimit, .. } => "left_out",
        ContentDifference::Text { .. } => "text",
        ContentDifference::Binary => "binary",
        ContentDifference::TooLarge => "large",
    });
    let lines = match &change.content {
        Some(ContentDifference::Text { line_counts: lines, .. }) => *lines,
        Some(ContentDifference::Binary | ContentDifference::TooLarge) | None => None,
    };
    json!({
        "path": change.path.to_string(),
        "change": word(change).0,
        "from": change.from.as_ref().map(side),
        "to": change.to.as_ref().map(side),
        "content": content,
        "insertions": lines.map(|lines| lines.added),
        "deletions": lines.map(|lines| lines.removed),
        "diff": diff_of(change),
    })
}

/// The numbers of changes and of changed lines over the whole comparison.
#[derive(Debug, Default)]
struct Totals {
    added: u64,
    removed: u64,
    changed: u64,
    lines: DiffLineCounts,
    /// Whether the changes are in directories.
    below: bool,
}

impl Totals {
    fn add(&mut self, change: &PathDifference) {
        match (&change.from, &change.to) {
            (None, _) => self.added += 1,
            (_, None) => self.removed += 1,
            (Some(_), Some(_)) => self.changed += 1,
        }
        if let Some(ContentDifference::Text { line_counts: Some(lines), .. }) = &change.content {
            self.lines += *lines;
        }
        self.below |= !change.path.is_root();
    }

    fn is_zero(&self) -> bool {
        self.added + self.removed + self.changed == 0
    }

    fn text(&self, depth: CompareDetailLevel) -> String {
        let Totals { added, removed, changed, lines, .. } = self;
        let counts = format!("{added} added, {changed} changed, {removed} removed");
        match depth {
            CompareDetailLevel::NameOnly => counts,
            CompareDetailLevel::LineCounts | CompareDetailLevel::Diff => {
                format!("{counts}; lines +{} -{}", lines.added, lines.removed)
            }
        }
    }
}
