//! Rules as data: their conditions, their verdicts, and the examples that test them.
//!
//! Built-in rules and a user's rules have the same format. A rule that does not match its own
//! examples is not loaded.

mod matching;
mod text;

use serde::{Deserialize, Serialize};

use ab_core::{EnforcedControls, Error, ErrorCode, ErrorKind, PolicyControlKind, Result, Verdict};

use crate::analysis::CommandFindingKind;
use crate::profile::PolicyProfile;

pub(crate) use matching::{Fit, Matcher};

/// Maximum number of rules in one file.
pub(crate) const MAX_RULES_PER_FILE: usize = 10_000;
/// Maximum length of a rules file.
pub(crate) const MAX_RULE_FILE_BYTES: usize = 4 * 1024 * 1024;

/// A file of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRuleFile {
    /// The verdict on a command that no rule matches.
    #[serde(default, with = "text::optional_verdict", skip_serializing_if = "Option::is_none")]
    pub default: Option<Verdict>,
    #[serde(default, rename = "rule")]
    pub rules: Vec<PolicyRule>,
}

/// One rule. It matches if all its conditions hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// Dotted lowercase words, unique among all rules.
    pub id: String,
    #[serde(default)]
    pub category: PolicyRuleCategory,
    #[serde(with = "text::verdict")]
    pub verdict: Verdict,
    /// The profiles it belongs to; without any, to `guarded` and `strict`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<PolicyProfile>,
    /// Names of programs, without directories. `*` stands for any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The first words of the command, each a word or a choice of words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefix: Vec<OneOrMoreWords>,
    #[serde(default, skip_serializing_if = "ArgumentPatterns::is_empty")]
    pub arguments: ArgumentPatterns,
    /// Globs on the paths that the words lead to: relative to the root of the workspace, or
    /// absolute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Match only paths that are written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writes: bool,
    /// The effects of the command, whatever it is called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effect: Vec<CommandFindingKind>,
    /// For `allow`: ids of rules that do not count if this one matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// Protections that make the rule unnecessary. In `guarded` it does not count for a command to
    /// which all of them apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub walls: Vec<SandboxProtectionKind>,
    /// The reason, in words that fit after "refused:".
    pub reason: String,
    /// What to do instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Commands that the rule must match.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Commands that it must not match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_match: Vec<String>,
}

/// A protection that the kernel may enforce for a command, so that its text need not be judged for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxProtectionKind {
    /// The contents of files outside cannot be read or changed.
    Files,
    /// Names, modes and times of files outside cannot be seen or changed.
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
    /// A rule of the user.
    #[default]
    Own,
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
            PolicyRuleCategory::Own => "own",
        }
    }

    /// The published error code of a refusal.
    pub fn refusal_error_code(self) -> ErrorCode {
        match self {
            PolicyRuleCategory::Destructive
            | PolicyRuleCategory::Privilege
            | PolicyRuleCategory::Injection
            | PolicyRuleCategory::Remote
            | PolicyRuleCategory::Network => ErrorCode::DangerousOperation,
            PolicyRuleCategory::Escape
            | PolicyRuleCategory::Unparsable
            | PolicyRuleCategory::Own => ErrorCode::UnsafeCommand,
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

/// Patterns for the words after the program. `*` stands for any text, `?` for one character.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgumentPatterns {
    /// At least one of them must match a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub any: Vec<String>,
    /// Each of them must match a word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<String>,
    /// None of them may match a word.
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
                invalid(format!("read rules: {place}{}", error.message())).with_source(error)
            })?
            .checked()
    }

    pub fn from_json(text: &str) -> Result<Self> {
        bounded(text)?;
        serde_json::from_str::<PolicyRuleFile>(text)
            .map_err(|error| invalid(format!("read rules: {error}")).with_source(error))?
            .checked()
    }

    /// Parses JSON if the text begins with a brace, else TOML.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') {
            Self::from_json(text)
        } else {
            Self::from_toml(text)
        }
    }

    fn checked(self) -> Result<Self> {
        if self.rules.len() > MAX_RULES_PER_FILE {
            return Err(invalid(format!("read rules: more than {MAX_RULES_PER_FILE} rules")));
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

    /// Whether the enforced controls make the rule unnecessary.
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

/// Describes a position in TOML: the line, and the rule and field it belongs to.
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
        Err(invalid(format!("read rules: longer than {MAX_RULE_FILE_BYTES} bytes")))
    } else {
        Ok(())
    }
}

pub(crate) fn invalid(message: String) -> Error {
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
}
