//! `policy check`: the verdict on one command line, part by part.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use ab_core::environment::{self, CodeLoadingVariablePolicy};
use ab_core::process::StdinMode;
use ab_core::{
    Backend, CommandLineCheckContext, EnforcedControls, Error, Isolation, PolicyControlKind,
    Verdict,
};
use ab_host::{ExecSettings, READABLE_SYSTEM_DIRS, SANDBOX_WORKSPACE_PATH};
use agent_backend::policy::{
    CommandCheckContext, CommandStdin, HomeLocation, Judgement, PolicyProfile,
};
use agent_backend::{LocalDriverOptions, LocalWorkspaceConfig};
use clap::Args;
use serde_json::{Value, json};

use super::RuleFlags;
use crate::commands::exec::{EnvFlags, Mode, PassedInput, command};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  agent-backend policy check 'cd src && make'
  agent-backend policy check 'curl https://x.example | sh' --json
  agent-backend policy check --isolation none 'cp report.txt /srv'
  agent-backend policy check -- cp -r src /srv
  agent-backend policy check --profile strict --rules team.toml 'git push'

The verdict is that of agent-backend exec with the same flags and the same standard input.

The exit code is the verdict: 0 allow, 1 ask, 3 deny. It is 2 if the rules cannot be read.";

/// Judge a command without running it
///
/// Rules about leaving the workspace do not apply where the sandbox enforces the same: see --isolation.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Check {
    /// Command line, or a program and its arguments
    #[arg(value_name = "COMMAND", required = true)]
    command: Vec<OsString>,

    /// Judge it as if standard input were passed on
    #[arg(short = 'i', long)]
    stdin: bool,

    #[command(flatten)]
    rules: RuleFlags,

    /// Isolation to assume [default: what commands have here]
    #[arg(long, value_enum, value_name = "MODE")]
    isolation: Option<Mode>,

    /// Workspace that it would run in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Directory that it would run in, inside the workspace
    #[arg(short = 'w', long, value_name = "PATH", default_value = "")]
    cwd: String,

    #[command(flatten)]
    env: EnvFlags,
}

/// The isolation of commands, and the controls that it enforces.
struct Surroundings {
    isolation: Isolation,
    enforced: EnforcedControls,
    /// Absolute paths that name the root.
    roots: Vec<String>,
}

pub(super) async fn run(check: &Check, terminal: &mut Terminal) -> Result<(), Failure> {
    let policy = check.rules.load()?;
    let env = check.env.variables()?;
    let line = command(&check.command)?.to_shell_line();
    let surroundings = surroundings(check).await;
    let walled = check.rules.profile() == PolicyProfile::Guarded
        && surroundings.enforced.contains(PolicyControlKind::Files);
    let code = if walled {
        CodeLoadingVariablePolicy::Allowed
    } else {
        CodeLoadingVariablePolicy::Refused
    };
    for (name, value) in &env {
        environment::check_env_variable(name, value, code)?;
    }
    let named = |scene: CommandCheckContext, root: &String| scene.with_root_alias(root);
    let scene = surroundings
        .roots
        .iter()
        .fold(CommandCheckContext::new(), named)
        .with_home(HomeLocation::StartDirectory);
    let input = match PassedInput::wanted(check.stdin).mode() {
        StdinMode::Piped => CommandStdin::Unseen,
        StdinMode::Closed => CommandStdin::Closed,
    };
    let scene = scene.in_directory(&check.cwd).with_env(&env).with_stdin(input);
    let judgement = policy.judge(&line, &scene.with_enforced_controls(surroundings.enforced));
    let screened = match (surroundings.isolation, judgement.verdict) {
        (Isolation::Software, Verdict::Allow) => screened(check, &line, &env, &surroundings).err(),
        _ => None,
    };
    match (terminal.format(), &screened) {
        (Format::Json, _) => {
            let value = value(check, &line, &judgement, &surroundings, screened.as_ref());
            terminal.value(&value)?;
        }
        (Format::Text, Some(error)) => {
            terminal.line("deny  isolation software")?;
            terminal.line(&format!("reason: {}", error.message()))?;
        }
        (Format::Text, None) => print(&judgement, terminal)?,
    }
    match judgement.verdict {
        _ if screened.is_some() => Err(Failure::Told(Exit::Refused)),
        Verdict::Allow => Ok(()),
        Verdict::Ask => Err(Failure::No),
        Verdict::Deny => Err(Failure::Told(Exit::Refused)),
    }
}

/// The isolation that would be in force for a command. If it cannot be determined, the mode that
/// the user named is assumed, or no enforced control if none was named.
async fn surroundings(check: &Check) -> Surroundings {
    let wanted = check.isolation.map_or(Isolation::Auto, Isolation::from);
    let root = check.root.clone().unwrap_or_else(|| PathBuf::from("."));
    let root = std::path::absolute(&root).unwrap_or(root);
    let lexical = Surroundings {
        isolation: wanted,
        enforced: EnforcedControls::fully_enforced_by(wanted),
        roots: vec![root.to_string_lossy().into_owned()],
    };
    let exec = ExecSettings {
        isolation: wanted,
        temporary_dir: crate::workspace::temporary_dir(),
        ..ExecSettings::default()
    };
    let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
    let config = LocalWorkspaceConfig { options, ..LocalWorkspaceConfig::new(root) };
    let Ok(backend) = agent_backend::local_with(config) else { return lexical };
    let roots = backend.info().root_aliases;
    let found = in_force(&backend).await;
    // The workspace was opened for this question only, so an error loses nothing.
    let _ = backend.destroy().await;
    match found {
        Some((isolation, enforced)) => Surroundings { isolation, enforced, roots },
        None => Surroundings { roots, ..lexical },
    }
}

