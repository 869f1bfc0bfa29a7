//! The servers as processes: how each is started, found to be ready, looked at and ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

const OURS: &str = env!("CARGO_BIN_EXE_agent-backend");
const DAEMON: &str = "agent-backend";
const OFFICIAL: &str = "@modelcontextprotocol/server-filesystem";
/// Between two looks whether a daemon answers; far below what is measured.
const LOOK: Duration = Duration::from_micros(200);
const LOOKS: usize = 100_000;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Ours,
    Npm,
    Official,
}

/// Where the peers are installed.
#[derive(Debug)]
pub(crate) struct Peers {
    modules: PathBuf,
}

impl Peers {
    pub(crate) fn find() -> Option<Peers> {
        let modules = PathBuf::from(std::env::var_os("AB_PEERS")?).join("npm/node_modules");
        modules.is_dir().then_some(Peers { modules })
    }

    pub(crate) fn versions(&self) -> String {
        let package = |name: &str| {
            let manifest = self.modules.join(name).join("package.json");
            let manifest = std::fs::read_to_string(manifest).unwrap();
            let manifest: Value = serde_json::from_str(&manifest).unwrap();
            format!("{name} {}", manifest["version"].as_str().unwrap())
        };
        let program = |name: &str| match Command::new(name).arg("--version").output() {
            Ok(output) => {
                String::from_utf8_lossy(&output.stdout).lines().next().unwrap().to_owned()
            }
            Err(_) => format!("no {name}"),
        };
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!(
            "peers: npm {}, npm {}, node {}, {}; kernel {}",
            package(DAEMON),
            package(OFFICIAL),
            program("node"),
            program("rg"),
            kernel.trim()
        )
    }

    /// A server over its standard streams.
    pub(crate) fn stdio(&self, who: Who, root: &Path) -> Command {
        let mut command = self.command(who);
        match who {
            Who::Ours => command.args(["mcp", "--root"]).arg(root),
            Who::Npm => command.args(["daemon", "--local-only", "--rootDir"]).arg(root),
            Who::Official => command.arg(root),
        };
        command
    }

    /// A server at a port. The peer has another surface, SSH, which would only slow it down.
    pub(crate) fn daemon(&self, who: Who, root: &Path, port: u16) -> Command {
        let mut command = self.command(who);
        command.args(["daemon", "--isolation", "software", "--port", &port.to_string()]);
        command.arg("--rootDir").arg(root);
        if let Who::Npm = who {
            command.arg("--disable-ssh-ws");
        }
        command
    }

    fn command(&self, who: Who) -> Command {
        let script = match who {
            Who::Ours => return Command::new(OURS),
            Who::Npm => self.modules.join(DAEMON).join("bin/agent-backend.js"),
            Who::Official => self.modules.join(OFFICIAL).join("dist/index.js"),
        };
        let mut command = Command::new("node");
        command.arg(script);
        command
    }
}

/// A process that ends with its owner.
#[derive(Debug)]
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server at a port that answers.
#[derive(Debug)]
pub(crate) struct Daemon {
    running: Running,
    pub(crate) port: u16,
}

impl Daemon {
    /// Returns when it says that it is healthy.
    pub(crate) fn start(peers: &Peers, who: Who, root: &Path) -> Daemon {
        let port = free_port();
        let mut command = peers.daemon(who, root, port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut daemon = Daemon { running: Running { child: command.spawn().unwrap() }, port };
        for _ in 0..LOOKS {
            if healthy(port) {
                return daemon;
            }
            let ended = daemon.running.child.try_wait().unwrap();
            assert!(ended.is_none(), "{who:?} ended: {ended:?}");
            thread::sleep(LOOK);
        }
        panic!("{who:?} does not answer");
    }

    /// What it and its children keep in memory, in MB.
    pub(crate) fn memory(&self) -> f64 {
        let mut processes = vec![self.running.child.id()];
        let mut total = 0.0;
        while let Some(process) = processes.pop() {
            let read = |name: &str| std::fs::read_to_string(format!("/proc/{process}/{name}"));
            let status = read("status").unwrap_or_default();
            let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let resident = resident.and_then(|line| line.split_whitespace().next()?.parse().ok());
            total += resident.unwrap_or(0.0) / 1024.0;
            let children = read(&format!("task/{process}/children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
        total
    }
}

/// A port that nobody has at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn healthy(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let request =
        format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let asked = stream.write_all(request.as_bytes());
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
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
        let mut command = peers.stdio(who, root);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let running = Running { child };
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
