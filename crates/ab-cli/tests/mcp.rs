//! `mcp`: the built binary as an MCP client starts it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::outliving::{comes, held};
use crate::stage::{BINARY, Ran, Stage, run};

/// A client that speaks to the binary over its standard input and output.
pub(crate) struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Session {
    pub(crate) fn start(stage: &Stage, arguments: &[&str]) -> Session {
        Session::begin(stage, &[&["mcp", "--quiet"], arguments].concat())
    }

    pub(crate) fn begin(stage: &Stage, arguments: &[&str]) -> Session {
        let mut command = stage.command(BINARY);
        command.args(arguments);
        Session::of(command)
    }

    /// With the server that this starts.
    pub(crate) fn of(mut command: Command) -> Session {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut session = Session { child, input, output, next: 0 };
        let client = json!({ "name": "test", "version": "0" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let answer = session.ask("initialize", params);
        assert_eq!(answer["protocolVersion"], "2025-11-25", "{answer}");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        writeln!(session.input, "{ready}").unwrap();
        session
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{call}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer["result"].clone()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    pub(crate) fn text(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments);
        assert_ne!(answer["isError"], true, "{answer}");
        answer["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes standard input; what was said on standard error.
    pub(crate) fn end(self) -> String {
        drop(self.input);
        let ended = self.child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0));
        String::from_utf8(ended.stderr).unwrap()
    }
}

#[test]
fn a_client_works_on_the_workspace_and_leaves() {
    let stage = Stage::with(&[("src/a.rs", "fn a() {}\n")]);
    let mut session = Session::start(&stage, &[]);
    let tools = session.ask("tools/list", json!({}));
    assert_eq!(tools["tools"].as_array().unwrap().len(), 21);
    let text = session.text("read_text_file", json!({ "path": "src/a.rs" }));
    assert_eq!(text, "fn a() {}\n");
    session.text("write_file", json!({ "path": "b/c.txt", "content": "written" }));
    assert_eq!(stage.text("b/c.txt"), "written");
    let said = session.text("exec", json!({ "command": "cat b/c.txt" }));
    assert_eq!(said, "written");
    let outside = session.call("read_text_file", json!({ "path": "../../etc/passwd" }));
    assert_eq!(outside["isError"], true, "{outside}");
    assert_eq!(session.end(), "");
}

#[test]
fn a_refused_command_names_its_rule_and_a_suggestion() {
    let stage = Stage::new();
    let mut session = Session::start(&stage, &[]);
    let refused = session.call("exec", json!({ "command": "rm -rf /" }));
    assert_eq!(refused["isError"], true, "{refused}");
    let error = &refused["_meta"]["agent-backend/error"];
    assert_eq!(error["code"], "DANGEROUS_OPERATION", "{refused}");
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(text.lines().count() == 2 && text.contains("rule"), "{text}");
    session.end();
}

#[test]
fn the_limit_that_ended_a_command_is_named() {
    let stage = Stage::new();
    let mut session = Session::start(&stage, &["--cpu", "1s", "--isolation", "none"]);
    let ended = session.call("exec", json!({ "command": "while :; do :; done" }));
    assert_eq!(ended["isError"], true, "{ended}");
    let text = ended["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("signal 24: it needed more CPU time than its limit"), "{text}");
    session.end();
}

#[test]
fn a_scope_is_all_there_is() {
    let stage = Stage::with(&[("in/a", "inside"), ("b", "outside")]);
    let root = stage.root();
    let root = root.to_str().unwrap();
    let mut session = Session::start(&stage, &["--root", root, "--scope", "in"]);
    assert_eq!(session.text("list_directory", json!({ "path": "." })), "[FILE] a");
    assert_eq!(session.call("read_text_file", json!({ "path": "../b" }))["isError"], true);
    session.end();
}

#[test]
fn what_was_started_in_the_background_ends_with_the_client() {
    let stage = Stage::new();
    let mut session = Session::start(&stage, &["--isolation", "none"]);
    session.text("exec", json!({ "command": "mkfifo pipe" }));
    session.text("exec", json!({ "command": "exec 3>pipe; sleep 1000", "background": true }));
    // Opens once the other end is open, and ends with it.
    let mut pipe = std::fs::File::open(stage.path("pipe")).unwrap();
    session.end();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut pipe, &mut rest).unwrap();
    assert_eq!(rest, b"");
}

#[test]
fn a_workspace_that_is_not_there_is_told_on_standard_error() {
    let stage = Stage::new();
    stage.run(&["mcp", "--root", "nowhere"]).expect_error(1, "error: ");
}

#[test]
fn a_hundred_megabytes_are_refused_and_the_next_call_is_answered() {
    let stage = Stage::with(&[("a.txt", "still here")]);
    let mut session = Session::start(&stage, &[]);
    let head = r#"{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"write_file","arguments":{"path":"b","content":""#;
    session.input.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        session.input.write_all(&piece).unwrap();
    }
    session.input.write_all(b"\"}}}\n").unwrap();
    let mut line = String::new();
    session.output.read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("a message may have up to "), "{answer}");
    assert_eq!(session.text("read_text_file", json!({ "path": "a.txt" })), "still here");
    let status = format!("/proc/{}/status", session.child.id());
    let status = std::fs::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 256 * 1024, "{peak} kB");
    assert!(!stage.path("b").exists());
    session.end();
}

