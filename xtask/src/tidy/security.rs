//! The page about security must contain no claim without a test: every claim has a row in the table
//! at the end of the page, and every row names existing tests.
//!
//! A claim is a row of the table of controls, or a list entry that begins with words in bold.

use std::collections::BTreeSet;

use super::evidence::{self, Evidence};
use super::problem::Problem;
use super::table::rows_below;
use super::tree::Tree;

const PAGE: &str = "docs/security.md";
/// The section at the end of the page, with the table of claims.
const SECTION: &str = "Claims and their tests";
/// The first column of the table of controls, and of the table of claims.
const CONTROLS: &str = "Control";
const CLAIMS: &str = "claim";
/// Sections in which every list entry is a claim, and must begin with words in bold.
const CLAIMING: &[&str] =
    &["Three things that are not the same", "Which wall stops what", "In more words", "Over SSH"];

fn problems(tree: &Tree, evidence: &Evidence) -> Vec<Problem> {
    page_problems(tree.text(PAGE).as_deref(), evidence)
}

fn page_problems(text: Option<&str>, evidence: &Evidence) -> Vec<Problem> {
    let Some(text) = text else {
        return vec![Problem::of_file(PAGE, "the page on security is missing")];
    };
    let Some((page, table)) = split(text) else {
        let message = format!("the page lacks its last section, \"{SECTION}\"");
        return vec![Problem::of_file(PAGE, message)];
    };
    let (claims, mut problems) = claims(page);
    let mut proved = BTreeSet::new();
    let above = page.lines().count();
    for (line, cells) in rows_below(table, CLAIMS) {
        let mut object = |message: String| problems.push(Problem::at(PAGE, above + line, message));
        let [claim, tried, tests] = cells.as_slice() else {
            object(format!("a row has 3 cells: claim, tried, tests; not {}", cells.len()));
            continue;
        };
        if !claims.iter().any(|(_, known)| known == claim) {
            object(format!("the page makes no claim \"{claim}\""));
        }
        if tried.is_empty() {
            object(format!("say what is tried for \"{claim}\""));
        }
        match evidence::names(tests) {
            Some(names) => {
                names
                    .into_iter()
                    .filter_map(|name| evidence.strict_objection(name))
                    .for_each(object);
            }
            None => object(format!("\"{tests}\" is no list of test names in backticks")),
        }
        proved.insert(claim.clone());
    }
    for (line, claim) in &claims {
        if !proved.contains(claim) {
            let message = format!("no row of \"{SECTION}\" names a test for \"{claim}\"");
            problems.push(Problem::at(PAGE, *line, message));
        }
    }
    problems
}

/// Splits the page into the part before its last section, and that section.
fn split(text: &str) -> Option<(&str, &str)> {
    let head = format!("\n## {SECTION}\n");
    let at = text.find(&head)? + 1;
    Some(text.split_at(at))
}

/// Returns the claims of the page with their lines, and problems such as a claim without words in
/// bold.
fn claims(page: &str) -> (Vec<(usize, String)>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut claims: Vec<(usize, String)> = rows_below(page, CONTROLS)
        .into_iter()
        .filter_map(|(line, cells)| Some((line, cells.into_iter().next()?)))
        .collect();
    if claims.is_empty() {
        let message =
            format!("the page has no table of controls, whose first column is {CONTROLS}");
        problems.push(Problem::of_file(PAGE, message));
    }
    let mut section = "";
    for (index, line) in page.lines().enumerate() {
        if let Some(title) = line.trim_start_matches('#').strip_prefix(' ')
            && line.starts_with('#')
        {
            section = title;
        }
        let Some(entry) = line.strip_prefix("- ") else { continue };
        match lead(entry) {
            Some(lead) => claims.push((index + 1, lead.to_owned())),
            None if CLAIMING.contains(&section) => {
                let message = "an entry here is a claim: begin it with its name in bold";
                problems.push(Problem::at(PAGE, index + 1, message));
            }
            None => {}
        }
    }
    let mut seen = BTreeSet::new();
    for (line, claim) in &claims {
        if !seen.insert(claim) {
            problems.push(Problem::at(PAGE, *line, format!("\"{claim}\" is claimed twice")));
        }
    }
    (claims, problems)
}

