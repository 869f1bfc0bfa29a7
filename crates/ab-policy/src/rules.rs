//! Rules as data: their conditions, their verdicts, and examples that test them.
//!
//! Built-in rules and rules of a user have the same format. If a rule fails one of its own
//! examples, it is not loaded.

mod matching;
mod text;

use serde::{Deserialize, Serialize};

use ab_core::{EnforcedControls, Error, ErrorCode, ErrorKind, PolicyControlKind, Result, Verdict};

use crate::analysis::CommandFindingKind;
use crate::profile::PolicyProfile;

pub(crate) use matching::{Fit, Matcher};

/// Maximum number of rules in one file.
pub(crate) const MAX_RULES_PER_FILE: usize = 10_000;
/// Maximum length of a rules file in bytes.
pub(crate) const MAX_RULE_FILE_BYTES: usize = 4 * 1024 * 1024;

/// A file of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRuleFile {
    /// The verdict on a command if no rule matches it.
    #[serde(default, with = "text::optional_verdict", skip_serializing_if = "Option::is_none")]
    pub default: Option<Verdict>,
    #[serde(default, rename = "rule")]
    pub rules: Vec<PolicyRule>,
}

/// A rule. It matches a command if all its conditions are met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// Lowercase words separated by dots. Unique among all rules.
    pub id: String,
    #[serde(default)]
    pub category: PolicyRuleCategory,
    #[serde(with = "text::verdict")]
    pub verdict: Verdict,
    /// The profiles in which the rule is active. If empty, `guarded` and `strict`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<PolicyProfile>,
    /// Names of programs, without directories. `*` stands for any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The first words after the program. Each is a single word or a choice of words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefix: Vec<OneOrMoreWords>,
    #[serde(default, skip_serializing_if = "ArgumentPatterns::is_empty")]
    pub arguments: ArgumentPatterns,
    /// Globs for the paths to which the words lead. A glob is relative to the root of the
    /// workspace, or absolute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Whether the globs match only paths that the command writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
    /// The effects that the command must have, whatever its program is called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effect: Vec<CommandFindingKind>,
    /// For a rule with the verdict `allow`: the ids of rules that are ignored if this rule matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// Protections that make the rule unnecessary. In the profile `guarded`, the rule is ignored
    /// for a command to which all of these protections apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub walls: Vec<SandboxProtectionKind>,
    /// The reason for the verdict. It must fit after "refused:".
    pub reason: String,
    /// What the user can do instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Commands that the rule must match.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Commands that the rule must not match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_match: Vec<String>,
}

/// A protection that the kernel may enforce for a command. If the kernel enforces it, rules about
/// it are not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxProtectionKind {
    /// Files outside the workspace cannot be read or changed.
    Files,
    /// Names, modes and times of files outside the workspace cannot be seen or changed.
    Attributes,
    /// Mounts, namespaces and similar objects cannot be made.
    Kernel,
}

impl SandboxProtectionKind {
    fn subject(self) -> PolicyControlKind {
        match self {
            SandboxProtectionKind::Files => PolicyControlKind::Files,
            SandboxProtectionKind::Attributes => PolicyControlKind::Attributes,
            SandboxProtectionKind::Kernel => PolicyControlKind::Kernel,
        }
    }
}

/// The kind of harm that a rule prevents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyRuleCategory {
    Destructive,
    Privilege,
    Injection,
    Remote,
    Network,
    Escape,
    Unparsable,
    /// A rule that the user wrote.
    #[default]
    #[serde(rename = "own")]
    UserDefined,
}

impl PolicyRuleCategory {
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyRuleCategory::Destructive => "destructive",
            PolicyRuleCategory::Privilege => "privilege",
            PolicyRuleCategory::Injection => "injection",
            PolicyRuleCategory::Remote => "remote",
            PolicyRuleCategory::Network => "network",
            PolicyRuleCategory::Escape => "escape",
            PolicyRuleCategory::Unparsable => "unparsable",
            PolicyRuleCategory::UserDefined => "own",
        }
    }

    /// The published error code for a command that a rule of this category refused.
    pub fn refusal_error_code(self) -> ErrorCode {
        match self {
            PolicyRuleCategory::Destructive
            | PolicyRuleCategory::Privilege
            | PolicyRuleCategory::Injection
            | PolicyRuleCategory::Remote
            | PolicyRuleCategory::Network => ErrorCode::DangerousOperation,
            PolicyRuleCategory::Escape
            | PolicyRuleCategory::Unparsable
            | PolicyRuleCategory::UserDefined => ErrorCode::UnsafeCommand,
        }
    }
}

