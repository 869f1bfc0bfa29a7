//! The conformance pages, one per seed. A seed is a document with requirements for the product.
//! Every clause of a page has a unique id, and either an existing test or a planned step that is
//! not finished.

use std::collections::BTreeSet;

use super::evidence::{self, Evidence};
use super::problem::Problem;
use super::table::{cells, is_rule};
use super::tree::Tree;

/// The finished steps of the plan. Clauses that name one of them as their proof must have a test
/// instead.
const FINISHED_STEPS: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 8, 14];

/// Number of seed documents. Each has a conformance page.
const SEEDS: usize = 5;

/// The valid levels of a clause. `plain` is for a requirement that the seed states without a
/// keyword.
const LEVELS: &[&str] = &["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY", "plain"];

/// The page of the seed with this number.
fn page(seed: usize) -> String {
    format!("docs/conformance/seed-{seed}.md")
}

fn problems(tree: &Tree, evidence: &Evidence) -> Vec<Problem> {
    (0..SEEDS)
        .flat_map(|seed| page_problems(seed, tree.text(&page(seed)).as_deref(), evidence))
        .collect()
}

/// Problems of the page of one seed. Ids begin with the number of the seed, so an id that is unique
/// on its page is unique on all pages.
fn page_problems(seed: usize, text: Option<&str>, evidence: &Evidence) -> Vec<Problem> {
    let page = page(seed);
    let Some(text) = text else {
        return vec![Problem::of_file(page, "the conformance page is missing")];
    };
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    for (line, cells) in rows(text) {
        let mut object = |message: String| problems.push(Problem::at(&page, line, message));
        let [id, level, clause, proof] = cells.as_slice() else {
            object(format!("a row has 4 cells: id, level, clause, proof; not {}", cells.len()));
            continue;
        };
        if !is_id(id, seed) {
            object(format!("`{id}` is no id like S{seed}-LIFE-03"));
        }
        if !ids.insert(id.clone()) {
            object(format!("`{id}` is used twice"));
        }
        if !LEVELS.contains(&level.as_str()) {
            object(format!("`{level}` is none of {}", LEVELS.join(", ")));
        }
        if clause.is_empty() {
            object(format!("`{id}` has no clause"));
        }
        proof_objections(proof, evidence).into_iter().for_each(object);
    }
    if ids.is_empty() {
        problems.push(Problem::of_file(page, "the conformance page has no row"));
    }
    problems
}

/// Returns what is wrong with the proof of a clause. A valid proof is a future step, a reason why
/// there is no test, or a list of test names.
fn proof_objections(proof: &str, evidence: &Evidence) -> Vec<String> {
    if let Some(subject) = proof.strip_prefix("not yet") {
        let is_named = subject.strip_prefix(": ").is_some_and(|subject| !subject.trim().is_empty());
        return if is_named {
            Vec::new()
        } else {
            vec!["name the subject of the later step: `not yet: SUBJECT`".to_owned()]
        };
    }
    if let Some(step) = proof.strip_prefix("step ") {
        return match step.parse::<u32>() {
            Ok(step) if FINISHED_STEPS.contains(&step) => {
                vec![format!("step {step} is finished: name the test that proves it")]
            }
            Ok(_) => Vec::new(),
            Err(_) => vec![format!("`{proof}` is no step: write `step N` and nothing else")],
        };
    }
    if let Some(reason) = proof.strip_prefix("n/a:") {
        let empty = reason.trim().is_empty();
        return if empty {
            vec!["say why the clause does not apply".to_owned()]
        } else {
            Vec::new()
        };
    }
    let Some(names) = evidence::names(proof) else {
        let forms = "`test` names in backticks, step N, not yet: subject, or n/a: reason";
        return vec![format!("\"{proof}\" is no proof: write {forms}")];
    };
    names.into_iter().filter_map(|name| evidence.objection(name)).collect()
}

/// The rows of the tables whose first column is `id`, with their line numbers. Also any other row
/// whose first cell looks like an id.
fn rows(text: &str) -> Vec<(usize, Vec<String>)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut rows = Vec::new();
    let mut in_table = false;
    for (index, line) in lines.iter().enumerate() {
        let Some(cells) = cells(line) else {
            in_table = false;
            continue;
        };
        let first = cells.first().map_or("", String::as_str);
        if lines.get(index + 1).is_some_and(|next| is_rule(next)) {
            in_table = first.eq_ignore_ascii_case("id");
        } else if !is_rule(line) && (in_table || looks_like_id(first)) {
            rows.push((index + 1, cells));
        }
    }
    rows
}

