//! `exec`: runs a command in the workspace, in a sandbox.

pub(crate) mod amount;
pub(crate) mod flags;
pub(crate) mod following;
mod input;
pub(crate) mod live;
mod raw;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::time::Instant;

use ab_core::effective_policy::Isolation;
use ab_core::process::{
    Command, ExecLimits, ExecRequest, LeftoverProcessOutcome, OutputChannel, PathRestrictions,
    StderrMode,
};
use ab_core::{Backend, ExecOptions, WsPath};
use ab_host::{LocalExecSettings, check_path_restrictions_enforceable};
use clap::Args;
use serde_json::{Value, json};

use super::{CliCommand, RunningCommand};
use crate::commands::doctor::sentences::{LimitsOf, print_policy};
use crate::commands::policy::RuleFlags;
use crate::commands::policy::check::{self, CheckedCommand, Surroundings};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::jobs::files::cause_name;
use crate::jobs::holder;
use crate::progress::size;
use crate::terminal::{Format, Terminal};
use crate::workspace::{Opened, Starter, WorkspaceFlags, path_text};
pub(crate) use flags::{
    EnvFlags, Limits, Mode, NetworkChoice, SandboxFlags, in_force, refuse_local_sandbox_flags,
};
use following::{Watching, exit_code};
pub(crate) use input::PassedInput;

const EXAMPLE: &str = "\
Example:
  agent-backend exec --timeout 5m --network none cargo test";

const EXAMPLES: &str = "\
Examples:
  agent-backend exec ls -l
  agent-backend exec 'make test 2>&1 | tail -20'
  agent-backend exec --network none --memory 2G --timeout 5m cargo test
  agent-backend exec --pty bash
  echo 'print(6 * 7)' | agent-backend exec python3 -
  agent-backend exec --detach make
  agent-backend exec --remote wss://box.example/ssh --token-file token make

Flags of exec come before the command. A single argument, such as 'make test | tail', is run by the
shell. Several arguments are run directly as a program, without a shell.

If standard input is a file or a pipe, the command reads it. If it is a terminal, use -i to pass lines
on, or --pty for programs that need a terminal, such as a shell or an editor.

Exit codes:
  0 to 255  the exit code of the command; 128 + N if signal N ended it
  124       the command was ended by --timeout
  125       agent-backend itself failed
  126       the command was refused by a rule, or the program cannot be executed
  127       the program was not found";

/// The usage line. clap's own usage line would show the command as optional, because for clap it is
/// optional: `--explain` needs no command.
const USAGE: &str = "agent-backend exec [OPTIONS] <COMMAND>...";

/// Run a command in the workspace, in a sandbox
///
/// The command can write to the workspace and read the system directories. `agent-backend doctor` shows
/// how commands are isolated on this machine. When the command ends, processes that it left running are
/// ended too. Ctrl-C is passed on to the command, and a second Ctrl-C kills it.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, after_long_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct Exec {
    /// Command line, or a program and its arguments
    #[arg(
        value_name = "COMMAND",
        required_unless_present_any = ["explain", "attach"],
        trailing_var_arg = true
    )]
    command: Vec<OsString>,

    /// Run the command on a terminal, for interactive programs
    #[arg(short = 't', long, alias = "tty", conflicts_with = "json")]
    pty: bool,

    /// Send standard input to the command, even if it is a terminal
    #[arg(short = 'i', long, alias = "interactive")]
    stdin: bool,

    /// Start the command in the background and print its job ID
    #[arg(short = 'd', long, conflicts_with_all = ["stdin", "pty", "attach"])]
    detach: bool,

    /// Directory to run in, inside the workspace
    #[arg(short = 'w', long, alias = "workdir", value_name = "PATH")]
    cwd: Option<OsString>,

    #[command(flatten)]
    env: EnvFlags,

    /// Follow a background command; the same as `agent-backend job attach`
    #[arg(long, value_name = "ID", hide = true, conflicts_with_all = ["command", "pty", "json"])]
    attach: Option<String>,

    /// Hold a background command; see [`holder`]
    #[arg(long, hide = true)]
    hold_job: bool,

    /// With --attach: bytes of output to skip
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    from: u64,

    /// Print the isolation, rules and limits that would apply, and run nothing
    #[arg(long)]
    explain: bool,

    /// Print one JSON value when the command has ended; print errors as JSON
    #[arg(long)]
    json: bool,

    /// Always print a line that says how the command is isolated
    #[arg(short = 'v', long, conflicts_with = "quiet")]
    verbose: bool,

    /// Print no notes on standard error
    #[arg(short = 'q', long)]
    quiet: bool,

    #[command(flatten)]
    sandbox: SandboxFlags,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    rules: RuleFlags,

    #[command(flatten)]
    workspace: WorkspaceFlags,
}

