//! One integration binary per crate, `tests/main.rs`, with every test file in it.

use super::code;
use super::crates::Member;
use super::problem::Problem;

/// A Rust file below the `tests` folder of a crate. Its name is the path relative to that folder.
struct TestFile {
    name: String,
    text: String,
}

fn problems(member: &Member, files: &[TestFile]) -> Vec<Problem> {
    let folder = format!("{}/tests", member.folder);
    if files.is_empty() {
        return Vec::new();
    }
    let Some(main) = files.iter().find(|file| file.name == "main.rs") else {
        return vec![Problem::of_file(folder, "collect the tests in `main.rs`")];
    };
    let mut problems = Vec::new();
    if member.test_binaries != ["main"] {
        let message = format!(
            "one integration binary called `main` is wanted, cargo sees {:?}: set \
             `autotests = false` and `[[test]] name = \"main\"`",
            member.test_binaries
        );
        problems.push(Problem::of_file(&folder, message));
    }
    for file in files.iter().filter(|file| file.name != "main.rs") {
        let parents = match file.name.rsplit_once('/') {
            None => vec![main],
            // `tests/a/b.rs` belongs to `tests/a.rs`, or to an inline `mod a` of `main.rs`.
            Some((parent, _)) => {
                let parent = format!("{parent}.rs");
                files.iter().filter(|file| file.name == parent || file.name == "main.rs").collect()
            }
        };
        if !parents.iter().any(|parent| mentions(&parent.text, &file.name)) {
            let path = format!("{folder}/{}", file.name);
            problems.push(Problem::of_file(path, "no `mod` mentions this file: it never runs"));
        }
    }
    problems
}

/// Whether `text` declares the module of the file `name`.
fn mentions(text: &str, name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let code = code::blanked(text);
    code::items(&code, &["mod"])
        .iter()
        .any(|item| item.name == stem && item.rest.trim_start().starts_with(';'))
        || text.contains(&format!("#[path = \"{name}\"]"))
}

#[cfg(test)]
mod tests {
    use super::super::crates;
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn no_test_file_is_forgotten() {
        let tree = Tree::load();
        let sources: Vec<(&str, String)> = tree.sources().collect();
        let mut found = Vec::new();
        for member in crates::members() {
            let folder = format!("{}/tests/", member.folder);
            let files: Vec<TestFile> = sources
                .iter()
                .filter_map(|(path, text)| Some((path.strip_prefix(&folder)?, text)))
                .map(|(name, text)| TestFile { name: name.to_owned(), text: text.clone() })
                .collect();
            found.extend(problems(&member, &files));
        }
        expect_none(&found);
    }

    fn check(binaries: &[&str], files: &[(&str, &str)]) -> Vec<Problem> {
        let member = Member {
            name: "ab-core".to_owned(),
            folder: "crates/ab-core".to_owned(),
            test_binaries: binaries.iter().map(|&name| name.to_owned()).collect(),
            ..Member::default()
        };
        let files: Vec<TestFile> = files
            .iter()
            .map(|&(name, text)| TestFile { name: name.to_owned(), text: text.to_owned() })
            .collect();
        problems(&member, &files)
    }

    #[test]
    fn one_binary_with_all_files_passes() {
        expect_none(&check(&[], &[]));
        let files = [
            ("main.rs", "mod memory;\nmod escape {\n    mod swap;\n}\n"),
            ("memory.rs", "mod read;"),
            ("memory/read.rs", ""),
            ("escape/swap.rs", ""),
        ];
        expect_none(&check(&["main"], &files));
    }

    #[test]
    fn forgotten_files_and_second_binaries_fail() {
        let forgotten =
            [("main.rs", "mod memory; // mod scope;"), ("memory.rs", ""), ("scope.rs", "")];
        expect_one(&check(&["main"], &forgotten), "tests/scope.rs: no `mod`");
        let forgotten = [("main.rs", "mod memory {}"), ("memory.rs", "")];
        expect_one(&check(&["main"], &forgotten), "tests/memory.rs: no `mod`");
        let two = [("main.rs", "mod memory;"), ("memory.rs", "")];
        expect_one(&check(&["main", "memory"], &two), "autotests = false");
        expect_one(&check(&["memory"], &[("memory.rs", "")]), "collect the tests");
    }
}
