//! A repository, and a server that is asked over HTTP.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ab_api::{
    Session, SessionEndReason, SessionId, SessionStatus, TaskCapabilities, TaskRequest, Time,
};
use ab_store::{DataDir, NewSession, SessionRecord, Store, StoredSessionProgress};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use super::http::git;
use super::http::{Follower, HttpClient};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_agent-backend");

pub(crate) struct Fixture {
    keep: TempDir,
}

impl Fixture {
    /// A repository with one commit.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture { keep: tempfile::tempdir().unwrap() };
        fs::create_dir(fixture.source()).unwrap();
        fs::write(fixture.source().join("README.md"), "# A project\n").unwrap();
        git(&fixture.source(), &["init", "-q", "-b", "main"]);
        git(&fixture.source(), &["add", "."]);
        git(&fixture.source(), &["commit", "-q", "-m", "Start"]);
        fs::write(fixture.config(), "").unwrap();
        fixture
    }

    /// With an agent that follows a scenario, of which so many sessions run at a time.
    pub(crate) fn with_agent(name: &str, scenario: &str, sessions: usize) -> Fixture {
        let fixture = Fixture::new();
        let file = format!("{name}.toml");
        fs::write(fixture.source().join(&file), scenario).unwrap();
        git(&fixture.source(), &["add", "."]);
        git(&fixture.source(), &["commit", "-q", "-m", "Scenario"]);
        let config = format!(
            "[sessions]\nmax-running = {sessions}\n[[agents]]\nid = \"{name}\"\n\
             argv = [\"{{self}}\", \"agent\", \"script\", \"{file}\"]\n"
        );
        fs::write(fixture.config(), config).unwrap();
        fixture
    }

    /// Stores ended sessions with a few events each, before a server starts.
    pub(crate) fn fill(&self, sessions: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Store::open(DataDir::open(self.data()).unwrap()).await.unwrap();
            for number in 0..sessions {
                store.create_session(ended(number)).await.unwrap();
            }
            store.close().await;
        });
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.beside("source")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.beside("data")
    }

    fn config(&self) -> PathBuf {
        self.beside("config.toml")
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }
}

/// A session of a long list, as it was stored at its end.
fn ended(number: usize) -> NewSession {
    let (project, agent, label) = (number % 50, number % 4, number % 100);
    let task = json!({
        "prompt": format!("Task {number}"),
        "projectId": format!("p{project}"),
        "repo": { "url": "https://host.example/repository" },
        "agent": { "type": format!("a{agent}") },
        "labels": { "l": label.to_string() },
    });
    let agents = (0..4).map(|agent| (format!("a{agent}"), Vec::new())).collect();
    let offers = TaskCapabilities { agents, ..TaskCapabilities::default() };
    let task = TaskRequest::parse(task.to_string().as_bytes(), &offers).unwrap();
    let mut session = Session::new_queued(SessionId::generate(), task, Time::now());
    session.status = SessionStatus::Completed;
    session.end_reason = Some(SessionEndReason::Done);
    let record = SessionRecord { session, progress: StoredSessionProgress::default() };
    NewSession { record, events: Vec::new(), idempotency: None, continues_session: None }
}

/// A server that has printed its notice.
pub(crate) struct Server {
    child: Child,
    http: HttpClient,
}

impl Server {
    pub(crate) fn start(fixture: &Fixture) -> Server {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--port", "0", "--log-level", "error", "--data-dir"]);
        command.arg(fixture.data()).arg("--config").arg(fixture.config());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut notice = String::new();
        while !notice.contains("  try ") {
            assert!(errors.read_line(&mut notice).unwrap() > 0, "{notice}");
        }
        // What it says later must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let (_, rest) = notice.split_once("http://").unwrap();
        let address = rest.split_whitespace().next().unwrap().to_owned();
        let token = fs::read_to_string(fixture.data().join("token")).unwrap().trim().to_owned();
        Server { child, http: HttpClient { address, token } }
    }

    /// Resident memory in MiB.
    pub(crate) fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let answer = self.http.try_ask(method, path, &self.http.operator(), body).unwrap();
        assert!((200..300).contains(&answer.status), "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.ask("GET", path, "")
    }

    pub(crate) fn create(&self, fixture: &Fixture, agent: &str) -> String {
        self.create_with(fixture, agent, false)
    }

    /// A session that waits for further prompts.
    pub(crate) fn create_open(&self, fixture: &Fixture, agent: &str) -> String {
        self.create_with(fixture, agent, true)
    }

    fn create_with(&self, fixture: &Fixture, agent: &str, open: bool) -> String {
        let repo = json!({ "url": fixture.source() });
        let agent = json!({ "type": agent });
        let task = json!({ "prompt": "Work", "repo": repo, "agent": agent, "keepOpen": open });
        let created = self.ask("POST", "/api/v1/tasks", &task.to_string());
        created["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn approve(&self, question: &str) {
        let path = format!("/v1/approvals/{question}");
        self.ask("POST", &path, r#"{"decision":"approve"}"#);
    }

    /// Deletes a session and waits for its end.
    pub(crate) fn delete(&self, id: &str) {
        self.ask("DELETE", &format!("/api/v1/sessions/{id}"), "");
        self.end_of(id);
    }

    /// Stops a session and waits for its end.
    pub(crate) fn stop(&self, id: &str) {
        self.ask("POST", &format!("/api/v1/sessions/{id}/stop"), "");
        self.end_of(id);
    }

    /// Asks for the delivery of an idle session.
    pub(crate) fn finish(&self, id: &str) {
        self.ask("POST", &format!("/api/v1/sessions/{id}/finish"), "");
    }

    /// Waits for the end of a session: its last status.
    pub(crate) fn end_of(&self, id: &str) -> Value {
        let mut reader = self.follow(id);
        while reader.next().is_some() {}
        self.get(&format!("/api/v1/sessions/{id}"))["status"].clone()
    }

    pub(crate) fn follow(&self, id: &str) -> Reader {
        Reader(self.http.follow(id, 0).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let _ = self.child.wait();
    }
}

/// A reader of an event stream.
pub(crate) struct Reader(Follower);

impl Reader {
    pub(crate) fn next(&mut self) -> Option<Value> {
        self.0.next().unwrap().map(|(_, event)| event)
    }

    /// Reads up to the first event that fits.
    pub(crate) fn find(&mut self, fits: impl Fn(&Value) -> bool) {
        while !fits(&self.next().unwrap()) {}
    }
}
