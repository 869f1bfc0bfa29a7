//! Sessions of the agent library in places that other processes serve: daemons, SSH hosts, sessions of `serve`.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ab_api::{ApproveOrDeny, SessionStatus};
use agent_backend::agent::{
    AgentDefinition, AgentSession, AgentSessionId, BackendFactory, DaemonSandboxProvider,
    FilesystemToolset, RemotePerSession, SandboxPerSession, SandboxProvider, ServeSessionWorkspace,
    SessionOptions, ShellToolset, SshSandboxProvider,
};
use agent_backend::remote::HostKeyCheck;
use agent_backend::{ErrorKind, RemoteConfig, ServeClient, ServeClientSettings};
use serde_json::json;

use crate::daemon::Daemon;
use crate::outliving::comes;
use crate::sessions::{ADMIN, Server};
use crate::stage::{BINARY, Stage};

async fn start(definition: &AgentDefinition, id: &str) -> AgentSession {
    let id = AgentSessionId::parse(id).unwrap();
    definition.start(SessionOptions::for_session(id)).await.unwrap()
}

fn definition(factory: impl BackendFactory + 'static) -> AgentDefinition {
    AgentDefinition::builder()
        .backend(factory)
        .toolset(FilesystemToolset::new().allow_writes())
        .toolset(ShellToolset::new())
        .build()
}

/// The tools of a session work there, files and commands alike.
async fn works(session: &AgentSession, content: &str) {
    makes(session, "notes.txt", content).await;
}

