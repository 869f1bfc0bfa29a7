//! `serve`, `task`, `session` and `wait`: the built binary on a real repository.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

use crate::outliving::comes;
use crate::stage::{BINARY, Ran, Stage, run};

/// A server that has printed its notice.
pub(crate) struct Server {
    child: Child,
    errors: BufReader<ChildStderr>,
    pub(crate) notice: String,
}

impl Server {
    pub(crate) fn start(stage: &Stage) -> Server {
        Server::start_with(stage, &[])
    }

    /// With its data beside the workspace.
    pub(crate) fn start_with(stage: &Stage, flags: &[&str]) -> Server {
        let data = stage.outside("data");
        Server::start_at(stage, &[&["--data-dir", data.to_str().unwrap()], flags].concat())
    }

    pub(crate) fn start_at(stage: &Stage, flags: &[&str]) -> Server {
        Server::start_by(stage.command(BINARY), flags)
    }

    /// By a command that has variables already.
    pub(crate) fn start_by(command: Command, flags: &[&str]) -> Server {
        Server::start_as(command, &["serve"], flags)
    }

    /// By another name of `serve`.
    pub(crate) fn start_as(mut command: Command, words: &[&str], flags: &[&str]) -> Server {
        let port: &[&str] = if flags.contains(&"--port") { &[] } else { &["--port", "0"] };
        command.args(words).args(port).args(flags);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        // From here on the process is ended whatever happens.
        let mut server = Server { child, errors, notice: String::new() };
        while !server.notice.contains("  try ") {
            let length = server.errors.read_line(&mut server.notice).unwrap();
            assert!(length > 0, "the server ended early: {}", server.notice);
        }
        server
    }

    /// The address in the notice.
    pub(crate) fn url(&self) -> String {
        let (_, rest) = self.notice.split_once("agent-backend serves ").unwrap();
        rest.lines().next().unwrap().to_owned()
    }

