//! A source repository, a data directory, and a server on them that may be killed and started again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::ops::Deref;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

pub(crate) use super::http::git;
use super::http::{Answer, HttpClient};
use crate::outliving::{TIMEOUT, comes, groups_of};
use crate::stage::{BINARY, Stage};

/// What a test needs before and after a server lives.
pub(crate) struct Fixture {
    pub(crate) stage: Stage,
}

impl Fixture {
    /// A source with one commit and one uncommitted change.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture { stage: Stage::with(&[("README.md", "# A project\n")]) };
        fixture.git(&["init", "-q", "-b", "main"]);
        fixture.git(&["add", "."]);
        fixture.git(&["commit", "-q", "-m", "Start"]);
        fs::write(fixture.stage.path("README.md"), "# A project\nmine\n").unwrap();
        fs::create_dir(fixture.temporary()).unwrap();
        fixture
    }

    /// Agents by name and scenario, and further lines of the table `sessions`. The scenarios lie in the repository,
    /// where the agents find them in their sandboxes.
    pub(crate) fn with_agents(agents: &[(&str, String)], sessions: &str) -> Fixture {
        let scripts = agents.iter().map(|(name, scenario)| {
            let file = format!("{name}.toml");
            let argv = format!(r#"["{{self}}", "agent", "script", "{file}"]"#);
            (*name, argv, file, scenario.clone())
        });
        Fixture::with_programs(scripts, sessions)
    }

    /// Agents by name, argv, and a file of the repository with its content.
    pub(crate) fn with_programs<'a>(
        agents: impl IntoIterator<Item = (&'a str, String, String, String)>,
        sessions: &str,
    ) -> Fixture {
        let fixture = Fixture::new();
        let mut config = format!("[sessions]\n{sessions}\n");
        for (name, argv, file, content) in agents {
            fs::write(fixture.stage.path(&file), content).unwrap();
            config.push_str(&format!("[[agents]]\nid = \"{name}\"\nargv = {argv}\n"));
            fixture.git(&["add", &file]);
        }
        fixture.git(&["commit", "-q", "-m", "Agents"]);
        fs::write(fixture.config(), config).unwrap();
        fixture
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.stage.outside("config.toml")
    }

    /// Whether sessions can run here; if not, that is told.
    pub(crate) fn can_run() -> bool {
        let isolation = Stage::new().json(&["exec", "--explain", "--json"])["isolation"].clone();
        let stands = matches!(isolation.as_str(), Some("bwrap" | "landlock"));
        if !stands {
            ab_testkit::host::report_skip("a session's sandbox", &isolation.to_string());
        }
        stands
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.stage.root()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.stage.outside("data")
    }

    fn temporary(&self) -> PathBuf {
        self.stage.outside("tmp")
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.source(), arguments)
    }

    /// Branches of the source beside `main`.
    pub(crate) fn branches(&self) -> Vec<String> {
        let refs = self.git(&["for-each-ref", "--format=%(refname)"]);
        let refs = refs.lines().filter(|name| *name != "refs/heads/main");
        refs.map(|name| name.trim_start_matches("refs/heads/").to_owned()).collect()
    }

    /// The user's own files and branch are as they were.
    pub(crate) fn assert_source_untouched(&self) {
        assert_eq!(self.git(&["status", "--porcelain"]), " M README.md\n");
        assert_eq!(self.git(&["symbolic-ref", "HEAD"]), "refs/heads/main\n");
    }

    pub(crate) fn workspaces(&self) -> usize {
        self.data().join("sessions/workspaces").read_dir().map_or(0, Iterator::count)
    }

    /// Processes of the host with a text in their command line.
    pub(crate) fn processes_with(text: &str) -> Vec<String> {
        let lines = Path::new("/proc").read_dir().unwrap().flatten().map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ")
        });
        lines.filter(|line| line.contains(text)).collect()
    }

    /// Processes that work in the fixture's directories or name them in their command line.
    fn processes(&self) -> Vec<String> {
        let here = self.source().parent().unwrap().canonicalize().unwrap();
        let mut found = Vec::new();
        for entry in Path::new("/proc").read_dir().unwrap().flatten() {
            let place = entry.path();
            if entry.file_name().to_str().is_none_or(|name| name.parse::<u32>().is_err()) {
                continue;
            }
            let line = fs::read(place.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let cwd = place.join("cwd").read_link().unwrap_or_default();
            if line.contains(here.to_str().unwrap()) || cwd.starts_with(&here) {
                found.push(format!("{} {line}", place.display()));
            }
        }
        found
    }

    /// No process, mount, control group or temporary directory is left of these servers.
    pub(crate) fn assert_nothing_left(&self, servers: &[u32]) {
        comes("the end of every process", || self.processes().is_empty());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let here = self.source().parent().unwrap().to_str().unwrap().to_owned();
        assert!(!mounts.contains(&here), "{mounts}");
        for server in servers {
            comes("the end of control groups", || groups_of(*server).is_empty());
        }
        let left = || self.temporary().read_dir().unwrap().count();
        comes("the end of temporary directories", || left() == 0);
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Server {
        let mut server = self.spawn(arguments);
        server.read_notice();
        server
    }

    /// A server that may die before it is ready.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Server {
        let mut command = self.stage.command(BINARY);
        command.args(["serve", "--port", "0", "--data-dir"]).arg(self.data()).args(arguments);
        if self.config().exists() {
            command.arg("--config").arg(self.config());
        }
        command.env("TMPDIR", self.temporary());
        Server::spawn(command, self.data())
    }
}

