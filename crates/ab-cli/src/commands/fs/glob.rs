//! `fs glob`: finds files by a pattern of their names.

use std::ffi::OsString;

use ab_core::backend::GlobOptions;
use ab_core::search::{EntryKindFilter, SearchLimits};
use ab_core::{Backend, DirEntry, Listing};
use clap::Args;

use super::search::{Gaps, SearchFlags, pattern_text, verdict};
use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Find files and directories by a name pattern
///
/// `*` and `?` match characters of one name, `**` matches any number of directories, `[a-z]` matches
/// one character, and `{a,b}` matches a or b. A pattern without a slash matches names at any depth. A
/// pattern with a slash matches paths relative to PATH. The printed paths are relative to the root of
/// the workspace and are sorted. Links are found but not followed. Files that .gitignore names, build
/// output, and caches such as node_modules are left out; standard error says how many.
///
/// The exit code is 0 if something was found and 1 if not, 2 for an invalid pattern, and 4 if a limit
/// ended the search before anything was found.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  agent-backend fs glob '*.rs'
  agent-backend fs glob 'src/**/*.{c,h}' --exclude vendor
  agent-backend fs glob '*.log' logs -0 | xargs -0 agent-backend fs cat")]
pub(crate) struct Glob {
    /// Pattern, such as '*.rs' or 'src/**/*.c'
    #[arg(value_name = "PATTERN")]
    pattern: OsString,

    /// Directory to search
    #[arg(value_name = "PATH", default_value = ".")]
    path: OsString,

    /// Also find directories; they end in a slash
    #[arg(long)]
    all_kinds: bool,

    /// End each name with a NUL character instead of a line end
    #[arg(short = '0', long)]
    null: bool,

    #[command(flatten)]
    flags: SearchFlags,
}

pub(crate) async fn run(
    command: &Glob,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(&command.path)?;
    let root = backend.parse_path(path)?;
    let options = GlobOptions {
        root: path.to_owned(),
        kinds: if command.all_kinds { EntryKindFilter::All } else { EntryKindFilter::Files },
        exclude: command.flags.exclude(&root)?,
        ignore: command.flags.ignore(),
        dotfiles: command.flags.hidden(),
        ignore_files: command.flags.ignore_files(),
        // Only the number of names is limited, because the length of a name is already limited.
        limits: SearchLimits { max_bytes: usize::MAX, ..command.flags.limits() },
    };
    let names = backend.glob(pattern_text(&command.pattern, &root)?, options).await?;
    let left_out = names.ignored_entries;
    let (entries, truncated, problems) = (names.entries, names.truncated, names.problems);
    let listing = Listing { entries, truncated, problems };
    match terminal.format() {
        Format::Json => {
            let mut value = json::listing(&root.to_string(), &listing);
            value["left_out"] = json::left_out(left_out);
            terminal.value(&value)?;
        }
        Format::Text => print(command, &listing.entries, terminal)?,
    }
    let shown = counted(listing.entries.len() as u64, "name", "names");
    Gaps { shown, truncated, left_out, problems: &listing.problems }.tell(terminal);
    verdict(!listing.entries.is_empty(), truncated, &listing.problems)
}

fn print(command: &Glob, entries: &[DirEntry], terminal: &mut Terminal) -> Result<(), Failure> {
    for entry in entries {
        let slash = if entry.kind.is_dir() { "/" } else { "" };
        let name = format!("{}{slash}", entry.path);
        if command.null {
            terminal.bytes(name.as_bytes())?;
            terminal.bytes(b"\0")?;
        } else {
            terminal.line(&terminal.shown(&name))?;
        }
    }
    Ok(())
}
