//! What the README says to paste, pasted.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

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

#[test]
fn the_remote_example_works_when_pasted() {
    let [on_the_host, from_anywhere, in_rust] = blocks("A workspace elsewhere").try_into().unwrap();
    assert!(text("crates/agent-backend/examples/remote.rs").ends_with(&in_rust), "{in_rust}");

    // Another port, which is free here.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let stage = Stage::new();
    // The daemon in place of the shell, so that it can be ended.
    let on_the_host = on_the_host.replace("3001", &port).replace("\nagent-", "\nexec agent-");
    let mut daemon = shell(&stage.root(), &on_the_host);
    daemon.env("HOME", stage.outside("")).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    let mut notice = String::new();
    BufReader::new(daemon.stderr.as_mut().unwrap()).read_line(&mut notice).unwrap();
    assert!(notice.contains("agent-backend serves"), "{notice}");

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
