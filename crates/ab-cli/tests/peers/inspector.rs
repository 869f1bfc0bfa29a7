//! The command line of the MCP Inspector, with the snippet of the README pasted.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use ab_testkit::peers::ThirdPartyPrograms;
use serde_json::{Value, json};

use super::daemon::{Daemon, TOKEN};
use super::succeeds;
use crate::stage::{BINARY, Ran, Stage, command, run};

const LAUNCHER: &str = "clients/launcher/build/index.js";
/// What a reader has to replace in the snippet; the rest is pasted as it is.
const PROJECT: &str = "/path/to/project";

/// The Inspector, told of our server by a file that holds the snippet.
struct Inspector {
    peers: ThirdPartyPrograms,
    stage: Stage,
}

impl Inspector {
    fn new(stage: Stage) -> Option<Inspector> {
        let peers = ThirdPartyPrograms::find_or_skip("the MCP Inspector")?;
        let root = stage.root();
        let config = snippet().replace(PROJECT, root.to_str().unwrap());
        fs::write(stage.outside("mcp.json"), config).unwrap();
        Some(Inspector { peers, stage })
    }

    /// With the server of the snippet.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut it = self.bare();
        it.arg("--config").arg(self.stage.outside("mcp.json"));
        it.args(["--server", "workspace", "--method"]).args(arguments);
        it
    }

    fn bare(&self) -> Command {
        let package = self.peers.node_package_dir("@modelcontextprotocol/inspector");
        let node = self.peers.bundled_node_command(&package.join(LAUNCHER));
        // Nothing that it keeps outlives the test.
        let mut it = command(node.get_program().to_str().unwrap(), &self.stage.root());
        it.args(node.get_args()).env("HOME", self.stage.outside("."));
        it.env("MCP_INSPECTOR_SECRET_STORE", "memory").env("PATH", path_with_ours());
        it.args(["--cli", "--format", "json"]);
        it
    }

    #[track_caller]
    fn result(&self, arguments: &[&str]) -> Value {
        let answer: Value = serde_json::from_str(&succeeds(self.command(arguments))).unwrap();
        answer["result"].clone()
    }

    fn fails(&self, arguments: &[&str]) -> (i32, Value) {
        let Ran { code, out, err } = run(self.command(arguments), b"");
        assert_ne!(code, 0, "{err}");
        (code, serde_json::from_slice::<Value>(&out).unwrap()["result"].clone())
    }
}

/// The first block of JSON in the README that is for the configuration of a client.
fn snippet() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let mut blocks =
        readme.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.contains("mcpServers")).unwrap().to_owned()
}

/// The snippet names a command that has to be in the path, as it is once installed.
fn path_with_ours() -> std::ffi::OsString {
    let ours = Path::new(BINARY).parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths([ours].into_iter().chain(env::split_paths(&path))).unwrap()
}

#[test]
fn the_snippet_of_the_readme_works_when_pasted() {
    let Some(inspector) = Inspector::new(Stage::with(&[("src/a.rs", "fn a() {}\n")])) else {
        return;
    };
    let listed = inspector.result(&["tools/list"]);
    assert_eq!(listed["tools"].as_array().unwrap().len(), 21, "{listed}");
    let call = ["tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=src/a.rs"];
    for era in ["legacy", "modern"] {
        let read = inspector.result(&[&call[..], &["--protocol-era", era]].concat());
        assert_eq!(read["structuredContent"]["content"], "fn a() {}\n", "{era}");
    }
    let write = r#"{ "path": "b.txt", "content": "by hand" }"#;
    inspector.result(&["tools/call", "--tool-name", "write_file", "--tool-args-json", write]);
    assert_eq!(inspector.stage.text("b.txt"), "by hand");
}

#[test]
fn the_inspector_finds_no_fault_with_the_schemas_of_the_tools() {
    let Some(inspector) = Inspector::new(Stage::new()) else { return };
    inspector.result(&["tools/list", "--strict"]);
}

#[test]
fn the_inspector_reaches_the_daemon_with_its_token_only() {
    let Some(inspector) = Inspector::new(Stage::with(&[("a.txt", "a\n")])) else { return };
    let daemon = Daemon::start(&inspector.stage);
    let call = ["--method", "tools/call", "--tool-name", "read_text_file", "--tool-arg"];
    let ask = |token: &str| {
        let mut it = inspector.bare();
        it.args(["--server-url", &daemon.url, "--transport", "http", "--stored-auth-only"]);
        it.args(["--header", &format!("Authorization: Bearer {token}")]);
        it.args(call).arg("path=a.txt");
        it
    };
    let answer: Value = serde_json::from_str(&succeeds(ask(TOKEN))).unwrap();
    assert_eq!(answer["result"]["structuredContent"]["content"], "a\n");
    let refused = run(ask("another"), b"");
    assert!(refused.code != 0 && refused.out.is_empty(), "{refused:?}");
    daemon.end();
}

#[test]
fn the_inspector_tells_a_failed_call() {
    let Some(inspector) = Inspector::new(Stage::new()) else { return };
    let call = ["tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=nowhere"];
    let (code, result) = inspector.fails(&call);
    assert_eq!((code, &result["isError"]), (5, &json!(true)), "{result}");
}
