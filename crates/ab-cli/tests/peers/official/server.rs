//! A server over its standard streams, asked one thing at a time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ab_testkit::peers::ThirdPartyPrograms;
use serde_json::{Value, json};

use crate::stage::{BINARY, command};

pub(super) struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    pub(super) fn ours(root: &Path) -> Server {
        let mut it = command(BINARY, root);
        it.args(["mcp", "--root"]).arg(root);
        Server::start(it)
    }

    pub(super) fn official(peers: &ThirdPartyPrograms, root: &Path) -> Server {
        let package = peers.node_package_dir("@modelcontextprotocol/server-filesystem");
        let mut it = peers.system_node_command(&package.join("dist/index.js"));
        it.arg(root).current_dir(root);
        Server::start(it)
    }

    fn start(mut command: Command) -> Server {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = pipes.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut server = Server { child, input, output, next: 0 };
        let client = json!({ "name": "test", "version": "0" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        assert_eq!(server.ask("initialize", params)["protocolVersion"], "2025-11-25");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        writeln!(server.input, "{ready}").unwrap();
        server
    }

    /// The result of a call, or the error of the protocol.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The tools by name.
    pub(super) fn tools(&mut self) -> BTreeMap<String, Value> {
        let listed = self.ask("tools/list", json!({}));
        let tools = listed["tools"].as_array().unwrap().iter();
        tools.map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool.clone())).collect()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{call}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended at {call}");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer.get("result").unwrap_or(&answer["error"]).clone();
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