impl Exec {
    fn command(&self) -> Result<Command, Failure> {
        command(&self.command)
    }

    /// The settings of a local workspace. The workspace is opened only for this command, so the
    /// limits of the command become the limits of the workspace.
    fn settings(&self) -> Result<LocalExecSettings, Failure> {
        Ok(LocalExecSettings { limits: self.limits.of_command(), ..self.sandbox.settings()? })
    }

    fn is_elsewhere(&self) -> bool {
        self.workspace.is_elsewhere().unwrap_or(true)
    }

    /// Prints a line about the isolation of the command. Without `--verbose`, prints it only if the
    /// command runs on this machine with less than the strongest isolation.
    async fn tell_what_is_in_force(
        &self,
        backend: &Backend,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        if self.quiet || self.is_elsewhere() {
            return Ok(());
        }
        let policy = backend.effective_policy().await?;
        let strongest = policy.isolation == Some(Isolation::Bwrap);
        if let Some(line) = self.sandbox.in_force(&policy).filter(|_| self.verbose || !strongest) {
            terminal.note(&line);
        }
        Ok(())
    }

    fn note(&self, text: &str, terminal: &mut Terminal) {
        if !self.quiet {
            terminal.note(text);
        }
    }

    /// Checks that no flags contradict each other.
    fn check(&self) -> Result<(), Failure> {
        if self.from > 0 && self.attach.is_none() {
            return Err(
                Failure::usage("--from needs --attach").with_hint("write --attach ID --from N")
            );
        }
        if self.workspace.is_elsewhere()? {
            let refused = refuse_local_sandbox_flags(&self.sandbox, &self.rules);
            return refused.map_err(|failure| self.workspace.traced(failure));
        }
        Ok(())
    }

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

    fn options(&self) -> Result<ExecOptions, Failure> {
        self.request_flags().options()
    }

    fn watching(&self) -> Watching<'_> {
        Watching {
            workspace: &self.workspace,
            max_output: self.limits.max_output(),
            quiet: self.quiet,
            job: None,
        }
    }

    fn input(&self) -> PassedInput {
        self.request_flags().input()
    }
}

/// The arguments that decide what is run, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFlags<'a> {
    pub(crate) words: &'a [OsString],
    pub(crate) cwd: Option<&'a OsStr>,
    pub(crate) env: &'a EnvFlags,
    pub(crate) limits: &'a Limits,
    pub(crate) pty: bool,
    pub(crate) stdin: bool,
    pub(crate) detach: bool,
}

