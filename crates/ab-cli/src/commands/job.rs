//! `job`: manages the background commands that `exec --detach` started, on this machine or on a
//! daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ab_core::process::{
    OutputChannel, OutputChunk, Process, ProcessControlMessage, ProcessExit, ProcessId,
};
use ab_core::{Backend, Error, ErrorCode, ErrorKind};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::exec::following::{Watching, exit_code};
use super::exec::{Gathered, amount, live};
use super::{CliCommand, RunningCommand};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::jobs::files::{JobDirectory, cause_name};
use crate::jobs::follow::{self, Until};
use crate::jobs::{Job, JobState, ending_words, named};
use crate::signals::Signals;
use crate::terminal::{Format, Terminal};
use crate::workspace::{Opened, WorkspaceFlags};

/// How long a job may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// How long the sandbox of a command may take to be set up.
const SETUP: Duration = Duration::from_millis(500);
/// How long a job may take to end after SIGKILL.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A daemon does not report where the output of a running job ends. So if no output arrives for
/// this time, the output is considered complete.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(250);
/// An offset that is greater than the size of any output. A reader that starts at this offset gets
/// only new output.
const NOTHING_OLD: u64 = u64::MAX;
/// Maximum number of bytes of each output in JSON. Further bytes are only counted.
const MAX_JSON_OUTPUT: usize = 16 * 1024 * 1024;
/// Maximum number of characters of a command in a table.
const MAX_COMMAND: usize = 60;
const TERM: i32 = 15;
const KILL: i32 = 9;

const EXAMPLE: &str = "\
Example:
  agent-backend job logs -f 3f2a9c41";
const LIST_EXAMPLE: &str = "\
Example:
  agent-backend job list";
const LOGS_EXAMPLE: &str = "\
Example:
  agent-backend job logs -f 3f2a9c41";
const ATTACH_EXAMPLE: &str = "\
Example:
  agent-backend job attach 3f2a9c41";
const WAIT_EXAMPLE: &str = "\
Example:
  agent-backend job wait 3f2a9c41";
const KILL_EXAMPLE: &str = "\
Example:
  agent-backend job kill 3f2a9c41";

const EXAMPLES: &str = "\
Examples:
  id=$(agent-backend exec --detach make test)
  agent-backend job list
  agent-backend job logs -f $id
  agent-backend job wait $id && echo passed
  agent-backend job kill $id
  agent-backend job list --remote wss://box.example/ssh --token-file token

A job keeps running when the terminal is closed. Ctrl-C in logs -f, attach and wait stops the waiting,
not the job. The first characters of an ID are enough if no other ID starts with them.

The output of a job contains its standard output and standard error in the order in which they were
written. The output of running jobs and of the 32 jobs that ended last is kept in
~/.local/state/agent-backend/jobs, up to 64 MiB for each job. With --remote, the daemon keeps the
output, and its jobs end when the daemon ends.";

/// List, watch and end background commands
///
/// `agent-backend exec --detach` starts a background command, called a job, and prints its ID.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true, after_help = EXAMPLE, after_long_help = EXAMPLES)]
pub(crate) struct JobCommand {
    /// Print one JSON value, and errors as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    act: JobAct,

    #[command(flatten)]
    workspace: WorkspaceFlags,
}

#[derive(Debug, Subcommand)]
enum JobAct {
    /// List background commands, the newest first
    #[command(alias = "ls", after_help = LIST_EXAMPLE)]
    List,
    /// Print the output of a job
    #[command(after_help = LOGS_EXAMPLE)]
    Logs {
        /// ID of the job
        #[arg(value_name = "ID")]
        id: String,

        /// Print new output until the job has ended
        #[arg(short = 'f', long, conflicts_with = "json")]
        follow: bool,
    },
    /// Print the output of a job until it ends, and exit with its exit code
    #[command(after_help = ATTACH_EXAMPLE)]
    Attach {
        /// ID of the job
        #[arg(value_name = "ID")]
        id: String,

        /// Skip the first N bytes of the output
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = super::exec::amount::any_count)]
        from: u64,
    },
    /// Wait until a job ends, and exit with its exit code
    #[command(after_help = WAIT_EXAMPLE)]
    Wait {
        /// ID of the job
        #[arg(value_name = "ID")]
        id: String,

        /// Longest time to wait, such as 90s or 10m; then the exit code is 125 [default: no limit]
        #[arg(long, value_name = "TIME", value_parser = amount::time)]
        timeout: Option<Duration>,
    },
    /// End jobs: send TERM, and after 10 seconds KILL
    #[command(after_help = KILL_EXAMPLE)]
    Kill {
        /// IDs of the jobs
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,

        /// Send only this signal, and do not wait for the end of the job
        ///
        /// One of TERM, KILL, INT, HUP, QUIT, USR1 and USR2.
        #[arg(short = 's', long, value_name = "SIGNAL", value_parser = signal)]
        signal: Option<i32>,
    },
}

