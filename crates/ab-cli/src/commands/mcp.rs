//! `mcp`: serves the workspace as tools to an MCP client, over standard input and output.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_core::{Backend, ConnectionStatus, Error, ErrorCode, ErrorKind, ScopeOptions};
use ab_host::LocalExecSettings;
use ab_mcp::{MAX_CALL_TIME, McpStreamSettings};
use clap::Args;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::exec::{EnvFlags, Limits, SandboxFlags, amount, refuse_local_sandbox_flags};
use super::policy::RuleFlags;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::stdio;
use crate::terminal::{Terminal, talk};
use crate::workspace::{Starter, WorkspaceFlags};

/// The JSON-RPC error code for an error of the server itself.
const SERVER_ERROR: i64 = -32000;

const EXAMPLE: &str = "\
Example, in the configuration of an MCP client:
  { \"mcpServers\": { \"workspace\": {
      \"command\": \"agent-backend\", \"args\": [\"mcp\", \"--root\", \"/path/to/project\"] } } }";

const EXAMPLES: &str = "\
In the configuration of an MCP client:
  { \"mcpServers\": { \"workspace\": {
      \"command\": \"agent-backend\", \"args\": [\"mcp\", \"--root\", \"/path/to/project\"] } } }

Protocol messages use standard input and output. Notes and errors go to standard error.";

/// Serve the workspace to an MCP client over standard input and output
///
/// The client gets tools for files, search and commands. Without --root, the workspace is the current
/// directory, unless that is / or the home directory. The server exits when standard input is closed and
/// the calls before that are answered.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, after_long_help = EXAMPLES)]
pub(crate) struct Mcp {
    /// Pass messages on to the program that started us, which serves a workspace of its own
    #[arg(long, value_name = "SOCKET", hide = true)]
    connect: Option<PathBuf>,

    /// Print no line about the isolation of commands
    #[arg(short = 'q', long)]
    quiet: bool,

    /// Time to connect to a remote workspace
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = amount::time)]
    connect_timeout: Duration,

    #[command(flatten)]
    env: EnvFlags,

    #[command(flatten)]
    sandbox: SandboxFlags,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    rules: RuleFlags,

    #[command(flatten)]
    workspace: WorkspaceFlags,
}

impl CliCommand for Mcp {
    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(mcp: Mcp, terminal: &mut Terminal) -> Result<(), Failure> {
    if let Some(socket) = &mcp.connect {
        return passed_on(socket).await;
    }
    let elsewhere = mcp.workspace.is_elsewhere()?;
    if elsewhere {
        let refused = refuse_local_sandbox_flags(&mcp.sandbox, &mcp.rules)
            .and_then(|()| mcp.limits.none_given());
        refused.map_err(|failure| mcp.workspace.traced(failure))?;
    }
    let policy = mcp.rules.unattended()?;
    let settings = LocalExecSettings {
        limits: mcp.limits.of_workspace(),
        output_spool: mcp.limits.spooling(),
        ..mcp.sandbox.settings()?
    };
    let opening = mcp.workspace.open_with(Starter::Program, settings, policy);
    let opened = if elsewhere {
        let late = |_| Err(mcp.workspace.traced(unanswered(mcp.connect_timeout)));
        timeout(mcp.connect_timeout, opening).await.unwrap_or_else(late)
    } else {
        opening.await
    };
    let workspace = match opened {
        Ok(workspace) => workspace,
        Err(failure) if elsewhere => return unreachable(failure, terminal).await,
        Err(failure) => return Err(failure),
    };
    let (restrictions, notes) = mcp.sandbox.restrictions(&workspace.handle).await?;
    for note in notes.iter().filter(|_| !mcp.quiet) {
        terminal.note(note);
    }
    let handle = if restrictions.is_empty() {
        workspace.handle.clone()
    } else {
        workspace.handle.restrict(restrictions)?
    };
    let env = mcp.env.variables()?;
    let handle = if env.is_empty() {
        handle
    } else {
        handle.scope(".", ScopeOptions { env, ..ScopeOptions::default() })?
    };
    let serving = over_stdio(workspace.handle.clone(), handle.clone());
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = tell_what_is_in_force(&mcp.sandbox, &handle), if !elsewhere && !mcp.quiet => serving.await,
    };
    served.and(workspace.close().await)
}

