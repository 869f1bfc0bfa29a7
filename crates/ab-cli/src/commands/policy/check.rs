//! `policy check`: shows the verdict on a command line, part by part.

use std::ffi::OsString;
use std::path::PathBuf;

use ab_core::environment::{self, CodeLoadingEnvVariablePolicy};
use ab_core::process::{ExecRequest, PathRestrictions};
use ab_core::{
    Backend, CommandLineCheckContext, EffectivePolicy, EnforcedControls, Error, ErrorKind,
    Isolation, Verb, Verdict, WsPath,
};
use ab_host::{
    LocalExecSettings, READABLE_SYSTEM_DIRS, SANDBOX_WORKSPACE_PATH,
    check_path_restrictions_enforceable,
};
use agent_backend::policy::{
    CommandGuard, CommandPolicySettings, HomeDirectoryMeaning, PolicyJudgement, PolicyProfile,
};
use clap::Args;
use serde_json::{Value, json};

use super::RuleFlags;
use crate::commands::exec::{EnvFlags, Limits, RequestFlags, SandboxFlags};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};
use crate::workspace::{Opened, Starter, WorkspaceFlags};

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

The exit code is the verdict: 0 allow, 1 ask, 3 deny. It is 2 if the command cannot be judged: the
rules cannot be read, or `agent-backend exec` fails with these flags whatever the command is.";

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

    /// Judge the command as if it ran on a terminal
    #[arg(short = 't', long, alias = "tty")]
    pty: bool,

    /// Judge the command as if standard input were passed on to it
    ///
    /// With --json, standard input is read, because exec --json judges it as text for a shell.
    #[arg(short = 'i', long, alias = "interactive")]
    stdin: bool,

    /// Judge the command as if it ran in the background
    #[arg(short = 'd', long, conflicts_with_all = ["stdin", "pty"])]
    detach: bool,

    /// Directory to run in, inside the workspace
    #[arg(short = 'w', long, alias = "workdir", value_name = "PATH")]
    cwd: Option<OsString>,

    #[command(flatten)]
    env: EnvFlags,

    #[command(flatten)]
    rules: RuleFlags,

    #[command(flatten)]
    sandbox: SandboxFlags,

    #[command(flatten)]
    limits: Limits,

    /// Directory of the workspace [default: .]
    ///
    /// The environment variable AGENT_BACKEND_ROOT sets it too.
    #[arg(long, value_name = "DIR", help_heading = "Workspace")]
    root: Option<PathBuf>,

    /// Use only this directory of the workspace
    #[arg(long, value_name = "PATH", help_heading = "Workspace")]
    scope: Option<OsString>,
}

impl Check {
    fn request_flags(&self) -> RequestFlags<'_> {
        RequestFlags {
            words: &self.command,
            cwd: self.cwd.as_deref(),
            env: &self.env,
            limits: &self.limits,
            pty: self.pty,
            stdin: self.stdin,
            detach: self.detach,
        }
    }

    fn settings(&self) -> Result<LocalExecSettings, Failure> {
        Ok(LocalExecSettings { limits: self.limits.of_command(), ..self.sandbox.settings()? })
    }
}

/// The isolation of commands, and the controls that it enforces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    isolation: Isolation,
    enforced: EnforcedControls,
}

impl Surroundings {
    pub(crate) fn from_policy(policy: &EffectivePolicy) -> Self {
        Surroundings {
            isolation: policy.isolation.unwrap_or_default(),
            enforced: EnforcedControls::from_policy(policy),
        }
    }

    /// Assumes that an isolation works completely.
    fn assumed(isolation: Isolation) -> Self {
        Surroundings { isolation, enforced: EnforcedControls::fully_enforced_by(isolation) }
    }
}

/// A command that is only judged, and where it would run.
#[derive(Debug)]
pub(crate) struct CheckedCommand<'a> {
    line: String,
    /// The request in the form in which guards see it.
    request: ExecRequest,
    /// Absolute paths that name the root of the workspace.
    roots: Vec<String>,
    rules: &'a RuleFlags,
    surroundings: Surroundings,
}

/// What the rules decide about a command line.
pub(crate) struct Decision {
    pub(crate) judgement: PolicyJudgement,
    /// If the isolation is `software` and its path check refuses the line, the error of this check.
    /// Otherwise `None`.
    pub(crate) screened: Option<Error>,
}

impl<'a> CheckedCommand<'a> {
    /// A command in a workspace. `request` is for the handle of the workspace.
    pub(crate) fn new(
        workspace: &Opened,
        request: ExecRequest,
        rules: &'a RuleFlags,
        surroundings: Surroundings,
    ) -> Self {
        let line = request.command.to_shell_line();
        let request = workspace.seen_by_guards(request);
        let roots = workspace.root().info().root_aliases;
        CheckedCommand { line, request, roots, rules, surroundings }
    }

    /// Judges the command in the same way as `exec`.
    ///
    /// # Errors
    ///
    /// Fails if the rules cannot be read or a variable is refused.
    pub(crate) fn decide(&self) -> Result<Decision, Failure> {
        let Surroundings { isolation, enforced } = self.surroundings;
        let guard = CommandGuard::new(self.rules.load()?, &self.roots)
            .with_home(HomeDirectoryMeaning::StartDirectory);
        let judgement = guard.judge_request(&self.request, enforced)?;
        let screened = match (isolation, judgement.verdict) {
            (Isolation::Software, Verdict::Allow) => self.screened().err(),
            _ => None,
        };
        if judgement.verdict == Verdict::Allow && screened.is_none() {
            self.check_env()?;
        }
        Ok(Decision { judgement, screened })
    }

