//! `fs ls`: lists a directory.

use std::ffi::OsString;

use ab_core::metadata::TruncationCause;
use ab_core::options::{DEFAULT_MAX_LIST_ENTRIES, EntryDetailLevel, ListOptions};
use ab_core::{Backend, DirEntry, FileKind, Listing, Stat, WsPath};
use clap::Args;

use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::progress;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// List a directory
///
/// Directories end in a slash. With --recursive, names are paths from the listed directory. Links are listed and
/// not followed. On a terminal, sizes are shown in units.
#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Directory to list
    #[arg(value_name = "PATH", default_value = ".")]
    path: OsString,

    /// Show permissions, size, time and link target
    #[arg(short, long)]
    long: bool,

    /// List subdirectories too
    #[arg(short = 'R', long, conflicts_with = "depth")]
    recursive: bool,

    /// Number of levels to list; 1 lists only the entries of the directory itself
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    depth: usize,

    /// Accepted for compatibility: names that start with a dot are always shown
    #[arg(short, long)]
    all: bool,

    /// Print one name on each line; this is always done
    #[arg(short = '1', hide = true)]
    one_per_line: bool,

    /// List at most this many entries
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_MAX_LIST_ENTRIES,
        hide_default_value = true,
        value_parser = at_least_one
    )]
    limit: usize,
}

pub(crate) async fn run(
    command: &Ls,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(&command.path)?;
    let options = ListOptions {
        max_depth: if command.recursive { usize::MAX } else { command.depth },
        max_entries: command.limit,
        detail: if command.long { EntryDetailLevel::Stat } else { EntryDetailLevel::Kind },
    };
    let listed = backend.parse_path(path)?;
    let listing = backend.list(path, options).await?;
    match terminal.format() {
        Format::Json => terminal.value(&json::listing(&listed.to_string(), &listing))?,
        Format::Text => print(&listed, &listing, backend, terminal).await?,
    }
    tell_gaps(&listing, terminal);
    Ok(())
}

/// Prints warnings and notes about entries that a listing does not contain. JSON output already
/// contains this information.
pub(crate) fn tell_gaps(listing: &Listing, terminal: &mut Terminal) {
    if terminal.format() == Format::Json {
        return;
    }
    for problem in &listing.problems {
        terminal.warn(&problem.error);
    }
    let count = counted(listing.entries.len() as u64, "entry", "entries");
    match listing.truncated {
        Some(TruncationCause::Count) => {
            terminal.note(&format!("stopped after {count}; to see more, raise --limit"));
        }
        Some(cut @ (TruncationCause::Bytes | TruncationCause::Time)) => {
            terminal
                .note(&format!("stopped after {count}: a limit of {} was reached", cut.as_str()));
        }
        None => {}
    }
}

/// Parses a number that must be at least 1.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..) => Ok(number),
        Ok(_) | Err(_) => Err("must be a whole number, at least 1".to_owned()),
    }
}

async fn print(
    listed: &WsPath,
    listing: &Listing,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let sizes = listing.entries.iter().filter_map(|entry| entry.stat.as_ref());
    let people = terminal.is_watched();
    let width = sizes.map(|stat| size(stat.size, people).len()).max().unwrap_or(0);
    for entry in &listing.entries {
        let name = shown_name(listed, entry);
        let name = terminal.shown(&name).into_owned();
        match &entry.stat {
            Some(stat) => {
                let target = target(entry, backend, terminal).await;
                terminal.line(&format!("{}  {name}{target}", details(stat, people, width)))?;
            }
            None => terminal.line(&name)?,
        }
    }
    Ok(())
}

/// The target of a symbolic link. Empty if the link was removed after it was listed.
async fn target(entry: &DirEntry, backend: &Backend, terminal: &Terminal) -> String {
    if entry.kind != FileKind::Symlink {
        return String::new();
    }
    match backend.read_link(&entry.path.to_string()).await {
        Ok(target) => format!(" -> {}", terminal.shown(&target)),
        Err(_) => String::new(),
    }
}

fn shown_name(listed: &WsPath, entry: &DirEntry) -> String {
    let below = entry.path.strip_prefix(listed).unwrap_or_else(|| entry.path.clone());
    match entry.kind {
        FileKind::Dir => format!("{below}/"),
        FileKind::File | FileKind::Symlink | FileKind::Other => below.to_string(),
    }
}

/// A size in bytes as a number, or for people in the largest unit that fits.
fn size(bytes: u64, people: bool) -> String {
    if people { progress::size(bytes) } else { bytes.to_string() }
}

fn details(stat: &Stat, people: bool, width: usize) -> String {
    let mode = stat.mode.map_or_else(|| "?????????".to_owned(), permissions);
    let modified = json::time_for_people(stat.modified);
    format!("{}{mode}  {:>width$}  {modified}", kind_letter(stat.kind), size(stat.size, people))
}

fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Dir => 'd',
        FileKind::Symlink => 'l',
        FileKind::Other => 'o',
    }
}

fn permissions(mode: u32) -> String {
    let letters = ['r', 'w', 'x'].into_iter().cycle();
    let bits = (0..9).rev().map(|bit| mode & (1 << bit) != 0);
    bits.zip(letters).map(|(set, letter)| if set { letter } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_read_as_usual() {
        for (mode, shown) in
            [(0o644, "rw-r--r--"), (0o755, "rwxr-xr-x"), (0, "---------"), (0o777, "rwxrwxrwx")]
        {
            assert_eq!(permissions(mode), shown);
        }
    }

    #[test]
    fn zero_is_no_limit() {
        assert_eq!(at_least_one("3"), Ok(3));
        for text in ["0", "x"] {
            assert_eq!(at_least_one(text), Err("must be a whole number, at least 1".to_owned()));
        }
        assert!(at_least_one("many").is_err());
    }
}