async fn in_force(backend: &Backend) -> Option<(Isolation, EnforcedControls)> {
    let policy = backend.effective_policy().await.ok()?;
    Some((policy.isolation?, EnforcedControls::from_policy(&policy)))
}

/// The check of the command line that isolation `software` consists of.
fn screened(
    check: &Check,
    line: &str,
    env: &BTreeMap<String, String>,
    surroundings: &Surroundings,
) -> Result<(), Error> {
    let own = |root: &&String| !root.starts_with(SANDBOX_WORKSPACE_PATH);
    let roots: Vec<String> = surroundings.roots.iter().filter(own).cloned().collect();
    let cwd = check.cwd.trim_matches('/');
    let confines = CommandLineCheckContext {
        roots: &roots,
        cwd,
        env,
        input: None,
        readable: READABLE_SYSTEM_DIRS,
    };
    agent_backend::policy::check_command_paths(line, &confines)
}

fn print(judgement: &Judgement, terminal: &mut Terminal) -> Result<(), Failure> {
    let decisive = judgement.decisive_rule();
    let rule = decisive.map(|hit| format!("  {}", hit.rule.id)).unwrap_or_default();
    terminal.line(&format!("{}{rule}", judgement.verdict))?;
    if let Some(hit) = decisive {
        terminal.line(&format!("reason: {}", hit.rule.reason))?;
        let detail = ab_core::error::escape_unprintable(&hit.detail);
        terminal.line(&format!("where: {}", terminal.shown(&detail)))?;
        if let Some(suggestion) = &hit.rule.suggestion {
            terminal.line(&format!("instead: {suggestion}"))?;
        }
    }
    for note in &judgement.notes {
        terminal.line(&format!("note: {note}"))?;
    }
    if judgement.analysis.started_commands_with_index().next().is_some() {
        terminal.line("commands:")?;
    }
    for (at, command) in judgement.analysis.started_commands_with_index() {
        let words: Vec<String> = command.words.iter().map(|word| shown(&word.text)).collect();
        let line = words.join(" ");
        let line = terminal.shown(&line).into_owned();
        let rules: Vec<&str> = judgement
            .matched
            .iter()
            .filter(|hit| hit.command == Some(at) && hit.verdict > Verdict::Allow)
            .map(|hit| hit.rule.id.as_str())
            .collect();
        let rules =
            if rules.is_empty() { String::new() } else { format!("  [{}]", rules.join(", ")) };
        let indent = if command.wrapper.is_some() { "  " } else { "" };
        terminal.line(&format!(
            "  {:<5}  {indent}{line}{rules}",
            judgement.verdict_on_command_at(at).as_str()
        ))?;
    }
    Ok(())
}

/// A word as it is typed in a shell, quoted if necessary.
fn shown(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^{}*?[]~$…".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", ab_core::error::escape_unprintable(word).replace('\'', r"'\''"))
}

fn value(
    check: &Check,
    line: &str,
    judgement: &Judgement,
    surroundings: &Surroundings,
    screened: Option<&Error>,
) -> Value {
    let decisive = judgement.decisive_rule();
    let rule = decisive.map(|hit| &hit.rule);
    let commands: Vec<Value> = judgement
        .analysis
        .started_commands_with_index()
        .map(|(at, command)| {
            json!({
                "words": command.words.iter().map(|word| &word.text).collect::<Vec<_>>(),
                "known": command.words.iter().all(|word| word.known),
                "started_by": command.wrapper,
                "verdict": judgement.verdict_on_command_at(at).as_str(),
            })
        })
        .collect();
    let hits: Vec<Value> = judgement
        .matched
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
        .started_commands_with_index()
        .filter(|(at, _)| judgement.verdict_on_command_at(*at) == Verdict::Allow)
        .map(|(_, command)| {
            command.words.iter().map(|word| shown(&word.text)).collect::<Vec<_>>().join(" ")
        })
        .collect();
    json!({
        "command": line,
        "profile": check.rules.profile().as_str(),
        "isolation": surroundings.isolation.as_str(),
        "verdict": if screened.is_some() { "deny" } else { judgement.verdict.as_str() },
        "code": rule
            .map(|rule| rule.category.refusal_code())
            .or(screened.map(Error::code))
            .map(|code| code.as_str()),
        "rule": rule.map(|rule| &rule.id),
        "category": rule.map(|rule| rule.category.as_str()),
        "reason": rule.map(|rule| rule.reason.as_str()).or(screened.map(Error::message)),
        "suggestion": rule.and_then(|rule| rule.suggestion.as_ref()),
        "commands": commands,
        "allowed": allowed,
        "hits": hits,
        "notes": judgement.notes,
    })
}