/// A running `serve`.
pub(crate) struct Server {
    child: Child,
    lines: Option<JoinHandle<()>>,
    said: Arc<Mutex<String>>,
    pub(crate) data: PathBuf,
    http: HttpClient,
}

impl Server {
    pub(crate) fn spawn(mut command: Command, data: PathBuf) -> Server {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let lines = std::thread::spawn(move || {
            let mut line = String::new();
            while errors.read_line(&mut line).is_ok_and(|length| length > 0) {
                heard.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Server { child, lines: Some(lines), said, data, http: HttpClient::default() }
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn read_notice(&mut self) {
        let is_over = || self.lines.as_ref().is_none_or(JoinHandle::is_finished);
        comes("the server's notice", || self.said().contains("  try ") || is_over());
        let said = self.said();
        let Some((_, rest)) = said.split_once("http://") else { panic!("no address: {said}") };
        self.http.address = rest.split_whitespace().next().unwrap().to_owned();
        self.http.token = fs::read_to_string(self.data.join("token")).unwrap().trim().to_owned();
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.http.address
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Interrupts the server and waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.signal(Signal::INT);
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.said());
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits until the server has killed itself.
    #[track_caller]
    pub(crate) fn died(mut self) {
        let status = self.wait();
        assert_eq!(status.signal(), Some(9), "{status}: {}", self.said());
    }

    /// A request of the operator.
    #[track_caller]
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let answer = self.try_ask(method, path, &self.operator(), body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    pub(crate) fn session(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/sessions/{id}"))
    }

    /// Waits until the session fits. If it never does, everything that the server knows of it is shown.
    #[track_caller]
    pub(crate) fn reaches(&self, id: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let session = self.session(id);
            if fits(&session) {
                return session;
            }
            if start.elapsed() > TIMEOUT {
                let mut headers = self.operator();
                headers.push(("accept", "application/json"));
                let path = format!("/api/v1/sessions/{id}/events");
                let events = self.try_ask("GET", &path, &headers, "").unwrap().json();
                let said = self.said();
                let mut ps = Command::new("ps");
                ps.args(["-eo", "pid,ppid,stat,wchan:32,etimes,args"]);
                let tree = ps.output().map(|it| it.stdout).unwrap_or_default();
                let tree = String::from_utf8_lossy(&tree).into_owned();
                panic!("{what} never came: {session:#}\n{events:#}\n{said}\n{tree}");
            }
            std::thread::yield_now();
        }
    }

    /// Creates a session for a task on `source`.
    #[track_caller]
    pub(crate) fn create(&self, source: &Path, prompt: &str) -> String {
        self.create_from(&task(source, prompt))
    }

    #[track_caller]
    pub(crate) fn create_with(&self, fixture: &Fixture, agent: &str) -> String {
        let mut task = task(&fixture.source(), "Work");
        task["agent"]["type"] = agent.into();
        self.create_from(&task)
    }

    #[track_caller]
    pub(crate) fn create_from(&self, task: &Value) -> String {
        let created = self.ask("POST", "/api/v1/tasks", &task.to_string());
        assert_eq!(created.status, 201, "{created:?}");
        created.json()["id"].as_str().unwrap().to_owned()
    }

    /// Reads the events of a session up to one that fits.
    #[track_caller]
    pub(crate) fn event(&self, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut follower = self.follow(id, 0).unwrap();
        let mut seen = Vec::new();
        while let Some((_, event)) = follower.next().unwrap() {
            if fits(&event) {
                return event;
            }
            seen.push(event);
        }
        panic!("the session ended: {seen:#?}");
    }

    /// The session after its end, and its events.
    #[track_caller]
    pub(crate) fn ended(&self, id: &str) -> (Value, Story) {
        let mut story = Story::default();
        self.work_through(id, &mut story).unwrap();
        let session = self.session(id);
        assert!(!session["endReason"].is_null(), "{session:#}\n{story:#?}");
        // A session that was idle before it ended.
        while story.events.last().is_some_and(|(_, event)| event["activity"] == "idle") {
            self.work_through(id, &mut story).unwrap();
        }
        (session, story)
    }

    /// Deletes a session and waits for its end.
    pub(crate) fn delete(&self, id: &str) -> Value {
        let path = format!("/api/v1/sessions/{id}");
        assert_eq!(self.ask("DELETE", &path, "").status, 202);
        self.reaches(id, "the end of the session", |session| !session["endReason"].is_null())
    }

    /// Approves everything that a session waits for.
    pub(crate) fn approve_all(&self, id: &str) {
        for answer in self.approve_open_questions(id).unwrap() {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }

    /// The same for a server that may be killed, and questions that others may answer.
    pub(crate) fn approve_open_questions(&self, id: &str) -> io::Result<Vec<Answer>> {
        let path = format!("/v1/approvals?status=pending&sessionId={id}");
        let list = self.try_ask("GET", &path, &self.operator(), "")?;
        let list: Value = serde_json::from_str(&list.body)?;
        let open = list["items"].as_array().into_iter().flatten();
        let approve = |approval: &Value| {
            let path = format!("/v1/approvals/{}", approval["id"].as_str().unwrap());
            self.try_ask("POST", &path, &self.operator(), r#"{"decision":"approve"}"#)
        };
        open.map(approve).collect()
    }

    /// Answers every question with yes until the session has ended, also after it was idle.
    pub(crate) fn work_to_the_end(&self, id: &str, story: &mut Story) {
        while self.session(id)["endReason"].is_null() {
            self.work_through(id, story).unwrap();
        }
        self.work_through(id, story).unwrap();
    }

    /// Answers every question of a session with yes until it has ended or is idle: its events.
    pub(crate) fn work_through(&self, id: &str, story: &mut Story) -> io::Result<()> {
        self.work_through_counting(id, story, &AtomicU64::new(0))
    }

    pub(crate) fn work_through_counting(
        &self,
        id: &str,
        story: &mut Story,
        seen: &AtomicU64,
    ) -> io::Result<()> {
        let mut follower = self.follow(id, story.last())?;
        while let Some((number, event)) = follower.next()? {
            story.events.push((number, event.clone()));
            seen.fetch_add(1, Ordering::Relaxed);
            if event["type"] == "approvalRequested" {
                let path = format!("/v1/approvals/{}", event["approvalId"].as_str().unwrap());
                let yes = r#"{"decision":"approve"}"#;
                // The question may have expired meanwhile.
                self.try_ask("POST", &path, &self.operator(), yes)?;
            }
            if event["type"] == "status" && event["activity"] == "idle" {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Deref for Server {
    type Target = HttpClient;

    fn deref(&self) -> &HttpClient {
        &self.http
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process has ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn task(source: &Path, prompt: &str) -> Value {
    json!({ "prompt": prompt, "repo": { "url": source }, "agent": { "type": "scripted" } })
}

/// The events of a session as one reader saw them, across restarts of the server.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) events: Vec<(u64, Value)>,
}

impl Story {
    fn last(&self) -> u64 {
        self.events.last().map_or(0, |(number, _)| *number)
    }

    /// Whether some event has this text in its message.
    pub(crate) fn says(&self, text: &str) -> bool {
        let mut messages = self.events.iter().filter_map(|(_, event)| event["message"].as_str());
        messages.any(|message| message.contains(text))
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|(_, event)| event["type"] == kind).count()
    }

    pub(crate) fn find(&self, kind: &str) -> Option<&Value> {
        self.events.iter().map(|(_, event)| event).find(|event| event["type"] == kind)
    }

    /// No tool call is shown as running any more.
    #[track_caller]
    pub(crate) fn assert_tools_ended(&self) {
        let mut last = BTreeMap::new();
        for (_, event) in self.events.iter().filter(|(_, event)| event["type"] == "tool") {
            last.insert(event["tool_execution_id"].to_string(), event["tool_status"].clone());
        }
        let open = last.values().filter(|status| **status == "pending" || **status == "running");
        assert_eq!(open.count(), 0, "{self:#?}");
    }

    /// Nothing is missing, nothing is repeated, and what a reader saw before a crash is still there after it.
    #[track_caller]
    pub(crate) fn assert_whole(&self, server: &Server, id: &str) {
        let numbers: Vec<u64> = self.events.iter().map(|(number, _)| *number).collect();
        let expect: Vec<u64> = (1..=self.events.len() as u64).collect();
        assert_eq!(numbers, expect, "{self:#?}");
        let path = format!("/api/v1/sessions/{id}/events");
        let mut headers = server.operator();
        headers.push(("accept", "application/json"));
        let stored = server.try_ask("GET", &path, &headers, "").unwrap().json();
        let seen: Vec<&Value> = self.events.iter().map(|(_, event)| event).collect();
        let stored = stored["items"].as_array().unwrap();
        assert_eq!(seen, stored.iter().take(seen.len()).collect::<Vec<_>>());
        let mut contents = BTreeMap::<String, usize>::new();
        let mut last = Value::Null;
        for event in seen {
            let mut content = event.clone();
            content.as_object_mut().unwrap().remove("ts");
            // What an agent says in one turn, it may say in the next.
            if content["type"] == "prompt" {
                contents.clear();
            }
            if content["type"] == "status" {
                assert_ne!(content, last, "a status is told twice: {self:#?}");
                last = content;
                continue;
            }
            let is_of_a_start = content["message"]
                .as_str()
                .is_some_and(|text| text.starts_with("Started ") || text.contains("restarted"));
            // A queued prompt that is changed has the same receipt again.
            if !is_of_a_start && content["type"] != "promptReceipt" {
                *contents.entry(content.to_string()).or_default() += 1;
            }
        }
        let repeated: Vec<_> = contents.iter().filter(|(_, count)| **count > 1).collect();
        assert!(repeated.is_empty(), "{repeated:#?}");
    }
}
