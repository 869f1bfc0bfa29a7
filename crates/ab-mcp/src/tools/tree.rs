//! `directory_tree`: returns a directory and its contents as nested JSON.

use ab_core::Backend;
use ab_core::backend::{TreeNode, TreeOptions};
use ab_core::metadata::TruncationCause;
use ab_core::search::COMMON_IGNORE_GLOBS;
use serde_json::Value;

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::{MAX_PATTERNS, TREE_ENTRIES};
use crate::quantity::grouped;

/// The approximate size of an entry as text, in bytes.
const NODE_BYTES: usize = 80;

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let path = arguments.text("path")?;
    let mut exclude = arguments.texts("excludePatterns", MAX_PATTERNS)?;
    if arguments.flag("includeDefaultExcludes", true)? {
        exclude.extend(COMMON_IGNORE_GLOBS.map(str::to_owned));
    }
    let depth = arguments
        .count("depth")?
        .map_or(usize::MAX, |depth| usize::try_from(depth).unwrap_or(usize::MAX));
    let tree = backend
        .tree(&path, TreeOptions { max_depth: depth, max_entries: TREE_ENTRIES, exclude })
        .await?;
    let note = tree.truncated.map(|why| match why {
        TruncationCause::Count | TruncationCause::Bytes => format!(
            "the first {} entries; ask for a directory below, a depth, or leave more out",
            grouped(TREE_ENTRIES as u64)
        ),
        TruncationCause::Time => "the time was up: ask for a directory below".to_owned(),
    });
    let mut text = String::with_capacity(NODE_BYTES * tree.nodes.len());
    write(&mut text, &tree.nodes, 0);
    Ok(ToolAnswer::in_separate_block(text, note))
}

/// Writes nodes as indented JSON. Writes directly from the nodes, because there may be many.
fn write(out: &mut String, nodes: &[TreeNode], depth: usize) {
    if nodes.is_empty() {
        return out.push_str("[]");
    }
    for (index, node) in nodes.iter().enumerate() {
        out.push(if index == 0 { '[' } else { ',' });
        line(out, depth + 1);
        out.push('{');
        line(out, depth + 2);
        out.push_str("\"name\": ");
        out.push_str(&Value::from(node.name.as_str()).to_string());
        out.push(',');
        line(out, depth + 2);
        out.push_str("\"type\": \"");
        out.push_str(node.kind.as_str());
        out.push('"');
        if node.kind.is_dir() {
            out.push(',');
            line(out, depth + 2);
            out.push_str("\"children\": ");
            write(out, &node.children, depth + 2);
        }
        line(out, depth + 1);
        out.push('}');
    }
    line(out, depth);
    out.push(']');
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    for _ in 0..depth {
        out.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use ab_core::FileKind;
    use serde_json::json;

    use super::*;

    fn node(name: &str, kind: FileKind, children: Vec<TreeNode>) -> TreeNode {
        TreeNode { name: name.to_owned(), kind, children }
    }

    #[test]
    fn it_is_the_json_that_anybody_would_write() {
        let file = |name| node(name, FileKind::File, vec![]);
        let inner = node("in \"n\ner\"", FileKind::Dir, vec![file("x"), file("\u{e4}\\")]);
        let empty = node("empty", FileKind::Dir, vec![]);
        let nodes = [node("d", FileKind::Dir, vec![inner, empty]), file("f")];
        let mut text = String::new();
        write(&mut text, &nodes, 0);
        let expect = json!([
            { "name": "d", "type": "directory", "children": [
                { "name": "in \"n\ner\"", "type": "directory", "children": [
                    { "name": "x", "type": "file" },
                    { "name": "\u{e4}\\", "type": "file" },
                ] },
                { "name": "empty", "type": "directory", "children": [] },
            ] },
            { "name": "f", "type": "file" },
        ]);
        assert_eq!(text, format!("{expect:#}"));
        let mut none = String::new();
        write(&mut none, &[], 0);
        assert_eq!(none, "[]");
    }
}