fn signal(text: &str) -> Result<i32, String> {
    let name = text.trim_start_matches("SIG").to_ascii_uppercase();
    let known = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("KILL", KILL),
        ("USR1", 10),
        ("USR2", 12),
        ("TERM", TERM),
    ];
    let found = known.iter().find(|(known, number)| *known == name || number.to_string() == name);
    found.map(|(_, number)| *number).ok_or_else(|| {
        format!("unknown signal '{text}': use TERM, KILL, INT, HUP, QUIT, USR1 or USR2")
    })
}

impl CliCommand for JobCommand {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        let is_waiting = |act: &JobAct| match act {
            JobAct::Attach { .. } | JobAct::Wait { .. } => true,
            JobAct::Logs { follow, .. } => *follow,
            JobAct::List | JobAct::Kill { .. } => false,
        };
        is_waiting(&self.act)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(job: JobCommand, terminal: &mut Terminal) -> Result<(), Failure> {
    let watching =
        Watching { workspace: &job.workspace, max_output: None, quiet: false, job: None };
    match &job.act {
        JobAct::Attach { id, from } => {
            let attached = match terminal.format() {
                Format::Text => attach(watching, id, *from, terminal).await,
                Format::Json => gathered(watching, id, *from, terminal).await,
            };
            return attached.map_err(Failure::into_exec);
        }
        JobAct::Wait { id, timeout } => {
            let waited = wait(watching, id, *timeout, terminal).await;
            return waited.map_err(Failure::into_exec);
        }
        JobAct::List | JobAct::Logs { .. } | JobAct::Kill { .. } => {}
    }
    let jobs = Jobs::open(&job.workspace).await?;
    let done = match &job.act {
        JobAct::List => list(&jobs, terminal).await,
        JobAct::Logs { id, follow } => {
            let until = if *follow { Until::End } else { Until::Now };
            logs(&jobs, watching, id, until, terminal).await
        }
        JobAct::Kill { ids, signal } => kill(&jobs, ids, *signal, terminal).await,
        JobAct::Attach { .. } | JobAct::Wait { .. } => Ok(()),
    };
    done.and(jobs.close().await)
}

/// Follows a job and then exits with the exit code of the job.
pub(super) async fn attach(
    watching: Watching<'_>,
    id: &str,
    from: u64,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let jobs = Jobs::open(watching.workspace).await?;
    let attached = async {
        let job = jobs.job(id).await?;
        let process = jobs.attach(&job.id, from, Until::End).await?;
        let watching = Watching { job: Some(&job.id), ..watching };
        watching.follow(process, jobs.backend(), terminal).await
    };
    let ended = attached.await;
    exited(ended, jobs).await
}

/// Waits until a job has ended, prints its output as one JSON value, and exits with its exit code.
async fn gathered(
    watching: Watching<'_>,
    id: &str,
    from: u64,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let jobs = Jobs::open(watching.workspace).await?;
    let attached = async {
        let job = jobs.job(id).await?;
        let mut output = GatheredOutput::default();
        match ended(&jobs, watching, &job, from, |piece| output.add(piece)).await? {
            Awaited::Ended(exit) => {
                let state = JobState::Ended(exit.clone());
                let mut described = value(&Job { state, ..job });
                described["stdout"] = output.stdout.value();
                described["stderr"] = output.stderr.value();
                terminal.value(&described)?;
                Ok(exit_code(&exit))
            }
            Awaited::Interrupted(exit) => Ok(exit),
        }
    };
    let ended = attached.await;
    exited(ended, jobs).await
}

/// Waits until a job has ended, and exits with its exit code. The output is not printed.
async fn wait(
    watching: Watching<'_>,
    id: &str,
    limit: Option<Duration>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let jobs = Jobs::open(watching.workspace).await?;
    let waited = async {
        let job = jobs.job(id).await?;
        let all = ended(&jobs, watching, &job, NOTHING_OLD, |_| {});
        let awaited = match limit {
            None => all.await?,
            Some(limit) => timeout(limit, all).await.unwrap_or_else(|_| {
                let message = format!("job {} did not end within {limit:?}", job.id);
                let error = Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message);
                Err(Failure::from(error).with_hint("the job keeps running"))
            })?,
        };
        match awaited {
            Awaited::Ended(exit) => {
                match terminal.format() {
                    Format::Json => {
                        let state = JobState::Ended(exit.clone());
                        terminal.value(&value(&Job { state, ..job }))?;
                    }
                    Format::Text => watching.tell_how_it_ended(&exit, terminal),
                }
                Ok(exit_code(&exit))
            }
            Awaited::Interrupted(exit) => {
                if terminal.format() == Format::Text {
                    watching.tell_how_to_watch_again(&job.id, terminal);
                }
                Ok(exit)
            }
        }
    };
    let ended = waited.await;
    exited(ended, jobs).await
}

