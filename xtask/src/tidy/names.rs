//! Forbids names without meaning for files, modules and types.

use super::code;
use super::problem::Problem;

/// Words that say nothing about the content.
const EMPTY_WORDS: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "misc"];

/// Words that are forbidden for files only.
const EMPTY_FILE_WORDS: &[&str] = &["types"];

/// Suffixes of type names that add no meaning.
const EMPTY_ENDINGS: &[&str] = &["Impl", "Manager", "Helper", "Helpers", "Util", "Utils"];

fn problems(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = file_problems(path);
    let code = code::blanked(text);
    for item in code::items(&code, &["mod", "struct", "enum", "union", "trait", "type"]) {
        let empty_word = EMPTY_WORDS.contains(&item.name.to_lowercase().as_str());
        let empty_ending =
            item.keyword != "mod" && EMPTY_ENDINGS.iter().any(|ending| item.name.ends_with(ending));
        if empty_word || empty_ending {
            let message = format!("`{} {}` says nothing: use a noun", item.keyword, item.name);
            problems.push(Problem::at(path, item.line, message));
        }
    }
    problems
}

fn file_problems(path: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    if stem == "mod" {
        problems.push(Problem::of_file(path, "write `foo.rs` beside `foo/`, not `foo/mod.rs`"));
    }
    let is_empty = |word: &str| EMPTY_WORDS.contains(&word);
    let words = folders
        .split('/')
        .filter(|word| is_empty(word))
        .chain(Some(stem).filter(|stem| is_empty(stem) || EMPTY_FILE_WORDS.contains(stem)));
    problems.extend(
        words.map(|word| Problem::of_file(path, format!("`{word}` says nothing: use a noun"))),
    );
    problems
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn every_name_says_something() {
        let problems: Vec<Problem> =
            Tree::load().sources().flat_map(|(path, text)| problems(path, &text)).collect();
        expect_none(&problems);
    }

    #[test]
    fn nouns_pass() {
        let text =
            "mod jail;\nstruct Plan;\ntrait Driver {}\n// struct PlanManager\nimpl Plan {}\n";
        expect_none(&problems("crates/ab-core/src/plan.rs", text));
    }

    #[test]
    fn empty_file_names_fail() {
        for path in ["src/utils.rs", "src/common/plan.rs", "src/types.rs", "tests/helper.rs"] {
            expect_one(&problems(path, ""), "says nothing");
        }
        expect_one(&problems("src/plan/mod.rs", ""), "beside");
    }

    #[test]
    fn empty_item_names_fail() {
        for text in [
            "mod helpers {}",
            "pub mod misc;",
            "struct PlanManager;",
            "pub(crate) enum DriverImpl {}",
            "trait Manager {}",
            "type Util = u8;",
        ] {
            expect_one(&problems("src/plan.rs", text), "says nothing");
        }
    }
}
