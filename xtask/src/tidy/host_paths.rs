//! No file may contain paths of a developer's machine or the hosts of package registries.

use super::problem::Problem;

/// Prefixes of paths that exist only on a developer's machine.
const HOMES: &[&str] = &["/home/", "/root/", "/work/", "/Users/", "C:\\Users"];

/// Hosts of package registries. The code must not name them, because the machine's configuration
/// decides which registry is used.
const REGISTRIES: &[&str] = &[
    "index.crates.io",
    "static.crates.io",
    "registry.npmjs",
    "pypi.org",
    "files.pythonhosted.org",
    "deb.debian.org",
    "security.debian.org",
];

/// A file that is exempt.
struct Exception {
    path: &'static str,
    /// Explains the exception to readers.
    #[expect(dead_code, reason = "documentation")]
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[Exception {
    path: "xtask/src/tidy/host_paths.rs",
    reason: "the rule itself names what it forbids",
}];

fn problems(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for home in HOMES.iter().filter(|home| holds_path(line, home)) {
            let message = format!("a path of one machine: `{home}`");
            problems.push(Problem::at(path, number + 1, message));
        }
        for registry in REGISTRIES.iter().filter(|registry| line.contains(**registry)) {
            let message = format!("a registry host: `{registry}`");
            problems.push(Problem::at(path, number + 1, message));
        }
    }
    problems
}

/// Whether an absolute path in `line` begins with `home`; `docs/home/a.md` does not.
fn holds_path(line: &str, home: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "_-.~}>)*".contains(c);
    line.match_indices(home).any(|(at, _)| !line[..at].ends_with(continues))
}

fn is_exempt(path: &str) -> bool {
    EXCEPTIONS.iter().any(|exception| exception.path == path)
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn no_file_tells_of_one_machine() {
        let tree = Tree::load();
        let problems: Vec<Problem> = tree
            .texts()
            .filter(|(path, _)| !is_exempt(path))
            .flat_map(|(path, text)| problems(path, &text))
            .collect();
        expect_none(&problems);
    }

    #[test]
    fn every_exception_is_still_needed() {
        let tree = Tree::load();
        for Exception { path, .. } in EXCEPTIONS {
            let text = tree.text(path).unwrap_or_default();
            assert!(!problems(path, &text).is_empty(), "{path} needs no exception");
        }
    }

    #[test]
    fn paths_of_a_machine_fail() {
        for text in [
            "cd /home/ann/src",
            "root = \"/root/x\"",
            "`/work/main`",
            "file:///Users/ann",
            r"C:\Users\ann",
        ] {
            expect_one(&problems("a.md", text), "a path of one machine");
        }
    }

    #[test]
    fn registry_hosts_fail() {
        expect_one(&problems("a.toml", "https://registry.npmjs.org/x"), "a registry host");
        expect_one(&problems("a.toml", "\n\nhttps://index.crates.io/"), "a.toml:3");
    }

    #[test]
    fn other_paths_pass() {
        for text in
            ["docs/home/a.md", "{base}/work/x", "/workspace/a", "~/work/a", "crates.io", "/homes"]
        {
            expect_none(&problems("a.md", text));
        }
    }
}