/// How waiting for a job ended.
enum Awaited {
    Ended(ProcessExit),
    /// A signal ended the waiting. The job keeps running.
    Interrupted(Exit),
}

/// Waits until a job has ended, and passes its output to `add`.
async fn ended(
    jobs: &Jobs,
    watching: Watching<'_>,
    job: &Job,
    from: u64,
    mut add: impl FnMut(&OutputChunk),
) -> Result<Awaited, Failure> {
    let mut signals = Signals::watch();
    let mut process = jobs.attach(&job.id, from, Until::End).await?;
    let ended = async {
        while let Some(piece) = process.output.recv().await {
            add(&piece);
        }
        process.wait().await
    };
    let ended = tokio::select! {
        ended = ended => ended,
        exit = signals.next() => return Ok(Awaited::Interrupted(exit)),
    };
    if let Some(exit) = ended {
        return Ok(Awaited::Ended(exit));
    }
    let why = process.exit_receiver().process_lost_error().cloned();
    let watching = Watching { job: Some(&job.id), ..watching };
    Err(watching.lost(jobs.backend(), why).await?)
}

/// Closes the workspace, and exits with the exit code of a job.
async fn exited(ended: Result<Exit, Failure>, jobs: Jobs) -> Result<(), Failure> {
    let closed = jobs.close().await;
    match ended.and_then(|exit| closed.map(|()| exit))? {
        Exit::Success => Ok(()),
        exit => Err(Failure::Told(exit)),
    }
}

/// The collected output of a job, which is printed as JSON.
#[derive(Debug, Default)]
struct GatheredOutput {
    stdout: Gathered,
    stderr: Gathered,
}

impl GatheredOutput {
    fn add(&mut self, piece: &OutputChunk) {
        match piece.channel {
            OutputChannel::Stdout => self.stdout.add(&piece.bytes, MAX_JSON_OUTPUT),
            OutputChannel::Stderr => self.stderr.add(&piece.bytes, MAX_JSON_OUTPUT),
        }
    }
}

/// Whether the jobs run on this machine or on a daemon.
enum Jobs {
    Here { directory: JobDirectory, root: Option<String> },
    Daemon(Box<Opened>),
}

impl Jobs {
    async fn open(workspace: &WorkspaceFlags) -> Result<Jobs, Failure> {
        if workspace.is_elsewhere()? {
            return Ok(Jobs::Daemon(Box::new(workspace.open().await?)));
        }
        let root = workspace.named_directory().map(|root| root.display().to_string());
        Ok(Jobs::Here { directory: JobDirectory::open()?, root })
    }

    async fn close(self) -> Result<(), Failure> {
        match self {
            Jobs::Here { .. } => Ok(()),
            Jobs::Daemon(opened) => opened.close().await,
        }
    }

    fn backend(&self) -> Option<&Backend> {
        match self {
            Jobs::Here { .. } => None,
            Jobs::Daemon(opened) => Some(&opened.handle),
        }
    }

