//! Runs the setup commands of a session: first the commands of the operator's configuration, then
//! the script of the repository. They run in the sandbox of the session before its agent starts for
//! the first time.
//!
//! A repository may be hostile, so its script has no more rights than the agent. It has the same
//! sandbox, home, network and control group. Of the server's variables, it gets only the variables
//! that `--env` sets.

use std::collections::BTreeMap;
use std::time::Duration;

use ab_api::{EventKind, LogLevel, LogSource, SessionEndReason};
use ab_core::options::{LinkHandling, StatOptions};
use ab_core::process::ProcessExit;
use ab_local::{LaunchedProgram, ProcessOutputReader, ProgramLaunchRequest};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::lines::{Lines, cut};
use super::translate::log;
use super::{ExecutorSettings, Running, failed};
use crate::contract::{ExecutorError, SessionAttempt};
use crate::report::{AgentReport, AgentReportSender};

/// The path of a repository's setup script, relative to the root of the workspace.
pub(super) const REPOSITORY_SCRIPT: &str = ".agent-backend/setup.sh";
/// Maximum number of lines that one command adds to the log. Further output is dropped.
const MAX_LINES: usize = 1000;
/// Number of bytes read from an output at a time.
const PIECE: usize = 8 * 1024;

/// How long one setup command may take by default.
pub const DEFAULT_SETUP_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Runs the setup commands of a session one after the other. If a command fails, the session ends.
pub(super) async fn run(
    settings: &ExecutorSettings,
    job: &SessionAttempt,
    running: &Running,
    reports: &AgentReportSender,
) -> Result<(), ExecutorError> {
    // The session that made the workspace has already run the commands.
    if job.session.workspace.made_by.is_some() {
        return Ok(());
    }
    let shell = |line: &String| ["sh", "-c", line].map(str::to_owned).to_vec();
    let mut commands: Vec<(String, Vec<String>)> =
        settings.setup_commands.iter().map(|line| (line.clone(), shell(line))).collect();
    match script(running).await {
        Script::Usable => {
            let argv = ["sh", REPOSITORY_SCRIPT].map(str::to_owned).to_vec();
            commands.push((REPOSITORY_SCRIPT.to_owned(), argv));
        }
        Script::Unusable(why) => {
            let (name, env) = (REPOSITORY_SCRIPT.to_owned(), BTreeMap::new());
            let setup = Setup { name, env, running, reports };
            let note = format!("{REPOSITORY_SCRIPT} is not run: {why}");
            setup.tell(LogLevel::Warn, LogSource::Session, note).await;
        }
        Script::Absent => {}
    }
    for (name, argv) in commands {
        let setup = Setup { name, env: settings.variables.clone(), running, reports };
        setup.tell(LogLevel::Info, LogSource::Session, format!("Setup: {}", setup.name)).await;
        match timeout(settings.setup_timeout, setup.run(argv)).await {
            Ok(outcome) => outcome?,
            Err(_) => {
                let limit = settings.setup_timeout.as_secs();
                return Err(setup.failed(&format!("did not end within {limit} s")));
            }
        }
    }
    Ok(())
}

/// The setup script of a repository.
enum Script {
    Usable,
    /// With the reason.
    Unusable(String),
    Absent,
}

async fn script(running: &Running) -> Script {
    match running.backend.exists(REPOSITORY_SCRIPT).await {
        Ok(true) => return Script::Usable,
        Ok(false) => {}
        Err(error) => return Script::Unusable(error.message().to_owned()),
    }
    let link = StatOptions { links: LinkHandling::NoFollow };
    match running.backend.stat_with(REPOSITORY_SCRIPT, link).await {
        Ok(_) => Script::Unusable("it is a link to a file that does not exist".to_owned()),
        Err(_) => Script::Absent,
    }
}

/// One setup command.
struct Setup<'a> {
    name: String,
    env: BTreeMap<String, String>,
    running: &'a Running,
    reports: &'a AgentReportSender,
}

impl Setup<'_> {
    /// Runs the command until it ends. Dropping the future kills the command.
    async fn run(&self, argv: Vec<String>) -> Result<(), ExecutorError> {
        let mut request = ProgramLaunchRequest::new(argv);
        request.env = self.env.clone();
        let started = self.running.launcher.start(request).await;
        let mut process =
            started.map_err(|error| self.failed(&format!("cannot start: {error}")))?;
        self.read(&mut process).await;
        match process.wait().await {
            Some(exit) if exit.code == Some(0) => Ok(()),
            Some(exit) => Err(self.failed(&ending(&exit))),
            None => Err(self.failed("ended without an exit code")),
        }
    }

    /// Adds both outputs to the log until they end.
    async fn read(&self, process: &mut LaunchedProgram) {
        let (mut out, mut err) = (process.stdout.take(), process.stderr.take());
        let (mut out_lines, mut err_lines) = (Lines::default(), Lines::default());
        let mut told = 0;
        while out.is_some() || err.is_some() {
            let (mut out_piece, mut err_piece) = ([0; PIECE], [0; PIECE]);
            let lines = tokio::select! {
                read = read(&mut out, &mut out_piece), if out.is_some() => {
                    if read == 0 { out = None; }
                    if read == 0 { out_lines.finish().into_iter().collect() } else { out_lines.push(&out_piece[..read]) }
                }
                read = read(&mut err, &mut err_piece), if err.is_some() => {
                    if read == 0 { err = None; }
                    if read == 0 { err_lines.finish().into_iter().collect() } else { err_lines.push(&err_piece[..read]) }
                }
            };
            for line in lines {
                told += 1;
                if told < MAX_LINES {
                    self.tell(LogLevel::Info, LogSource::Tool, line).await;
                } else if told == MAX_LINES {
                    let note = format!("{} printed more than is logged.", self.name);
                    self.tell(LogLevel::Warn, LogSource::Session, note).await;
                }
            }
        }
    }

    async fn tell(&self, level: LogLevel, source: LogSource, text: String) {
        let event: EventKind = log(level, source, cut(&text));
        let report = self.running.mask.report(AgentReport::Event(event));
        // Sending fails if the control plane no longer waits for the launch. The line is then lost.
        let _ = self.reports.send(report).await;
    }

    fn failed(&self, how: &str) -> ExecutorError {
        let detail = format!("setup: {} {how}", cut(&self.name));
        failed(SessionEndReason::Launch, self.running.mask.text(detail))
    }
}

fn ending(exit: &ProcessExit) -> String {
    let how = match (exit.code, exit.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended without an exit code".to_owned(),
    };
    match exit.stderr_tail.trim().lines().next_back() {
        Some(line) => format!("{how}: {}", cut(line)),
        None => how,
    }
}

/// Reads from a stream and returns the number of bytes, which is zero at the end of the stream.
async fn read(stream: &mut Option<ProcessOutputReader>, piece: &mut [u8]) -> usize {
    match stream {
        Some(reader) => reader.read(piece).await.unwrap_or(0),
        None => 0,
    }
}
