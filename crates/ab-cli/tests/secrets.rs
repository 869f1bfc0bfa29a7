//! Tokens and passwords: how they are given, and who cannot read them afterwards.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use ab_testkit::host::report_skip;
use serde_json::json;

use crate::daemon::Daemon;
use crate::stage::{BINARY, Stage, run};

const SECRET: &str = "t0p-s3cr3t-t0ken";

/// What a command can read of how the processes of the host were started.
const LOOK: &str = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'\n\
                    echo it has looked\n";

#[test]
fn a_command_without_walls_cannot_read_the_token_of_the_daemon() {
    let stage = Stage::with(&[("look.sh", LOOK)]);
    for isolation in ["none", "software"] {
        let flags = ["--rootDir", ".", "--isolation", isolation, "--safety", "off"];
        let mut by_environment = stage.command(BINARY);
        by_environment.args(["daemon", "--port", "0", "--ssh-host-key"]);
        by_environment.arg(stage.outside("host_key")).args(flags);
        by_environment.env("AGENT_BACKEND_AUTH_TOKEN", SECRET);
        let joined = format!("--auth-token={SECRET}");
        let users = format!("ada:{SECRET}");
        let ssh = ["--conventional-ssh", "--ssh-port", "0", "--ssh-users", &users];
        let daemons = [
            Daemon::spawn(by_environment),
            Daemon::start(&stage, &[&flags[..], &["--auth-token", SECRET]].concat()),
            Daemon::start(&stage, &[&flags[..], &[&joined], &ssh].concat()),
        ];
        let bearer = format!("Bearer {SECRET}");
        let shown = [("authorization", bearer.as_str())];
        for (number, daemon) in daemons.into_iter().enumerate() {
            let (_, said) = daemon.call("exec", json!({ "command": "sh look.sh" }), &shown);
            let said = said["result"]["structuredContent"]["stdout"].as_str().unwrap().to_owned();
            assert!(said.ends_with("it has looked\n"), "{said}");
            assert!(!said.contains(SECRET), "{isolation}, daemon {number}");
            assert_eq!(daemon.end().0, 0);
        }
    }
}

/// Agents of `server` run without walls by default.
#[test]
fn the_token_of_server_is_in_no_argument_and_in_no_environment() {
    let stage = Stage::new();
    let (joined, with_equals) = (format!("-t{SECRET}"), format!("-t={SECRET}"));
    let by_flags: [&[&str]; 4] =
        [&["-t", SECRET], &[&joined], &[&with_equals], &["--token", SECRET]];
    for flags in by_flags.into_iter().chain([&[][..]]) {
        let mut command = stage.command(BINARY);
        command.arg("server").args(flags).args(["--port", "0", "--root", "."]);
        if flags.is_empty() {
            command.env("AGENT_BACKEND_AUTH_TOKEN", SECRET);
        }
        let server = Daemon::spawn(command);
        let (status, _) = server.ask("GET", "/v1/agents", &[], "");
        assert_eq!(status, 401, "{flags:?}");
        for file in ["cmdline", "environ"] {
            let shown = fs::read(format!("/proc/{}/{file}", server.id())).unwrap();
            let shown = String::from_utf8_lossy(&shown);
            assert!(!shown.contains(SECRET), "{flags:?}: {shown:?}");
        }
        assert_eq!(server.end().0, 0);
    }
}

/// Commands of the same user could else read the token in the daemon's memory.
#[test]
fn the_memory_of_a_process_with_a_secret_is_closed_to_its_user() {
    const NOBODY: u32 = 65534;
    let stage = Stage::new();
    for place in [stage.outside("."), stage.root()] {
        if std::os::unix::fs::chown(place, Some(NOBODY), Some(NOBODY)).is_err() {
            return report_skip("a daemon of another user", "it takes root to become one");
        }
    }
    let as_nobody = |program: &str| {
        let mut command = stage.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
        command
    };
    let daemon = |number: u8, more: &[&str]| {
        let mut command = as_nobody(BINARY);
        command.args(["daemon", "--rootDir", ".", "--port", "0", "--ssh-host-key"]);
        command.arg(stage.outside(&format!("host_key{number}"))).args(more);
        Daemon::spawn(command)
    };
    let token = ["--auth-token", SECRET];
    for (daemon, closed) in [(daemon(1, &[]), false), (daemon(2, &token), true)] {
        for file in ["mem", "environ", "maps", "auxv"] {
            let mut look = as_nobody("/bin/sh");
            look.args(["-c", &format!("exec 3< /proc/{}/{file}", daemon.id())]);
            let ran = run(look, b"");
            assert_eq!(ran.code != 0, closed, "{file}: {}", ran.err);
        }
        assert_eq!(daemon.end().0, 0);
    }
}