/// The words in bold at the beginning of a list entry, without a full stop.
fn lead(entry: &str) -> Option<&str> {
    let (lead, _) = entry.strip_prefix("**")?.split_once("**")?;
    Some(lead.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::*;

    #[test]
    fn every_claim_has_its_test() {
        let tree = Tree::load();
        expect_none(&problems(&tree, &Evidence::load(&tree)));
    }

    const TABLE: &str = "| Control | `bwrap` |\n| --- | --- |\n| files | enforced |\n";
    const ENTRIES: &str = "\n### In more words\n\n- **Locks.** None is waited for.\n- **Scopes** hold.\n\n## What no wall here stops\n\n- Bugs.\n";
    const HEAD: &str = "| claim | tried | tests |\n| --- | --- | --- |\n";
    const ROWS: [&str; 3] = [
        "| files | reads | `attempt a hard link` |\n",
        "| Locks | holds one | `ab-host::races::held`, `behaviour read::missing_file` |\n",
        "| Scopes | leaves one | `ab-host::races::held` |\n",
    ];

    fn check(entries: &str, rows: &str) -> Vec<Problem> {
        let mut evidence = Evidence::default();
        evidence.suite.add("read", "pub async fn missing_file(b: &B) {}\n");
        let tests = "fn helper() {}\n#[tokio::test]\nasync fn held() {}\n";
        evidence.add("crates/ab-host/tests/races.rs", tests);
        evidence.add("crates/ab-testkit/src/escapes/files.rs", "reads(\"a hard link\", \"ln\")");
        let page = format!("# Security\n\n{TABLE}{entries}\n## {SECTION}\n\n{HEAD}{rows}");
        page_problems(Some(&page), &evidence)
    }

    #[test]
    fn a_page_whose_claims_are_all_tried_passes() {
        expect_none(&check(ENTRIES, &ROWS.concat()));
    }

    #[test]
    fn a_claim_without_a_row_fails() {
        for (missing, claim) in ["files", "Locks", "Scopes"].iter().enumerate() {
            let rows: String = ROWS
                .iter()
                .enumerate()
                .filter(|(at, _)| *at != missing)
                .map(|(_, row)| *row)
                .collect();
            expect_one(&check(ENTRIES, &rows), &format!("names a test for \"{claim}\""));
        }
    }

    #[test]
    fn rows_that_prove_nothing_fail() {
        for (row, message) in [
            ("| Locks | holds one | `ab-host::races::moon` |", "no test `moon`"),
            ("| Locks | holds one | `ab-host::races::helper` |", "no test `helper`"),
            ("| Locks | holds one | `attempt a hard` |", "no attempt \"a hard\""),
            ("| Locks | holds one | `behaviour read::moon` |", "no case `read::moon`"),
            ("| Locks | holds one | |", "no list of test names"),
            ("| Locks | holds one | later |", "no list of test names"),
            ("| Locks |  | `ab-host::races::held` |", "say what is tried"),
            ("| Locks | `ab-host::races::held` |", "3 cells"),
            ("| Moon | looks | `ab-host::races::held` |", "no claim \"Moon\""),
        ] {
            expect_one(&check(ENTRIES, &format!("{}{row}\n", ROWS.concat())), message);
        }
    }

    #[test]
    fn entries_that_cannot_be_found_fail() {
        let unnamed = ENTRIES.replace("**Scopes** hold", "Scopes hold");
        let rows = [ROWS[0], ROWS[1]].concat();
        expect_one(&check(&unnamed, &rows), "begin it with its name in bold");
        let twice = ENTRIES.replace("**Scopes** hold", "**Locks** hold");
        expect_one(&check(&twice, &rows), "claimed twice");
    }

    #[test]
    fn a_page_without_its_tables_fails() {
        expect_one(&page_problems(None, &Evidence::default()), "is missing");
        expect_one(&page_problems(Some("# Security\n"), &Evidence::default()), "last section");
        let bare = format!("# Security\n\n## {SECTION}\n");
        expect_one(&page_problems(Some(&bare), &Evidence::default()), "no table of controls");
    }
}
