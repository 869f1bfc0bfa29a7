//! The official clients, each calling every tool: the calls and what they must answer are in
//! `calls.json`, and a tool that is listed and not called there fails.

use std::process::Command;

use ab_testkit::peers::ThirdPartyPrograms;

use super::daemon::{Daemon, TOKEN};
use super::{script, succeeds};
use crate::stage::{BINARY, Stage};

/// A client, by language and by what it speaks.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// The SDK that most clients are built with.
    TypeScript1,
    /// Its successor, which prefers the stateless protocol.
    TypeScript2,
    PythonHandshake,
    PythonStateless,
}

impl Client {
    fn command(self, peers: &ThirdPartyPrograms) -> Command {
        let (mut command, speaks) = match self {
            Client::TypeScript1 => (peers.system_node_command(&script("client.mjs")), "1"),
            Client::TypeScript2 => (peers.system_node_command(&script("client.mjs")), "2"),
            Client::PythonHandshake => (peers.python_command(&script("client.py")), "legacy"),
            Client::PythonStateless => (peers.python_command(&script("client.py")), "auto"),
        };
        command.arg(speaks);
        command
    }

    /// The version of the protocol that it ends up with.
    fn version(self) -> &'static str {
        match self {
            Client::TypeScript1 => "handshake",
            Client::PythonHandshake => "2025-11-25",
            Client::TypeScript2 | Client::PythonStateless => "2026-07-28",
        }
    }
}

fn workspace() -> Stage {
    let stage =
        Stage::with(&[("src/main.rs", "fn main() {}\n"), ("notes/plan.md", "one\ntwo\nthree\n")]);
    std::fs::write(stage.path("pixel.png"), b"\x89PNG\0\0\0\0").unwrap();
    stage
}

#[track_caller]
fn calls_every_tool(client: Client, stage: &Stage, command: Command) {
    assert_eq!(succeeds(command), format!("every tool, {}\n", client.version()));
    assert_eq!(stage.text("made/moved.txt"), "zwölf Boxkämpfer 🥊\r\n");
    assert_eq!(stage.text("notes/plan.md"), "one\n$&\nthree\n");
    assert!(!stage.path("a").exists());
}

#[track_caller]
fn over_stdio(client: Client) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the official clients") else { return };
    let stage = workspace();
    let mut command = client.command(&peers);
    command.args(["--stdio", BINARY, "mcp", "--root"]).arg(stage.root());
    calls_every_tool(client, &stage, command);
}

#[track_caller]
fn over_http(client: Client) {
    at(client, "");
}

/// Where messages belong together, since the client asked for it.
#[track_caller]
fn in_a_session(client: Client) {
    at(client, "?session=true");
}

#[track_caller]
fn at(client: Client, query: &str) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the official clients") else { return };
    let stage = workspace();
    let daemon = Daemon::start(&stage);
    let mut command = client.command(&peers);
    command.args(["--http", &format!("{}{query}", daemon.url), TOKEN]);
    calls_every_tool(client, &stage, command);
    daemon.end();
}

#[test]
fn typescript_1_calls_every_tool_over_stdio() {
    over_stdio(Client::TypeScript1);
}

#[test]
fn typescript_2_calls_every_tool_over_stdio() {
    over_stdio(Client::TypeScript2);
}

#[test]
fn typescript_1_calls_every_tool_over_http() {
    over_http(Client::TypeScript1);
}

#[test]
fn typescript_1_calls_every_tool_in_a_session() {
    in_a_session(Client::TypeScript1);
}

#[test]
fn typescript_2_calls_every_tool_over_http() {
    over_http(Client::TypeScript2);
}

#[test]
fn python_calls_every_tool_over_stdio_after_a_handshake() {
    over_stdio(Client::PythonHandshake);
}

#[test]
fn python_calls_every_tool_over_stdio_without_one() {
    over_stdio(Client::PythonStateless);
}

#[test]
fn python_calls_every_tool_over_http_after_a_handshake() {
    over_http(Client::PythonHandshake);
}

#[test]
fn python_calls_every_tool_over_http_without_one() {
    over_http(Client::PythonStateless);
}

#[test]
fn python_calls_every_tool_in_a_session() {
    in_a_session(Client::PythonHandshake);
}

#[track_caller]
fn vercel_aborts(query: &str) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the MCP client of Vercel") else { return };
    let stage = Stage::new();
    let daemon = Daemon::start(&stage);
    let mut command = peers.bundled_node_command(&script("vercel.mjs"));
    command.args([&format!("{}{query}", daemon.url), TOKEN]);
    assert_eq!(succeeds(command), "aborted\n");
    daemon.end();
}

#[test]
fn a_call_that_vercel_aborts_ends_its_command() {
    vercel_aborts("");
}

#[test]
fn a_call_that_vercel_aborts_in_a_session_ends_its_command() {
    vercel_aborts("?session=true");
}
