//! `directory_tree`: a directory and what is below it, nested.

use ab_core::Backend;
use ab_core::backend::{Node, TreeOptions};
use ab_core::metadata::Truncated;
use serde_json::{Value, json};

use super::Outcome;
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::bounds::{MAX_PATTERNS, TREE_ENTRIES};
use crate::quantity::grouped;

/// What is rarely wanted and often large.
pub(crate) const DEFAULT_EXCLUDES: [&str; 27] = [
    ".git",
    ".svn",
    ".hg",
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".nox",
    "dist",
    "build",
    ".next",
    ".nuxt",
    ".output",
    "target",
    ".cache",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "coverage",
    ".coverage",
    "htmlcov",
    ".idea",
    ".vscode",
    ".DS_Store",
    "*.egg-info",
    ".eggs",
];

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let path = arguments.text("path")?;
    let mut exclude = arguments.texts("excludePatterns", MAX_PATTERNS)?;
    if arguments.flag("includeDefaultExcludes", true)? {
        exclude.extend(DEFAULT_EXCLUDES.map(str::to_owned));
    }
    let depth = arguments
        .count("depth")?
        .map_or(usize::MAX, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
    let tree = backend.tree(&path, TreeOptions { depth, limit: TREE_ENTRIES, exclude }).await?;
    let note = tree.truncated.map(|why| match why {
        Truncated::Count | Truncated::Bytes => format!(
            "the first {} entries; ask for a directory below, a depth, or leave more out",
            grouped(TREE_ENTRIES as u64)
        ),
        Truncated::Time => "the time was up: ask for a directory below".to_owned(),
    });
    let value = Value::Array(tree.nodes.into_iter().map(nested).collect());
    Ok(Answer::beside(format!("{value:#}"), note))
}

fn nested(node: Node) -> Value {
    match node.kind.is_dir() {
        true => {
            let children: Vec<Value> = node.children.into_iter().map(nested).collect();
            json!({ "name": node.name, "type": node.kind.as_str(), "children": children })
        }
        false => json!({ "name": node.name, "type": node.kind.as_str() }),
    }
}
