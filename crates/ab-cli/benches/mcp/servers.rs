//! The MCP servers that are measured, at a port and over their standard streams.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::programs::{Daemon, NPM_DAEMON, Peers, Running, kernel, ours, version};

const OFFICIAL: &str = "@modelcontextprotocol/server-filesystem";

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Ours,
    Npm,
    Official,
}

pub(crate) fn versions(peers: &Peers) -> String {
    format!(
        "peers: {}, {}, node {}, {}; {}",
        peers.version_of(NPM_DAEMON),
        peers.version_of(OFFICIAL),
        version("node", "--version"),
        version("rg", "--version"),
        kernel()
    )
}

/// A server over its standard streams.
fn stdio(peers: &Peers, who: Who, root: &Path) -> Command {
    let mut command = command(peers, who);
    match who {
        Who::Ours => command.args(["mcp", "--root"]).arg(root),
        Who::Npm => command.args(["daemon", "--local-only", "--rootDir"]).arg(root),
        Who::Official => command.arg(root),
    };
    command
}

/// A server at a port. The peer has another surface, SSH, which would only slow it down.
pub(crate) fn daemon(peers: &Peers, who: Who, root: &Path) -> Daemon {
    let mut command = command(peers, who);
    command.args(["daemon", "--isolation", "software", "--rootDir"]).arg(root);
    if let Who::Npm = who {
        command.arg("--disable-ssh-ws");
    }
    Daemon::start(command)
}

fn command(peers: &Peers, who: Who) -> Command {
    match who {
        Who::Ours => ours(),
        Who::Npm => peers.npm_daemon(),
        Who::Official => peers.script(OFFICIAL, "dist/index.js"),
    }
}

/// A server over its standard streams that has shaken hands.
#[derive(Debug)]
pub(crate) struct Talking {
    _running: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
    line: String,
}

impl Talking {
    pub(crate) fn start(peers: &Peers, who: Who, root: &Path) -> Talking {
        let mut command = stdio(peers, who, root);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let running = Running::new(child);
        let mut talking =
            Talking { _running: running, input, output, next: 0, line: String::new() };
        let client = json!({ "name": "bench", "version": "0" });
        talking.ask(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
        );
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        writeln!(talking.input, "{ready}").unwrap();
        talking
    }

    /// The line of the answer, which is not looked into: that is not what is measured.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> &str {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    fn ask(&mut self, method: &str, params: Value) -> &str {
        self.next += 1;
        let id = self.next;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{call}").unwrap();
        loop {
            self.line.clear();
            assert!(self.output.read_line(&mut self.line).unwrap() > 0, "the server ended");
            // Notes come between; an answer has the id, at the beginning or at the end.
            if self.line.contains(&format!("\"id\":{id}")) {
                assert!(!self.line.contains("\"isError\":true"), "{}", self.line);
                return &self.line;
            }
        }
    }
}
