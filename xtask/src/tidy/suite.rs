//! The behaviour suite: the cases in its group files, and the list that runs them.

use std::collections::{BTreeMap, BTreeSet};

use super::code;
use super::problem::Problem;
use super::tree::Tree;

pub(crate) const LIST: &str = "crates/ab-testkit/src/behaviour.rs";
const GROUPS: &str = "crates/ab-testkit/src/behaviour/";

/// A test case of the behaviour suite with its group, such as `read::missing_file`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    pub(crate) group: String,
    pub(crate) name: String,
}

impl Case {
    pub(crate) fn new(group: &str, name: &str) -> Case {
        Case { group: group.to_owned(), name: name.to_owned() }
    }

    /// Parses `group::case`.
    pub(crate) fn parse(text: &str) -> Option<Case> {
        let (group, name) = text.split_once("::")?;
        (is_identifier(group) && is_identifier(name)).then(|| Case::new(group, name))
    }

    /// The file that should contain the case.
    pub(crate) fn path(&self) -> String {
        format!("{GROUPS}{}.rs", self.group)
    }
}

/// Every case of the behaviour suite, with the line of its definition.
#[derive(Debug, Default)]
pub(crate) struct Suite {
    cases: BTreeMap<Case, usize>,
}

impl Suite {
    pub(crate) fn load(tree: &Tree) -> Suite {
        let mut suite = Suite::default();
        for (path, text) in tree.sources() {
            let group = path.strip_prefix(GROUPS).and_then(|name| name.strip_suffix(".rs"));
            if let Some(group) = group.filter(|group| is_identifier(group)) {
                suite.add(group, &text);
            }
        }
        suite
    }

    /// Adds the cases of one group, which are its public async functions.
    pub(crate) fn add(&mut self, group: &str, text: &str) {
        let code = code::blanked(text);
        let lines: Vec<&str> = code.lines().collect();
        for item in code::items(&code, &["fn"]) {
            let line = lines.get(item.line - 1).map_or("", |line| line.trim_start());
            if line.starts_with("pub async fn ") {
                self.cases.insert(Case::new(group, item.name), item.line);
            }
        }
    }

    pub(crate) fn has(&self, case: &Case) -> bool {
        self.cases.contains_key(case)
    }

    /// Differences between the existing cases and the list.
    fn list_problems(&self, list: Option<&str>) -> Vec<Problem> {
        let Some(list) = list else {
            return vec![Problem::of_file(LIST, "the list of behaviour cases is missing")];
        };
        let mut problems = Vec::new();
        let mut listed = BTreeSet::new();
        for (case, line) in listed_cases(list) {
            let Case { group, name } = &case;
            if !self.has(&case) {
                let message = format!("listed, but no case: `{group}::{name}` in {}", case.path());
                problems.push(Problem::at(LIST, line, message));
            }
            if !listed.insert(case.clone()) {
                problems.push(Problem::at(LIST, line, format!("listed twice: `{group}::{name}`")));
            }
        }
        if listed.is_empty() {
            problems.push(Problem::of_file(LIST, "no case is listed as `group: [case, ...]`"));
        }
        for (case, &line) in self.cases.iter().filter(|(case, _)| !listed.contains(*case)) {
            let message = format!("`{}::{}` is not listed in {LIST}", case.group, case.name);
            problems.push(Problem::at(case.path(), line, message));
        }
        problems
    }
}

/// The cases that `group: [case, case]` entries list, each with the line of its group.
fn listed_cases(text: &str) -> Vec<(Case, usize)> {
    let code = code::blanked(text);
    let mut cases = Vec::new();
    for group in code::words(&code) {
        let after = code[group.end()..].trim_start();
        let Some(after) = after.strip_prefix(':').map(str::trim_start) else { continue };
        let Some(inside) = after.strip_prefix('[').and_then(|after| after.split_once(']')) else {
            continue;
        };
        let names: Vec<&str> =
            inside.0.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        // The pattern of the macro looks similar but contains `$`.
        let is_pattern = code[..group.start].ends_with('$') || inside.0.contains('$');
        if is_pattern || !names.iter().all(|name| is_identifier(name)) {
            continue;
        }
        let line = code::line_at(&code, group.start);
        cases.extend(names.into_iter().map(|name| (Case::new(group.text, name), line)));
    }
    cases
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::*;

    #[test]
    fn every_case_is_listed_and_every_listed_case_exists() {
        let tree = Tree::load();
        expect_none(&Suite::load(&tree).list_problems(tree.text(LIST).as_deref()));
    }

    const READ: &str = "\
//! Reading.
pub async fn missing_file(backend: &Backend) {}
pub async fn whole_file<B: Bench>(bench: B) {}
async fn prepare() {}
// pub async fn gone() {}
pub fn plain() {}
";

    fn suite() -> Suite {
        let mut suite = Suite::default();
        suite.add("read", READ);
        suite
    }

    #[test]
    fn cases_are_the_public_async_functions() {
        let suite = suite();
        let names: Vec<&str> = suite.cases.keys().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["missing_file", "whole_file"]);
    }

    #[test]
    fn a_complete_list_passes() {
        let list = "\
macro_rules! each { ($($group:ident: [$($case:ident),* $(,)?]),*) => {}; }
each! {
    // read: [gone],
    read: [
        missing_file,
        whole_file,
    ],
}";
        expect_none(&suite().list_problems(Some(list)));
    }

    #[test]
    fn an_incomplete_list_fails() {
        expect_one(&suite().list_problems(None), "missing");
        expect_one(&suite().list_problems(Some("read: [missing_file]")), "not listed");
        let invented = "read: [missing_file, whole_file, moon]";
        expect_one(&suite().list_problems(Some(invented)), "no case: `read::moon`");
        let twice = "read: [missing_file, whole_file, missing_file]";
        expect_one(&suite().list_problems(Some(twice)), "listed twice");
        expect_one(&Suite::default().list_problems(Some("fn f() {}")), "no case is listed");
    }
}
