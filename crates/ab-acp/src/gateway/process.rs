//! The task that runs the process of an agent server from its start to its end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ab_core::ErrorKind;
use ab_core::process::ProcessExit;
use ab_local::{LaunchedProgram, ProcessInputWriter, ProcessOutputReader};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::AgentGatewaySettings;
use super::failure::{AgentExit, AgentGatewayError};
use super::sandbox::SandboxedAgent;
use super::server::{AgentServer, Input, Phase};
use super::source::AgentLaunchPlan;
use crate::rpc::{Line, Lines};

/// The number of SIGTERM.
const TERMINATE: i32 = 15;
/// How long a process may take to exit after SIGTERM before it is killed. This is short, because a
/// DELETE must be answered within 2 s.
const STOP_GRACE: Duration = Duration::from_millis(500);
/// How long to keep reading output after the process has exited. Its child processes may still
/// write.
const LAST_OUTPUT: Duration = Duration::from_millis(200);
/// How long a process may take to exit after it has closed its output. The gateway waits, because
/// the exit code is a better error than the end of the output.
const END_GRACE: Duration = Duration::from_millis(500);
/// Maximum number of queued lines for an agent that does not read its input.
const QUEUED_INPUT: usize = 64;

/// Starts the agent, forwards its messages, and ends it. Returns after all of its processes have
/// ended.
pub(super) async fn run(server: &AgentServer, settings: &AgentGatewaySettings) {
    let started = tokio::select! {
        started = start(server, settings) => started,
        () = server.closing.cancelled() => Err(AgentGatewayError::Closed),
    };
    let SandboxedAgent { launched, workspace } = match started {
        Ok(started) => started,
        Err(error) => return server.end(Phase::Gone(error)).await,
    };
    let (sender, inputs) = mpsc::channel(QUEUED_INPUT);
    server.phase.send_replace(Phase::Running(sender));
    carry(server, settings, launched, inputs).await;
    // The processes of a workspace that cannot be destroyed end together with this process.
    let _ = workspace.backend.destroy().await;
}

async fn start(
    server: &AgentServer,
    settings: &AgentGatewaySettings,
) -> Result<SandboxedAgent, AgentGatewayError> {
    let agent = &server.agent;
    let resolved = settings.agents.ready(agent).await?;
    let AgentLaunchPlan { entry, missing_credential, .. } = &*resolved;
    // Do not report a missing credential for an agent that uses the operator's own home. The agent
    // may find a login there that the catalog does not list.
    if let Some(missing) =
        missing_credential.as_ref().filter(|_| settings.sandbox.servers_dir.is_some())
    {
        let (agent, why) = (agent.clone(), missing.to_string());
        return Err(AgentGatewayError::NotStarted { agent, why });
    }
    settings.sandbox.start(&resolved, &server.place).await.map_err(|error| {
        let program = entry.argv.first().map_or("", String::as_str);
        if error.kind() == ErrorKind::NotFound && !Path::new(program).is_file() {
            let needs = entry.get.as_ref().map(|get| format!("; to install it: {get}"));
            let needs = needs.unwrap_or_default();
            let why = format!("the program {program:?} was not found: {error}{needs}");
            return AgentGatewayError::NotInstalled { agent: agent.clone(), why };
        }
        AgentGatewayError::NotStarted { agent: agent.clone(), why: error.to_string() }
    })
}

/// Why the forwarding of messages stops.
enum Stop {
    Deleted,
    Exited(Option<ProcessExit>),
    OutputEnded,
    Broken(String),
}