/// The failure if a remote workspace does not answer in time.
fn unanswered(time: Duration) -> Failure {
    let message = format!("the server of the remote workspace did not answer within {time:?}");
    let error = Error::new(ErrorCode::ConnectionClosed, ErrorKind::Timeout, message);
    Failure::from(error).with_hint(
        "check that a daemon runs at the URL; for a slow connection, pass a longer --connect-timeout",
    )
}

/// Maximum length of a client message that is answered if there is no workspace.
const MAX_REFUSED_MESSAGE: u64 = 1024 * 1024;

/// Answers every request with the reason why there is no workspace, until the client disconnects.
/// The process does not exit at once, because the client would then not see the reason.
async fn unreachable(failure: Failure, terminal: &mut Terminal) -> Result<(), Failure> {
    terminal.tell(&failure);
    let mut why = failure.error().map(ToString::to_string).unwrap_or_default();
    if let Some(hint) = failure.error().and_then(|error| error.hint()) {
        why.push_str(&format!(" ({hint})"));
    }
    let (input, mut output) = stdio::streams();
    let mut input = BufReader::new(input);
    let fails = |error| Failure::input("answer the client", error);
    let mut signals = Signals::watch();
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut input).take(MAX_REFUSED_MESSAGE);
        let read = tokio::select! {
            read = bounded.read_until(b'\n', &mut line) => read.map_err(fails)?,
            exit = signals.next() => return Err(Failure::Told(exit)),
        };
        if read == 0 {
            return Err(Failure::Told(failure.exit()));
        }
        let message: Value = serde_json::from_slice(&line).unwrap_or_default();
        if message["id"].is_null() || !message["method"].is_string() {
            continue;
        }
        let error = json!({ "code": SERVER_ERROR, "message": why });
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
        output.write_all(format!("{answer}\n").as_bytes()).await.map_err(fails)?;
        output.flush().await.map_err(fails)?;
    }
}

/// Prints a line about the isolation of commands on standard error. The check of the isolation runs
/// a command. It runs in the background, so that the client does not have to wait for it.
async fn tell_what_is_in_force(sandbox: &SandboxFlags, handle: &Backend) {
    match handle.effective_policy().await {
        Ok(policy) => {
            let line = sandbox.in_force(&policy).map(|line| format!("{line}\n"));
            talk(&line.unwrap_or_default());
        }
        // The client disconnected first.
        Err(_) if handle.status() == ConnectionStatus::Destroyed => {}
        Err(error) => talk(&format!("commands cannot run: {error}\n")),
    }
}

/// Serves `handle` until the client disconnects or a signal arrives. After that `backend` is
/// destroyed, which ends the background commands of the client. If the client has only closed
/// standard input, the calls that it has sent are still answered.
pub(crate) async fn over_stdio(backend: Backend, handle: Backend) -> Result<(), Failure> {
    let (input, output) = stdio::streams();
    let mut signals = Signals::watch();
    let settings = McpStreamSettings { last_calls: MAX_CALL_TIME };
    let serving = ab_mcp::serve_mcp_over_streams_with(handle, input, output, settings);
    let served = tokio::select! {
        served = serving => served.map_err(|error| Failure::input("serve the client", error)),
        () = stdio::output_closed() => Ok(()),
        exit = signals.next() => Err(Failure::Told(exit)),
    };
    let closed = backend.destroy().await;
    served?;
    Ok(closed?)
}

/// Copies messages in both directions until the server closes its side.
async fn passed_on(socket: &Path) -> Result<(), Failure> {
    let fails = |error| Failure::input("pass messages on", error);
    let (from_server, to_server) = connected(socket).await.map_err(fails)?.into_split();
    let (from_client, to_client) = stdio::streams();
    let mut signals = Signals::watch();
    let asking = async {
        // After the client has sent EOF, the remaining answers are still delivered.
        let asked = copy(from_client, to_server).await;
        match asked {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    tokio::select! {
        error = asking => Err(fails(error)),
        copied = copy(from_server, to_client) => copied.map_err(fails),
        exit = signals.next() => Err(Failure::Told(exit)),
    }
}

/// Connects to a socket through a descriptor of its directory, because the path may be too long for
/// a socket address.
async fn connected(socket: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let directory = File::open(directory)?;
    let handle = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    UnixStream::connect(handle.join(name)).await
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> io::Result<()> {
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}
