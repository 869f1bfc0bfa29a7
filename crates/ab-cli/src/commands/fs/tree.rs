//! `fs tree`: draws a directory tree.

use std::ffi::OsString;

use ab_core::backend::{TreeNode, TreeOptions};
use ab_core::options::DEFAULT_MAX_LIST_ENTRIES;
use ab_core::{Backend, DirEntry, Error, FileKind, Listing, WsPath};
use clap::Args;

use super::ls::{at_least_one, tell_gaps};
use super::search::patterns;
use crate::count::counted;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, Terminal};
use crate::workspace::path_text;

/// Show a directory as a tree
///
/// Links are shown and not followed. Totals go to standard error.
#[derive(Args, Debug)]
pub(crate) struct Tree {
    /// Directory to show
    #[arg(value_name = "PATH", default_value = ".")]
    path: OsString,

    /// Descend at most this many levels
    #[arg(short = 'L', long, value_name = "N", value_parser = at_least_one)]
    depth: Option<usize>,

    /// Accepted for compatibility: names that start with a dot are always shown
    #[arg(short, long)]
    all: bool,

    /// Show at most this many entries
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_MAX_LIST_ENTRIES,
        hide_default_value = true,
        value_parser = at_least_one
    )]
    limit: usize,

    /// Skip names that match; can be repeated
    #[arg(short = 'I', long, value_name = "GLOB")]
    exclude: Vec<OsString>,
}

pub(crate) async fn run(
    command: &Tree,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let path = path_text(&command.path)?;
    let top = backend.parse_path(path)?;
    let options = TreeOptions {
        max_depth: command.depth.unwrap_or(usize::MAX),
        max_entries: command.limit,
        exclude: patterns(&command.exclude, &top)?,
    };
    let tree = backend.tree(path, options).await?;
    let mut entries = Vec::new();
    flatten(&top, tree.nodes, &mut entries)?;
    let listing = Listing { entries, truncated: tree.truncated, problems: tree.problems };
    if terminal.format() == Format::Json {
        return terminal.value(&json::listing(&top.to_string(), &listing));
    }
    terminal.line(&terminal.shown(&top.to_string()))?;
    for line in drawn(&top, &listing.entries) {
        terminal.line(&terminal.shown(&line))?;
    }
    tell_gaps(&listing, terminal);
    terminal.note(&totals(&listing.entries));
    Ok(())
}

/// The entries of a tree in the order of their paths. The recursion cannot exhaust the stack,
/// because the length of paths is limited.
fn flatten(above: &WsPath, nodes: Vec<TreeNode>, entries: &mut Vec<DirEntry>) -> Result<(), Error> {
    for node in nodes {
        let path = above.child(&node.name)?;
        entries.push(DirEntry { path: path.clone(), kind: node.kind, stat: None });
        flatten(&path, node.children, entries)?;
    }
    Ok(())
}

/// Draws one line for each entry. Entries are in path order, so the children of a directory
/// directly follow it.
fn drawn(top: &WsPath, entries: &[DirEntry]) -> Vec<String> {
    let below: Vec<(usize, &DirEntry)> =
        entries.iter().map(|entry| (depth_below(top, &entry.path), entry)).collect();
    // For each depth, whether more siblings follow. Computed from the end.
    let mut open: Vec<bool> = Vec::new();
    let mut lines: Vec<String> = Vec::with_capacity(entries.len());
    for &(depth, entry) in below.iter().rev() {
        let followed = open.get(depth).copied().unwrap_or(false);
        open.resize(depth + 1, false);
        open[depth] = true;
        let mut line = String::new();
        for &passes_by in open.iter().take(depth).skip(1) {
            line.push_str(if passes_by { "│   " } else { "    " });
        }
        line.push_str(if followed { "├── " } else { "└── " });
        line.push_str(entry.path.name().unwrap_or_default());
        if entry.kind.is_dir() {
            line.push('/');
        }
        lines.push(line);
    }
    lines.reverse();
    lines
}

/// The depth of `path` below `top`. Children of `top` have the depth 1.
fn depth_below(top: &WsPath, path: &WsPath) -> usize {
    path.segments().count().saturating_sub(top.segments().count())
}

fn totals(entries: &[DirEntry]) -> String {
    let count = |kind: FileKind| entries.iter().filter(|entry| entry.kind == kind).count() as u64;
    let mut parts = vec![
        counted(count(FileKind::Dir), "directory", "directories"),
        counted(count(FileKind::File), "file", "files"),
    ];
    for (kind, one, many) in
        [(FileKind::Symlink, "link", "links"), (FileKind::Other, "other", "others")]
    {
        if count(kind) > 0 {
            parts.push(counted(count(kind), one, many));
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use ab_core::PathParser;

    use super::*;

    fn entry(path: &str) -> DirEntry {
        let kind = if path.ends_with('/') { FileKind::Dir } else { FileKind::File };
        let path = PathParser::lenient().parse(path).unwrap();
        DirEntry { path, kind, stat: None }
    }

    fn check(top: &str, paths: &[&str], expect: &str) {
        let top = PathParser::lenient().parse(top).unwrap();
        let entries: Vec<DirEntry> = paths.iter().map(|path| entry(path)).collect();
        assert_eq!(drawn(&top, &entries).join("\n"), expect.trim_matches('\n'));
    }

    #[test]
    fn branches_end_where_siblings_end() {
        check(".", &[], "");
        check(".", &["a"], "└── a");
        check(
            ".",
            &["a/", "a/b/", "a/b/c", "a/d", "e/", "e/f/", "e/f/g", "h"],
            "
├── a/
│   ├── b/
│   │   └── c
│   └── d
├── e/
│   └── f/
│       └── g
└── h
",
        );
        check("x/y", &["x/y/a/", "x/y/a/b", "x/y/c"], "├── a/\n│   └── b\n└── c");
    }

    #[test]
    fn counts_read_well() {
        let entries = ["a/", "b", "c"].map(entry);
        assert_eq!(totals(&entries), "1 directory, 2 files");
        assert_eq!(totals(&[]), "0 directories, 0 files");
    }
}
