//! `session run`: a program in the workspace of a session, and an IDE by its name.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::outliving::comes;
use crate::serve::{Server, client, repository};
use crate::stage::{BINARY, run};

#[test]
fn program_and_ide_are_started_in_the_workspace() {
    let stage = repository();
    let server = Server::start(&stage);
    let made = client(&stage, &["task", "Look", "--keep", "--json"]);
    let id = made.value()["sessionId"].as_str().unwrap().to_owned();
    comes("the session runs", || {
        client(&stage, &["session", "get", &id, "--json"]).value()["status"] == "running"
    });
    let data = stage.outside("data");
    let data = ["--data-dir", data.to_str().unwrap()];
    let session_run = |rest: &[&str]| {
        let mut command = stage.command(BINARY);
        command.args(["session", "run", &id]).args(data).args(rest);
        // A directory with programs that are no IDEs.
        let bin = stage.outside("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path);
        run(command, b"")
    };
    let shell = "cat README.md; echo \"$AGENT_BACKEND_SESSION\"; exit 7";
    let ran = session_run(&["--", "sh", "-c", shell]);
    assert_eq!((ran.code, ran.text()), (7, format!("# A project\n{id}\n")), "{}", ran.err);
    assert!(ran.err.contains("The agent can write these files"), "{}", ran.err);
    let none = session_run(&["--", "no-such-program"]);
    assert!(none.code != 0 && none.err.contains("cannot start no-such-program"), "{}", none.err);

    let bin = stage.outside("bin");
    fs::create_dir(&bin).unwrap();
    let told = stage.outside("told");
    let script = format!("#!/bin/sh\necho \"$PWD $*\" > '{}'\n", told.display());
    let program = bin.join("rustrover");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = session_run(&["rustrover"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.text().contains("in RustRover"), "{}", ran.text());
    comes("the IDE", || fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n')));
    let said = fs::read_to_string(&told).unwrap();
    let (here, opened) = said.trim().split_once(' ').unwrap();
    assert!(here == opened && here.ends_with("/tree"), "{said}");

    let missing = session_run(&["sublime"]);
    assert!(
        missing.code != 0 && missing.err.contains("no program subl on PATH"),
        "{}",
        missing.err
    );
    let unknown = session_run(&["notepad"]);
    assert!(
        unknown.code != 0 && unknown.err.contains("unknown IDE \"notepad\""),
        "{}",
        unknown.err
    );
    let printed = session_run(&["vscode", "--print"]);
    let text = printed.text();
    assert!(text.contains(&format!("command  code {here}")), "{text}");
    assert!(text.contains("ssh      ssh -o 'ProxyCommand=agent-backend ssh-proxy"), "{text}");
    assert!(text.contains("not yet  Visual Studio Code on another machine"), "{text}");

    // A finished session has no workspace.
    assert_eq!(client(&stage, &["session", "cancel", &id]).code, 0);
    comes("the end of the workspace", || session_run(&["--print"]).code != 0);
    let gone = session_run(&["--print"]);
    assert!(gone.err.contains("the workspace was removed"), "{}", gone.err);
    assert_eq!(server.end().0, 0);
}