impl RequestFlags<'_> {
    fn options(&self) -> Result<ExecOptions, Failure> {
        let cwd = self.cwd.map(path_text).transpose()?;
        let mut options = ExecOptions {
            cwd: cwd.map(str::to_owned),
            env: self.env.variables()?,
            timeout: self.limits.timeout(),
            limits: self.limits.of_command(),
            ..ExecOptions::default()
        };
        if let Some(bytes) = self.limits.max_output() {
            options.max_output_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        Ok(options)
    }

    fn input(&self) -> PassedInput {
        PassedInput::wanted(self.stdin || self.pty)
    }

    /// The request that `exec` would send, for a command that is only judged.
    pub(crate) fn judged_request(
        &self,
        backend: &Backend,
        format: Format,
    ) -> Result<ExecRequest, Failure> {
        let mut request = backend.build_exec_request(command(self.words)?, self.options()?)?;
        if self.detach {
            return Ok(request);
        }
        request.stdin = self.input().mode();
        if self.pty {
            request.terminal = Some(raw::size());
        }
        let is_known = format == Format::Json && self.stdin && !io::stdin().is_terminal();
        if is_known {
            request.stdin_for_guards = Some(live::all_of_stdin()?.into());
        }
        Ok(request)
    }
}

/// Converts the arguments to a command. A single word is a command line for the shell. Several
/// words are a program and its arguments.
pub(crate) fn command(words: &[OsString]) -> Result<Command, Failure> {
    let text = |word: &OsString| match word.to_str() {
        Some(word) => Ok(word.to_owned()),
        None => Err(Failure::usage("the command is not valid UTF-8")),
    };
    let mut words: Vec<String> = words.iter().map(text).collect::<Result<_, _>>()?;
    Ok(match words.len() {
        1 => Command::Shell(words.remove(0)),
        _ => Command::Argv(words),
    })
}

impl CliCommand for Exec {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn runs_programs(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(async move { run(*self, terminal).await.map_err(Failure::into_exec) })
    }
}

async fn run(exec: Exec, terminal: &mut Terminal) -> Result<(), Failure> {
    exec.check()?;
    if let Some(id) = &exec.attach {
        let watching = exec.watching();
        return super::job::attach(watching, id, exec.from, terminal).await;
    }
    if exec.detach && !exec.hold_job && !exec.workspace.is_elsewhere()? {
        let id = holder::start().await?;
        return started(&exec, &id, terminal);
    }
    let policy = exec.rules.policy(terminal)?;
    let workspace = exec.workspace.open_with(Starter::Person, exec.settings()?, policy).await?;
    let ending = in_workspace(&exec, &workspace, terminal).await;
    let closed = workspace.close().await;
    match ending.and_then(|exit| closed.map(|()| exit))? {
        Exit::Success => Ok(()),
        exit => Err(Failure::Told(exit)),
    }
}

async fn in_workspace(
    exec: &Exec,
    workspace: &Opened,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let backend = &workspace.handle;
    let (restrictions, notes) = exec.sandbox.restrictions(backend).await?;
    // The command that started a background job has already printed the notes.
    for note in notes.iter().filter(|_| !exec.hold_job && !exec.json) {
        exec.note(note, terminal);
    }
    let handle = if restrictions.is_empty() {
        backend.clone()
    } else {
        backend.restrict(restrictions.clone())?
    };
    if exec.explain {
        let explained = explained(exec, workspace, &handle, &restrictions, terminal).await;
        return explained.map(|()| Exit::Success);
    }
    if exec.hold_job {
        return held(exec, &handle).await.map(|()| Exit::Success);
    }
    if exec.detach {
        return detached(exec, &handle, terminal).await.map(|()| Exit::Success);
    }
    match terminal.format() {
        Format::Json => gathered(exec, &handle, terminal).await,
        Format::Text => streamed(exec, &handle, terminal).await,
    }
}

/// Runs the command of a local background job until it ends.
async fn held(exec: &Exec, backend: &Backend) -> Result<(), Failure> {
    let command = exec.command()?;
    let line = command.to_shell_line();
    let mut request = backend.build_exec_request(command, exec.options()?)?;
    // Merge both outputs, so that readers of a job see them in the order in which they were
    // written.
    request.stderr = StderrMode::Merged;
    let process = backend.spawn(request).await?;
    let policy = backend.effective_policy().await?;
    let strongest = policy.isolation == Some(Isolation::Bwrap);
    let told = !exec.quiet && !exec.json && (exec.verbose || !strongest);
    let note = exec.sandbox.in_force(&policy).filter(|_| told);
    holder::hold(process, &line, &exec.workspace.directory()?, note.as_deref()).await
}

