//! The README contains the first commands, and no relative link is dead.

use std::collections::BTreeSet;

use super::problem::Problem;

/// The commands that the README must contain.
const FIRST_COMMANDS: &[&str] = &["cargo xtask up", "cargo xtask test"];

fn readme_problems(readme: Option<&str>) -> Vec<Problem> {
    let Some(text) = readme else {
        return vec![Problem::of_file("README.md", "the file is missing")];
    };
    FIRST_COMMANDS
        .iter()
        .filter(|command| !text.contains(**command))
        .map(|command| Problem::of_file("README.md", format!("mention `{command}`")))
        .collect()
}

/// Links in the markdown file `path` whose target is not in `paths`.
fn link_problems(path: &str, text: &str, paths: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, target) in targets(text) {
        let target = target.split(['#', '?']).next().unwrap_or_default();
        if target.is_empty() || is_remote(target) {
            continue;
        }
        let leads_somewhere = resolve(path, target).is_some_and(|found| exists(paths, &found));
        if !leads_somewhere {
            let message = format!("the link `{target}` leads nowhere");
            problems.push(Problem::at(path, line, message));
        }
    }
    problems
}

/// The targets of all links with their lines. Brackets in code are not links.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
        match (fence, marker) {
            (None, Some(_)) => fence = marker,
            (Some(open), Some(close)) if open == close => fence = None,
            (None, None) => {
                let prose = without_code(line);
                found.extend(inline_targets(&prose).map(|target| (number + 1, target)));
                found.extend(definition(&prose).map(|target| (number + 1, target)));
            }
            (Some(_), _) => {}
        }
    }
    found
}

fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let closed = parts.len() - usize::from(parts.len().is_multiple_of(2));
    let mut prose = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index.is_multiple_of(2) || index >= closed {
            prose.push_str(part);
        }
    }
    prose
}

/// The targets of links of the form `[text](target)` or `[text](target "title")`.
fn inline_targets(prose: &str) -> impl Iterator<Item = String> {
    prose.split("](").skip(1).filter_map(|rest| {
        let (inside, _) = rest.split_once(')')?;
        target(inside)
    })
}

/// The target of a line of the form `[name]: target`.
fn definition(prose: &str) -> Option<String> {
    let (name, rest) = prose.trim_start().strip_prefix('[')?.split_once("]: ")?;
    if name.starts_with('^') {
        return None;
    }
    target(rest)
}

fn target(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('<') {
        return Some(rest.split_once('>')?.0.to_owned());
    }
    text.split_whitespace().next().map(str::to_owned)
}

fn is_remote(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// The path in the repository of `target`, relative to the file `from`; `None` if it leaves the
/// repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut segments: Vec<&str> = from.split('/').collect();
    segments.pop();
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()?),
            name => segments.push(name),
        }
    }
    Some(segments.join("/"))
}

/// Whether a file, or a directory with files, exists. The root always exists.
fn exists(paths: &BTreeSet<String>, path: &str) -> bool {
    let folder = format!("{path}/");
    path.is_empty()
        || paths.contains(path)
        || paths.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn the_readme_starts_newcomers() {
        expect_none(&readme_problems(Tree::load().text("README.md").as_deref()));
    }

    #[test]
    fn every_link_leads_somewhere() {
        let tree = Tree::load();
        let problems: Vec<Problem> = tree
            .texts()
            .filter(|(path, _)| path.ends_with(".md"))
            .flat_map(|(path, text)| link_problems(path, &text, tree.paths()))
            .collect();
        expect_none(&problems);
    }

    #[test]
    fn a_readme_without_commands_fails() {
        expect_none(&readme_problems(Some("`cargo xtask up`, then `cargo xtask test`")));
        expect_one(&readme_problems(Some("run `cargo xtask up`")), "mention `cargo xtask test`");
        expect_one(&readme_problems(None), "missing");
    }

    fn check(text: &str) -> Vec<Problem> {
        let paths = ["README.md", "docs/a.md", "docs/decisions/1.md"].map(str::to_owned);
        link_problems("docs/a.md", text, &BTreeSet::from(paths))
    }

    #[test]
    fn live_links_pass() {
        for text in [
            "[up](../README.md) and [here](a.md#part), [one](./decisions/1.md \"title\")",
            "[all](decisions) [all](decisions/) [root](..) [top](#top)",
            "[web](https://example.org/x) <a@example.org> [mail](mailto:a@example.org)",
            "[r]: <../README.md>\n[^1]: a footnote",
            "`[no](link.md)`\n```\n[no](link.md)\n```\n",
        ] {
            expect_none(&check(text));
        }
    }

    #[test]
    fn dead_links_fail() {
        for text in ["[x](b.md)", "[x](/README.md)", "[x](../../README.md)", "[x]: b.md", "![](i)"]
        {
            expect_one(&check(text), "leads nowhere");
        }
    }
}
