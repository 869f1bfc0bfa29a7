//! A repository, and a server that is asked over HTTP.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use super::http::git;
use super::http::{Follower, HttpClient};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_agent-backend");

pub(crate) struct Ground {
    keep: TempDir,
}

impl Ground {
    /// A repository with one commit.
    pub(crate) fn new() -> Ground {
        let ground = Ground { keep: tempfile::tempdir().unwrap() };
        fs::create_dir(ground.source()).unwrap();
        fs::write(ground.source().join("README.md"), "# A project\n").unwrap();
        git(&ground.source(), &["init", "-q", "-b", "main"]);
        git(&ground.source(), &["add", "."]);
        git(&ground.source(), &["commit", "-q", "-m", "Start"]);
        fs::write(ground.config(), "").unwrap();
        ground
    }

    /// With an agent that follows a scenario, of which so many run at a time.
    pub(crate) fn with_agent(name: &str, scenario: &str, sessions: usize) -> Ground {
        let ground = Ground::new();
        let file = format!("{name}.toml");
        fs::write(ground.source().join(&file), scenario).unwrap();
        git(&ground.source(), &["add", "."]);
        git(&ground.source(), &["commit", "-q", "-m", "Scenario"]);
        let config = format!(
            "[sessions]\nmax-running = {sessions}\n[[agents]]\nid = \"{name}\"\n\
             argv = [\"{{self}}\", \"agent\", \"script\", \"{file}\"]\n"
        );
        fs::write(ground.config(), config).unwrap();
        ground
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

/// A server that has printed its notice.
pub(crate) struct Server {
    child: Child,
    http: HttpClient,
}

impl Server {
    pub(crate) fn start(ground: &Ground) -> Server {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--port", "0", "--log-level", "error", "--data-dir"]);
        command.arg(ground.data()).arg("--config").arg(ground.config());
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
        let token = fs::read_to_string(ground.data().join("token")).unwrap().trim().to_owned();
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

    pub(crate) fn create(&self, ground: &Ground, agent: &str) -> String {
        let repo = json!({ "url": ground.source() });
        let task = json!({ "prompt": "Work", "repo": repo, "agent": { "type": agent } });
        let created = self.ask("POST", "/api/v1/tasks", &task.to_string());
        created["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn approve(&self, question: &str) {
        let path = format!("/v1/approvals/{question}");
        self.ask("POST", &path, r#"{"decision":"approve"}"#);
    }

    pub(crate) fn delete(&self, id: &str) {
        let path = format!("/api/v1/sessions/{id}");
        self.ask("DELETE", &path, "");
        let mut reader = self.follow(id);
        while reader.next().is_some() {}
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
}