    /// Checks the variables in the same way as the isolation, whatever the rules are.
    fn check_env(&self) -> Result<(), Error> {
        let code = match self.surroundings.isolation {
            Isolation::Bwrap | Isolation::Landlock => CodeLoadingEnvVariablePolicy::Allowed,
            Isolation::Auto | Isolation::Software | Isolation::None => {
                CodeLoadingEnvVariablePolicy::Refused
            }
        };
        let mut env = self.request.env.iter();
        env.try_for_each(|(name, value)| environment::check_env_variable(name, value, code))
    }

    /// Performs the check of the command line that the isolation `software` consists of.
    fn screened(&self) -> Result<(), Error> {
        let scope = self.request.cwd.innermost_scope_root();
        let below = |root: &String| match scope.as_str() {
            "" | "." => root.clone(),
            scope => format!("{}/{scope}", root.trim_end_matches('/')),
        };
        let own = |root: &&String| !root.starts_with(SANDBOX_WORKSPACE_PATH);
        let roots: Vec<String> = self.roots.iter().filter(own).map(below).collect();
        let context = CommandLineCheckContext {
            roots: &roots,
            cwd: self.request.cwd.part_below_scope_root(),
            env: &self.request.env,
            stdin: self.request.stdin_for_guards.as_deref(),
            readable_dirs: READABLE_SYSTEM_DIRS,
        };
        agent_backend::policy::check_command_paths(&self.line, &context)
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
    let workspace = WorkspaceFlags::of_this_machine(check.root.clone(), check.scope.clone());
    if workspace.is_elsewhere()? {
        let message = "the daemon of a remote workspace judges commands by its own rules";
        return Err(workspace.traced(Failure::usage(message)));
    }
    let settings = check.settings()?;
    // Nothing is run here, so no rules have to be enforced.
    let rules =
        CommandPolicySettings { profile: PolicyProfile::Off, ..CommandPolicySettings::default() };
    let opening = workspace.open_with(Starter::Person, settings.clone(), rules);
    let opened = opening.await.map_err(unjudged)?;
    let verdict = judged(check, &opened, &settings, terminal).await;
    let closed = opened.close().await;
    match verdict.and_then(|verdict| closed.map(|()| verdict))? {
        Verdict::Allow => Ok(()),
        Verdict::Ask => Err(Failure::No),
        Verdict::Deny => Err(Failure::Told(Exit::Refused)),
    }
}

/// Judges the command, and prints the verdict.
async fn judged(
    check: &Check,
    opened: &Opened,
    settings: &LocalExecSettings,
    terminal: &mut Terminal,
) -> Result<Verdict, Failure> {
    let restrictions = check.sandbox.restrictions(&opened.handle).await;
    let (restrictions, notes) = restrictions.map_err(unjudged)?;
    for note in notes {
        terminal.note(&note);
    }
    let handle = if restrictions.is_empty() {
        opened.handle.clone()
    } else {
        opened.handle.restrict(restrictions.clone()).map_err(|error| unjudged(error.into()))?
    };
    let request = check.request_flags().judged_request(&handle, terminal.format());
    let request = request.map_err(unjudged)?;
    if request.command.to_shell_line().trim().is_empty() {
        return Err(Failure::usage("the command is empty"));
    }
    let found = surroundings(opened, settings, &restrictions).await;
    let surroundings = match found {
        Ok(found) => found,
        // The named isolation does not work here, but the user may want to judge commands for
        // another machine.
        Err(error)
            if error.kind() == ErrorKind::Unavailable && settings.isolation != Isolation::Auto =>
        {
            terminal.note(&format!("exec would fail here: {error}"));
            Surroundings::assumed(settings.isolation)
        }
        Err(error) => return Err(unjudged(error.into())),
    };
    check_directory(&handle, &request.cwd).await.map_err(|error| unjudged(error.into()))?;
    let checked = CheckedCommand::new(opened, request, &check.rules, surroundings);
    let decision = checked.decide().map_err(unjudged)?;
    match (terminal.format(), &decision.screened) {
        (Format::Json, _) => terminal.value(&value(&checked, &decision))?,
        (Format::Text, Some(error)) => {
            terminal.line("deny  isolation software")?;
            terminal.line(&format!("reason: {}", error.message()))?;
        }
        (Format::Text, None) => print(&decision.judgement, terminal)?,
    }
    Ok(decision.verdict())
}

/// Converts the failure to judge a command. A path outside of the workspace is refused, as by every
/// command. The other exit codes are verdicts.
fn unjudged(failure: Failure) -> Failure {
    match failure.exit() {
        Exit::Refused => failure,
        _ => failure.into_usage(),
    }
}

/// The isolation that would be in force for a command.
async fn surroundings(
    opened: &Opened,
    settings: &LocalExecSettings,
    restrictions: &PathRestrictions,
) -> Result<Surroundings, Error> {
    let found = Surroundings::from_policy(&opened.root().effective_policy().await?);
    let root = WsPath::root();
    check_path_restrictions_enforceable(settings, found.isolation, &root, restrictions)?;
    Ok(found)
}

/// Fails if a command cannot start in this directory.
pub(crate) async fn check_directory(backend: &Backend, cwd: &WsPath) -> Result<(), Error> {
    if backend.stat(cwd).await?.kind.is_dir() {
        return Ok(());
    }
    let message = "not a directory";
    Err(Error::for_path(Verb::Exec, cwd, ErrorKind::NotADirectory, message))
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
    let CheckedCommand { line, rules, surroundings, .. } = checked;
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
