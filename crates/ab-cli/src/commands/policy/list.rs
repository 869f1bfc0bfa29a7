//! `policy rules`: lists the rules in force.

use clap::Args;
use serde_json::json;

use super::RuleFlags;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

/// List the rules that apply
#[derive(Args, Debug)]
pub(super) struct List {
    #[command(flatten)]
    rules: RuleFlags,
}

pub(super) fn run(list: &List, terminal: &mut Terminal) -> Result<(), Failure> {
    let policy = list.rules.load()?;
    if terminal.format() == Format::Json {
        let rules: Vec<_> = policy
            .rules()
            .map(|(rule, verdict)| {
                json!({
                    "id": rule.id,
                    "category": rule.category.as_str(),
                    "verdict": verdict.as_str(),
                    "reason": rule.reason,
                    "suggestion": rule.suggestion,
                    "match": rule.matches,
                    "not_match": rule.not_match,
                })
            })
            .collect();
        return terminal.value(&json!({
            "profile": policy.profile().as_str(),
            "default": policy.default_verdict().as_str(),
            "rules": rules,
        }));
    }
    let width = policy.rules().map(|(rule, _)| rule.id.len()).max().unwrap_or(0);
    for (rule, verdict) in policy.rules() {
        let reason = terminal.shown(&rule.reason).into_owned();
        terminal.line(&format!("{:<5}  {:<width$}  {reason}", verdict.as_str(), rule.id))?;
    }
    Ok(())
}
