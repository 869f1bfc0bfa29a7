//! Only ab-local opens a host directory as a workspace: no other code names `ab_host::LocalDriver`.
//!
//! A driver that other code opened would have neither the check of command lines nor the command
//! guard.

use super::code;
use super::problem::Problem;

/// Crates that may name the driver: the one that defines it and the one that wraps it.
const ALLOWED: &[&str] = &["crates/ab-host/", "crates/ab-local/"];

fn problems(path: &str, text: &str) -> Vec<Problem> {
    if ALLOWED.iter().any(|folder| path.starts_with(folder)) || is_test(path) {
        return Vec::new();
    }
    let code = code::blanked(text);
    let mut problems = Vec::new();
    for word in code::words(&code).filter(|word| word.text == "ab_host") {
        let named = tree_after(&code[word.end()..]);
        let forbidden = match named.trim_start_matches("::").trim() {
            // A glob import or a renamed crate could hide the name.
            "" | "*" => true,
            named => names_driver(named),
        };
        if forbidden {
            let line = code::line_at(&code, word.start);
            let message = "name no `ab_host::LocalDriver`: `ab_local::open_local_workspace` assembles local workspaces";
            problems.push(Problem::at(path, line, message));
        }
    }
    problems
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

/// The path, or the tree of paths in braces, after a crate's name.
fn tree_after(code: &str) -> &str {
    let mut depth = 0_usize;
    let end = code.find(|c: char| {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ => {}
        }
        let part = c.is_alphanumeric() || "_:*{}".contains(c);
        depth == 0 && !part
    });
    &code[..end.unwrap_or(code.len())]
}

/// Whether a path or tree names `Local` as an item of the crate's root.
fn names_driver(tree: &str) -> bool {
    let root = tree.trim_start_matches('{');
    if root.len() == tree.len() {
        return tree.split("::").next() == Some("LocalDriver");
    }
    let mut depth = 0_usize;
    root.split_inclusive([',', '{', '}'])
        .filter(|part| {
            let top = depth == 0;
            depth += part.matches('{').count();
            depth = depth.saturating_sub(part.matches('}').count());
            top
        })
        .filter_map(|part| code::words(part).next())
        .any(|first| first.text == "LocalDriver")
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn only_ab_local_names_the_driver() {
        let problems: Vec<Problem> =
            Tree::load().sources().flat_map(|(path, text)| problems(path, &text)).collect();
        expect_none(&problems);
    }

    #[test]
    fn other_names_pass() {
        for text in [
            "use ab_host::{LocalExecSettings, LocalOptions};",
            "use ab_host::facilities::{self, Local};",
            "let x = ab_host::LocalOptions::default();",
            "use ab_host::{facilities::{self, Local}, Shell};",
            "// ab_host::LocalDriver",
        ] {
            expect_none(&problems("crates/ab-cli/src/x.rs", text));
        }
        expect_none(&problems("crates/ab-mcp/tests/x.rs", "use ab_host::LocalDriver;"));
        expect_none(&problems("crates/ab-local/src/x.rs", "use ab_host::LocalDriver;"));
    }

    #[test]
    fn the_driver_fails() {
        for text in [
            "use ab_host::LocalDriver;",
            "pub use ab_host::{LocalExecSettings, LocalDriver, Shell};",
            "use ab_host::{\n    facilities::{self, Name},\n    LocalDriver,\n};",
            "let x = ab_host::LocalDriver::open(root, options);",
            "fn f(x: &ab_host::LocalDriver) {}",
            "use ab_host::*;",
            "use ab_host as host;",
        ] {
            expect_one(&problems("crates/ab-cli/src/x.rs", text), "ab_host::LocalDriver");
        }
    }
}