    /// All jobs, the newest first.
    async fn list(&self) -> Result<Vec<Job>, Failure> {
        match self {
            Jobs::Here { directory, root } => {
                let within = |job: &Job| root.as_ref().is_none_or(|root| *root == job.directory);
                let jobs = directory.list()?.into_iter().map(|held| held.job);
                Ok(jobs.filter(within).collect())
            }
            Jobs::Daemon(opened) => {
                let mut found = opened.handle.detached_processes().await?;
                found.sort_by_key(|info| std::cmp::Reverse(info.started));
                Ok(found.into_iter().map(Job::from).collect())
            }
        }
    }

    async fn job(&self, text: &str) -> Result<Job, Failure> {
        let jobs = self.list().await?;
        match (named(&jobs, text), self) {
            (Ok(job), _) => Ok(job.clone()),
            (Err(failure), Jobs::Daemon(_))
                if failure.error().is_some_and(|error| error.kind() == ErrorKind::NotFound) =>
            {
                Err(failure.with_hint(
                    "list the jobs: agent-backend job list; jobs end when their daemon is restarted",
                ))
            }
            (Err(failure), _) => Err(failure),
        }
    }

    async fn attach(&self, id: &str, from: u64, until: Until) -> Result<Process, Failure> {
        match self {
            Jobs::Here { directory, .. } => Ok(follow::attach(directory, id, from, until)),
            Jobs::Daemon(opened) => Ok(opened.handle.attach(&ProcessId::new(id), from).await?),
        }
    }

    /// Sends a signal to a job. Returns how the job ended, if it ends within the given time.
    async fn signal(
        &self,
        id: &str,
        number: i32,
        within: Duration,
    ) -> Result<Option<ProcessExit>, Failure> {
        match self {
            Jobs::Here { directory, .. } => {
                follow::signal(directory, id, number)?;
                Ok(timeout(within, follow::ended(directory, id)).await.ok().flatten())
            }
            Jobs::Daemon(_) => {
                let mut process = self.attach(id, NOTHING_OLD, Until::End).await?;
                // Sending fails if the job has just ended.
                let _ = process.control.send(ProcessControlMessage::Signal(number)).await;
                Ok(timeout(within, process.wait()).await.ok().flatten())
            }
        }
    }
}

async fn list(jobs: &Jobs, terminal: &mut Terminal) -> Result<(), Failure> {
    let found = jobs.list().await?;
    if terminal.format() == Format::Json {
        return terminal.value(&Value::Array(found.iter().map(value).collect()));
    }
    if found.is_empty() {
        terminal.note("there are no background commands; exec --detach starts one");
        return Ok(());
    }
    let width = |of: fn(&Job) -> usize, least: usize| found.iter().map(of).fold(least, usize::max);
    let ids = width(|job| job.id.len(), 2);
    let states = width(|job| job.state.words().len(), 6);
    let places = width(|job| job.directory.chars().count(), 9);
    if terminal.is_watched() {
        terminal.line(&format!(
            "{:<ids$}  {:<states$}  {:>4}  {:<places$}  COMMAND",
            "ID", "STATUS", "AGE", "DIRECTORY"
        ))?;
    }
    let now = SystemTime::now();
    for job in &found {
        let state = job.state.words();
        let age = age(now.duration_since(job.started).unwrap_or_default());
        let command: String = job.command.chars().take(MAX_COMMAND).collect();
        let more = if command.len() < job.command.len() { "…" } else { "" };
        let command = ab_core::error::escape_unprintable(&command);
        let place = ab_core::error::escape_unprintable(&job.directory);
        let (id, row) = (&job.id, format!("{place:<places$}  {command}{more}"));
        terminal.line(&format!("{id:<ids$}  {state:<states$}  {age:>4}  {row}"))?;
    }
    Ok(())
}

/// An age in a single unit, for tables.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn value(job: &Job) -> Value {
    let exit = match &job.state {
        JobState::Ended(exit) => Some(exit),
        JobState::Running | JobState::Lost => None,
    };
    let started = job.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "id": job.id,
        "status": match &job.state {
            JobState::Running => "running",
            JobState::Ended(_) => "ended",
            JobState::Lost => "lost",
        },
        "exit_code": exit.and_then(|exit| exit.code),
        "signal": exit.and_then(|exit| exit.signal),
        "cause": exit.map(|exit| cause_name(exit.cause)),
        "directory": job.directory,
        "command": job.command,
        "started_ms": u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
    })
}