/// Prints the id of a background command.
fn started(exec: &Exec, id: &str, terminal: &mut Terminal) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => terminal.value(&json!({ "id": id })),
        Format::Text => {
            terminal.line(id)?;
            if terminal.is_heard() {
                let ways = format!("agent-backend job logs -f {id}, agent-backend job kill {id}");
                exec.note(&format!("the job runs in the background: {ways}"), terminal);
            }
            Ok(())
        }
    }
}

/// Starts a command on a daemon and does not wait for it.
async fn detached(exec: &Exec, backend: &Backend, terminal: &mut Terminal) -> Result<(), Failure> {
    let mut request = backend.build_exec_request(exec.command()?, exec.options()?)?;
    request.stderr = StderrMode::Merged;
    let process = backend.spawn_detached(request).await?;
    started(exec, process.id.as_str(), terminal)
}

/// Prints the policy that would apply to a command, without running it.
async fn explained(
    exec: &Exec,
    workspace: &Opened,
    backend: &Backend,
    restrictions: &PathRestrictions,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let policy = backend.effective_policy().await?;
    let elsewhere = exec.is_elsewhere();
    if let Some(isolation) = policy.isolation.filter(|_| !elsewhere) {
        let settings = exec.sandbox.settings()?;
        check_path_restrictions_enforceable(&settings, isolation, &WsPath::root(), restrictions)?;
    }
    let limits = exec.limits.of_workspace();
    let json = terminal.format() == Format::Json;
    let mut value = crate::json::effective(&policy);
    if !exec.command.is_empty() && !elsewhere {
        let request = exec.request_flags().judged_request(backend, terminal.format())?;
        check::check_directory(backend, &request.cwd).await?;
        let surroundings = Surroundings::from_policy(&workspace.root().effective_policy().await?);
        let checked = CheckedCommand::new(workspace, request, &exec.rules, surroundings);
        let decision = checked.decide()?;
        value["command"] = check::value(&checked, &decision);
        if !json {
            terminal.line(&decision.sentence())?;
        }
    } else if !exec.command.is_empty() && !json {
        terminal
            .line("The daemon judges this command by its own rules, which are not known here.")?;
    }
    if json {
        for (name, paths) in
            [("hide", &restrictions.hidden), ("read_only", &restrictions.read_only)]
        {
            if !paths.is_empty() {
                value[name] = paths.iter().map(ToString::to_string).collect();
            }
        }
        if limits != ExecLimits::default() {
            value["limits"] = limits_value(&limits);
        }
        return terminal.value(&value);
    }
    let described = if limits == ExecLimits::default() && (elsewhere || exec.command.is_empty()) {
        // A daemon may have its own limits, which are not known here.
        LimitsOf::AnyCommand
    } else {
        LimitsOf::Command(&limits)
    };
    print_policy(&policy, described, terminal)?;
    for (what, paths) in [
        ("Hidden from commands", &restrictions.hidden),
        ("Read-only for commands", &restrictions.read_only),
    ] {
        if !paths.is_empty() {
            let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
            terminal.line(&format!("{what}: {}.", paths.join(", ")))?;
        }
    }
    match exec.limits.max_output() {
        Some(bytes) => terminal.line(&format!(
            "At most {} of standard output and of standard error are shown.",
            size(bytes)
        )),
        None => Ok(()),
    }
}

fn limits_value(limits: &ExecLimits) -> Value {
    let ExecLimits { wall_time, cpu, memory, processes, file_size, open_files } = *limits;
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "timeout_ms": wall_time.map(millis),
        "cpu_ms": cpu.map(millis),
        "memory": memory,
        "processes": processes,
        "file_size": file_size,
        "open_files": open_files,
    })
}

