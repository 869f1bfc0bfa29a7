//! `policy check`: shows the verdict on a command line, part by part.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use ab_core::environment::{self, CodeLoadingEnvVariablePolicy};
use ab_core::process::StdinMode;
use ab_core::{
    Backend, CommandLineCheckContext, EnforcedControls, Error, Isolation, PolicyControlKind,
    Verdict,
};
use ab_host::{LocalExecSettings, READABLE_SYSTEM_DIRS, SANDBOX_WORKSPACE_PATH};
use agent_backend::policy::{
    CommandCheckContext, CommandStdin, HomeDirectoryMeaning, PolicyJudgement, PolicyProfile,
};
use agent_backend::{LocalDriverOptions, LocalWorkspaceConfig};
use clap::Args;
use serde_json::{Value, json};

use super::RuleFlags;
use crate::commands::exec::{EnvFlags, Mode, PassedInput, command};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const EXAMPLE: &str = "\
Example:
  agent-backend policy check 'cd src && make'

The exit code is the verdict: 0 allow, 1 ask, 3 deny.";

const EXAMPLES: &str = "\
Examples:
  agent-backend policy check 'cd src && make'
  agent-backend policy check --json 'curl https://x.example | sh'
  agent-backend policy check --isolation none 'cp report.txt /srv'
  agent-backend policy check cp -r src /srv
  agent-backend policy check --profile strict --rules team.toml 'git push'

Flags of policy check come before the command. A single argument is a line for the shell. Several
arguments are a program and its arguments. `agent-backend exec` reaches the same verdict with the same
flags and the same standard input.

The exit code is the verdict: 0 allow, 1 ask, 3 deny. It is 2 if the rules cannot be read.";

/// Judge a command without running it
///
/// Rules that keep a command inside the workspace are skipped if the sandbox enforces the same. Use
/// --isolation to judge the command for another sandbox.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, after_long_help = EXAMPLES)]
pub(super) struct Check {
    /// Command line, or a program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,

    /// Judge the command as if standard input were passed on to it
    #[arg(short = 'i', long)]
    stdin: bool,

    #[command(flatten)]
    rules: RuleFlags,

    /// Isolation to assume [default: the isolation that commands have here]
    #[arg(long, value_enum, value_name = "MODE")]
    isolation: Option<Mode>,

    /// Directory of the workspace [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Directory to run in, inside the workspace
    #[arg(short = 'w', long, value_name = "PATH", default_value = "", hide_default_value = true)]
    cwd: String,

    #[command(flatten)]
    env: EnvFlags,
}

/// The isolation of commands, and the controls that it enforces.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) isolation: Isolation,
    pub(crate) enforced: EnforcedControls,
    /// Absolute paths that name the root.
    pub(crate) roots: Vec<String>,
}

/// A command line, and where it would run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedCommand<'a> {
    pub(crate) line: &'a str,
    pub(crate) cwd: &'a str,
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) input: PassedInput,
    pub(crate) rules: &'a RuleFlags,
    pub(crate) surroundings: &'a Surroundings,
}

/// What the rules decide about a command line.
pub(crate) struct Decision {
    pub(crate) judgement: PolicyJudgement,
    /// The error of the path check that the isolation `software` consists of, if it refuses the
    /// line.
    pub(crate) screened: Option<Error>,
}

impl CheckedCommand<'_> {
    /// Judges the command in the same way as `exec`.
    ///
    /// # Errors
    ///
    /// Fails if the rules cannot be read or a variable is refused.
    pub(crate) fn decide(&self) -> Result<Decision, Failure> {
        let CheckedCommand { line, cwd, env, surroundings, .. } = *self;
        let policy = self.rules.load()?;
        let walled = self.rules.profile() == PolicyProfile::Guarded
            && surroundings.enforced.contains(PolicyControlKind::Files);
        let code = if walled {
            CodeLoadingEnvVariablePolicy::Allowed
        } else {
            CodeLoadingEnvVariablePolicy::Refused
        };
        for (name, value) in env {
            environment::check_env_variable(name, value, code)?;
        }
        let named = |context: CommandCheckContext, root: &String| context.with_root_alias(root);
        let context = surroundings
            .roots
            .iter()
            .fold(CommandCheckContext::new(), named)
            .with_home(HomeDirectoryMeaning::StartDirectory);
        let input = match self.input.mode() {
            StdinMode::Piped => CommandStdin::Unknown,
            StdinMode::Closed => CommandStdin::Closed,
        };
        let context = context.in_directory(cwd).with_env(env).with_stdin(input);
        let context = context.with_enforced_controls(surroundings.enforced);
        let judgement = policy.judge(line, &context);
        let screened = match (surroundings.isolation, judgement.verdict) {
            (Isolation::Software, Verdict::Allow) => self.screened().err(),
            _ => None,
        };
        Ok(Decision { judgement, screened })
    }

    /// Performs the check of the command line that the isolation `software` consists of.
    fn screened(&self) -> Result<(), Error> {
        let own = |root: &&String| !root.starts_with(SANDBOX_WORKSPACE_PATH);
        let roots: Vec<String> = self.surroundings.roots.iter().filter(own).cloned().collect();
        let context = CommandLineCheckContext {
            roots: &roots,
            cwd: self.cwd.trim_matches('/'),
            env: self.env,
            stdin: None,
            readable_dirs: READABLE_SYSTEM_DIRS,
        };
        agent_backend::policy::check_command_paths(self.line, &context)
    }
}