async fn logs(
    jobs: &Jobs,
    watching: Watching<'_>,
    id: &str,
    until: Until,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let job = jobs.job(id).await?;
    if until == Until::End {
        let process = jobs.attach(&job.id, 0, until).await?;
        let watching = Watching { job: Some(&job.id), ..watching };
        let left = watching.follow(process, jobs.backend(), terminal).await?;
        return match left {
            // The signal ended this command, not the job.
            Exit::Interrupted | Exit::Terminated => Err(Failure::Told(left)),
            _ => Ok(()),
        };
    }
    let mut process = jobs.attach(&job.id, 0, until).await?;
    let paused = matches!((&job.state, jobs), (JobState::Running, Jobs::Daemon(_)));
    let mut shown = live::Over::default();
    let mut output = GatheredOutput::default();
    let mut pause = FIRST_PAUSE;
    loop {
        let next = process.output.recv();
        let piece = if paused {
            timeout_at(Instant::now() + pause, next).await.ok().flatten()
        } else {
            next.await
        };
        let Some(piece) = piece else { break };
        pause = PAUSE;
        match terminal.format() {
            Format::Text => shown.show(&piece, None, terminal)?,
            Format::Json => output.add(&piece),
        }
    }
    match terminal.format() {
        Format::Json => {
            let (stdout, stderr) = (output.stdout.value(), output.stderr.value());
            terminal.value(&json!({ "id": job.id, "stdout": stdout, "stderr": stderr }))
        }
        Format::Text => Ok(()),
    }
}

async fn kill(
    jobs: &Jobs,
    ids: &[String],
    number: Option<i32>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut first = None;
    let mut values = Vec::new();
    for id in ids {
        match kill_one(jobs, id, number, terminal).await {
            Ok(value) => values.push(value),
            Err(failure) => {
                terminal.tell(&failure);
                first = first.or(Some(failure.exit()));
            }
        }
    }
    if terminal.format() == Format::Json {
        terminal.value(&Value::Array(values))?;
    }
    first.map_or(Ok(()), |exit| Err(Failure::Told(exit)))
}

async fn kill_one(
    jobs: &Jobs,
    id: &str,
    number: Option<i32>,
    terminal: &mut Terminal,
) -> Result<Value, Failure> {
    let job = jobs.job(id).await?;
    let id = &job.id;
    let failed = |kind, message: String| Error::new(ErrorCode::ExecError, kind, message);
    match &job.state {
        JobState::Running => {}
        JobState::Ended(exit) => {
            let message = format!("job {id} has already ended ({})", ending_words(exit));
            return Err(failed(ErrorKind::CommandFailed, message).into());
        }
        JobState::Lost => {
            let message = format!("job {id} is not running");
            return Err(failed(ErrorKind::CommandFailed, message).into());
        }
    }
    // Wait until the sandbox of the command is set up, because signals before that are lost.
    let age = SystemTime::now().duration_since(job.started).unwrap_or(SETUP);
    tokio::time::sleep(SETUP.saturating_sub(age)).await;
    let mut ended = match number {
        Some(number) => jobs.signal(id, number, PAUSE).await?,
        None => jobs.signal(id, TERM, GRACE).await?,
    };
    if number.is_none() {
        if ended.is_none() {
            ended = jobs.signal(id, KILL, TIMEOUT).await?;
        }
        if ended.is_none() {
            let message = format!("job {id} did not end within {} seconds", TIMEOUT.as_secs());
            return Err(failed(ErrorKind::Timeout, message).into());
        }
    }
    if terminal.format() == Format::Text {
        terminal.line(id)?;
    }
    let state = ended.map_or(job.state.clone(), JobState::Ended);
    Ok(value(&Job { state, ..job.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, number) in [("TERM", 15), ("SIGKILL", 9), ("int", 2), ("9", 9), ("usr1", 10)] {
            assert_eq!(signal(text), Ok(number));
        }
        let told = "unknown signal 'STOP': use TERM, KILL, INT, HUP, QUIT, USR1 or USR2";
        assert_eq!(signal("STOP"), Err(told.to_owned()));
    }

    #[test]
    fn ages_have_one_unit() {
        for (seconds, shown) in [(0, "0s"), (59, "59s"), (60, "1m"), (7300, "2h"), (200_000, "2d")]
        {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
    }
}
