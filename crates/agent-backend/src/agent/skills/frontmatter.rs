//! Parses the frontmatter of a `SKILL.md`: YAML between two lines of three dashes, as in the Agent
//! Skills format.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Maximum number of characters of a name.
const MAX_NAME: usize = 64;
/// Maximum number of characters of a description.
const MAX_DESCRIPTION: usize = 1024;
/// Maximum number of characters of the compatibility note.
const MAX_COMPATIBILITY: usize = 500;
const FENCE: &str = "---";

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Frontmatter {
    pub(super) name: String,
    pub(super) description: String,
    #[serde(default)]
    pub(super) license: Option<String>,
    #[serde(default)]
    pub(super) compatibility: Option<String>,
    #[serde(default)]
    pub(super) metadata: BTreeMap<String, Value>,
    #[serde(default, rename = "allowed-tools")]
    pub(super) allowed_tools: Option<AllowedTools>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum AllowedTools {
    List(Vec<String>),
    /// The names in one text, separated by spaces.
    Text(String),
}

impl AllowedTools {
    pub(super) fn names(self) -> Vec<String> {
        match self {
            AllowedTools::List(names) => names,
            AllowedTools::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// The frontmatter and the body of a `SKILL.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) frontmatter: &'a str,
    pub(super) body: &'a str,
}

/// Splits a file into frontmatter and body. Accepts both kinds of line endings, and a byte order
/// mark at the start.
pub(super) fn split(text: &str) -> Result<Parts<'_>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != FENCE {
        return Err("no frontmatter: the first line must be ---".to_owned());
    }
    let (start, mut end) = (first.len(), first.len());
    for line in lines {
        if line.trim_end() == FENCE {
            let body = &text[end + line.len()..];
            return Ok(Parts { frontmatter: &text[start..end], body });
        }
        end += line.len();
    }
    Err("the frontmatter has no end: a second line --- is missing".to_owned())
}

pub(super) fn parse(yaml: &str) -> Result<Frontmatter, String> {
    let parsed: Frontmatter = serde_saphyr::from_str(yaml).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        format!("invalid frontmatter: {}", first.trim())
    })?;
    check_name(&parsed.name)?;
    let description = parsed.description.trim();
    if description.is_empty() {
        return Err("the description is empty".to_owned());
    }
    at_most("description", description, MAX_DESCRIPTION)?;
    let compatibility = parsed.compatibility.as_deref().unwrap_or_default();
    at_most("compatibility", compatibility, MAX_COMPATIBILITY)?;
    Ok(parsed)
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let dashes = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    if name.is_empty() || name.len() > MAX_NAME || dashes || !name.chars().all(plain) {
        let shown: String = name.chars().take(100).collect();
        return Err(format!(
            "invalid name {shown:?}: must be 1 to {MAX_NAME} lower-case letters, digits and single dashes"
        ));
    }
    Ok(())
}

fn at_most(field: &str, text: &str, limit: usize) -> Result<(), String> {
    match text.chars().count() {
        count if count > limit => {
            Err(format!("the {field} has {count} characters; at most {limit}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_taken_apart_whatever_their_line_ends() {
        for text in ["---\nname: a\n---\nbody\n", "\u{feff}---\r\nname: a\r\n---\r\nbody\n"] {
            let parts = split(text).unwrap();
            assert_eq!((parts.frontmatter.trim(), parts.body), ("name: a", "body\n"));
        }
        let parts = split("---\n---").unwrap();
        assert_eq!((parts.frontmatter, parts.body), ("", ""));
        for (text, says) in
            [("", "first line"), ("# Title\n", "first line"), ("---\nname: a\n", "no end")]
        {
            assert!(split(text).unwrap_err().contains(says), "{text:?}");
        }
    }

    #[test]
    fn fields_are_checked() {
        let whole = "name: pdf-forms\ndescription: Fill forms\nlicense: MIT\n\
                     allowed-tools: Read Bash(git:*)\nmetadata:\n  version: \"1.0\"\n";
        let parsed = parse(whole).unwrap();
        assert_eq!((parsed.name.as_str(), parsed.license.as_deref()), ("pdf-forms", Some("MIT")));
        assert_eq!(parsed.allowed_tools.unwrap().names(), ["Read", "Bash(git:*)"]);
        let listed = "name: a\ndescription: >\n  folded\n  text\nallowed-tools: [Read, Write]\n";
        let parsed = parse(listed).unwrap();
        assert_eq!(parsed.description.trim(), "folded text");
        assert_eq!(parsed.allowed_tools.unwrap().names(), ["Read", "Write"]);
        let long = format!("name: a\ndescription: {}\n", "x".repeat(MAX_DESCRIPTION + 1));
        for (yaml, says) in [
            ("name: a\n", "description"),
            ("description: b\n", "name"),
            ("name: a\ndescription: ''\n", "description is empty"),
            ("name: PDF\ndescription: b\n", "invalid name"),
            ("name: a--b\ndescription: b\n", "invalid name"),
            ("name: ../a\ndescription: b\n", "invalid name"),
            ("name: [a\ndescription: b\n", "invalid frontmatter"),
            ("just text", "invalid frontmatter"),
            ("", "invalid frontmatter"),
            (long.as_str(), "at most 1024"),
        ] {
            let problem = parse(yaml).unwrap_err();
            assert!(problem.contains(says), "{yaml:?}: {problem}");
            assert!(!problem.contains('\n'), "{problem}");
        }
    }
}