impl Decision {
    pub(crate) fn verdict(&self) -> Verdict {
        if self.screened.is_some() { Verdict::Deny } else { self.judgement.verdict }
    }

    /// One sentence that says what would happen to the command, and why.
    pub(crate) fn sentence(&self) -> String {
        let decisive = self.judgement.decisive_rule();
        let why = match (&self.screened, decisive) {
            (Some(error), _) => error.message().to_owned(),
            (None, Some(hit)) => format!("{} (rule {})", hit.rule.reason, hit.rule.id),
            (None, None) => String::new(),
        };
        match self.verdict() {
            Verdict::Allow => "The rules allow this command.".to_owned(),
            Verdict::Ask => format!("This command needs approval: {why}."),
            Verdict::Deny => format!("This command would be refused: {why}."),
        }
    }
}

pub(super) async fn run(check: &Check, terminal: &mut Terminal) -> Result<(), Failure> {
    check.rules.load()?;
    let env = check.env.variables()?;
    let line = command(&check.command)?.to_shell_line();
    if line.trim().is_empty() {
        return Err(Failure::usage("the command is empty"));
    }
    let surroundings = surroundings(check).await;
    let checked = CheckedCommand {
        line: &line,
        cwd: &check.cwd,
        env: &env,
        input: PassedInput::wanted(check.stdin),
        rules: &check.rules,
        surroundings: &surroundings,
    };
    let decision = checked.decide()?;
    match (terminal.format(), &decision.screened) {
        (Format::Json, _) => terminal.value(&value(&checked, &decision))?,
        (Format::Text, Some(error)) => {
            terminal.line("deny  isolation software")?;
            terminal.line(&format!("reason: {}", error.message()))?;
        }
        (Format::Text, None) => print(&decision.judgement, terminal)?,
    }
    match decision.verdict() {
        Verdict::Allow => Ok(()),
        Verdict::Ask => Err(Failure::No),
        Verdict::Deny => Err(Failure::Told(Exit::Refused)),
    }
}

/// The isolation that would be in force for a command. If it cannot be determined, the isolation
/// that the user named is assumed, or, without one, that no control is enforced.
async fn surroundings(check: &Check) -> Surroundings {
    let wanted = check.isolation.map_or(Isolation::Auto, Isolation::from);
    let root = check.root.clone().unwrap_or_else(|| PathBuf::from("."));
    let root = std::path::absolute(&root).unwrap_or(root);
    let lexical = Surroundings {
        isolation: wanted,
        enforced: EnforcedControls::fully_enforced_by(wanted),
        roots: vec![root.to_string_lossy().into_owned()],
    };
    let exec = LocalExecSettings {
        isolation: wanted,
        temporary_dir: crate::workspace::temporary_dir(),
        ..LocalExecSettings::default()
    };
    let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
    let config = LocalWorkspaceConfig { options, ..LocalWorkspaceConfig::new(root) };
    let Ok(backend) = agent_backend::local_with(config) else { return lexical };
    let roots = backend.info().root_aliases;
    let found = in_force(&backend).await;
    // Ignore an error: the workspace was opened only for this check.
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

fn print(judgement: &PolicyJudgement, terminal: &mut Terminal) -> Result<(), Failure> {
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
            .filter(|hit| hit.command_index == Some(at) && hit.verdict > Verdict::Allow)
            .map(|hit| hit.rule.id.as_str())
            .collect();
        let rules =
            if rules.is_empty() { String::new() } else { format!("  [{}]", rules.join(", ")) };
        let indent = if command.wrapper_index.is_some() { "  " } else { "" };
        terminal.line(&format!(
            "  {:<5}  {indent}{line}{rules}",
            judgement.verdict_on_command_at(at).as_str()
        ))?;
    }
    Ok(())
}

/// A word as it would be typed in a shell, quoted if necessary.
fn shown(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^{}*?[]~$…".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", ab_core::error::escape_unprintable(word).replace('\'', r"'\''"))
}

/// The decision in the form of `policy check --json`.
pub(crate) fn value(checked: &CheckedCommand<'_>, decision: &Decision) -> Value {
    let CheckedCommand { line, rules, surroundings, .. } = *checked;
    let (judgement, screened) = (&decision.judgement, decision.screened.as_ref());
    let decisive = judgement.decisive_rule();
    let rule = decisive.map(|hit| &hit.rule);
    let commands: Vec<Value> = judgement
        .analysis
        .started_commands_with_index()
        .map(|(at, command)| {
            json!({
                "words": command.words.iter().map(|word| &word.text).collect::<Vec<_>>(),
                "known": command.words.iter().all(|word| word.is_value_known),
                "started_by": command.wrapper_index,
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
                "command": hit.command_index,
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
        "profile": rules.profile().as_str(),
        "isolation": surroundings.isolation.as_str(),
        "verdict": decision.verdict().as_str(),
        "code": rule
            .map(|rule| rule.category.refusal_error_code())
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
