//! `mcp`: the workspace as tools for an MCP client, over standard input and output.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use ab_core::{Backend, ConnectionStatus};
use clap::Args;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use super::exec::{Walls, no_walls_here};
use super::policy::RuleFlags;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::stdio;
use crate::terminal::{Terminal, talk};
use crate::workspace::{Starter, WorkspaceFlags};

const EXAMPLES: &str = "\
In the configuration of an MCP client:
  { \"mcpServers\": { \"workspace\": {
      \"command\": \"agent-backend\", \"args\": [\"mcp\", \"--root\", \"/path/to/project\"] } } }

Standard input and output belong to the protocol; everything else goes to standard error, where one
line says which isolation is in force for commands.";

/// Serve the workspace to an MCP client, over standard input and output
///
/// The workspace is --root, or the current directory where that is a project: in /, in the home directory
/// and above it, where programs start others, --root is needed.
///
/// Ends when standard input does. The client gets tools for files, for search, and for commands,
/// which are judged by rules and run behind walls; agent-backend doctor says which there are.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    /// Pass messages on to the program that started us, which serves a workspace of its own
    #[arg(long, value_name = "SOCKET", hide = true)]
    connect: Option<PathBuf>,

    /// Do not say on standard error which isolation is in force
    #[arg(short = 'q', long)]
    quiet: bool,

    #[command(flatten)]
    workspace: WorkspaceFlags,

    #[command(flatten)]
    walls: Walls,

    #[command(flatten)]
    rules: RuleFlags,
}

impl CliCommand for Mcp {
    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, _: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self))
    }
}

async fn run(mcp: Mcp) -> Result<(), Failure> {
    if let Some(socket) = &mcp.connect {
        return passed_on(socket).await;
    }
    let elsewhere = mcp.workspace.is_elsewhere()?;
    if elsewhere {
        let refused = no_walls_here(&mcp.walls, &mcp.rules);
        refused.map_err(|failure| mcp.workspace.traced(failure))?;
    }
    let policy = mcp.rules.unattended()?;
    let settings = mcp.walls.settings()?;
    let workspace = mcp.workspace.open_with(Starter::Program, settings, policy).await?;
    let restrictions = mcp.walls.restrictions(&workspace.handle)?;
    let handle = if restrictions.is_empty() {
        workspace.handle.clone()
    } else {
        workspace.handle.restrict(restrictions)?
    };
    let serving = over_stdio(workspace.handle.clone(), handle.clone());
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = tell_what_is_in_force(&mcp.walls, &handle), if !elsewhere && !mcp.quiet => serving.await,
    };
    served.and(workspace.close().await)
}

/// One line on standard error about the isolation of commands. Finding out takes a command, which the
/// client does not have to wait for.
async fn tell_what_is_in_force(walls: &Walls, handle: &Backend) {
    match handle.effective_policy().await {
        Ok(policy) => {
            let line = walls.in_force(&policy).map(|line| format!("{line}\n"));
            talk(&line.unwrap_or_default());
        }
        // The client was quicker to go.
        Err(_) if handle.status() == ConnectionStatus::Destroyed => {}
        Err(error) => talk(&format!("no command will run: {error}\n")),
    }
}

/// Serves `handle` until the client is gone or somebody stops us; then `backend` ends, and with it
/// what the client started in the background.
pub(crate) async fn over_stdio(backend: Backend, handle: Backend) -> Result<(), Failure> {
    let (input, output) = stdio::streams();
    let mut signals = Signals::watch();
    let served = tokio::select! {
        served = ab_mcp::serve_stdio(handle, input, output) => {
            served.map_err(|error| Failure::input("serve the client", error))
        }
        exit = signals.next() => Err(Failure::Told(exit)),
    };
    let closed = backend.destroy().await;
    served?;
    Ok(closed?)
}

/// Both ways, until the server has nothing more to say.
async fn passed_on(socket: &Path) -> Result<(), Failure> {
    let fails = |error| Failure::input("pass messages on", error);
    let (from_server, to_server) = connected(socket).await.map_err(fails)?.into_split();
    let (from_client, to_client) = stdio::streams();
    let mut signals = Signals::watch();
    let asking = async {
        // When the client has nothing more to ask, its last answers still come.
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

/// Connects by a handle of the directory: the path itself may be too long for the address of a socket.
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
