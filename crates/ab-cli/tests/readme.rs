//! What the README says to paste, pasted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::stage::{BINARY, Stage, command, run};

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The blocks of a section, in order.
fn blocks(section: &str) -> Vec<String> {
    let readme = text("README.md");
    let (_, rest) = readme.split_once(&format!("\n## {section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let pieces = section.split("```").skip(1).step_by(2);
    pieces.map(|piece| piece.split_once('\n').unwrap().1.to_owned()).collect()
}

/// A shell in a directory, that finds the program by its name.
fn shell(directory: &Path, script: &str) -> Command {
    let mut command = command("sh", directory);
    let programs = Path::new(BINARY).parent().unwrap().to_str().unwrap().to_owned();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{programs}:{path}")).args(["-euc", script]);
    command
}

/// A daemon as a block starts it, on a port that is free here, once it serves.
fn started(stage: &Stage, block: &str, port: &str) -> Child {
    // The daemon in place of the shell, so that it can be ended.
    let block = block.replace("3001", port).replace("\nagent-", "\nexec agent-");
    let mut daemon = shell(&stage.root(), &block);
    daemon.env("HOME", stage.outside("")).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    let mut notice = String::new();
    BufReader::new(daemon.stderr.as_mut().unwrap()).read_line(&mut notice).unwrap();
    assert!(notice.contains("agent-backend serves"), "{notice}");
    daemon
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn the_daemon_and_its_shell_work_when_pasted() {
    let [_, over_http, by_ssh] = blocks("For an MCP client").try_into().unwrap();
    let (port, stage) = (free_port(), Stage::new());
    // The port that is taken when none is said.
    let over_http = over_http.replace("agent-backend daemon", "agent-backend daemon --port 3001");
    let mut daemon = started(&stage, &over_http, &port);
    // What a person is asked once, and where the answer is kept.
    let answers = format!(
        "ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile={} ",
        stage.outside("known_hosts").display()
    );
    let by_ssh = by_ssh.replace("3001", &port).replace("ssh -o", &format!("{answers} -o"));
    let ran = run(shell(&stage.root(), &by_ssh), b"echo hello > made; exit 7\n");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(ran.code, 7, "{}", ran.err);
    assert_eq!(stage.text("project/made"), "hello\n");
}

#[test]
fn the_remote_example_works_when_pasted() {
    let [on_the_host, from_anywhere, in_rust] = blocks("A workspace elsewhere").try_into().unwrap();
    assert!(text("crates/agent-backend/examples/remote.rs").ends_with(&in_rust), "{in_rust}");

    let (port, stage) = (free_port(), Stage::new());
    let mut daemon = started(&stage, &on_the_host, &port);

    let ran = run(shell(&stage.root(), &from_anywhere.replace("3001", &port)), b"");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(
        ran.text(),
        "notes/plan.md:1:look around\n1 notes/plan.md\nbegun\ndone\n",
        "{}",
        ran.err
    );
    assert_eq!(stage.text("project/notes/plan.md"), "look around\n");
}
