//! Access to files and commands for the scripted agent: through the MCP server that the client
//! offers, or else directly in its own working directory.
//!
//! The scripted agent is the program inside the sandbox, not the server. This is the only file of
//! the crate that opens workspace files and starts processes, and it runs only in the agent's
//! process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ab_mcp::Client;
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::http::HttpMcp;
use crate::mcp_server::McpServer;

/// Maximum number of bytes of a command's output that are kept.
const OUTPUT_BYTES: u64 = 64 * 1024;
/// How long a command may take.
const COMMAND_TIME: Duration = Duration::from_secs(600);
/// How long an MCP server that the agent starts may take for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// The place where a session of the agent works, and the other MCP servers that the client offers.
#[derive(Debug)]
pub(super) struct Workspace {
    place: Place,
    cwd: PathBuf,
    /// MCP servers that are connected when they are first called.
    others: Vec<McpServer>,
}

#[derive(Debug)]
enum Place {
    Http(HttpMcp),
    /// An MCP server that the agent started. It ends with the session.
    Stdio {
        client: Client,
        _child: Child,
    },
    /// No MCP server: the agent uses files and commands directly in its working directory.
    Directory,
}

/// The output of an action, or why it failed.
pub(super) type Outcome = Result<String, String>;

impl Place {
    async fn connect(server: &McpServer, cwd: &Path) -> Result<Place, String> {
        let fails = |name: &str, why: String| format!("MCP server {name}: {why}");
        match server {
            McpServer::Http { name, url, headers } => {
                let connected = HttpMcp::connect(url, headers).await;
                connected.map(Place::Http).map_err(|error| fails(name, error.to_string()))
            }
            McpServer::Sse { name, .. } => Err(fails(name, "SSE is not supported".to_owned())),
            McpServer::Stdio { name, command, args, env } => {
                let mut child = Command::new(command)
                    .args(args)
                    .envs(env.iter().map(|(name, value)| (name, value)))
                    .current_dir(cwd)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .kill_on_drop(true)
                    .spawn()
                    .map_err(|error| fails(name, format!("cannot start {command}: {error}")))?;
                let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
                    return Err(fails(name, "it has no standard input or output".to_owned()));
                };
                let stream = tokio::io::join(stdout, stdin);
                let client = Client::connect(stream, CONNECT_TIMEOUT).await;
                let client = client.map_err(|error| fails(name, error.to_string()))?;
                Ok(Place::Stdio { client, _child: child })
            }
        }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        let client = match self {
            Place::Http(server) => &server.client,
            Place::Stdio { client, .. } => client,
            Place::Directory => {
                return Err(format!("cannot call {tool}: the session has no MCP server"));
            }
        };
        match client.call_tool(tool, arguments).await {
            Ok(result) => outcome(&result),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Workspace {
    /// Connects to the first of the servers. If there is none, uses the directory.
    pub(super) async fn open(cwd: &str, servers: &[McpServer]) -> Result<Workspace, String> {
        let cwd = PathBuf::from(cwd);
        let place = match servers.first() {
            None => Place::Directory,
            Some(server) => Place::connect(server, &cwd).await?,
        };
        let others = servers.iter().skip(1).cloned().collect();
        Ok(Workspace { place, cwd, others })
    }

    /// The working directory, if the agent uses it directly and not through an MCP server.
    fn directory(&self) -> Option<&Path> {
        matches!(self.place, Place::Directory).then_some(self.cwd.as_path())
    }

    /// Reads a file as text. `None` if it cannot be read.
    pub(super) async fn text(&self, path: &str) -> Option<String> {
        self.read(path).await.ok()
    }

    pub(super) async fn read(&self, path: &str) -> Outcome {
        match self.directory() {
            Some(cwd) => {
                let text = tokio::fs::read_to_string(cwd.join(path)).await;
                text.map_err(|error| format!("cannot read {path}: {error}"))
            }
            None => self.call("read_text_file", json!({ "path": path })).await,
        }
    }

    pub(super) async fn write(&self, path: &str, text: &str) -> Outcome {
        match self.directory() {
            Some(cwd) => {
                let fails = |error| format!("cannot write {path}: {error}");
                let target = cwd.join(path);
                if let Some(parent) = target.parent() {
                    tokio::fs::create_dir_all(parent).await.map_err(fails)?;
                }
                tokio::fs::write(target, text).await.map_err(fails)?;
                Ok(format!("Wrote {path}"))
            }
            None => self.call("write_file", json!({ "path": path, "content": text })).await,
        }
    }

    pub(super) async fn edit(&self, path: &str, old: &str, new: &str) -> Outcome {
        match self.directory() {
            Some(_) => {
                let text = self.read(path).await?;
                match text.matches(old).count() {
                    1 => self.write(path, &text.replacen(old, new, 1)).await,
                    count => Err(format!("cannot edit {path}: the text occurs {count} times")),
                }
            }
            None => {
                let edits = json!([{ "oldText": old, "newText": new }]);
                self.call("edit_file", json!({ "path": path, "edits": edits })).await
            }
        }
    }

    /// Runs a shell command. A non-zero exit status is an error.
    pub(super) async fn run(&self, command: &str) -> Outcome {
        match self.directory() {
            Some(cwd) => run_in(cwd, command).await,
            None => self.call("exec", json!({ "command": command })).await,
        }
    }

    /// Calls a tool of the workspace's MCP server.
    async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        self.place.call(tool, arguments).await
    }

    /// Calls a tool of the MCP server with this name. Without a name, calls a tool of the
    /// workspace's server.
    pub(super) async fn call_on(
        &self,
        server: Option<&str>,
        tool: &str,
        arguments: Value,
    ) -> Outcome {
        let Some(wanted) = server else { return self.call(tool, arguments).await };
        let name = |server: &McpServer| match server {
            McpServer::Http { name, .. }
            | McpServer::Sse { name, .. }
            | McpServer::Stdio { name, .. } => name == wanted,
        };
        match self.others.iter().find(|server| name(server)) {
            Some(server) => Place::connect(server, &self.cwd).await?.call(tool, arguments).await,
            None => Err(format!("cannot call {tool}: there is no MCP server {wanted:?}")),
        }
    }
}

fn outcome(result: &CallToolResult) -> Outcome {
    let texts = result.content.iter().filter_map(|content| content.as_text());
    let text = texts.map(|text| text.text.as_str()).collect::<Vec<_>>().join("\n");
    if result.is_error == Some(true) { Err(text) } else { Ok(text) }
}

async fn run_in(cwd: &Path, command: &str) -> Outcome {
    let fails = |error| format!("cannot run {command:?}: {error}");
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(fails)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let work = async { tokio::join!(kept(stdout), kept(stderr), child.wait()) };
    let Ok((stdout, stderr, status)) = timeout(COMMAND_TIME, work).await else {
        return Err(format!("{command:?} did not end within {COMMAND_TIME:?}"));
    };
    let text = format!("{stdout}{stderr}");
    let text = text.trim_end().to_owned();
    let status = status.map_err(fails)?;
    if status.success() { Ok(text) } else { Err(format!("{text}\n{status}").trim().to_owned()) }
}

/// Reads the beginning of a stream. Also reads the rest of the stream and discards it, so that the
/// writer does not block.
async fn kept(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut bytes = Vec::new();
    // After a read error, return the bytes that were read so far.
    let _ = (&mut stream).take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