fn looks_like_id(cell: &str) -> bool {
    let mut chars = cell.chars();
    chars.next() == Some('S')
        && chars.next().is_some_and(|c| c.is_ascii_digit())
        && chars.next() == Some('-')
}

/// Whether the text is the id of a clause of this seed, such as `S0-LIFE-03`: the seed, the topic
/// and two digits.
fn is_id(text: &str, of_seed: usize) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [seed, topic, number] = parts.as_slice() else { return false };
    *seed == format!("S{of_seed}")
        && !topic.is_empty()
        && topic.chars().all(|c| c.is_ascii_uppercase())
        && number.len() == 2
        && number.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::*;

    #[test]
    fn every_clause_has_its_proof() {
        let tree = Tree::load();
        expect_none(&problems(&tree, &Evidence::load(&tree)));
    }

    fn check(rows: &str) -> Vec<Problem> {
        let mut evidence = Evidence::default();
        evidence.suite.add("read", "pub async fn missing_file(b: &B) {}\n");
        let source =
            "pub fn join() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn joins() {}\n}";
        evidence.add("crates/ab-core/src/path.rs", source);
        evidence.add("crates/ab-host/tests/escape.rs", "async fn swap_race() {}\n");
        let head = "# Conformance\n\n| id | level | clause | proof |\n|---|---|:-:|---|\n";
        page_problems(0, Some(&format!("{head}{rows}")), &evidence)
    }

    #[test]
    fn proved_and_promised_rows_pass() {
        for proof in [
            "`ab-core::path::tests::joins`",
            "`ab-core::memory::read::missing_file`, `ab-host::escape::swap_race`",
            "`behaviour read::missing_file`",
            "step 11",
            "step 12",
            "not yet: webhooks",
            "n/a: no such platform",
        ] {
            expect_none(&check(&format!("| S0-LIFE-03 | MUST | lives \\| dies | {proof} |\n")));
        }
    }

    #[test]
    fn proofs_that_prove_nothing_fail() {
        for (proof, message) in [
            ("step 1", "step 1 is finished"),
            ("step 8", "step 8 is finished"),
            ("step 12, mostly", "no step"),
            ("soon", "no proof"),
            ("not yet", "name the subject"),
            ("not yet: ", "name the subject"),
            ("not yet, but soon", "name the subject"),
            ("", "no proof"),
            ("`ab-core::path::tests::joins` and more", "no proof"),
            ("n/a:", "say why"),
            ("`ab-core::path::tests::moon`", "no test `moon` in `ab-core`"),
            ("`ab-core::path::join`", "no test `join`"),
            ("`ab-core::memory::list::missing_file`", "no test `missing_file`"),
            ("`ab-moon::path::tests::joins`", "no crate of ours"),
            ("`joins`", "no test name"),
            ("`behaviour read::moon`", "no case `read::moon`"),
        ] {
            expect_one(&check(&format!("| S0-LIFE-03 | MUST | lives | {proof} |\n")), message);
        }
    }

    #[test]
    fn malformed_rows_fail() {
        for (row, message) in [
            ("| S0-LIFE-3 | MUST | lives | step 12 |", "no id"),
            ("| S1-LIFE-03 | MUST | lives | step 12 |", "no id"),
            ("| lifecycle | MUST | lives | step 12 |", "no id"),
            ("| S0-LIFE-03 | WANTS | lives | step 12 |", "none of MUST"),
            ("| S0-LIFE-03 | MUST |  | step 12 |", "no clause"),
            ("| S0-LIFE-03 | MUST | step 12 |", "4 cells"),
        ] {
            expect_one(&check(&format!("| S0-LIFE-01 | MAY | is | step 12 |\n{row}\n")), message);
        }
        let row = "| S0-LIFE-03 | MUST | lives | step 12 |\n";
        expect_one(&check(&format!("{row}{row}")), "used twice");
    }

    #[test]
    fn a_missing_or_empty_table_fails() {
        expect_one(
            &page_problems(3, None, &Evidence::default()),
            "seed-3.md: the conformance page",
        );
        expect_one(&check(""), "has no row");
    }

    #[test]
    fn other_tables_are_left_alone() {
        let other = "\n| area | rows |\n|---|---|\n| life | 3 |\n";
        expect_none(&check(&format!("| S0-LIFE-03 | MUST | lives | step 12 |\n{other}")));
        let stray = "\n| area | rows |\n|---|---|\n| S0-LIFE-04 | 3 |\n";
        expect_one(&check(&format!("| S0-LIFE-03 | MUST | lives | step 12 |\n{stray}")), "4 cells");
    }
}