/// A word, or one of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMoreWords {
    Word(String),
    Any(Vec<String>),
}

/// Patterns for the words after the program. `*` stands for any text and `?` for one character.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentPatterns {
    /// At least one of these patterns must match a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<String>,
    /// Each of these patterns must match a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<String>,
    /// None of these patterns may match a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub none: Vec<String>,
}

impl ArgumentPatterns {
    fn is_empty(&self) -> bool {
        self.any.is_empty() && self.all.is_empty() && self.none.is_empty()
    }
}

impl PolicyRuleFile {
    pub fn from_toml(text: &str) -> Result<Self> {
        bounded(text)?;
        toml::from_str::<PolicyRuleFile>(text)
            .map_err(|error| {
                let place = error.span().map(|span| located(text, span.start)).unwrap_or_default();
                invalid(format!("cannot read the rules: {place}{}", error.message()))
                    .with_source(error)
            })?
            .checked()
    }

    pub fn from_json(text: &str) -> Result<Self> {
        bounded(text)?;
        serde_json::from_str::<PolicyRuleFile>(text)
            .map_err(|error| invalid(format!("cannot read the rules: {error}")).with_source(error))?
            .checked()
    }

    /// Parses a file of rules. It is JSON if it begins with a brace, otherwise TOML.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') {
            Self::from_json(text)
        } else {
            Self::from_toml(text)
        }
    }

    fn checked(self) -> Result<Self> {
        if self.rules.len() > MAX_RULES_PER_FILE {
            return Err(invalid(format!(
                "cannot read the rules: more than {MAX_RULES_PER_FILE} rules"
            )));
        }
        for rule in &self.rules {
            rule.check()?;
        }
        Ok(self)
    }
}

impl PolicyRule {
    fn check(&self) -> Result<()> {
        let object = |problem: &str| Err(invalid(format!("rule '{}': {problem}", self.id)));
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
        if self.id.is_empty() || !self.id.chars().all(plain) {
            return object("an id is made of lowercase letters, digits, '.', '-' and '_'");
        }
        if self.reason.trim().is_empty() {
            return object("it has no reason");
        }
        let looks = !self.command.is_empty()
            || !self.prefix.is_empty()
            || !self.arguments.is_empty()
            || !self.path.is_empty()
            || !self.effect.is_empty();
        if !looks {
            return object(
                "it looks at nothing: give a command, prefix, arguments, path or effect",
            );
        }
        if !self.overrides.is_empty() && self.verdict != Verdict::Allow {
            return object("only a rule that allows can override others");
        }
        if !self.walls.is_empty() && self.verdict == Verdict::Allow {
            return object("'walls' says nothing in a rule that allows");
        }
        if self.writes && self.path.is_empty() {
            return object("'writes' says nothing without 'path'");
        }
        Ok(())
    }

    /// Whether the enforced controls make this rule unnecessary.
    pub(crate) fn is_enforced(&self, enforced: EnforcedControls) -> bool {
        !self.walls.is_empty() && self.walls.iter().all(|wall| enforced.contains(wall.subject()))
    }

    pub(crate) fn belongs_to(&self, profile: PolicyProfile) -> bool {
        match profile {
            PolicyProfile::Off => false,
            PolicyProfile::Guarded | PolicyProfile::Strict => {
                self.profiles.is_empty() || self.profiles.contains(&profile)
            }
        }
    }
}

/// Describes a position in a TOML text: the line, and the rule and field at this position.
pub(crate) fn located(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let number = before.matches('\n').count();
    let lines: Vec<&str> = text.lines().collect();
    let header = |line: &&str| line.trim_start().starts_with("[[");
    let key = |line: &str| line.split_once('=').map(|(key, _)| key.trim().to_owned());
    let first = (0..=number).rev().find(|at| lines.get(*at).is_some_and(header));
    let id = first.and_then(|first| {
        let block = lines[first + 1..].iter().take_while(|line| !header(line));
        block.clone().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "id").then(|| value.trim().trim_matches('"').to_owned())
        })
    });
    let mut place = format!("line {}", number + 1);
    if let Some(id) = id {
        place.push_str(&format!(", rule '{id}'"));
    }
    if let Some(field) = lines.get(number).and_then(|line| key(line)) {
        place.push_str(&format!(", field '{field}'"));
    }
    place.push_str(": ");
    place
}

fn bounded(text: &str) -> Result<()> {
    if text.len() > MAX_RULE_FILE_BYTES {
        Err(invalid(format!("cannot read the rules: longer than {MAX_RULE_FILE_BYTES} bytes")))
    } else {
        Ok(())
    }
}

pub(crate) fn invalid(message: String) -> Error {
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
}