async fn carry(
    server: &AgentServer,
    settings: &AgentGatewaySettings,
    mut launched: LaunchedProgram,
    mut inputs: mpsc::Receiver<Input>,
) {
    // This reader is not needed: the driver keeps the last part of standard error, which is enough
    // for an error message.
    drop(launched.stderr.take());
    let (Some(output), Some(input)) = (launched.stdout.take(), launched.stdin.take()) else {
        let reason = Some("it was started without standard input and output".to_owned());
        let end = AgentExit { reason, ..AgentExit::default() };
        return server.end(Phase::Ended(Arc::new(end))).await;
    };
    let mut ending = launched.exit_receiver().clone();
    let mut unwritten = None;
    let stop = {
        let mut reading = std::pin::pin!(read(server, output, settings.max_line_bytes));
        let stop = tokio::select! {
            stop = &mut reading => stop,
            exit = ending.wait() => Stop::Exited(exit),
            () = server.closing.cancelled() => Stop::Deleted,
            never = write(input, &mut inputs, &mut unwritten) => match never {},
        };
        if matches!(stop, Stop::Exited(_)) {
            // Read the output that the process wrote before it exited, for a limited time. Later
            // output is ignored.
            let _ = timeout(LAST_OUTPUT, &mut reading).await;
        }
        stop
    };
    let (exit, reason) = match stop {
        Stop::Deleted => {
            end(launched).await;
            return server.end(Phase::Gone(AgentGatewayError::Closed)).await;
        }
        Stop::Exited(exit) => {
            launched.kill().await;
            (exit, None)
        }
        Stop::OutputEnded => match timeout(END_GRACE, ending.wait()).await {
            Ok(exit) => (exit, None),
            Err(_) => {
                let reason =
                    "the agent closed its standard output but did not exit; it was stopped"
                        .to_owned();
                (end(launched).await, Some(reason))
            }
        },
        Stop::Broken(reason) => (end(launched).await, Some(reason)),
    };
    server.end(Phase::Ended(Arc::new(ended(exit, reason)))).await;
    // Drop the unwritten lines only after the end is recorded, so that the callers of these lines
    // get the recorded reason.
    drop((unwritten, inputs));
}

fn ended(exit: Option<ProcessExit>, reason: Option<String>) -> AgentExit {
    match exit {
        Some(exit) => AgentExit {
            exit_code: exit.code,
            signal: exit.signal,
            reason,
            stderr: exit.stderr_tail,
        },
        None => AgentExit { reason, ..AgentExit::default() },
    }
}

/// Asks the process to exit. After a grace period, kills the process and everything that it
/// started.
async fn end(launched: LaunchedProgram) -> Option<ProcessExit> {
    let mut ending = launched.exit_receiver().clone();
    let asked = async {
        launched.signal(TERMINATE).await;
        ending.wait().await
    };
    // If the process does not exit in time, `kill` ends it.
    let _ = timeout(STOP_GRACE, asked).await;
    launched.kill().await
}

async fn read(server: &AgentServer, output: ProcessOutputReader, max_line: usize) -> Stop {
    // The last response of an agent may have no newline.
    let mut lines = Lines::new(output, max_line).with_unterminated_line();
    loop {
        match lines.next().await {
            Ok(Line::Whole(line)) => server.line(line),
            Ok(Line::End) => return Stop::OutputEnded,
            Ok(Line::TooLong) => {
                let reason = format!(
                    "the agent sent a line of more than {max_line} bytes, which may have been a response; it was stopped"
                );
                return Stop::Broken(reason);
            }
            Err(error) => {
                return Stop::Broken(format!("cannot read the agent's output: {error}"));
            }
        }
    }
}

/// Writes lines until the process has exited. After an error all further lines fail. Responses of
/// the agent are still read. `unwritten` contains the line that is being written.
async fn write(
    mut input: ProcessInputWriter,
    inputs: &mut mpsc::Receiver<Input>,
    unwritten: &mut Option<Input>,
) -> std::convert::Infallible {
    let mut broken: Option<Arc<str>> = None;
    while let Some(next) = inputs.recv().await {
        let next = unwritten.insert(next);
        if broken.is_none() {
            let writing = async {
                input.write_all(&next.line).await?;
                input.flush().await
            };
            broken = writing.await.err().map(|error| error.to_string().into());
        }
        if let Some(Input { written, .. }) = unwritten.take() {
            // Sending fails if the caller has stopped waiting. That is no error.
            let _ = written.send(broken.clone().map_or(Ok(()), Err));
        }
    }
    std::future::pending().await
}
