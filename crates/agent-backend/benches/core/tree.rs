//! The tree of 10,000 files, beside the official filesystem server's tool over its standard input.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use agent_backend::LocalWorkspaceConfig;
use agent_backend::backend::TreeOptions;
use serde_json::{Value, json};

use crate::measure::{ROUNDS, Row, millis};

const PACKAGE: &str = "@modelcontextprotocol/server-filesystem";

pub(crate) async fn run() {
    let Some(package) = installed() else {
        println!("tree: {PACKAGE} is missing; `cargo xtask bench core` installs it");
        return;
    };
    let manifest = std::fs::read_to_string(package.join("package.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    println!("10,000 files in 100 directories; peer: {PACKAGE} {}", manifest["version"]);
    Row::head();
    let directory = tempfile::tempdir().unwrap();
    for d in 0..100 {
        let directory = directory.path().join(format!("directory{d:02}"));
        std::fs::create_dir(&directory).unwrap();
        for f in 0..100 {
            std::fs::write(directory.join(format!("file{f:02}.txt")), "x").unwrap();
        }
    }
    let backend = agent_backend::local_with(LocalWorkspaceConfig::new(directory.path())).unwrap();
    let mut server = Server::start(&package, directory.path());
    let mut row = Row::new();
    for _ in 0..ROUNDS {
        let (time, tree) = millis(backend.tree(".", TreeOptions::default())).await;
        assert_eq!(tree.unwrap().nodes.len(), 100);
        let (peer, nodes) = millis(async { server.tree(directory.path()) }).await;
        assert_eq!(nodes, 100);
        row.ours.push(1000.0 / time);
        row.peer.push(1000.0 / peer);
    }
    row.print("tree of 10,000, in process", "/s", "at least 12");
}

/// Where the peers are, as the task that installed them says.
fn installed() -> Option<PathBuf> {
    let peers = std::env::var_os("AB_PEERS")?;
    let package = Path::new(&peers).join("npm/node_modules").join(PACKAGE);
    package.is_dir().then_some(package)
}

struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(package: &Path, root: &Path) -> Self {
        let mut child = Command::new("node")
            .arg(package.join("dist/index.js"))
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, input, output, next: 0 };
        server.call(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "bench", "version": "0" },
            }),
        );
        server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        server
    }

    /// How many nodes are at the top of the tree.
    fn tree(&mut self, root: &Path) -> usize {
        let arguments = json!({ "name": "directory_tree", "arguments": { "path": root } });
        let answer = self.call("tools/call", arguments);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
        serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().len()
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