#[test]
fn the_last_call_may_lack_its_line_end() {
    let stage = Stage::new();
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    let ran = stage.run_with(&["mcp"], format!("{hello}\n{ping}").as_bytes());
    let last = ran.text().lines().last().unwrap_or_default().to_owned();
    assert_eq!((ran.code, last.as_str()), (0, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
}

/// The first messages of a client.
fn greeting() -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "0" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    format!("{hello}\n{ready}\n")
}

fn exec_call(command: &str) -> String {
    let params = json!({ "name": "exec", "arguments": { "command": command } });
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    format!("{call}\n")
}

#[test]
fn calls_before_the_end_of_the_input_are_answered() {
    let stage = Stage::new();
    for command in [&["mcp", "--quiet"][..], &["daemon", "--local-only", "--root", "."]] {
        // Longer than most clients wait for the end of the server.
        let asked = greeting() + &exec_call("sleep 4; echo done");
        let ran = stage.run_with(command, asked.as_bytes());
        let last: Value = serde_json::from_str(ran.text().lines().last().unwrap()).unwrap();
        assert_eq!((ran.code, &last["id"]), (0, &json!(7)), "{last}");
        assert_eq!(last["result"]["content"][0]["text"], "done", "{last}");
    }
}

/// A client that was killed leaves no command running. Clients use pipes or sockets.
#[test]
fn a_client_that_is_gone_is_not_waited_for() {
    fn ended(stage: &Stage, mut child: Child, mut client: (impl Write, impl Sized)) {
        let asked = greeting() + &exec_call("exec 9>>alive; sleep 100000");
        client.0.write_all(asked.as_bytes()).unwrap();
        comes("the command", || stage.path("alive").exists() && held(stage, "alive") > 0);
        drop(client);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        comes("the end of the command", || held(stage, "alive") == 0);
    }
    let stage = Stage::new();
    let server = || {
        let mut command = stage.command(BINARY);
        command.args(["mcp", "--quiet"]);
        command
    };
    let mut child = server().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let client = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    ended(&stage, child, client);
    let pair = || std::os::unix::net::UnixStream::pair().unwrap();
    let ((input, theirs), (output, said)) = (pair(), pair());
    let (theirs, said) = (std::os::fd::OwnedFd::from(theirs), std::os::fd::OwnedFd::from(said));
    let child = server().stdin(theirs).stdout(said).spawn().unwrap();
    ended(&stage, child, (input, output));
}

#[test]
fn a_signal_ends_the_server_although_calls_run() {
    let stage = Stage::new();
    let mut session = Session::start(&stage, &[]);
    write!(session.input, "{}", exec_call("exec 9>>alive; sleep 100000")).unwrap();
    comes("the command", || stage.path("alive").exists() && held(&stage, "alive") > 0);
    let Session { child, input, .. } = session;
    drop(input);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(143));
    comes("the end of the command", || held(&stage, "alive") == 0);
}

/// The binary in a directory, with a home directory, and with nothing to say to it.
fn started_in(directory: &Path, home: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(directory).env("HOME", home);
    command.env_remove("AGENT_BACKEND_ROOT");
    run(command, b"")
}

#[test]
fn a_home_directory_is_served_only_by_name() {
    let stage = Stage::with(&[("home/project/a.txt", "")]);
    let (home, above) = (stage.path("home"), stage.root());
    std::os::unix::fs::symlink(&home, stage.path("link")).unwrap();
    for (directory, what) in [
        (Path::new("/"), "the root of the file system"),
        (&home, "the home directory"),
        (&stage.path("link"), "the home directory"),
        (&above, "above the home directory"),
    ] {
        let ran = started_in(directory, &home, &["mcp"]);
        ran.expect_error(2, what);
        assert!(ran.err.contains("--root DIR"), "{}", ran.err);
        let named = [&["mcp", "--root"], &["."][..]].concat();
        assert_eq!(started_in(directory, &home, &named).code, 0, "{directory:?}");
    }
    assert_eq!(started_in(&home.join("project"), &home, &["mcp"]).code, 0);
    // The user database knows it as well as the environment.
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let root =
        passwd.lines().any(|line| line.starts_with("root:x:0:0:") && line.contains(":/root:"));
    let user = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap());
    if root && user == 0 && Path::new("/root").is_dir() {
        started_in(Path::new("/root"), &home, &["mcp"]).expect_error(2, "the home directory");
    }
}

