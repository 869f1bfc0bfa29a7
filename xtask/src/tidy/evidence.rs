//! The tests of this repository by name. Pages of the documentation name them as proofs.

use std::collections::{BTreeMap, BTreeSet};

use super::code;
use super::crates;
use super::suite::{Case, Suite};
use super::tree::Tree;

/// The directory with the table of attempts to escape from a workspace, which are tests too.
const ATTEMPTS: &str = "crates/ab-testkit/src/escapes/";

/// All tests that a page may name as a proof.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The functions of each crate that are or may be tests.
    tests: BTreeMap<String, BTreeSet<String>>,
    /// The functions of each crate that have a test attribute.
    marked: BTreeMap<String, BTreeSet<String>>,
    pub(crate) suite: Suite,
    /// The source texts of the table of escape attempts.
    attempts: Vec<String>,
}

impl Evidence {
    pub(crate) fn load(tree: &Tree) -> Evidence {
        let mut evidence = Evidence { suite: Suite::load(tree), ..Evidence::default() };
        for (path, text) in tree.sources() {
            evidence.add(path, &text);
        }
        evidence
    }

    /// Collects the tests of one source file.
    pub(crate) fn add(&mut self, path: &str, text: &str) {
        if path.starts_with(ATTEMPTS) {
            self.attempts.push(text.to_owned());
        }
        let mut segments = path.strip_prefix("crates/").unwrap_or(path).split('/');
        let (Some(name), Some(area @ ("src" | "tests"))) = (segments.next(), segments.next())
        else {
            return;
        };
        let code = code::blanked(text);
        let is_test = |line| code::lines_above(text, line).any(|(_, above)| is_test_mark(above));
        for item in code::items(&code, &["fn"]) {
            let is_marked = is_test(item.line);
            // In `src`, only functions with a test attribute are tests. In `tests`, a macro of the
            // suite may make any function a test.
            if is_marked || area == "tests" {
                self.tests.entry(name.to_owned()).or_default().insert(item.name.to_owned());
            }
            if is_marked {
                self.marked.entry(name.to_owned()).or_default().insert(item.name.to_owned());
            }
        }
    }

    /// What is wrong with the test called `name`; `None` when it exists.
    pub(crate) fn objection(&self, name: &str) -> Option<String> {
        self.objection_among(&self.tests, name)
    }

    /// Like [`objection`](Self::objection), but the test must have a test attribute. `attempt NAME`
    /// names an entry of the table of escape attempts.
    pub(crate) fn strict_objection(&self, name: &str) -> Option<String> {
        let Some(attempt) = name.strip_prefix("attempt ") else {
            return self.objection_among(&self.marked, name);
        };
        let quoted = format!("\"{attempt}\"");
        let found = self.attempts.iter().any(|text| text.contains(&quoted));
        (!found).then(|| format!("the escape table has no attempt \"{attempt}\""))
    }

    fn objection_among(
        &self,
        tests: &BTreeMap<String, BTreeSet<String>>,
        name: &str,
    ) -> Option<String> {
        if let Some(case) = name.strip_prefix("behaviour ") {
            let found = Case::parse(case).is_some_and(|case| self.suite.has(&case));
            return (!found).then(|| format!("the behaviour suite has no case `{case}`"));
        }
        let segments: Vec<&str> = name.split("::").collect();
        let [krate, .., last] = segments.as_slice() else {
            return Some(format!("`{name}` is no test name: write `crate::path::test`"));
        };
        if !crates::is_known(krate) {
            return Some(format!("`{name}` names no crate of ours"));
        }
        let in_crate = tests.get(*krate).is_some_and(|tests| tests.contains(*last));
        let in_suite = segments
            .get(segments.len() - 2)
            .is_some_and(|group| self.suite.has(&Case::new(group, last)));
        (!in_crate && !in_suite).then(|| format!("no test `{last}` in `{krate}` for `{name}`"))
    }
}

fn is_test_mark(line: &str) -> bool {
    line.starts_with("#[test]") || line.starts_with("#[tokio::test")
}

/// The names in a cell that is a list of names in backticks and nothing else.
pub(crate) fn names(cell: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = cell.split('`').collect();
    let (between, names): (Vec<_>, Vec<_>) =
        parts.iter().enumerate().partition(|(index, _)| index.is_multiple_of(2));
    let separated = between.iter().all(|(_, text)| text.chars().all(|c| " ,;".contains(c)));
    let whole = !names.is_empty() && !parts.len().is_multiple_of(2) && separated;
    whole.then(|| names.into_iter().map(|(_, name)| *name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_functions_are_strict_proofs() {
        let mut evidence = Evidence::default();
        let text = "fn helper() {}\n#[test]\nfn proves() { helper() }\n";
        evidence.add("crates/ab-cli/tests/escapes.rs", text);
        evidence.add("crates/ab-testkit/src/escapes/files.rs", "reads(\"a hard link\", \"ln\")");
        for (name, strict, plain) in [
            ("ab-cli::escapes::proves", true, true),
            ("ab-cli::escapes::helper", false, true),
            ("ab-cli::escapes::missing", false, false),
            ("attempt a hard link", true, false),
            ("attempt a hard", false, false),
        ] {
            assert_eq!(evidence.strict_objection(name).is_none(), strict, "{name}");
            assert_eq!(evidence.objection(name).is_none(), plain, "{name}");
        }
    }

    #[test]
    fn a_list_of_names_has_nothing_between_them() {
        assert_eq!(names("`a::b`, `c::d`"), Some(vec!["a::b", "c::d"]));
        for cell in ["", "a::b", "`a::b` and `c::d`", "`a::b"] {
            assert_eq!(names(cell), None, "{cell}");
        }
    }
}