    /// Kills the server without a warning.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Interrupts the server: its exit code, and what it said at its end.
    pub(crate) fn end(mut self) -> (i32, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap(), said)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process has ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(directory).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let identity = [("NAME", "Ada"), ("EMAIL", "ada@example.com")];
    for (key, value) in identity {
        command.env(format!("GIT_AUTHOR_{key}"), value);
        command.env(format!("GIT_COMMITTER_{key}"), value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with one commit in the workspace of the stage.
pub(crate) fn repository() -> Stage {
    let stage = Stage::with(&[("README.md", "# A project\n")]);
    let root = stage.root();
    git(&root, &["init", "-q", "-b", "main"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "Start"]);
    stage
}

/// A client command in the repository.
pub(crate) fn client(stage: &Stage, arguments: &[&str]) -> Ran {
    let mut command = stage.command(BINARY);
    command.args(arguments).arg("--data-dir").arg(stage.outside("data"));
    run(command, b"")
}

#[test]
fn following_says_that_the_server_is_away_and_back() {
    let stage = repository();
    let server = Server::start(&stage);
    let url = server.url();
    let port = url.rsplit(':').next().unwrap();
    // It waits for a person to decide.
    let id = client(&stage, &["task", "Describe it", "--json"]).value()["sessionId"].clone();
    let mut command = stage.command(BINARY);
    command.args(["session", "events", id.as_str().unwrap(), "--follow", "--data-dir"]);
    command.arg(stage.outside("data")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut following = command.stdin(Stdio::null()).spawn().unwrap();
    let mut shown = BufReader::new(following.stdout.take().unwrap());
    let mut said = BufReader::new(following.stderr.take().unwrap());
    fn until(reader: &mut impl BufRead, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "it ended before {text:?}");
        }
    }
    until(&mut shown, "queued");
    assert_eq!(server.end().0, 0);
    until(&mut said, "the server cannot be reached; trying again");
    let server = Server::start_with(&stage, &["--port", port]);
    until(&mut said, "the server is back");
    following.kill().unwrap();
    following.wait().unwrap();
    assert_eq!(server.end().0, 0);
}

#[test]
fn a_task_becomes_a_branch() {
    let stage = repository();
    let server = Server::start(&stage);
    assert!(server.notice.contains("agent-backend serves http://127.0.0.1:"), "{}", server.notice);
    let none = client(&stage, &["session", "diff"]);
    assert!(none.code != 0 && none.err.contains("there are no sessions"), "{}", none.err);

    let prompt = "Write down what this is";
    let followed = client(&stage, &["task", prompt, "--follow", "--approve", "always"]);
    let shown = followed.text();
    assert_eq!(followed.code, 0, "{shown}\n{}", followed.err);
    for expect in [
        "○ queued",
        "It shares the network of this machine.",
        "› Write down what this is",
        "✓ approved",
        "✓ completed",
    ] {
        assert!(shown.contains(expect), "{expect:?} is missing:\n{shown}");
    }

    let listed = client(&stage, &["session", "list", "--json"]).value();
    let session = &listed["items"][0];
    let id = session["id"].as_str().unwrap();
    assert_eq!((&session["status"], &session["prompt"]), (&"completed".into(), &prompt.into()));

    let events = client(&stage, &["session", "events", id, "--json"]).text();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let delivery = events.rev().find(|event| event["type"] == "delivery").unwrap();
    let branch = delivery["branch"].as_str().unwrap();
    let notes = git(&stage.root(), &["show", &format!("{branch}:NOTES.md")]);
    assert!(notes.contains(prompt), "{notes}");
    assert_eq!(git(&stage.root(), &["status", "--porcelain"]), "");
    assert_eq!(stage.names("."), [".git", "README.md"]);

    let diff = client(&stage, &["session", "diff", id]).text();
    assert!(diff.contains("+++ b/NOTES.md"), "{diff}");
    assert_eq!(client(&stage, &["session", "diff"]).text(), diff, "the newest by default");
    let waited = client(&stage, &["wait", id]);
    assert_eq!((waited.code, waited.text().contains("completed")), (0, true), "{}", waited.err);

    let given = client(&stage, &["task", "Once more", "--json"]).value();
    let id = given["sessionId"].as_str().unwrap();
    assert_eq!(client(&stage, &["session", "cancel", id]).code, 0);
    let waited = client(&stage, &["wait", id, "--json"]);
    assert_eq!((waited.code, &waited.value()[0]["status"]), (1, &"cancelled".into()));

    let (code, said) = server.end();
    assert_eq!(code, 0, "{said}");
    let data = stage.outside("data");
    assert!(!data.join("server.json").exists());
    assert_eq!(fs::metadata(data.join("token")).unwrap().permissions().mode() & 0o777, 0o600);
    // The database has its log in it, so a copy of the file is whole.
    let files = data.read_dir().unwrap().flatten();
    let files = files.map(|entry| entry.file_name().into_string().unwrap());
    let files: Vec<String> = files.filter(|name| name.starts_with("state.db")).collect();
    assert_eq!(files, ["state.db"]);
}

#[test]
fn calls_on_the_endpoint_of_a_session_are_in_the_audit() {
    let stage = repository();
    let server = Server::start_with(&stage, &["--log-level", "info"]);
    let followed = client(&stage, &["task", "Note it", "--follow", "--approve", "always"]);
    assert_eq!(followed.code, 0, "{}", followed.err);
    let listed = client(&stage, &["session", "list", "--json"]).value();
    let id = listed["items"][0]["id"].as_str().unwrap().to_owned();
    let (_, said) = server.end();
    let audit: Vec<&str> = said.lines().filter(|line| line.contains(" audit ")).collect();
    for expect in ["verb=\"write\" path=\"NOTES.md\"", "command=\"ls\""] {
        let found = audit.iter().find(|line| line.contains(expect));
        let found = found.unwrap_or_else(|| panic!("{expect} is missing:\n{said}"));
        assert!(found.contains(&format!("actor=\"agent:{id}\"")), "{found}");
    }
}

/// A task whose agent waits for an answer.
pub(crate) fn waiting(stage: &Stage) -> String {
    let given = client(stage, &["task", "Wait for me", "--json"]).value();
    let id = given["sessionId"].as_str().unwrap().to_owned();
    while client(stage, &["session", "get", &id, "--json"]).value()["openApprovals"] != 1 {}
    id
}

fn reaches(stage: &Stage, id: &str, status: &str) {
    loop {
        let session = client(stage, &["session", "get", id, "--json"]).value();
        if session["status"] == status {
            return;
        }
        assert!(session["endedAt"].is_null(), "{session}");
    }
}

#[test]
fn a_session_is_paused_and_resumed() {
    let stage = repository();
    let _server = Server::start(&stage);
    let id = waiting(&stage);
    let shown = client(&stage, &["session", "get", &id]).text();
    if !shown.contains(" 2048 processes") {
        ab_testkit::host::report_skip("limits of sessions", "they are not in force");
        return;
    }
    assert!(shown.contains(" MiB of memory, "), "{shown}");
    let paused = client(&stage, &["session", "pause", &id]);
    assert_eq!(paused.code, 0, "{}", paused.err);
    reaches(&stage, &id, "paused");
    let resumed = client(&stage, &["session", "resume", &id]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    reaches(&stage, &id, "running");
    let again = client(&stage, &["session", "resume", &id]);
    assert!(again.code != 0 && again.err.contains("resume"), "{}", again.err);
    let events = ["session", "events", &id, "--follow", "--approve", "always"];
    let followed = client(&stage, &events);
    let shown = followed.text();
    for expect in ["○ pausing", "○ paused", "○ resuming", "✓ completed"] {
        assert!(shown.contains(expect), "{expect:?} is missing:\n{shown}");
    }
}

/// Control groups that a process made, in every hierarchy.
fn groups_of(pid: u32) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut places = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(place) = places.pop() {
        let Ok(entries) = place.read_dir() else { continue };
        for entry in entries.flatten().filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("agent-backend-") && name.contains(&format!("-{pid}-")) {
                found.push(entry.path());
            }
            places.push(entry.path());
        }
    }
    found
}

#[test]
fn a_killed_server_leaves_no_process_and_no_group_also_of_a_paused_session() {
    let stage = repository();
    let mut server = Server::start(&stage);
    let pid = server.child.id();
    let (running, paused) = (waiting(&stage), waiting(&stage));
    if client(&stage, &["session", "pause", &paused]).code == 0 && !groups_of(pid).is_empty() {
        reaches(&stage, &paused, "paused");
    } else {
        ab_testkit::host::report_skip("control groups of sessions", "there are none");
    }
    let data = stage.outside("data").canonicalize().unwrap();
    let inside = || {
        let processes = Path::new("/proc").read_dir().unwrap().flatten();
        let places = processes.filter_map(|entry| entry.path().join("cwd").read_link().ok());
        places.filter(|cwd| cwd.starts_with(&data)).count()
    };
    assert!(inside() > 0, "{running} has no process");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // A watchdog outlives the server for as long as this takes.
    while inside() > 0 || !groups_of(pid).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn data_directory_that_other_users_can_enter_is_refused_with_advice() {
    let stage = Stage::new();
    let data = stage.outside("shared");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(data.join("letter.txt"), "x").unwrap();
    let data = data.to_str().unwrap();
    let ran = stage.run(&["serve", "--port", "0", "--data-dir", data]);
    let expect = format!(
        "error: cannot use the data directory {data}: other users can enter it, and it contains other files\n\
         hint: name an empty directory with --data-dir, or make this one private: chmod 700 {data}\n"
    );
    assert_eq!((ran.code, ran.err), (4, expect));
}

#[test]
fn a_second_server_on_the_data_directory_is_refused() {
    let stage = repository();
    let server = Server::start(&stage);
    let second = client(&stage, &["serve", "--port", "0"]);
    assert_eq!(second.code, 4, "{}", second.err);
    assert!(second.err.contains("--data-dir"), "{}", second.err);
    assert_eq!(server.end().0, 0);
}

#[test]
fn port_that_is_in_use_is_an_error_that_says_so() {
    let stage = Stage::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = client(&stage, &["serve", "--port", &port]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains(&format!("port {port}")), "{}", refused.err);
    assert!(refused.err.contains("choose another one with --port"), "{}", refused.err);
    drop(taken);
    let server = Server::start_with(&stage, &["--port", &port]);
    assert!(server.url().ends_with(&format!(":{port}")), "{}", server.notice);
    assert_eq!(server.end().0, 0);
}

#[test]
fn errors_name_the_field_and_a_denied_question_ends_well() {
    let stage = repository();
    let _server = Server::start(&stage);
    // Whether the field has an invalid value or the server does not have what it names.
    for (flags, says) in [
        (["--agent", "nonsense"], "--agent \"nonsense\" is unknown"),
        (["--template", "none"], "template"),
        (["--runtime", "disabled"], "--runtime"),
        (["--branch", "a..b"], "--branch \"a..b\" is not a valid git branch name"),
        (["--cpu", "5000"], "--cpu must be 0.01 to 1024"),
        (["--project", "a b"], "project"),
    ] {
        let refused = client(&stage, &[&["task", "x"][..], &flags[..]].concat());
        assert_eq!(refused.code, 1, "{flags:?}: {}", refused.err);
        assert!(refused.err.contains(says), "{flags:?}: {}", refused.err);
    }
    let missing = client(&stage, &["session", "get", "01HVZ6K9T1N8S6M3V3Q3F0X5B7"]);
    assert_eq!(missing.code, 1, "{}", missing.err);
    assert!(missing.err.contains("session list"), "{}", missing.err);
    let denied = client(&stage, &["task", "x", "--follow", "--approve", "never", "--json"]);
    let text = denied.text();
    assert!(text.contains(r#""type":"approvalDecided""#), "{text}");
    assert!(text.starts_with(r#"{"sessionId":""#), "the first line names the session: {text}");
}

#[test]
fn without_a_server_every_client_command_says_how_to_start_one() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path(".git")).unwrap();
    let id = "01HVZ6K9T1N8S6M3V3Q3F0X5B7";
    for arguments in [
        vec!["task", "Look around"],
        vec!["session", "list"],
        vec!["session", "events", id, "--follow"],
        vec!["wait", id],
    ] {
        let mut command = stage.command(BINARY);
        command.args(&arguments).arg("--data-dir").arg(stage.outside("data"));
        let ran = run(command, b"");
        assert_eq!(ran.code, 4, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains("error: no server runs with the data directory "), "{}", ran.err);
        assert!(ran.err.contains("start one with `agent-backend serve`"), "{}", ran.err);
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused_before_a_server_is_asked() {
    let stage = Stage::new();
    for arguments in [
        vec!["session", "get", "nonsense"],
        vec!["task", "x", "--approve", "always"],
        vec!["session", "list", "--status", "asleep"],
        vec!["wait"],
    ] {
        assert_eq!(stage.run(&arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn kept_session_takes_a_second_prompt_and_is_finished() {
    let stage = repository();
    let _server = Server::start(&stage);
    let given = client(&stage, &["task", "First", "--keep", "--json"]).value();
    let id = given["sessionId"].as_str().unwrap();
    let mut followed = stage.command(BINARY);
    followed.args(["session", "events", id, "--follow", "--approve", "always"]);
    followed.arg("--data-dir").arg(stage.outside("data"));
    let followed = followed.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let idle = || {
        let session = client(&stage, &["session", "get", id, "--json"]).value();
        (session["activity"] == "idle").then_some(session)
    };
    comes("the end of the first turn", || idle().is_some());

    let early = client(&stage, &["session", "continue", id]);
    assert_eq!(early.code, 1, "{}", early.err);
    let empty = client(&stage, &["session", "prompt", id, " "]);
    assert_eq!(empty.code, 2, "{}", empty.err);
    let prompted = client(&stage, &["session", "prompt", id, "Second", "--json"]);
    assert_eq!(prompted.code, 0, "{}", prompted.err);
    comes("the second prompt", || {
        let events = client(&stage, &["session", "events", id]).text();
        events.contains("› Second") && idle().is_some()
    });
    assert_eq!(client(&stage, &["session", "finish", id]).code, 0);
    let waited = client(&stage, &["wait", id]);
    assert_eq!(waited.code, 0, "{}", waited.err);

    let followed = followed.wait_with_output().unwrap();
    let hints = String::from_utf8(followed.stderr).unwrap();
    assert!(hints.contains(&format!("session prompt {id}")), "{hints}");
    let late = client(&stage, &["session", "prompt", id, "Third"]);
    assert_ne!(late.code, 0, "a session that has ended takes no prompt");
}