#[test]
fn the_token_of_the_environment_is_gone_from_there_but_works() {
    let stage = Stage::with(&[("a.txt", "hello\n")]);
    let daemon = Daemon::start(&stage, &["--rootDir", ".", "--auth-token", SECRET]);
    let mut command = stage.command(BINARY);
    command.args(["mcp", "--remote", &format!("ws://{}/ssh", daemon.address)]);
    command.env("AGENT_BACKEND_AUTH_TOKEN", SECRET).env("KEPT", "it is here");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut client = command.spawn().unwrap();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "read_text_file", "arguments": { "path": "a.txt" },
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" } } } });
    let mut input = client.stdin.take().unwrap();
    input.write_all(format!("{call}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    let mut output = std::io::BufReader::new(client.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut answer).unwrap();
    let environment = fs::read(format!("/proc/{}/environ", client.id()));
    drop(input);
    client.wait().unwrap();
    assert!(answer.contains("hello"), "{answer}");
    // Only root may read it at all.
    if let Ok(environment) = environment {
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(environment.contains("KEPT=it is here"), "{environment}");
        assert!(!environment.contains(SECRET), "{environment}");
    }
}

#[test]
fn secrets_come_by_files_and_by_standard_input() {
    let stage = Stage::with(&[("a.txt", "hello\n")]);
    let users = stage.outside("users");
    // A comma is a part of the password here.
    fs::write(&users, "# who may\nada:se,cret\n\nbob:other\n").unwrap();
    let token = stage.outside("token");
    fs::write(&token, format!("{SECRET}\n")).unwrap();
    let flags = [
        "--rootDir",
        ".",
        "--auth-token-file",
        token.to_str().unwrap(),
        "--conventional-ssh",
        "--ssh-port",
        "0",
        "--ssh-users-file",
        users.to_str().unwrap(),
    ];
    let daemon = Daemon::start(&stage, &flags);
    let after = |mark: &str| daemon.notice.split(mark).nth(1).unwrap().to_owned();
    let pin = format!("SHA256:{}", after("SHA256:").split([',', '\n']).next().unwrap());
    let ssh = format!("ssh://ada@{}", after(" and on ").split(' ').next().unwrap());
    let socket = format!("ws://{}/ssh", daemon.address);
    let by_password = ["--remote", &ssh, "--password-file", "-", "--host-key", &pin];
    let by_token = ["--remote", &socket, "--token-file", "-"];
    for (flags, secret) in [(&by_password[..], "se,cret"), (&by_token, SECRET)] {
        let mut command = stage.command(BINARY);
        command.args(["fs", "cat", "a.txt"]).args(flags);
        let ran = run(command, format!("{secret}\nthe rest\n").as_bytes());
        assert_eq!((ran.code, ran.text().as_str()), (0, "hello\n"), "{flags:?} {}", ran.err);
        let mut command = stage.command(BINARY);
        command.args(["fs", "cat", "a.txt"]).args(flags);
        assert_ne!(run(command, b"wrong\n").code, 0, "{flags:?}");
        // What follows the secret is for the command.
        let mut command = stage.command(BINARY);
        command.args(["exec", "-i"]).args(flags).args(["--", "cat"]);
        let ran = run(command, format!("{secret}\nthe rest\n").as_bytes());
        assert_eq!((ran.code, ran.text().as_str()), (0, "the rest\n"), "{flags:?} {}", ran.err);
    }
    let ran = stage.run(&["fs", "ls", "--remote", &ssh, "--host-key", &pin, "--ask-password"]);
    ran.expect_error(2, "--ask-password needs a terminal");
    assert_eq!(daemon.end().0, 0);
}

/// An address reserved for documentation: a connection to it reaches no host.
const ELSEWHERE: &str = "192.0.2.1:9";

#[test]
fn a_token_does_not_leave_the_host_in_the_clear() {
    let stage = Stage::new();
    let token = stage.outside("token");
    fs::write(&token, SECRET).unwrap();
    let token = token.to_str().unwrap();
    let says = "the token would be sent to 192.0.2.1:9 without encryption";
    for scheme in ["ws", "http"] {
        let url = format!("{scheme}://{ELSEWHERE}/ssh");
        let remote = ["--remote", &url, "--token-file", token];
        for (command, code) in
            [(&["fs", "ls"][..], 2), (&["exec", "--explain"], 125), (&["mcp"], 2)]
        {
            let ran = stage.run(&[command, &remote].concat());
            ran.expect_error(code, says);
            assert!(ran.err.contains("--allow-insecure-token"), "{}", ran.err);
        }
    }
    let ran = stage.run(&["ssh-proxy", "--token-file", token, &format!("ws://{ELSEWHERE}/ssh")]);
    assert!(ran.code != 0 && ran.err.contains(says), "{}", ran.err);
}
