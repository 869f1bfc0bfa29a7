//! A test suite for policies: a file with commands and the verdicts that they must get.

use ab_core::{Result, Verdict};
use serde::Deserialize;

use crate::place::{CommandCheckContext, HomeDirectoryMeaning};
use crate::policy::CommandPolicy;
use crate::profile::PolicyProfile;
use crate::rules::{PolicyRuleFile, invalid, located};

/// A file of commands and their expected verdicts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyTestSuite {
    /// The meaning of `~`. The root of the workspace is `/workspace`.
    #[serde(default)]
    pub home: PolicyTestHomeDirectory,
    #[serde(rename = "case")]
    pub cases: Vec<PolicyTestCase>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyTestHomeDirectory {
    #[default]
    Elsewhere,
    Start,
}

/// One command with its expected verdicts. Only profiles for which a verdict is given are checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyTestCase {
    pub command: String,
    pub guarded: Option<String>,
    pub strict: Option<String>,
    pub off: Option<String>,
    /// The id of the rule that must decide in the profile `guarded`.
    pub rule: Option<String>,
    /// The programs that a shell would start for the command, with their arguments.
    #[serde(default)]
    pub runs: Vec<String>,
}

/// A case whose result differs from the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyTestMismatch {
    pub command: String,
    pub profile: PolicyProfile,
    pub expected: String,
    pub found: String,
}

impl PolicyTestSuite {
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text)
                .map_err(|error| invalid(format!("read corpus: {error}")));
        }
        toml::from_str(text).map_err(|error| {
            let place = error.span().map(|span| located(text, span.start)).unwrap_or_default();
            invalid(format!("read corpus: {place}{}", error.message()))
        })
    }

    /// Whether `text` looks like a test suite and not like a file of rules.
    pub fn looks_like_test_suite(text: &str) -> bool {
        let json = text.trim_start().starts_with('{') && text.contains("\"case\"");
        json || text.lines().any(|line| line.trim() == "[[case]]")
    }

    pub fn context(&self) -> CommandCheckContext {
        crate::policy::context_for_rule_examples().with_home(match self.home {
            PolicyTestHomeDirectory::Elsewhere => HomeDirectoryMeaning::OutsideWorkspace,
            PolicyTestHomeDirectory::Start => HomeDirectoryMeaning::StartDirectory,
        })
    }

    /// Judges every case by the built-in rules and by `rules`, and returns the cases whose results
    /// differ.
    pub fn find_mismatches(&self, rules: &PolicyRuleFile) -> Result<Vec<PolicyTestMismatch>> {
        let mut misses = Vec::new();
        let scene = self.context();
        for profile in PolicyProfile::ALL {
            let policy = CommandPolicy::with_user_rules(profile, rules)?;
            for case in &self.cases {
                let expected = match profile {
                    PolicyProfile::Guarded => &case.guarded,
                    PolicyProfile::Strict => &case.strict,
                    PolicyProfile::Off => &case.off,
                };
                let judgement = policy.judge(&case.command, &scene);
                let mut miss = |expected: &str, found: &str| {
                    misses.push(PolicyTestMismatch {
                        command: case.command.clone(),
                        profile,
                        expected: expected.to_owned(),
                        found: found.to_owned(),
                    });
                };
                let rule = judgement.decisive_rule().map_or("none", |hit| hit.rule.id.as_str());
                if let Some(expected) = expected
                    && expected != judgement.verdict.as_str()
                {
                    miss(expected, &format!("{} by {rule}", judgement.verdict));
                } else if profile == PolicyProfile::Guarded
                    && let Some(expected) = &case.rule
                    && expected != rule
                {
                    miss(expected, rule);
                }
            }
        }
        Ok(misses)
    }

    /// The number of cases for which `verdict` is expected in the profile `guarded`.
    pub fn count_cases_with_guarded_verdict(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.guarded.as_deref() == Some(verdict.as_str())).count()
    }
}
