//! `exec`: a command in the workspace, behind walls.

pub(crate) mod amount;
mod live;
mod raw;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ab_core::backend::CapturedOutput;
use ab_core::effective::{EffectivePolicy, Isolation, NetworkAccess};
use ab_core::process::{
    Command, ExecLimits, ExecRequest, ExitCause, HostDirectory, HostDirectoryAccess,
    LeftoverProcessOutcome, PathRestrictions, Process, ProcessId, StdinMode,
};
use ab_core::{
    Backend, ConnectionStatus, ConnectionStatusChange, Error, ErrorCode, ErrorKind, ExecOptions,
    WsPath,
};
use ab_host::{
    ExecSettings, OutputSpoolLimits, SandboxRequirement, Shell, check_restrictions_enforceable,
};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{CliCommand, RunningCommand};
use crate::commands::policy::RuleFlags;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal, talk};
use crate::toolchains::ToolchainFlags;
use crate::workspace::{Starter, WorkspaceFlags, path_text};

const EXAMPLES: &str = "\
Examples:
  agent-backend exec -- 'make test 2>&1 | tail -20'
  agent-backend exec --network none --memory 2G --timeout 5m -- cargo test
  agent-backend exec --pty -- bash
  agent-backend exec --json -- 'ls | wc -l'
  agent-backend exec --remote wss://box.example/ssh --token-file t -- make
  agent-backend exec --remote wss://box.example/ssh --token-file t --detach -- make
  agent-backend exec --remote wss://box.example/ssh --token-file t --attach ID

One word is a line for the shell; several are a program and its arguments, without a shell.

The exit code is the command's: 128 and the number of the signal that ended it, 124 when its time
was up. A command that could not be started ends with 1 to 4, see agent-backend --help. One that runs
here with less than bwrap is told of in a line on standard error, unless --quiet or --json is given.
With --attach,
output that was not kept long enough is told on standard error; the exit code is then 4, unless the
command failed by itself.";

/// Run a command in the workspace, behind walls
///
/// The command sees the workspace, or the scope, and a read-only system, as far as the host's walls
/// reach: agent-backend doctor says what is in force. What it starts ends with it. Interrupts are
/// passed on; a second one kills it, a third does not wait for that.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Exec {
    /// Print one JSON value when the command has ended, and errors as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    workspace: WorkspaceFlags,

    #[command(flatten)]
    walls: Walls,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    rules: RuleFlags,

    /// The directory it runs in, inside the workspace
    #[arg(long, value_name = "PATH")]
    cwd: Option<OsString>,

    /// A variable for its environment
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<String>,

    /// Pass standard input on; without this it is closed
    #[arg(short = 'i', long)]
    stdin: bool,

    /// Run it on a terminal of its own, and pass standard input on
    #[arg(long, conflicts_with = "json")]
    pty: bool,

    /// Leave it running over there, and print its id; what it says is kept for --attach
    #[arg(long, conflicts_with_all = ["stdin", "pty", "attach"])]
    detach: bool,

    /// Follow a command that was left running, instead of starting one
    #[arg(long, value_name = "ID", conflicts_with_all = ["command", "pty", "json"])]
    attach: Option<String>,

    /// With --attach: bytes of its output, of both kinds together, that were seen already
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,

    /// Say on standard error which isolation is in force, also when it is the strongest
    #[arg(short = 'v', long, conflicts_with = "quiet")]
    verbose: bool,

    /// Do not say on standard error which isolation is in force
    #[arg(short = 'q', long)]
    quiet: bool,

    /// Run nothing: print what would be in force for a command with these flags
    #[arg(long)]
    explain: bool,

    /// The command
    #[arg(value_name = "COMMAND", required_unless_present_any = ["explain", "attach"], last = true)]
    command: Vec<OsString>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Walls")]
pub(crate) struct Walls {
    /// How it is kept inside [default: the strongest that works: bwrap, landlock, software]
    #[arg(long, value_enum, value_name = "MODE")]
    isolation: Option<Mode>,

    /// The least isolation with which it may run
    #[arg(long, value_enum, value_name = "MODE")]
    floor: Option<Mode>,

    /// What it may reach: the host's network, or none
    #[arg(long, value_enum, default_value = "shared", value_name = "NETWORK")]
    network: NetworkChoice,

