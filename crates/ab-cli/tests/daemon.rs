//! `daemon`: the built binary, its flags, its port, its end.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::{Value, json};

use crate::mcp::Session;
use crate::outliving::{comes, held};
use crate::stage::{BINARY, Stage};

/// A daemon that has said where it listens.
pub(crate) struct Daemon {
    child: Child,
    errors: BufReader<ChildStderr>,
    /// What it said before that.
    pub(crate) warnings: String,
    /// The line that it said.
    pub(crate) notice: String,
    pub(crate) address: String,
}

impl Daemon {
    pub(crate) fn start(stage: &Stage, arguments: &[&str]) -> Daemon {
        let mut command = stage.command(BINARY);
        command.args(["daemon", "--port", "0", "--ssh-host-key"]);
        command.arg(stage.outside("host_key")).args(arguments);
        Daemon::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Daemon {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (warnings, notice, address) = (String::new(), String::new(), String::new());
        // From here on it is ended whatever happens.
        let mut daemon = Daemon { child, errors, warnings, notice, address };
        // A client that waits for it may be served, and logged, before it has said where it is.
        while !daemon.notice.contains("://") {
            daemon.warnings.push_str(&daemon.notice);
            daemon.notice.clear();
            let length = daemon.errors.read_line(&mut daemon.notice).unwrap();
            assert!(length > 0, "it ended without a word on where it listens: {}", daemon.warnings);
        }
        let address = daemon.notice.split("://").nth(1).unwrap();
        daemon.address = address.split(['/', '"', '\n']).next().unwrap().to_owned();
        daemon
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The status and the body of a request.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let length = body.len();
        request.push_str(&format!("connection: close\r\ncontent-length: {length}\r\n\r\n{body}"));
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    pub(crate) fn call(
        &self,
        tool: &str,
        arguments: Value,
        headers: &[(&str, &str)],
    ) -> (u16, Value) {
        let mut all = vec![("accept", "*/*"), ("content-type", "application/json")];
        all.extend_from_slice(headers);
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let (status, body) = self.ask("POST", "/mcp", &all, &call.to_string());
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Asks it to end: its exit code, and what else it said.
    pub(crate) fn end(mut self) -> (i32, String) {
        self.signal(rustix::process::Signal::TERM);
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap(), said)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn root(stage: &Stage) -> String {
    stage.root().to_str().unwrap().to_owned()
}

#[test]
fn start_line_says_that_the_directory_was_created() {
    let stage = Stage::new();
    let root = stage.outside("new").to_str().unwrap().to_owned();
    for note in [" (a new directory) at http://", " at http://"] {
        let daemon = Daemon::start(&stage, &["--root", &root]);
        let start = format!("agent-backend serves {root}{note}");
        assert!(daemon.notice.starts_with(&start), "{}", daemon.notice);
        assert_eq!(daemon.end().0, 0);
    }
}

#[test]
fn it_says_in_one_line_what_it_serves_and_ends_in_good_order() {
    let stage = Stage::with(&[("a.txt", "hello\n")]);
    let root = root(&stage);
    let daemon = Daemon::start(&stage, &["--rootDir", &root]);
    let start = format!("agent-backend serves {root} at http://127.0.0.1:");
    assert!(daemon.notice.starts_with(&start), "{}", daemon.notice);
    let isolation = stage.json(&["exec", "--explain", "--json"])["isolation"].clone();
    let rest = format!(
        "/mcp, isolation {}, rules guarded, no token needed, SSH at /ssh with host key SHA256:",
        isolation.as_str().unwrap()
    );
    assert!(daemon.notice.contains(&rest), "{} {rest}", daemon.notice);
    let (status, health) = daemon.ask("GET", "/health", &[], "");
    let health: Value = serde_json::from_str(&health).unwrap();
    assert_eq!((status, &health["status"], &health["rootDir"]), (200, &json!("ok"), &json!(root)));
    assert_eq!(health["effectivePolicy"]["isolation"], isolation);
    let (_, read) = daemon.call("read_text_file", json!({ "path": "a.txt" }), &[]);
    assert_eq!(read["result"]["content"][0]["text"], "hello\n");
    let (_, refused) = daemon.call("exec", json!({ "command": "sudo ls" }), &[]);
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let (code, said) = daemon.end();
    assert_eq!(code, 0, "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("request_id=")).collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].contains("method=GET path=\"/health\" status=200"), "{said}");
}

#[test]
fn it_has_every_tool() {
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &["--rootDir", "."]);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let headers = [("accept", "*/*"), ("content-type", "application/json")];
    let (status, listed) = daemon.ask("POST", "/mcp", &headers, &list);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(status, 200);
    let expect = [
        "read_file",
        "read_text_file",
        "read_media_file",
        "read_multiple_files",
        "write_file",
        "edit_file",
        "create_directory",
        "list_directory",
        "list_directory_with_sizes",
        "directory_tree",
        "move_file",
        "search_files",
        "get_file_info",
        "list_allowed_directories",
        "grep",
        "delete",
        "exec",
        "process_output",
        "process_input",
        "process_kill",
        "process_list",
    ];
    assert_eq!(names, expect);
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn flags_that_make_no_sense_end_with_one() {
    let stage = Stage::with(&[("file", "")]);
    let root = root(&stage);
    let file = stage.path("file");
    let file = file.to_str().unwrap();
    // Any port that is free: some flags are looked at after the port is open.
    let with = |more: &[&str]| {
        let port: &[&str] = if more.contains(&"--port") { &[] } else { &["--port", "0"] };
        let all = [&["daemon", "--rootDir", &root], port, more].concat();
        all.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>()
    };
    for (arguments, says) in [
        (vec!["daemon".to_owned()], "--root <DIR>"),
        (with(&["--isolation", "chroot"]), "chroot"),
        (with(&["--shell", "zsh"]), "zsh"),
        (with(&["--port", "80"]), "1024 to 65535"),
        (with(&["--port", "70000"]), "1024 to 65535"),
        (with(&["--port", "abc"]), "1024 to 65535"),
        (with(&["--no-such-flag"]), "--no-such-flag"),
        (with(&["--scopePath", "a/../.."]), "'..'"),
        (with(&["--host", "0.0.0.0"]), "no token"),
        (with(&["--host", "nowhere"]), "nowhere"),
        (with(&["--auth-token", ""]), "the token is empty"),
        (with(&["--auth-token-file", "missing"]), "missing"),
        (with(&["--auth-token-file", file]), "the token is empty"),
        (with(&["--auth-token", "a", "--auth-token-file", file]), "cannot be used"),
        (with(&["--auth-token", "a", "--no-auth"]), "cannot be used"),
        (with(&["--tls-cert", file]), "--tls-key"),
        (with(&["--tls-cert", file, "--tls-key", file]), "contains no certificate"),
        (with(&["--log-format", "xml"]), "xml"),
        (with(&["--log-level", "loud"]), "must be error, warn"),
        (with(&["--max-body", "lots"]), "--max-body"),
        (with(&["--max-body", "0"]), "--max-body"),
        (with(&["--max-body", "1G1"]), "--max-body"),
        (with(&["--max-body", "9999T"]), "--max-body"),
        (with(&["--allowed-origin", "foo"]), "--allowed-origin"),
        (with(&["--allowed-origin", "https://a.example,*"]), "--allowed-origin"),
        (with(&["--allowed-host", "http://a.example"]), "--allowed-host"),
        (with(&["--allowed-host", ""]), "--allowed-host"),
        (with(&["--backend", "cloud"]), "cloud"),
        (with(&["--local-only", "--safety", "strict"]), "cannot be used"),
        (with(&["--local-only", "--auth-token", "t"]), "cannot be used"),
        (with(&["--ssh-users", "a:b"]), "--conventional-ssh"),
        (with(&["--conventional-ssh", "--ssh-users", "a"]), "--ssh-users: user 'a' has neither"),
        (with(&["--conventional-ssh", "--ssh-users", ":p"]), "--ssh-users: entry 1 has no name"),
        (with(&["--conventional-ssh", "--ssh-users", "a:b,"]), "--ssh-users: entry 2 has no name"),
        (
            with(&["--conventional-ssh", "--ssh-users", "a:b,a:c"]),
            "--ssh-users: user 'a' is listed twice",
        ),
        (with(&["--conventional-ssh", "--ssh-users", "a:b,c"]), "--ssh-users: entry 2 has no pass"),
        (
            with(&["--conventional-ssh", "--ssh-authorized-keys", file]),
            "neither a password nor a key",
        ),
        (with(&["--conventional-ssh", "--ssh-port", "x"]), "--ssh-port"),
        (with(&["--conventional-ssh", "--ssh-public-key", "nonsense"]), "public keys"),
        (with(&["--conventional-ssh", "--ssh-authorized-keys", "missing"]), "missing"),
        (with(&["--conventional-ssh", "--host", "0.0.0.0", "--no-auth"]), "no SSH users are set"),
        (["daemon", "--rootDir", file, "--port", "0"].map(str::to_owned).to_vec(), "root"),
        (
            with(&["--conventional-ssh", "--ssh-users", "a:b", "--ssh-users-file", file]),
            "cannot be used",
        ),
        (
            with(&["--conventional-ssh", "--ssh-users-file", file]),
            "--ssh-users-file: it contains no users",
        ),
        (with(&["--conventional-ssh", "--ssh-users-file", "missing"]), "missing"),
    ] {
        let ran = stage.run(&arguments);
        assert_eq!(ran.code, 1, "{arguments:?}: {}", ran.err);
        assert!(ran.err.starts_with("error: ") && ran.err.contains(says), "{says}: {}", ran.err);
    }
}

#[test]
fn a_port_that_is_taken_is_told() {
    let stage = Stage::new();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = stage.run(&["daemon", "--rootDir", ".", "--port", &port]);
    ran.expect_error(1, "another program uses this port");
}

#[test]
fn a_root_that_is_not_there_is_made() {
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &["--rootDir", "new/place"]);
    assert!(stage.path("new/place").is_dir());
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn the_token_comes_by_flag_file_or_environment_and_is_shown_nowhere() {
    const SECRET: &str = "s3cr3t-token";
    let stage = Stage::with(&[]);
    let file = stage.outside("token.txt");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let file = file.to_str().unwrap();
    let mut by_environment = stage.command(BINARY);
    by_environment.args(["daemon", "--port", "0", "--rootDir", ".", "--isolation", "none"]);
    by_environment.arg("--ssh-host-key").arg(stage.outside("host_key"));
    by_environment.env("AGENT_BACKEND_AUTH_TOKEN", SECRET).env("AUTH_TOKEN", SECRET);
    let plain = ["--rootDir", ".", "--isolation", "none", "--safety", "off"];
    let daemons = [
        Daemon::start(&stage, &[plain.as_slice(), &["--auth-token", SECRET]].concat()),
        Daemon::start(&stage, &[plain.as_slice(), &["--auth-token-file", file]].concat()),
        Daemon::spawn(by_environment),
    ];
    let shown = format!("Bearer {SECRET}");
    let shown = ("authorization", shown.as_str());
    for daemon in daemons {
        assert!(daemon.notice.contains(", token required"), "{}", daemon.notice);
        let env = json!({ "command": "env" });
        let (status, refused) = daemon.call("exec", env.clone(), &[]);
        assert_eq!((status, &refused["error"]), (401, &json!("Unauthorized")));
        let (status, said) = daemon.call("exec", env, &[shown]);
        assert_eq!(status, 200);
        let said = said["result"]["structuredContent"]["stdout"].as_str().unwrap().to_owned();
        assert!(said.contains("HOME=") && !said.contains(SECRET), "{said}");
        let (_, health) = daemon.ask("GET", "/health", &[], "");
        assert!(!health.contains("effectivePolicy"), "{health}");
        let path = format!("/health?token={SECRET}");
        assert_eq!(daemon.ask("GET", &path, &[], "").0, 200);
        let (code, logged) = daemon.end();
        assert_eq!(code, 0);
        assert!(!logged.contains(SECRET), "{logged}");
    }
}

#[test]
fn another_address_needs_a_token_or_a_word() {
    let stage = Stage::new();
    for more in [["--no-auth", "--safety=strict"], ["--auth-token", "t"]] {
        let flags = [["--rootDir", "."], ["--host", "0.0.0.0"], more].concat();
        let daemon = Daemon::start(&stage, &flags);
        assert!(daemon.notice.contains("http://0.0.0.0:"), "{}", daemon.notice);
        assert_eq!(daemon.end().0, 0);
    }
}

#[test]
fn a_token_in_the_environment_is_not_overlooked() {
    let stage = Stage::new();
    let mut command = stage.command(BINARY);
    command.args(["daemon", "--rootDir", ".", "--port", "0", "--no-auth"]);
    command.env("AGENT_BACKEND_AUTH_TOKEN", "t");
    crate::stage::run(command, b"")
        .expect_error(1, "--no-auth cannot be used while AGENT_BACKEND_AUTH_TOKEN is set");
}

#[test]
fn a_token_that_is_no_text_is_refused_and_not_taken_for_none() {
    let stage = Stage::new();
    let odd = OsStr::from_bytes(b"\xff\xfe");
    let host_key = stage.outside("host_key");
    let host_key = host_key.to_str().unwrap();
    let says = "the token in AGENT_BACKEND_AUTH_TOKEN is not valid UTF-8";
    for (arguments, code) in [
        (&["daemon", "--rootDir", ".", "--port", "0", "--ssh-host-key", host_key][..], 1),
        (&["daemon", "--rootDir", ".", "--port", "0", "--no-auth"], 1),
        (&["ssh-proxy", "ws://127.0.0.1:1/ssh"], 2),
    ] {
        // One that serves all the same ends by itself, and with another code.
        let mut command = stage.command("timeout");
        command.args(["60", BINARY]).args(arguments).env("AGENT_BACKEND_AUTH_TOKEN", odd);
        crate::stage::run(command, b"").expect_error(code, says);
    }
    let file = stage.outside("token");
    fs::write(&file, b"\xff\xfe\n").unwrap();
    let file = file.to_str().unwrap();
    let ran = stage.run(&["ssh-proxy", "--token-file", file, "ws://127.0.0.1:1/ssh"]);
    ran.expect_error(2, &format!("the token in {file} is not valid UTF-8"));
}

#[test]
fn as_many_files_may_be_open_as_the_host_allows_and_few_are_warned_of() {
    let stage = Stage::new();
    let limited = |limits: &str| {
        let mut command = stage.command("sh");
        command.args(["-c", &format!("{limits}; exec \"$@\""), "sh", BINARY, "daemon"]);
        command.args(["--port", "0", "--rootDir", ".", "--isolation", "none"]);
        command.arg("--ssh-host-key").arg(stage.outside("host_key"));
        let daemon = Daemon::spawn(command);
        let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.id())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let soft = line.split_whitespace().nth(3).unwrap().to_owned();
        let warnings = daemon.warnings.clone();
        assert_eq!(daemon.end().0, 0);
        (soft, warnings)
    };
    let (soft, warnings) = limited("ulimit -Sn 200; ulimit -Hn 2000");
    assert_eq!((soft.as_str(), warnings.as_str()), ("2000", ""));
    let (soft, warnings) = limited("ulimit -n 200");
    assert_eq!(soft, "200");
    assert!(warnings.contains("the limit of open files is low"), "{warnings}");
    assert!(warnings.contains("open_files=200") && warnings.contains("ulimit -n"), "{warnings}");
}

#[test]
fn logs_that_nobody_takes_stop_nothing() {
    let stage = Stage::new();
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let mut command = stage.command(BINARY);
    command.args(["daemon", "--rootDir", ".", "--port", &address.port().to_string()]);
    command.arg("--ssh-host-key").arg(stage.outside("host_key"));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = command.stdin(Stdio::null()).stderr(full).spawn().unwrap();
    for _ in 0..3 {
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        let request = b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn logs_can_be_json_with_an_id_for_each_request() {
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &["--rootDir", ".", "--log-format", "json"]);
    let notice: Value = serde_json::from_str(&daemon.notice).unwrap();
    assert_eq!((&notice["message"], &notice["root"]), (&json!("serving"), &json!(".")));
    daemon.ask("GET", "/health", &[("x-request-id", "mine")], "");
    let (_, said) = daemon.end();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["request_id"], &lines[0]["status"]), (&json!("mine"), &json!(200)));
    assert_eq!(lines.last().unwrap()["message"], "closing");
}

#[test]
fn a_daemon_can_be_confined_to_a_scope() {
    let stage = Stage::with(&[("in/a.txt", "inside"), ("b.txt", "outside")]);
    let flags = ["--rootDir", ".", "--scopePath", "in", "--safety", "off"];
    let daemon = Daemon::start(&stage, &flags);
    assert!(daemon.notice.contains("(scope in)"), "{}", daemon.notice);
    let (_, read) = daemon.call("read_text_file", json!({ "path": "a.txt" }), &[]);
    assert_eq!(read["result"]["content"][0]["text"], "inside");
    let (_, said) = daemon.call("exec", json!({ "command": "cat ../b.txt; cat ../*; ls" }), &[]);
    let said = said["result"].to_string();
    assert!(!said.contains("outside"), "{said}");
    let (status, conflict) =
        daemon.call("read_text_file", json!({ "path": "a" }), &[("x-scope-path", "in")]);
    assert_eq!((status, &conflict["error"]), (400, &json!("Scope conflict")));
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn a_second_request_to_stop_does_not_wait() {
    let stage = Stage::new();
    let flags = ["--rootDir", ".", "--isolation", "none", "--safety", "off"];
    let mut daemon = Daemon::start(&stage, &flags);
    let mut stream = TcpStream::connect(&daemon.address).unwrap();
    let params = json!({ "name": "exec", "arguments": { "command": "touch begun; sleep 1000" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let body = body.to_string();
    let head =
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    while !stage.path("begun").exists() {
        std::thread::yield_now();
    }
    daemon.signal(rustix::process::Signal::INT);
    let mut line = String::new();
    while !line.contains("closing") {
        line.clear();
        daemon.errors.read_line(&mut line).unwrap();
    }
    daemon.signal(rustix::process::Signal::INT);
    assert_eq!(daemon.child.wait().unwrap().code(), Some(130));
}

/// Over SSH a command runs on a thread that is not the runtime's: that one has to end it all the same.
#[test]
fn nothing_that_was_started_over_ssh_outlives_a_daemon_in_a_hurry() {
    let stage = Stage::new();
    let flags = ["--rootDir", ".", "--isolation", "none", "--safety", "off"];
    let mut daemon = Daemon::start(&stage, &flags);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let line = "mkfifo never; (setsid sh -c 'exec 9>>alive; echo x >&9; read x < never' &); \
                read x < never";
    let address = format!("ws://{}/ssh", daemon.address);
    let running = runtime.spawn(async move {
        let backend = agent_backend::remote(&address).unwrap();
        backend.exec(line).await
    });
    comes("the command", || fs::read(stage.path("alive")).is_ok_and(|said| said == b"x\n"));
    assert!(held(&stage, "alive") > 0, "the oracle sees it");
    daemon.signal(rustix::process::Signal::TERM);
    let mut line = String::new();
    while !line.contains("closing") {
        line.clear();
        daemon.errors.read_line(&mut line).unwrap();
    }
    // It may have ended by then.
    let _ = rustix::process::kill_process(daemon.pid(), rustix::process::Signal::TERM);
    daemon.child.wait().unwrap();
    // It waits for ever, and nobody is left who could still end it.
    comes("the end of what it started", || held(&stage, "alive") == 0);
    drop(running);
    runtime.shutdown_background();
}

#[test]
fn local_only_is_stdio_without_rules() {
    let stage = Stage::with(&[("a.txt", "hello")]);
    let mut session = Session::begin(&stage, &["daemon", "--rootDir", ".", "--local-only"]);
    assert_eq!(session.text("read_text_file", json!({ "path": "a.txt" })), "hello");
    // Refused anywhere else.
    assert_eq!(
        session.text("exec", json!({ "command": "echo $(echo judged); true || sudo" })),
        "judged"
    );
    assert_eq!(session.end(), "");
}

#[test]
fn memory_works_with_and_without_the_word() {
    let stage = Stage::with(&[("a.txt", "on disk")]);
    let root = root(&stage);
    let words: [&[&str]; 3] = [
        &["--backend", "memory", "--rootDir", &root],
        &["--backend=memory", "--rootDir", &root],
        &["daemon", "--backend", "memory", "--local-only", "--rootDir", &root],
    ];
    for words in words {
        let mut session = Session::begin(&stage, words);
        let missing = session.call("read_text_file", json!({ "path": "a.txt" }));
        assert_eq!(missing["isError"], true, "{missing}");
        let path = format!("{root}/b.txt");
        session.text("write_file", json!({ "path": path, "content": "kept in memory" }));
        assert_eq!(session.text("read_text_file", json!({ "path": "b.txt" })), "kept in memory");
        assert_eq!(session.end(), "");
        assert!(!stage.path("b.txt").exists());
    }
    let daemon = Daemon::start(&stage, &["--backend", "memory", "--rootDir", &root]);
    assert!(daemon.notice.contains("isolation no commands"), "{}", daemon.notice);
    assert!(daemon.notice.contains(" (in memory, gone when this ends) at "), "{}", daemon.notice);
    let write = json!({ "path": "c", "content": "x" });
    assert_eq!(daemon.call("write_file", write, &[]).0, 200);
    let (_, read) = daemon.call("read_text_file", json!({ "path": "c" }), &[]);
    assert_eq!(read["result"]["content"][0]["text"], "x");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn help_names_every_flag_of_the_contract() {
    let stage = Stage::new();
    let help = stage.out(&["daemon", "--help"]);
    for flag in [
        "--rootDir",
        "--scopePath",
        "--isolation",
        "--shell",
        "--port",
        "--auth-token",
        "--local-only",
        "--host",
        "--auth-token-file",
        "--no-auth",
        "--safety",
        "--network",
        "--max-body",
        "--tls-cert",
        "--tls-key",
        "--log-format",
        "--backend",
        "--allowed-host",
        "--allowed-origin",
        "--disable-ssh-ws",
        "--ssh-host-key",
        "--conventional-ssh",
        "--ssh-port",
        "--ssh-users",
        "--ssh-public-key",
        "--ssh-authorized-keys",
        "--ssh-users-file",
        "--floor",
        "--memory",
        "--processes",
        "--cpu",
        "--timeout",
        "--file-size",
        "--open-files",
        "--max-output",
        "--hide",
        "--read-only",
        "--bind",
        "--toolchain",
        "--env",
        "--max-commands",
        "--max-connections",
        "--max-connections-per-address",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
}
