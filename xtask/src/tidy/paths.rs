//! Finds the paths that Rust code names, such as `std::fs::File`.
//!
//! Imports are resolved: after `use std::process as p;`, `p::Command` is `std::process::Command`.
//! Test code is left out.

use std::collections::BTreeMap;

use super::code;

/// A full path that code names, starting with the crate, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) path: String,
    pub(crate) offset: usize,
}

/// Whether a file holds only tests or benchmarks.
pub(crate) fn is_test_file(path: &str) -> bool {
    let parts = ["tests", "tests.rs", "benches", "examples", "fuzz"];
    path.split('/').any(|part| parts.contains(&part))
}

/// The code of a file without comments, literals and test-only items. Offsets are kept.
pub(crate) fn product_code(text: &str) -> String {
    let mut code = code::blanked(text);
    let mut from = 0;
    while let Some(start) = test_gate(&code, from) {
        let end = item_end(&code, start);
        let blank: String =
            code[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        // Add spaces up to the length in bytes. Literals and comments are already blank, but a name
        // may contain characters of several bytes.
        let blank = format!("{blank}{}", " ".repeat((end - start) - blank.len()));
        code.replace_range(start..end, &blank);
        from = end;
    }
    code
}

/// Every path in `code`, in order. `code` has no literals.
pub(crate) fn named(code: &str) -> Vec<Named> {
    let imports = imports(code);
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = Vec::new();
    let mut skip_to = 0;
    for import in &imports {
        names.insert(&import.name, &import.path);
    }
    for word in code::words(code) {
        if word.start < skip_to {
            continue;
        }
        if word.text == "use" {
            let end = code[word.start..].find(';').map_or(code.len(), |length| word.start + length);
            let own = imports.iter().filter(|it| (word.start..end).contains(&it.offset));
            found.extend(own.map(|it| Named { path: it.path.clone(), offset: it.offset }));
            skip_to = end;
            continue;
        }
        let (path, end) = path_from(code, word.start);
        skip_to = end;
        let (first, rest) = path.split_once("::").unwrap_or((&path, ""));
        if rest.is_empty() || code[..word.start].ends_with(['.', '#']) {
            continue;
        }
        let path = match names.get(first) {
            Some(root) => format!("{root}::{rest}"),
            None => path,
        };
        found.push(Named { path, offset: word.start });
    }
    found
}

/// Whether `path` is `prefix`, is inside it, or is a glob that imports it.
pub(crate) fn reaches(path: &str, prefix: &str) -> bool {
    let below = |whole: &str, part: &str| {
        whole.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    below(path, prefix) || path.strip_suffix("::*").is_some_and(|module| below(prefix, module))
}

struct Import {
    /// The name under which the code uses the import.
    name: String,
    path: String,
    offset: usize,
}

fn imports(code: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    for word in code::words(code).filter(|word| word.text == "use") {
        let end = code[word.end()..].find(';').map_or(code.len(), |length| word.end() + length);
        flatten(code, word.end(), end, "", &mut imports);
    }
    imports
}

/// Adds every leaf of the tree of imports between two offsets.
fn flatten(code: &str, start: usize, end: usize, prefix: &str, imports: &mut Vec<Import>) {
    for (start, end) in branches(code, start, end) {
        let text = &code[start..end];
        let offset = start + (text.len() - text.trim_start().len());
        match text.find('{') {
            Some(open) => {
                let module = join(prefix, &squeezed(&text[..open]));
                let close = text.rfind('}').unwrap_or(text.len());
                flatten(code, start + open + 1, start + close, &module, imports);
            }
            None => {
                let (path, alias) = match text.split_once(" as ") {
                    Some((path, alias)) => (path, Some(alias.trim().to_owned())),
                    None => (text, None),
                };
                let path = squeezed(path);
                if path.is_empty() {
                    continue;
                }
                let path = match path.as_str() {
                    "self" => prefix.to_owned(),
                    path => join(prefix, path),
                };
                let last = path.rsplit("::").next().unwrap_or_default().to_owned();
                imports.push(Import { name: alias.unwrap_or(last), path, offset });
            }
        }
    }
}

/// Splits the code between two offsets at the commas that are outside of braces.
fn branches(code: &str, start: usize, end: usize) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let (mut from, mut depth) = (start, 0_usize);
    for (at, c) in code[start..end].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push((from, start + at));
                from = start + at + 1;
            }
            _ => {}
        }
    }
    parts.push((from, end));
    parts
}

