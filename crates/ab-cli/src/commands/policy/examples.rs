//! `policy test`: checks the examples of a rule file or a test corpus.

use std::path::{Path, PathBuf};

use agent_backend::policy::{CommandPolicy, PolicyProfile, PolicyRuleFile, PolicyTestSuite};
use clap::Args;
use serde_json::json;

use super::{in_file, rules_in, text_of};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

/// Test the examples in a rules file, or the cases in a test file
///
/// A rules file contains [[rule]] tables with match and not_match. A test file contains [[case]] tables
/// with a command and its verdict in each profile. The exit code is 1 if a verdict differs.
#[derive(Args, Debug)]
pub(super) struct Examples {
    /// File in TOML or JSON
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// For a test file: file with more rules, in addition to the built-in ones
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

pub(super) fn run(examples: &Examples, terminal: &mut Terminal) -> Result<(), Failure> {
    let text = text_of(&examples.file)?;
    if !PolicyTestSuite::looks_like_test_suite(&text) {
        let file = rules_in(&examples.file, &text)?;
        return rules(&examples.file, &file, terminal);
    }
    let own = match &examples.rules {
        Some(path) => rules_in(path, &text_of(path)?)?,
        None => PolicyRuleFile::default(),
    };
    let corpus = PolicyTestSuite::parse(&text).map_err(|error| in_file(&examples.file, error))?;
    let named = examples.rules.as_deref().unwrap_or(&examples.file);
    let misses = corpus.find_mismatches(&own).map_err(|error| in_file(named, error))?;
    match terminal.format() {
        Format::Json => {
            let misses: Vec<_> = misses
                .iter()
                .map(|miss| {
                    json!({
                        "command": miss.command,
                        "profile": miss.profile.as_str(),
                        "expected": miss.expected,
                        "found": miss.found,
                    })
                })
                .collect();
            terminal.value(&json!({ "cases": corpus.cases.len(), "misses": misses }))?;
        }
        Format::Text => {
            for miss in &misses {
                let command = ab_core::error::escape_unprintable(&miss.command);
                terminal.line(&format!(
                    "{}: {} expected, {} found: {command}",
                    miss.profile, miss.expected, miss.found
                ))?;
            }
            terminal.line(&format!("{} cases, {} wrong", corpus.cases.len(), misses.len()))?;
        }
    }
    if misses.is_empty() { Ok(()) } else { Err(Failure::No) }
}

/// Checks a rule file. Loading the file checks every example in it.
fn rules(path: &Path, file: &PolicyRuleFile, terminal: &mut Terminal) -> Result<(), Failure> {
    for profile in [PolicyProfile::Guarded, PolicyProfile::Strict] {
        CommandPolicy::with_user_rules(profile, file).map_err(|error| in_file(path, error))?;
    }
    let examples: usize =
        file.rules.iter().map(|rule| rule.matches.len() + rule.not_match.len()).sum();
    match terminal.format() {
        Format::Json => terminal.value(&json!({ "rules": file.rules.len(), "examples": examples })),
        Format::Text => {
            terminal.line(&format!("{} rules, {examples} examples hold", file.rules.len()))
        }
    }
}
