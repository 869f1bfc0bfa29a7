//! A public type name occurs once in its crate, and a name of ab-core once in the workspace.
//!
//! A reader who sees `Access` must not have to look up which of several types it is.

use std::collections::BTreeMap;

use super::code;
use super::paths;
use super::problem::Problem;

/// Names that may occur more than once, each with its reason.
const ALLOWED: &[(&str, &str)] = &[
    ("Result", "every crate has a `Result` with its own error, as in the standard library"),
    ("ApprovalId", "ab-api has the wire form and uses no crate of ours"),
];

/// The crate with shared test code. It may reuse names of ab-core.
const TEST_CRATE: &str = "ab-testkit";
const CORE: &str = "ab-core";

/// A type that is visible outside of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Type {
    name: String,
    path: String,
    line: usize,
    public: bool,
}

impl Type {
    fn of_crate(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }
}

fn types(path: &str, text: &str) -> Vec<Type> {
    if paths::is_test_file(path) || !path.starts_with("crates/") {
        return Vec::new();
    }
    let code = paths::product_code(text);
    let keywords = ["struct", "enum", "trait", "type", "union"];
    let items = code::items(&code, &keywords);
    let lines: Vec<&str> = code.lines().collect();
    let declared = items.into_iter().filter_map(|item| {
        let line = lines.get(item.line - 1)?.trim_start();
        line.starts_with("pub").then(|| Type {
            name: item.name.to_owned(),
            path: path.to_owned(),
            line: item.line,
            public: !line.starts_with("pub("),
        })
    });
    declared.collect()
}

fn problems(types: &[Type]) -> Vec<Problem> {
    let mut by_name: BTreeMap<&str, Vec<&Type>> = BTreeMap::new();
    for each in types {
        by_name.entry(&each.name).or_default().push(each);
    }
    let is_allowed = |name: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == name);
    let mut problems = Vec::new();
    for (name, same) in by_name.into_iter().filter(|(name, _)| !is_allowed(name)) {
        for first in same.iter().filter(|it| it.public) {
            let core = first.of_crate() == CORE;
            let other = same.iter().find(|it| {
                let here = it.of_crate() == first.of_crate();
                let elsewhere = core && it.public && it.of_crate() != TEST_CRATE;
                **it != *first && (here || elsewhere)
            });
            if let Some(other) = other {
                let message =
                    format!("`{name}` is also a type of {}: say what each one is", other.path);
                problems.push(Problem::at(&first.path, first.line, message));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn a_public_type_name_occurs_once() {
        let tree = Tree::load();
        let types: Vec<Type> = tree.sources().flat_map(|(path, text)| types(path, &text)).collect();
        assert!(types.iter().any(|it| it.name == "Backend"));
        expect_none(&problems(&types));
    }

    fn check(files: &[(&str, &str)]) -> Vec<Problem> {
        let types: Vec<Type> = files.iter().flat_map(|(path, text)| types(path, text)).collect();
        problems(&types)
    }

    #[test]
    fn a_name_twice_in_a_crate_fails() {
        let a = ("crates/ab-mcp/src/a.rs", "pub struct Answer;");
        let b = ("crates/ab-mcp/src/b.rs", "pub(crate) enum Answer {}");
        expect_one(&check(&[a, b]), "a.rs:1: `Answer` is also a type of crates/ab-mcp/src/b.rs");
        let both = ("crates/ab-mcp/src/b.rs", "pub trait Answer {}");
        assert_eq!(check(&[a, both]).len(), 2);
    }

    #[test]
    fn a_name_of_core_in_another_crate_fails() {
        let core = ("crates/ab-core/src/a.rs", "pub struct Call;");
        let other = ("crates/ab-remote/src/b.rs", "\n/// Doc.\npub struct Call;");
        expect_one(&check(&[core, other]), "`Call` is also a type of crates/ab-remote/src/b.rs");
    }

    #[test]
    fn names_that_nobody_can_confuse_pass() {
        let core = ("crates/ab-core/src/a.rs", "pub struct Call;");
        let private = ("crates/ab-core/src/b.rs", "struct Call;");
        let inner = ("crates/ab-remote/src/c.rs", "pub(crate) struct Call;");
        let test = ("crates/ab-testkit/src/d.rs", "pub struct Call;");
        let gated =
            ("crates/ab-core/src/e.rs", "#[cfg(test)]\nmod tests {\n    pub struct Call;\n}");
        expect_none(&check(&[core, private, inner, test, gated]));
        let one = ("crates/ab-mcp/src/a.rs", "pub struct Answer;");
        let two = ("crates/ab-acp/src/a.rs", "pub struct Answer;");
        expect_none(&check(&[one, two]));
    }
}