fn squeezed(path: &str) -> String {
    path.split_whitespace().collect::<String>().trim_matches(':').to_owned()
}

fn join(prefix: &str, path: &str) -> String {
    if prefix.is_empty() { path.to_owned() } else { format!("{prefix}::{path}") }
}

/// The path that starts with the word at `start`, and where it ends.
fn path_from(code: &str, start: usize) -> (String, usize) {
    let word = |at: usize| code::words(&code[at..]).next().filter(|word| word.start == 0);
    let mut end = start;
    let mut path = String::new();
    while let Some(part) = word(end) {
        path.push_str(part.text);
        end += part.text.len();
        if !code[end..].starts_with("::") || word(end + 2).is_none() {
            break;
        }
        path.push_str("::");
        end += 2;
    }
    (path, end.max(start + 1))
}

fn test_gate(code: &str, from: usize) -> Option<usize> {
    let gates = ["#[cfg(test)]", "#[cfg(all(test", "#[test]", "#[tokio::test"];
    gates.iter().filter_map(|gate| code[from..].find(gate)).min().map(|at| from + at)
}

/// The end of the item whose attributes start at `start`.
fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[start..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    return start + at + 1;
                }
            }
            ';' if depth == 0 => return start + at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found = named(&product_code(text));
        let paths: Vec<&str> = found.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, expected, "{text}");
    }

    #[test]
    fn imports_are_flattened() {
        check("use std::fs;", &["std::fs"]);
        check("use std::{fs::{self, File}, io};", &["std::fs", "std::fs::File", "std::io"]);
        check("pub(crate) use std::\n    process::Command;", &["std::process::Command"]);
        check("use std::fs::*;", &["std::fs::*"]);
    }

    #[test]
    fn paths_follow_imports() {
        check(
            "use std::process;\nfn f() { process::exit(1) }",
            &["std::process", "std::process::exit"],
        );
        check("use std::env as e; fn f() { e::var(a) }", &["std::env", "std::env::var"]);
        check("fn f() { std::fs::read(a) }", &["std::fs::read"]);
        check("fn f() { x.y(); a.b }", &[]);
    }

    #[test]
    fn tests_and_comments_are_left_out() {
        check("// std::fs\nfn f() { \"std::fs\" }", &[]);
        check("#[cfg(test)]\nmod tests {\n    use std::fs;\n}\nuse std::io;\n", &["std::io"]);
        check("#[cfg(test)]\nuse std::fs;\nuse std::io;\n", &["std::io"]);
        assert!(is_test_file("crates/a/tests/x.rs") && is_test_file("crates/a/src/x/tests.rs"));
        assert!(!is_test_file("crates/a/src/contests.rs"));
    }

    #[test]
    fn offsets_are_those_of_the_file() {
        let text = "// a
use std::{
    io,
    fs,
};
";
        let found = named(&product_code(text));
        assert!(text[found[1].offset..].starts_with("fs,"), "{found:?}");
    }

    #[test]
    fn a_prefix_reaches_whole_segments_and_globs() {
        assert!(reaches("std::fs::File", "std::fs") && reaches("std::fs", "std::fs"));
        assert!(reaches("std::process::*", "std::process::Command"));
        assert!(
            !reaches("std::fsx", "std::fs") && !reaches("std::process", "std::process::Command")
        );
    }
}