    /// Which shell reads the line
    #[arg(long, value_enum, default_value = "auto", value_name = "SHELL")]
    shell: ShellChoice,

    #[command(flatten)]
    toolchains: ToolchainFlags,

    /// Keep caches of programs in this directory after the workspace is closed
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,

    /// A path of the workspace that it does not see
    #[arg(long, value_name = "PATH")]
    hide: Vec<OsString>,

    /// A path of the workspace that it cannot change
    #[arg(long, value_name = "PATH")]
    read_only: Vec<OsString>,

    /// A directory of the host that it may read; with :rw, also change
    #[arg(long, value_name = "DIR[:rw]")]
    bind: Vec<String>,

    /// Run although this cannot be enforced here: network, hide, read-only, memory, processes
    ///
    /// What is asked for by name and cannot be enforced is refused otherwise.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    accept_unenforced: Vec<RequirementChoice>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// How long it may take: 90s, 5m, 1h
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    timeout: Option<Duration>,

    /// CPU time of each of its processes
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    cpu: Option<Duration>,

    /// Memory of all of them: 512M, 2G
    #[arg(long, value_name = "SIZE", value_parser = amount::some_size)]
    memory: Option<u64>,

    /// Processes and threads at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    processes: Option<u64>,

    /// The largest file it may write
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    file_size: Option<u64>,

    /// Files that a process may have open
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    open_files: Option<u64>,

    /// Bytes of each output that are shown; the rest is counted [default: all; 16M with --json]
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    max_output: Option<u64>,
}

impl Limits {
    /// Limits for every command of a workspace that several callers use.
    pub(crate) fn of_workspace(&self) -> ExecLimits {
        ExecLimits { wall_time: self.timeout, ..self.of_command() }
    }

    /// How much is kept of what a command without a reader says.
    pub(crate) fn spooling(&self) -> OutputSpoolLimits {
        let usual = OutputSpoolLimits::default();
        let Some(bytes) = self.max_output else { return usual };
        let memory = usize::try_from(bytes).unwrap_or(usize::MAX).min(usual.memory);
        OutputSpoolLimits { memory, disk: (bytes - memory as u64).min(usual.disk) }
    }

    fn of_command(&self) -> ExecLimits {
        let Limits { cpu, memory, processes, file_size, open_files, .. } = *self;
        ExecLimits { wall_time: None, cpu, memory, processes, file_size, open_files }
    }
}