/// The tools of a session make a file that is not there.
async fn makes(session: &AgentSession, file: &str, content: &str) {
    let tools = session.tools().await.unwrap();
    let write = json!({ "path": file, "content": content });
    let written = tools.call_tool("write_file", write).await;
    assert!(!written.is_error, "{written:?}");
    let ran = tools.call_tool("exec", json!({ "command": format!("cat {file}") })).await;
    assert_eq!(ran.all_text(), content);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_of_its_own_is_started_for_a_session_and_found_again() {
    let base = tempfile::tempdir().unwrap();
    let sandboxes = DaemonSandboxProvider::new(BINARY, base.path().join("new"))
        .add_program_arguments(["--isolation", "none"]);
    let agents = definition(SandboxPerSession::new(sandboxes.clone()));
    let ada = start(&agents, "ada").await;
    let grace = start(&agents, "grace").await;
    works(&ada, "ada's").await;
    works(&grace, "grace's").await;
    let home = |id: &str| base.path().join("new").join(id).join("home");
    assert_eq!(std::fs::read(home("ada").join("notes.txt")).unwrap(), b"ada's");
    let found = sandboxes.find_existing(ada.context()).await.unwrap().unwrap();
    assert_eq!(found.working_directory(), home("ada").to_str().unwrap());
    let outside = ada.require_backend().unwrap().read("../../grace/home/notes.txt").await;
    assert_eq!(outside.unwrap_err().kind(), ErrorKind::PathEscape);
    // A session that is resumed uses the daemon that runs, and starts it where it was stopped.
    let again = start(&agents, "ada").await;
    let text = again.require_backend().unwrap().read_text("notes.txt").await.unwrap();
    assert_eq!(text, "ada's");
    sandboxes.stop_daemon(ada.id()).await;
    let resumed = start(&agents, "ada").await;
    let text = resumed.require_backend().unwrap().read_text("notes.txt").await.unwrap();
    assert_eq!(text, "ada's");
}

/// Daemons that serve this directory.
fn daemons(home: &Path) -> usize {
    let lines = Path::new("/proc").read_dir().unwrap().flatten().map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    });
    let home = home.to_str().unwrap();
    lines.filter(|line| line.contains(" daemon ") && line.contains(home)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_with_one_session_share_its_daemon_until_the_last_is_gone() {
    let base = tempfile::tempdir().unwrap();
    let home = base.path().join("ada/home");
    // Each as in a process of its own.
    let agent = || {
        let sandboxes = DaemonSandboxProvider::new(BINARY, base.path())
            .add_program_arguments(["--isolation", "none"]);
        definition(SandboxPerSession::new(sandboxes))
    };
    let (first, second) = (agent(), agent());
    let (ada, other) = tokio::join!(start(&first, "ada"), start(&second, "ada"));
    makes(&ada, "a.txt", "ada's").await;
    makes(&other, "b.txt", "of both").await;
    assert_eq!(daemons(&home), 1);
    // Whoever started it, the other goes on with it.
    drop((ada, first));
    makes(&other, "c.txt", "still there").await;
    assert_eq!(daemons(&home), 1);
    let third = agent();
    let again = start(&third, "ada").await;
    makes(&again, "d.txt", "joined").await;
    assert_eq!(daemons(&home), 1);
    drop((other, second, again, third));
    comes("the end of the daemon", || daemons(&home) == 0);
    let last = agent();
    makes(&start(&last, "ada").await, "e.txt", "started again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_does_not_start_is_an_error_that_says_why() {
    let base = tempfile::tempdir().unwrap();
    for (sandboxes, says) in [
        (
            DaemonSandboxProvider::new("/no/such/program", base.path()),
            "cannot start /no/such/program",
        ),
        (
            DaemonSandboxProvider::new(BINARY, base.path())
                .add_program_arguments(["--no-such-flag"]),
            "the daemon ended",
        ),
    ] {
        let agents = definition(SandboxPerSession::new(sandboxes));
        let error = agents.start(SessionOptions::default()).await.unwrap_err();
        assert!(error.message().contains(says), "{error}");
    }
}

#[test]
fn a_daemon_ends_when_its_starter_is_killed() {
    use std::io::{BufRead, BufReader, Read};

    let base = tempfile::tempdir().unwrap();
    // The starter holds the input of the daemon open.
    let mut starter = Command::new("sh")
        .args(["-c", "echo t0ken; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut daemon = Command::new(BINARY)
        .args(["daemon", "--port", "0", "--isolation", "none", "--auth-token-file", "-"])
        .args(["--end-with-input", "--root"])
        .arg(base.path())
        .stdin(starter.stdout.take().unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("127.0.0.1") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the daemon did not start");
    }
    assert_eq!(daemon.try_wait().unwrap(), None, "the token has come, and the input is open");
    starter.kill().unwrap();
    starter.wait().unwrap();
    log.read_to_string(&mut line).unwrap();
    assert!(daemon.wait().unwrap().success(), "{line}");
}

/// Tells a process of this test the directory of the sandboxes, and the program of their daemons.
const AGENT_BASE: &str = "AB_TEST_AGENT_BASE";
const AGENT_PROGRAM: &str = "AB_TEST_AGENT_PROGRAM";

/// A process with a session of its own, which makes the files that it is told.
struct AgentProcess(Child);

impl AgentProcess {
    /// Runs this test again, which becomes the agent.
    fn start(base: &Path, program: &Path) -> AgentProcess {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sandboxes::a_daemon_ends_when_all_its_agents_are_killed"])
            .env(AGENT_BASE, base)
            .env(AGENT_PROGRAM, program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        AgentProcess(child.unwrap())
    }

    fn run(base: OsString) {
        let program = std::env::var_os(AGENT_PROGRAM).unwrap();
        let sandboxes = DaemonSandboxProvider::new(program, base)
            .add_program_arguments(["--isolation", "none"]);
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let session = start(&definition(SandboxPerSession::new(sandboxes)), "ada").await;
            for file in std::io::stdin().lines() {
                makes(&session, &file.unwrap(), "made").await;
            }
        });
    }

    /// Has the agent make a file, and waits until it is there.
    fn make(&mut self, home: &Path, file: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{file}").unwrap();
        comes(file, || std::fs::read(home.join(file)).is_ok_and(|content| content == b"made"));
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_daemon_ends_when_all_its_agents_are_killed() {
    if let Some(base) = std::env::var_os(AGENT_BASE) {
        return AgentProcess::run(base);
    }
    let base = tempfile::tempdir().unwrap();
    let home = base.path().join("ada/home");
    // The first agent is killed while its daemon starts: this one never reports an address.
    let slow = base.path().join("slow");
    let script = "#!/bin/sh\nread token\ntouch \"$0.begun\"\nwhile read line; do :; done\n";
    std::fs::write(&slow, script).unwrap();
    std::fs::set_permissions(&slow, Permissions::from_mode(0o755)).unwrap();
    let agent = AgentProcess::start(base.path(), &slow);
    comes("the start of the daemon", || base.path().join("slow.begun").exists());
    assert_eq!(daemons(&home), 1);
    drop(agent);
    comes("the end of the daemon that was starting", || daemons(&home) == 0);

    let mut starter = AgentProcess::start(base.path(), Path::new(BINARY));
    starter.make(&home, "a.txt");
    let mut joined = AgentProcess::start(base.path(), Path::new(BINARY));
    joined.make(&home, "b.txt");
    assert_eq!(daemons(&home), 1, "they share it");
    drop(starter);
    joined.make(&home, "c.txt");
    assert_eq!(daemons(&home), 1, "the other agent still uses it");
    drop(joined);
    comes("the end of the daemon", || daemons(&home) == 0);

    // What a killed agent leaves in the directory is no obstacle.
    let mut next = AgentProcess::start(base.path(), Path::new(BINARY));
    next.make(&home, "d.txt");
    assert_eq!(daemons(&home), 1);
    drop(next);
    comes("the end of the last daemon", || daemons(&home) == 0);
}

fn ssh(stage: &Stage) -> (Daemon, RemoteConfig) {
    let flags = ["--rootDir", ".", "--conventional-ssh", "--ssh-port", "0"];
    let flags = [&flags[..], &["--ssh-users", "ada:pa55", "--isolation", "none"]].concat();
    let daemon = Daemon::start(stage, &flags);
    let after = |mark: &str| daemon.notice.split(mark).nth(1).unwrap().to_owned();
    let fingerprint = format!("SHA256:{}", after("SHA256:").split([',', '\n']).next().unwrap());
    let url = format!("ssh://ada@{}", after(" and on ").split(' ').next().unwrap());
    let config = RemoteConfig::parse(&url).unwrap().ssh_password("pa55").unwrap();
    let pin = HostKeyCheck::Pin(fingerprint.parse().unwrap());
    (daemon, config.host_key_check(pin).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_an_ssh_host_is_made_for_a_session_and_found_again() {
    let stage = Stage::new();
    let (daemon, config) = ssh(&stage);
    let base = stage.root().join("not/there/yet");
    let sandboxes = SshSandboxProvider::new(config, base.to_str().unwrap());
    let agents = definition(SandboxPerSession::new(sandboxes));
    let ada = start(&agents, "ada").await;
    works(&ada, "by ssh").await;
    assert_eq!(std::fs::read(base.join("ada/notes.txt")).unwrap(), b"by ssh");
    let again = start(&agents, "ada").await;
    let text = again.require_backend().unwrap().read_text("notes.txt").await.unwrap();
    assert_eq!(text, "by ssh");
    drop((ada, again));
    assert_eq!(daemon.end().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_daemon_has_a_directory_for_each_session() {
    let stage = Stage::new();
    let daemon =
        Daemon::start(&stage, &["--rootDir", ".", "--auth-token", "t0ken", "--isolation", "none"]);
    let config = RemoteConfig::parse(&format!("ws://{}/ssh", daemon.address)).unwrap();
    let agents = definition(RemotePerSession::new(config.token("t0ken").unwrap()));
    let (ada, grace) = (start(&agents, "ada").await, start(&agents, "grace").await);
    works(&ada, "ada's").await;
    works(&grace, "grace's").await;
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&stage.root().join("ada/notes.txt")), "ada's");
    assert_eq!(read(&stage.root().join("grace/notes.txt")), "grace's");
    let outside = ada.require_backend().unwrap().read("../grace/notes.txt").await.unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::PathEscape);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workspace_of_a_session_of_serve_can_be_worked_in() {
    let Some(server) = Server::start(None).await else { return };
    let id = server.create("scripted").await;
    let settings = ServeClientSettings::new(format!("http://{}", server.address)).token(ADMIN);
    let client = ServeClient::new(settings).unwrap();
    // It asks before it writes, and so waits while its workspace is there.
    let asked = server.asked(id).await;
    let agents = definition(ServeSessionWorkspace::new(client, id));
    let session = agents.start(SessionOptions::default()).await.unwrap();
    let readme = session.require_backend().unwrap().read_text("README.md").await.unwrap();
    assert_eq!(readme, "first\n");
    works(&session, "by the library").await;
    let tools = session.tools().await.unwrap();
    let append = json!({ "command": "echo from a command >> README.md" });
    let ran = tools.call_tool("exec", append).await;
    assert!(!ran.is_error, "{ran:?}");
    server.decide(asked, ApproveOrDeny::Approve).await;
    let ended = server.ended(id).await;
    assert_eq!(ended.status, SessionStatus::Completed, "{:?}", ended.end_detail);
    // It is delivered with the work of the coding agent.
    let [branch] = &server.branches()[..] else { panic!("{:?}", server.branches()) };
    assert_eq!(server.on_branch(branch, "notes.txt"), "by the library");
    assert_eq!(server.on_branch(branch, "README.md"), "first\nfrom a command");
    assert!(server.on_branch(branch, "NOTES.md").contains("Describe the project"));
    server.assert_clean(0).await;
}
