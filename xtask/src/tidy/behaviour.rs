//! The contract of drivers and its tests: each method of `Driver` and `File` lists its behaviour,
//! and each line of such a list names the case that tests it.

use super::code;
use super::problem::Problem;
use super::suite::{Case, Suite};

const DRIVER: &str = "crates/ab-core/src/driver.rs";
const TRAITS: &[&str] = &["Driver", "File"];
const HEADING: &str = "# Behaviour";

/// A method of one of the traits, with its documentation line by line.
#[derive(Debug, PartialEq)]
struct Method {
    name: String,
    line: usize,
    docs: Vec<(usize, String)>,
}

fn problems(driver: Option<&str>, suite: &Suite) -> Vec<Problem> {
    let Some(text) = driver else {
        return vec![Problem::of_file(DRIVER, "the file with `trait Driver` is missing")];
    };
    let mut problems = Vec::new();
    for name in TRAITS {
        match methods(text, name) {
            Some(methods) => {
                for method in methods {
                    problems.extend(method_problems(&method, suite));
                }
            }
            None => problems.push(Problem::of_file(DRIVER, format!("no `trait {name}` found"))),
        }
    }
    problems
}

/// The methods of `trait name`; `None` if there is no such trait.
fn methods(text: &str, name: &str) -> Option<Vec<Method>> {
    let code = code::blanked(text);
    let declared = code::items(&code, &["trait"]).into_iter().find(|item| item.name == name)?;
    let start: usize = code.split_inclusive('\n').take(declared.line - 1).map(str::len).sum();
    let open = start + code[start..].find('{')?;
    let body = &code[open..open + body_length(&code[open..])];
    let first_line = code::line_at(&code, open);
    let mut methods = Vec::new();
    for item in code::items(body, &["fn"]) {
        let line = first_line + item.line - 1;
        let mut docs: Vec<(usize, String)> = code::lines_above(text, line)
            .filter_map(|(number, line)| Some((number, line.strip_prefix("///")?.to_owned())))
            .collect();
        docs.reverse();
        methods.push(Method { name: format!("{name}::{}", item.name), line, docs });
    }
    Some(methods)
}

/// The length of the block in braces at the start of `code`.
fn body_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    code.len()
}

fn method_problems(method: &Method, suite: &Suite) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for (line, bullet) in behaviour_bullets(method) {
        let Some(case) = parse_bullet(bullet) else {
            let message = format!("write it as \"- `group::case`: text\", not \"{bullet}\"");
            problems.push(Problem::at(DRIVER, line, message));
            continue;
        };
        let Case { group, name } = &case;
        if !suite.has(&case) {
            let message =
                format!("no `pub async fn {name}` in {} proves `{group}::{name}`", case.path());
            problems.push(Problem::at(DRIVER, line, message));
        }
        if seen.contains(&case) {
            let message = format!("`{group}::{name}` is named twice by `{}`", method.name);
            problems.push(Problem::at(DRIVER, line, message));
        }
        seen.push(case);
    }
    if seen.is_empty() && problems.is_empty() {
        let message = format!("`{}` lists no behaviour under `{HEADING}`", method.name);
        problems.push(Problem::at(DRIVER, method.line, message));
    }
    problems
}

/// The list entries below the heading `# Behaviour`, up to the next heading.
fn behaviour_bullets(method: &Method) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    method.docs.iter().filter_map(move |(number, line)| {
        let line = line.strip_prefix(' ').unwrap_or(line);
        if line.starts_with("# ") {
            inside = line.trim_end() == HEADING;
        }
        let is_bullet = ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark));
        (inside && is_bullet).then_some((*number, line))
    })
}

/// The test case that a list entry names, if the entry has the required form.
fn parse_bullet(bullet: &str) -> Option<Case> {
    let (name, text) = bullet.strip_prefix("- `")?.split_once("`: ")?;
    if text.trim().is_empty() {
        return None;
    }
    Case::parse(name)
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn every_line_of_the_contract_is_proved() {
        let tree = Tree::load();
        expect_none(&problems(tree.text(DRIVER).as_deref(), &Suite::load(&tree)));
    }

    fn check(read_docs: &str) -> Vec<Problem> {
        let mut suite = Suite::default();
        suite.add("read", "pub async fn whole(b: &B) {}\npub async fn missing(b: &B) {}\n");
        let driver = format!(
            "//! Drivers.\n#[async_trait]\npub trait Driver: Send {{\n{read_docs}    async fn \
             read(&self) -> Result<Bytes>;\n}}\n\npub trait File {{\n    /// # Behaviour\n    /// - \
             `read::whole`: reads all\n    fn read_at(&self);\n}}\n"
        );
        problems(Some(&driver), &suite)
    }

    #[test]
    fn a_proved_contract_passes() {
        expect_none(&check(
            "    /// Reads.\n    ///\n    /// # Behaviour\n    /// - `read::whole`: all of it\n    \
             ///   and no more\n    /// - `read::missing`: fails\n    ///\n    /// # Errors\n    \
             /// - whatever\n    #[must_use]\n",
        ));
    }

    #[test]
    fn a_broken_contract_fails() {
        expect_one(&check("    /// Reads.\n"), "`Driver::read` lists no behaviour");
        let section = |line: &str| check(&format!("    /// # Behaviour\n    /// {line}\n"));
        expect_one(&section("- `read::moon`: shines"), "no `pub async fn moon`");
        expect_one(&section("- `sky::moon`: shines"), "behaviour/sky.rs");
        expect_one(&section("- reads all"), "write it as");
        expect_one(&section("- `read::whole` reads all"), "write it as");
        expect_one(&section("* `read::whole`: reads all"), "write it as");
        let twice = "- `read::whole`: a\n    /// - `read::whole`: b";
        expect_one(&section(twice), "named twice");
    }

    #[test]
    fn a_missing_contract_fails() {
        expect_one(&problems(None, &Suite::default()), "is missing");
        let found = problems(Some("pub trait Driver {}\n"), &Suite::default());
        expect_one(&found, "no `trait File` found");
    }
}