#[test]
fn commands_that_people_type_take_any_directory_but_the_root_of_the_file_system() {
    let stage = Stage::with(&[("a.txt", "")]);
    let home = stage.root();
    for (words, code) in [(&["fs", "ls"][..], 2), (&["exec", "--", "ls"], 125)] {
        let ran = started_in(Path::new("/"), &home, words);
        ran.expect_error(code, "the root of the file system");
        let ran = started_in(&home, &home, words);
        assert_eq!((ran.code, ran.text().as_str()), (0, "a.txt\n"), "{}", ran.err);
    }
    assert_eq!(started_in(Path::new("/"), &home, &["fs", "ls", "--root", "/"]).code, 0);
    // What doctor says of commands is what happens to them.
    let doctor = |directory: &Path, root: &[&str]| {
        started_in(directory, &home, &[&["doctor", "--json"], root].concat()).value()
    };
    let said = doctor(Path::new("/"), &[]);
    let why = said["in_force"]["error"]["message"].as_str().unwrap();
    assert!(why.contains("the root of the file system"), "{said}");
    assert!(said["isolation"].is_null(), "{said}");
    for (directory, root) in [(Path::new("/"), &["--root", "/"][..]), (&home, &[])] {
        let said = doctor(directory, root);
        assert!(said["isolation"].is_string(), "{said}");
    }
    let mut command = Command::new(BINARY);
    command.args(["doctor", "--json"]).current_dir("/").env("AGENT_BACKEND_ROOT", &home);
    let said = run(command, b"").value();
    assert!(said["isolation"].is_string(), "{said}");
}

/// A server that accepts connections and then sends nothing.
#[test]
fn a_silent_server_is_reported_within_two_seconds() {
    let stage = Stage::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/ssh", listener.local_addr().unwrap());
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n";
    let started = std::time::Instant::now();
    stage.out(&["version"]);
    let start_of_a_process = started.elapsed();
    let started = std::time::Instant::now();
    let ran = stage.run_with(&["mcp", "--remote", &url], ping.as_bytes());
    let time = started.elapsed();
    let limit = std::time::Duration::from_secs(2) + start_of_a_process;
    assert!(time < limit, "{time:?}, of which a process needs {start_of_a_process:?} to start");
    let answer: Value = serde_json::from_str(&ran.text()).unwrap();
    let why = "the server of the remote workspace did not answer within 1.5s";
    assert!(answer["error"]["message"].as_str().unwrap().starts_with(why), "{answer}");
    assert!(ran.code == 4 && ran.err.contains(why), "{}", ran.err);
    drop(listener);
}

#[test]
fn the_description_of_exec_says_what_is_in_force() {
    let stage = Stage::new();
    for (isolation, says) in [("none", "There is no sandbox"), ("software", "are refused")] {
        let mut session = Session::start(&stage, &["--isolation", isolation]);
        let listed = session.ask("tools/list", json!({}));
        let exec = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "exec");
        let description = exec.unwrap()["description"].as_str().unwrap();
        let root = stage.root().canonicalize().unwrap();
        for part in ["sh reads the line", root.to_str().unwrap(), "Nothing carries over", says] {
            assert!(description.contains(part), "{part} not in {description}");
        }
    }
}

#[test]
fn exec_behind_walls_says_what_they_are_and_why_something_fails() {
    for (isolation, name) in [("bwrap", "bwrap"), ("landlock", "Landlock")] {
        if !crate::escapes::stands(isolation) {
            continue;
        }
        let stage = Stage::new();
        let mut session = Session::start(&stage, &["--isolation", isolation]);
        let listed = session.ask("tools/list", json!({}));
        let exec = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "exec");
        let description = exec.unwrap()["description"].as_str().unwrap();
        for part in [name, "read-only", "Network:", "/tmp", "HOME"] {
            assert!(description.contains(part), "{isolation}: {part} not in {description}");
        }
        // Only Landlock closes shared memory.
        let closed =
            description.contains("/dev/shm") && description.contains("multiprocessing.Pool");
        assert_eq!(closed, isolation == "landlock", "{isolation}: {description}");
        let mut said =
            |command: &str| session.call("exec", json!({ "command": command })).to_string();
        let left = said("sleep 1000 & echo on");
        assert!(left.contains("background: true"), "{isolation}: {left}");
        let missing = said("no-such-program-at-all");
        assert!(missing.contains("--toolchain"), "{isolation}: {missing}");
        assert!(missing.contains("sandbox"), "{isolation}: {missing}");
        let apt = said("apt-get install -y jq");
        assert!(apt.contains("read-only in the sandbox"), "{isolation}: {apt}");
    }
}