/// Refuses flags for walls and rules where the workspace is elsewhere and has its own.
pub(crate) fn no_walls_here(walls: &Walls, rules: &RuleFlags) -> Result<(), Failure> {
    match walls.built_here().or_else(|| rules.made_here()) {
        Some(flag) => Err(Failure::usage(format!("{flag} is not for a workspace elsewhere"))
            .with_hint(
                "walls and rules are those of its daemon: give them to agent-backend daemon",
            )),
        None => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    Auto,
    Bwrap,
    Landlock,
    Software,
    None,
}

impl From<Mode> for Isolation {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Isolation::Auto,
            Mode::Bwrap => Isolation::Bwrap,
            Mode::Landlock => Isolation::Landlock,
            Mode::Software => Isolation::Software,
            Mode::None => Isolation::None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RequirementChoice {
    Network,
    Hide,
    ReadOnly,
    Memory,
    Processes,
}

impl From<RequirementChoice> for SandboxRequirement {
    fn from(choice: RequirementChoice) -> Self {
        match choice {
            RequirementChoice::Network => SandboxRequirement::Network,
            RequirementChoice::Hide => SandboxRequirement::Hide,
            RequirementChoice::ReadOnly => SandboxRequirement::ReadOnly,
            RequirementChoice::Memory => SandboxRequirement::Memory,
            RequirementChoice::Processes => SandboxRequirement::Processes,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NetworkChoice {
    Shared,
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShellChoice {
    Auto,
    Bash,
    Sh,
}

impl From<NetworkChoice> for NetworkAccess {
    fn from(choice: NetworkChoice) -> Self {
        match choice {
            NetworkChoice::Shared => NetworkAccess::Shared,
            NetworkChoice::None => NetworkAccess::None,
        }
    }
}

impl From<ShellChoice> for Shell {
    fn from(choice: ShellChoice) -> Self {
        match choice {
            ShellChoice::Auto => Shell::Auto,
            ShellChoice::Bash => Shell::Bash,
            ShellChoice::Sh => Shell::Sh,
        }
    }
}

impl Walls {
    /// A flag that says how walls are built, which is for those to say who have the workspace.
    pub(crate) fn built_here(&self) -> Option<&'static str> {
        let given = [
            ("--isolation", self.isolation.is_some()),
            ("--floor", self.floor.is_some()),
            ("--network", !matches!(self.network, NetworkChoice::Shared)),
            ("--shell", !matches!(self.shell, ShellChoice::Auto)),
            ("--toolchain", self.toolchains.are_given()),
            ("--cache-dir", self.cache_dir.is_some()),
            ("--bind", !self.bind.is_empty()),
            ("--accept-unenforced", !self.accept_unenforced.is_empty()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }

    pub(crate) fn settings(&self) -> Result<ExecSettings, Failure> {
        Ok(ExecSettings {
            isolation: self.isolation.map_or(Isolation::Auto, Isolation::from),
            minimum_isolation: self.floor.map_or(Isolation::None, Isolation::from),
            network: self.network.into(),
            shell: self.shell.into(),
            toolchains: self.toolchains.chosen()?,
            temporary_dir: std::env::temp_dir(),
            accept_unenforced: self.accepted(),
            cache_dir: self.cache_dir.clone(),
            ..ExecSettings::default()
        })
    }

    fn accepted(&self) -> BTreeSet<SandboxRequirement> {
        self.accept_unenforced.iter().copied().map(SandboxRequirement::from).collect()
    }

    /// The line about what is in force.
    pub(crate) fn in_force(&self, policy: &EffectivePolicy) -> Option<String> {
        let asked = self.isolation.is_some_and(|mode| !matches!(mode, Mode::Auto));
        policy.isolation.map(|isolation| in_force(isolation, asked))
    }

    pub(crate) fn restrictions(&self, backend: &Backend) -> Result<PathRestrictions, Failure> {
        let paths = |paths: &[OsString]| -> Result<Vec<_>, Failure> {
            paths.iter().map(|path| Ok(backend.parse_path(path_text(path)?)?)).collect()
        };
        let bind = |bind: &String| match bind.strip_suffix(":rw") {
            Some(path) => {
                HostDirectory { path: path.to_owned(), access: HostDirectoryAccess::ReadWrite }
            }
            None => HostDirectory { path: bind.clone(), access: HostDirectoryAccess::ReadOnly },
        };
        Ok(PathRestrictions {
            hidden: paths(&self.hide)?,
            read_only: paths(&self.read_only)?,
            binds: self.bind.iter().map(bind).collect(),
        })
    }
}

impl Exec {
    fn command(&self) -> Result<Command, Failure> {
        let words: Result<Vec<String>, Failure> = self
            .command
            .iter()
            .map(|word| match word.to_str() {
                Some(word) => Ok(word.to_owned()),
                None => Err(Failure::usage("the command is not valid UTF-8")),
            })
            .collect();
        let mut words = words?;
        Ok(match words.len() {
            1 => Command::Shell(words.remove(0)),
            _ => Command::Argv(words),
        })
    }

    /// A workspace here is opened for this command alone, so its limits are those of all commands.
    fn settings(&self) -> Result<ExecSettings, Failure> {
        Ok(ExecSettings { limits: self.limits.of_command(), ..self.walls.settings()? })
    }

    fn is_elsewhere(&self) -> bool {
        self.workspace.is_elsewhere().unwrap_or(true)
    }

    /// One line, for a command that runs here with less than the strongest isolation.
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
        if let Some(line) = self.walls.in_force(&policy).filter(|_| self.verbose || !strongest) {
            terminal.note(&line);
        }
        Ok(())
    }

    /// Refuses what makes no sense together.
    fn check(&self) -> Result<(), Failure> {
        if self.from > 0 && self.attach.is_none() {
            return Err(
                Failure::usage("--from means nothing here").with_hint("it belongs to --attach ID")
            );
        }
        if self.workspace.is_elsewhere()? {
            let refused = no_walls_here(&self.walls, &self.rules);
            return refused.map_err(|failure| self.workspace.traced(failure));
        }
        if self.detach || self.attach.is_some() {
            return Err(Failure::usage("here, a command ends with the program that started it")
                .with_hint("--detach and --attach need a daemon: pass --remote"));
        }
        Ok(())
    }

    fn options(&self) -> Result<ExecOptions, Failure> {
        let cwd = self.cwd.as_deref().map(path_text).transpose()?;
        let mut options = ExecOptions {
            cwd: cwd.map(str::to_owned),
            env: variables(&self.env)?,
            timeout: self.limits.timeout,
            limits: self.limits.of_command(),
            ..ExecOptions::default()
        };
        if let Some(bytes) = self.limits.max_output {
            options.max_output_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        Ok(options)
    }
}

/// Variables as `--env` takes them.
pub(crate) fn variables(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair =
        |text: &String| match text.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(Failure::usage(format!("--env '{text}' has no '='"))
                .with_hint("write --env KEY=VALUE")),
        };
    given.iter().map(pair).collect()
}

impl CliCommand for Exec {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(exec: Exec, terminal: &mut Terminal) -> Result<(), Failure> {
    exec.check()?;
    let policy = exec.rules.policy(terminal)?;
    let workspace = exec.workspace.open_with(Starter::Person, exec.settings()?, policy).await?;
    let ending = in_workspace(&exec, &workspace.handle, terminal).await;
    let closed = workspace.close().await;
    match ending.and_then(|exit| closed.map(|()| exit))? {
        Exit::Success => Ok(()),
        exit => Err(Failure::Told(exit)),
    }
}

async fn in_workspace(
    exec: &Exec,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let restrictions = exec.walls.restrictions(backend)?;
    let handle = if restrictions.is_empty() {
        backend.clone()
    } else {
        backend.restrict(restrictions.clone())?
    };
    if exec.explain {
        return explained(exec, &handle, &restrictions, terminal).await.map(|()| Exit::Success);
    }
    if exec.detach {
        return detached(exec, &handle, terminal).await.map(|()| Exit::Success);
    }
    if let Some(id) = &exec.attach {
        let attached = handle.attach(&ProcessId::new(id), exec.from).await;
        let process = attached.map_err(|error| unknown(error, id))?;
        return followed(exec, process, &handle, terminal).await;
    }
    match terminal.format() {
        Format::Json => gathered(exec, &handle, terminal).await,
        Format::Text => streamed(exec, &handle, terminal).await,
    }
}

/// Starts a command and leaves it.
async fn detached(exec: &Exec, backend: &Backend, terminal: &mut Terminal) -> Result<(), Failure> {
    let request = backend.exec_request(exec.command()?, exec.options()?)?;
    let process = backend.spawn_detached(request).await?;
    let id = process.id.as_str();
    match terminal.format() {
        Format::Json => terminal.value(&json!({ "id": id })),
        Format::Text => terminal.line(id),
    }
}

/// What is in force, and no command.
async fn explained(
    exec: &Exec,
    backend: &Backend,
    restrictions: &PathRestrictions,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let policy = backend.effective_policy().await?;
    // What would be refused has nothing in force.
    if let Some(isolation) = policy.isolation.filter(|_| !exec.is_elsewhere()) {
        let accepted = exec.walls.accepted();
        check_restrictions_enforceable(isolation, &WsPath::root(), restrictions, &accepted)?;
    }
    match terminal.format() {
        Format::Json => terminal.value(&crate::json::effective(&policy)),
        Format::Text => super::doctor::print_policy(&policy, terminal),
    }
}

/// Everything in one value, once the command has ended.
async fn gathered(
    exec: &Exec,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let started = Instant::now();
    let mut options = exec.options()?;
    if exec.stdin {
        options.input = live::all_of_stdin()?.into();
    }
    let policy = backend.effective_policy().await?;
    let running = backend.exec_allowing_failure(exec.command()?, options);
    tokio::pin!(running);
    // An interrupt lets go of the command, which ends it.
    let output = tokio::select! {
        output = &mut running => output?,
        exit = live::interrupted() => return Ok(exit),
    };
    let exit = output.exit.clone();
    let (code, signal) = (exit.code, exit.signal);
    terminal.value(&json!({
        "stdout": said(&output.stdout),
        "stderr": said(&output.stderr),
        "exit_code": code,
        "signal": signal,
        "cause": cause(exit.cause),
        "leftovers": match exit.orphans {
            LeftoverProcessOutcome::None => "none",
            LeftoverProcessOutcome::Ended => "ended",
        },
        "isolation": policy.isolation.map(Isolation::as_str),
        "duration_ms": u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    }))?;
    Ok(passed_on(&exit))
}

/// Output as it comes.
async fn streamed(
    exec: &Exec,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut request: ExecRequest = backend.exec_request(exec.command()?, exec.options()?)?;
    if exec.pty {
        request.terminal = Some(raw::size());
    }
    if exec.stdin || exec.pty {
        request.stdin = StdinMode::Piped;
    }
    let process = backend.spawn(request).await?;
    exec.tell_what_is_in_force(backend, terminal).await?;
    // Not before: a person who is asked answers with a line, and may interrupt.
    let raw = exec.pty.then(raw::Raw::enter);
    let ended = followed(exec, process, backend, terminal).await;
    drop(raw);
    ended
}

/// Shows what a command says, until it has ended.
async fn followed(
    exec: &Exec,
    process: Process,
    backend: &Backend,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    // One that goes on without us is worth waiting for, and whoever waits wants to know.
    let _subscription = exec.attach.as_ref().map(|_| backend.on_status_change(tell_of_the_way));
    let ended = live::follow(process, exec.limits.max_output, terminal).await?;
    for (name, said) in [("standard output", ended.stdout), ("standard error", ended.stderr)] {
        if said.shown < said.total {
            let message = format!("{name} was cut after {} of {} bytes", said.shown, said.total);
            terminal.note(&message);
        }
    }
    let exit = match (ended.exit, ended.left) {
        (Some(exit), _) => exit,
        (None, Some(exit)) => {
            terminal.note("left without an answer: nobody said how the command ended");
            return Ok(exit);
        }
        (None, None) => return Err(lost(exec, backend, ended.why_lost).await?),
    };
    match exit.cause {
        ExitCause::Timeout => terminal.note("the command was ended: its time was up"),
        ExitCause::MemoryLimit => terminal.note("the command needed more memory than its limit"),
        ExitCause::Dropped => terminal.note(&ended_for(&exit.stderr_tail)),
        ExitCause::Itself => {}
    }
    if exit.orphans == LeftoverProcessOutcome::Ended {
        terminal.note(
            "processes that the command left running, as with & or nohup, were ended with it; to \
             keep one running, start it by itself on a daemon: exec --remote URL --detach",
        );
    }
    Ok(match passed_on(&exit) {
        // Whoever has not seen all of it must not believe so.
        Exit::Success if ended.missing > 0 => Exit::Unavailable,
        exit => exit,
    })
}

/// Why a command was ended that nobody told to. Whoever ended it says so at the end of its errors.
fn ended_for(errors: &str) -> String {
    match errors.lines().next_back().and_then(|line| line.strip_prefix("ended: ")) {
        Some(why) => format!("the command was ended: {why}"),
        None => "the command was ended: nobody held it any more".to_owned(),
    }
}

/// Neither is told twice, because twice is not once.
const CONNECTED_AGAIN: &str = "note: connected again; a signal or input from just before the loss \
                               may not have arrived\n";

fn tell_of_the_way(change: &ConnectionStatusChange) {
    match change.to {
        ConnectionStatus::Reconnecting => talk("note: the connection was lost: trying again\n"),
        ConnectionStatus::Connected => talk(CONNECTED_AGAIN),
        ConnectionStatus::Connecting
        | ConnectionStatus::Disconnected
        | ConnectionStatus::Destroyed => {}
    }
}

/// Why nobody knows how the command ended.
async fn lost(exec: &Exec, backend: &Backend, why: Option<Error>) -> Result<Failure, Failure> {
    if !exec.workspace.is_elsewhere()? {
        return Ok(Error::new(ErrorCode::ExecError, ErrorKind::Io, "the command was lost").into());
    }
    let failed = |message: &str, hint: &str| {
        let error = Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message);
        Ok(Failure::from(error).with_hint(hint))
    };
    // Something else than a connection that was lost: it says itself what it is.
    let else_than_lost =
        |kind| !matches!(kind, ErrorKind::Disconnected | ErrorKind::Timeout | ErrorKind::NotFound);
    if let Some(why) = why.filter(|why| else_than_lost(why.kind())) {
        return Ok(exec.workspace.out_of_reach(why));
    }
    let Some(id) = &exec.attach else {
        let hint = after_the_loss(backend.info().capabilities.detached);
        return failed("the connection was lost while the command ran", hint);
    };
    // It is lost with all attempts to reach its daemon, or because its daemon knows nothing of it.
    let forgotten = backend.status() != ConnectionStatus::Disconnected && {
        let asked = backend.attach(&ProcessId::new(id), exec.from).await;
        asked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    if forgotten {
        failed(
            "the daemon was restarted while the command ran, and does not know it any more",
            "a daemon's commands end with it: start the command again",
        )
    } else {
        failed(
            "the connection was lost while the command ran",
            "it goes on over there, unless its daemon has ended: follow it again with --attach",
        )
    }
}

/// What becomes of a command that was held, on a daemon or on a plain server.
fn after_the_loss(daemon: bool) -> &'static str {
    if daemon {
        "it ends over there; one that should go on is started with --detach"
    } else {
        "it may go on over there until it reads or writes; a command that should surely go on, or \
             surely end, needs an agent-backend daemon there"
    }
}

/// Why a command that was left running cannot be followed.
fn unknown(error: Error, id: &str) -> Failure {
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    let hint = if is_an_id(id) {
        "a daemon that was restarted knows no command from before: they ended with it; or this \
             one ended long ago, or belongs to another --root or --scope"
    } else {
        "an ID is what exec --detach prints, like 3-1f2e3d4c"
    };
    Failure::from(error).with_hint(hint)
}

/// Whether a daemon may have given this id to a command.
fn is_an_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(number, daemon)| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        digits(number) && daemon.len() == 8 && daemon.bytes().all(|it| it.is_ascii_hexdigit())
    })
}

/// Which isolation is in force, in one line. `asked` says whether it was asked for by name.
pub(super) fn in_force(isolation: Isolation, asked: bool) -> String {
    let less = match isolation {
        Isolation::Bwrap => "",
        Isolation::Landlock => ", which is weaker than bwrap",
        Isolation::Software => ", which is no wall: only the words of a command are looked at",
        Isolation::None | Isolation::Auto => ": nothing keeps a command inside",
    };
    let why =
        if isolation == Isolation::Bwrap || asked { "" } else { "; agent-backend doctor says why" };
    format!("isolation {isolation} is in force{less}{why}")
}

/// The exit code that says how the command ended.
fn passed_on(exit: &ab_core::process::ProcessExit) -> Exit {
    const TIMED_OUT: u8 = 124;
    const BY_SIGNAL: i32 = 128;
    let number = |code: i32| u8::try_from(code & 0xff).unwrap_or(u8::MAX);
    match (exit.cause, exit.code, exit.signal) {
        (ExitCause::Timeout, _, _) => Exit::Command(TIMED_OUT),
        (_, Some(0), _) => Exit::Success,
        (_, Some(code), _) => Exit::Command(number(code)),
        (_, None, Some(signal)) => Exit::Command(number(BY_SIGNAL + signal)),
        (_, None, None) => Exit::Failed,
    }
}

fn said(said: &CapturedOutput) -> Value {
    let text = str::from_utf8(&said.bytes).ok();
    json!({
        "text": String::from_utf8_lossy(&said.bytes),
        "utf8": text.is_some(),
        "bytes": said.total_bytes,
        "truncated": said.is_truncated(),
    })
}

fn cause(cause: ExitCause) -> &'static str {
    match cause {
        ExitCause::Itself => "itself",
        ExitCause::Timeout => "timeout",
        ExitCause::MemoryLimit => "memory",
        ExitCause::Dropped => "dropped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_ended_a_command_says_why() {
        let full = "ended: nobody read its output, and there is room for 64 MiB";
        let told = "the command was ended: nobody read its output, and there is room for 64 MiB";
        assert_eq!(ended_for(full), told);
        for of_its_own in ["", "some error\n", "ended: \nmore"] {
            assert_eq!(ended_for(of_its_own), "the command was ended: nobody held it any more");
        }
    }

    #[test]
    fn only_a_daemon_is_said_to_end_a_command_or_to_keep_it() {
        assert!(after_the_loss(true).contains("--detach"));
        let plain = after_the_loss(false);
        assert!(plain.contains("may go on") && !plain.contains("--detach"), "{plain}");
    }
}