/// Collects the result of the command and prints it as one JSON value when the command has ended.
async fn gathered(
    exec: &Exec,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let started = Instant::now();
    let options = exec.options()?;
    let most = options.max_output_bytes;
    let mut request = backend.build_exec_request(exec.command()?, options)?;
    request.stdin = exec.input().mode();
    if exec.stdin {
        // If all input is known before the start, the rules can check it as text for a shell.
        request.stdin_for_guards = Some(live::all_of_stdin()?.into());
    }
    let declared = request.stdin_for_guards.clone();
    let policy = backend.effective_policy().await?;
    let mut process = backend.spawn(request).await?;
    let stdin = process.stdin.take();
    let feeding = async {
        match (stdin, declared) {
            // The send may fail, because a command can end without reading its input.
            (Some(stdin), Some(input)) => drop(stdin.send(input).await),
            (Some(stdin), None) => live::pass_input_on(stdin),
            (None, _) => {}
        }
    };
    let (mut stdout, mut stderr) = (Gathered::default(), Gathered::default());
    let gathering = async {
        while let Some(output) = process.output.recv().await {
            match output.channel {
                OutputChannel::Stdout => stdout.add(&output.bytes, most),
                OutputChannel::Stderr => stderr.add(&output.bytes, most),
            }
        }
        process.wait().await
    };
    let gathering = async { tokio::join!(feeding, gathering).1 };
    // An interrupt drops the process, which ends the command.
    let ended = tokio::select! {
        ended = gathering => ended,
        exit = live::interrupted() => return Ok(exit),
    };
    let Some(exit) = ended else {
        let why = process.exit_receiver().process_lost_error().cloned();
        return Err(exec.watching().lost(Some(backend), why).await?);
    };
    let (code, signal) = (exit.code, exit.signal);
    terminal.value(&json!({
        "stdout": stdout.value(),
        "stderr": stderr.value(),
        "exit_code": code,
        "signal": signal,
        "cause": cause_name(exit.cause),
        "leftovers": match exit.leftover_processes {
            LeftoverProcessOutcome::None => "none",
            LeftoverProcessOutcome::Ended => "ended",
        },
        "isolation": policy.isolation.map(Isolation::as_str),
        "duration_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    }))?;
    Ok(exit_code(&exit))
}

/// The output of one channel for JSON: the first bytes, and the total size.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    kept: Vec<u8>,
    total: u64,
}

impl Gathered {
    pub(crate) fn add(&mut self, bytes: &[u8], most: usize) {
        let room = most.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.total += bytes.len() as u64;
    }

    pub(crate) fn value(&self) -> Value {
        json!({
            "text": String::from_utf8_lossy(&self.kept),
            "utf8": str::from_utf8(&self.kept).is_ok(),
            "bytes": self.total,
            "truncated": self.total > self.kept.len() as u64,
        })
    }
}

/// Prints output as it arrives.
async fn streamed(
    exec: &Exec,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let command = exec.command()?;
    let input = exec.input();
    if input == PassedInput::Terminal && input::wants_terminal(&command) {
        exec.note(
            "standard input is a terminal and is not passed on; use --pty for an interactive \
             program, or -i to pass lines on",
            terminal,
        );
    }
    let mut request: ExecRequest = backend.build_exec_request(command, exec.options()?)?;
    request.stdin = input.mode();
    if exec.pty {
        request.terminal = Some(raw::size());
    } else if live::is_one_output() {
        request.stderr = StderrMode::Merged;
    }
    let process = backend.spawn(request).await?;
    exec.tell_what_is_in_force(backend, terminal).await?;
    // Enter raw mode only after the command has started. Before the start, a person may have to
    // answer a question of the policy, or may interrupt.
    let raw = exec.pty.then(raw::Raw::enter);
    let ended = exec.watching().follow(process, Some(backend), terminal).await;
    drop(raw);
    ended
}
