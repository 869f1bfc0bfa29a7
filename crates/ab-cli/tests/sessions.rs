//! Sessions with real parts: control plane, store, executor, sandbox, git, and the scripted agent as a process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ab_acp::catalog::{AgentCatalogEntry, OWN_EXECUTABLE_PLACEHOLDER};
use ab_api::{
    ApprovalDecider, ApprovalDecision, ApprovalId, ApproveOrDeny, DeciderKind, EventKind, Session,
    SessionEndReason, SessionId, SessionStatus, TaskCapabilities, TaskRequest, ToolExecutionStatus,
};
use ab_control::{ControlPlane, ControlPlaneError, ControlPlaneSettings};
use ab_executor::{ExecutorSettings, LocalExecutor, SessionAttempt};
use ab_server::{
    AccessToken, ControlPlaneRoutes, HttpAccessPolicy, HttpApp, HttpServer, TaskChoices,
};
use ab_store::{DataDir, EventLogScope, Store};
use tempfile::TempDir;

use crate::stage::BINARY;

/// A scenario in the repository, where the agent finds it in its sandbox.
const SCENARIO: &str = "scenario.toml";

/// The token of the server's admin.
pub(crate) const ADMIN: &str = "the-token-of-the-admin";

/// A source repository, and a control plane behind a port with everything that `serve` gives it.
pub(crate) struct Server {
    keep: TempDir,
    pub(crate) control: ControlPlane,
    /// Where the port listens.
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Nothing where the host has no sandbox.
    pub(crate) async fn start(scenario: Option<&str>) -> Option<Server> {
        Server::start_with(scenario, |_| {}).await
    }

    /// The same with other settings of the executor.
    pub(crate) async fn start_with(
        scenario: Option<&str>,
        change: impl FnOnce(&mut ExecutorSettings),
    ) -> Option<Server> {
        let keep = tempfile::tempdir().unwrap();
        let probe = keep.path().join("probe");
        std::fs::create_dir(&probe).unwrap();
        if let Err(error) = ab_local::LocalWorkspace::builder(&probe).open().await {
            ab_testkit::host::report_skip("a session's sandbox", error.message());
            return None;
        }
        let source = keep.path().join("source");
        std::fs::create_dir(&source).unwrap();
        git(&source, &["init", "-q", "-b", "main", "."]);
        std::fs::write(source.join("README.md"), "first\n").unwrap();
        if let Some(text) = scenario {
            std::fs::write(source.join(SCENARIO), text).unwrap();
        }
        git(&source, &["add", "-A"]);
        git(&source, &["commit", "-q", "-m", "first"]);
        // Not part of the session, and not to be lost.
        std::fs::write(source.join("README.md"), "first\nmine\n").unwrap();

        let data = keep.path().join("data");
        let store = Store::open(DataDir::open(data.clone()).unwrap()).await.unwrap();
        let mut settings = ExecutorSettings::new(data, BINARY);
        settings.environment = vec![("PATH".into(), std::env::var_os("PATH").unwrap())];
        let argv =
            [OWN_EXECUTABLE_PLACEHOLDER, "agent", "script", SCENARIO].map(str::to_owned).to_vec();
        let scenario = AgentCatalogEntry {
            id: "scenario".to_owned(),
            argv,
            aliases: Vec::new(),
            ..settings.catalog.entries()[0].clone()
        };
        settings.catalog.add_or_change(scenario).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        settings.server_url = Some(format!("http://{address}"));
        change(&mut settings);
        let executor = Arc::new(LocalExecutor::new(settings).unwrap());
        let endpoints = executor.running_session_workspaces();
        let control =
            ControlPlane::start(store, executor, ControlPlaneSettings::default()).await.unwrap();
        let surface = ControlPlaneRoutes::new(control.clone(), TaskChoices::default());
        let token = Some(AccessToken::new(ADMIN));
        let app = HttpApp::new(HttpAccessPolicy { token, ..HttpAccessPolicy::default() })
            .with_control_plane_routes(surface.with_session_workspaces(endpoints));
        // Ends with the test's runtime.
        HttpServer::new(app).start(listener).unwrap();
        Some(Server { keep, control, address })
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.keep.path().join("source")
    }

    pub(crate) async fn create(&self, agent: &str) -> SessionId {
        self.create_with(agent, serde_json::json!({})).await
    }

    /// The same with this `runtime`.
    pub(crate) async fn create_with(&self, agent: &str, runtime: serde_json::Value) -> SessionId {
        self.try_create(agent, runtime).await.unwrap()
    }

    pub(crate) async fn try_create(
        &self,
        agent: &str,
        runtime: serde_json::Value,
    ) -> Result<SessionId, ab_control::ControlPlaneError> {
        let body = serde_json::json!({
            "prompt": "Describe the project", "repo": { "url": self.source() },
            "agent": { "type": agent }, "runtime": runtime,
        });
        let agents = BTreeMap::from([(agent.to_owned(), Vec::new())]);
        let (local_repositories, resource_limits) = (true, true);
        let offers = TaskCapabilities {
            agents,
            allows_local_repositories: local_repositories,
            enforces_resource_limits: resource_limits,
            ..TaskCapabilities::default()
        };
        let task = TaskRequest::parse(body.to_string().as_bytes(), &offers).unwrap();
        self.control.create_session(task, None).await
    }

    /// The first event of a session for which `pick` gives something.
    pub(crate) async fn event<T>(
        &self,
        id: SessionId,
        pick: impl Fn(&EventKind) -> Option<T>,
    ) -> T {
        let mut follow = self.control.follow_events(EventLogScope::Session(id), 0);
        loop {
            let record = follow.next().await.unwrap();
            if let Some(picked) = pick(&record.parse_event().unwrap().kind) {
                return picked;
            }
            assert!(!record.is_last_of_stream(), "the session ended: {:?}", self.story(id).await);
        }
    }

    pub(crate) async fn asked(&self, id: SessionId) -> ApprovalId {
        let approval = |kind: &EventKind| match kind {
            EventKind::ApprovalRequested { approval_id, .. } => Some(*approval_id),
            _ => None,
        };
        self.event(id, approval).await
    }

    /// Waits until the agent said `text`.
    pub(crate) async fn said(&self, id: SessionId, text: &str) {
        let said = |kind: &EventKind| match kind {
            EventKind::Log { message, .. } if message == text => Some(()),
            _ => None,
        };
        self.event(id, said).await;
    }

    pub(crate) async fn decide(&self, approval: ApprovalId, decision: ApproveOrDeny) {
        let by = ApprovalDecider { kind: DeciderKind::Person, name: "ann".to_owned(), via: None };
        let decision = ApprovalDecision::from(decision);
        self.control.decide_approval(approval, decision, by).await.unwrap();
    }

    pub(crate) async fn ended(&self, id: SessionId) -> Session {
        let mut follow = self.control.follow_events(EventLogScope::Session(id), 0);
        while !follow.next().await.unwrap().is_last_of_stream() {}
        self.control.store().get_session(id).await.unwrap()
    }

    pub(crate) async fn events(&self, id: SessionId) -> Vec<EventKind> {
        let records =
            self.control.store().event_records(EventLogScope::Session(id), 0, 1000).await.unwrap();
        records.iter().map(|record| record.parse_event().unwrap().kind).collect()
    }

    /// The types of all events, without repetitions; statuses by their names.
    pub(crate) async fn story(&self, id: SessionId) -> Vec<String> {
        let name = |kind: EventKind| match kind {
            EventKind::Status { status, .. } => status.to_string(),
            EventKind::Log { message, .. } => format!("log {message}"),
            kind => kind.name().to_owned(),
        };
        self.events(id).await.into_iter().map(name).collect()
    }

    /// A file on a branch of the source.
    pub(crate) fn on_branch(&self, branch: &str, path: &str) -> String {
        git(&self.source(), &["show", &format!("{branch}:{path}")])
    }

    /// The new branches of the source.
    pub(crate) fn branches(&self) -> Vec<String> {
        let all = git(&self.source(), &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
        all.lines().filter(|name| *name != "main").map(str::to_owned).collect()
    }

    /// The source is as the user left it, and no session has left files or processes.
    pub(crate) async fn assert_clean(&self, workspaces: usize) {
        assert_eq!(git(&self.source(), &["status", "--porcelain"]).trim(), "M README.md");
        assert_eq!(git(&self.source(), &["symbolic-ref", "HEAD"]), "refs/heads/main");
        self.control.shutdown().await;
        let left = self.keep.path().join("data/sessions/workspaces");
        assert_eq!(left.read_dir().unwrap().count(), workspaces);
        let place = self.keep.path().canonicalize().unwrap();
        let processes = Path::new("/proc").read_dir().unwrap().flatten();
        let inside = processes.filter_map(|entry| entry.path().join("cwd").read_link().ok());
        assert_eq!(inside.filter(|cwd| cwd.starts_with(&place)).count(), 0);
    }
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {stderr}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Where each of these is found in `story`, in order.
#[track_caller]
fn assert_in_order(story: &[String], expected: &[&str]) {
    let mut rest = story.iter();
    for part in expected {
        assert!(rest.any(|event| event.starts_with(part)), "no {part:?} in its place: {story:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_becomes_a_branch_of_the_source() {
    let Some(server) = Server::start(None).await else { return };
    let id = server.create("scripted").await;
    server.decide(server.asked(id).await, ApproveOrDeny::Approve).await;
    let session = server.ended(id).await;
    let story = server.story(id).await;
    assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
    assert_eq!(session.end_reason, Some(SessionEndReason::Done));
    assert_in_order(
        &story,
        &[
            "queued",
            "provisioning",
            "log Uncommitted changes of the source are left out: 1 changed",
            "running",
            "prompt",
            "thought",
            "plan",
            "tool",
            "approvalRequested",
            "approvalDecided",
            "tool",
            "fileEdit",
            "usage",
            "log I wrote the task and a plan to NOTES.md. These files are here now:",
            "diffStat",
            "delivery",
            "completed",
        ],
    );
    let events = server.events(id).await;
    let edit = events.iter().find_map(|event| match event {
        EventKind::FileEdit { file_path, lines_added, tool_execution_id, .. } => {
            Some((file_path.clone(), *lines_added, tool_execution_id.clone()))
        }
        _ => None,
    });
    let (path, added, call) = edit.unwrap();
    assert_eq!((path.as_str(), added > 5), ("NOTES.md", true));
    let statuses = events.iter().filter_map(|event| match event {
        EventKind::Tool { tool_execution_id, tool_status, .. } => {
            (Some(tool_execution_id) == call.as_ref()).then_some(*tool_status)
        }
        _ => None,
    });
    let expect =
        [ToolExecutionStatus::Pending, ToolExecutionStatus::Running, ToolExecutionStatus::Success];
    assert_eq!(statuses.collect::<Vec<_>>(), expect);

    let branches = server.branches();
    assert_eq!(branches.len(), 1, "{branches:?}");
    assert!(branches[0].starts_with("ah/describe-the-project-"), "{branches:?}");
    let notes = git(&server.source(), &["show", &format!("{}:NOTES.md", branches[0])]);
    assert!(notes.contains("Describe the project"), "{notes}");
    let diff = server.control.store().get_session_artifact(id, "diff").await.unwrap();
    assert!(diff.contains("+++ b/NOTES.md"), "{diff}");
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_the_diff_do_not_disturb_the_delivery() {
    let steps = r#"[[turn]]
        steps = [{ write = { path = "new.txt", text = "new" } }]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let id = server.create("scenario").await;
    let control = &server.control;
    let reader = async || loop {
        let record = control.store().session_record(id).await.unwrap();
        if record.session.status.is_terminal() {
            break;
        }
        let job =
            SessionAttempt { session: record.session, generation: record.progress.generation };
        // There is no diff before the workspace is made, and none after it is removed.
        let _ = control.executor().session_diff(&job).await;
    };
    let (session, (), (), ()) = tokio::join!(server.ended(id), reader(), reader(), reader());
    assert_eq!(session.status, SessionStatus::Completed, "{:?}", session.end_detail);
    assert_eq!(server.branches().len(), 1);
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_agent_changes_nothing_and_nothing_is_delivered() {
    let Some(server) = Server::start(None).await else { return };
    let id = server.create("scripted").await;
    server.decide(server.asked(id).await, ApproveOrDeny::Deny).await;
    let session = server.ended(id).await;
    let story = server.story(id).await;
    assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
    assert_in_order(&story, &["approvalDecided", "log I may not write NOTES.md", "delivery"]);
    let events = server.events(id).await;
    let is_empty =
        |event: &EventKind| matches!(event, EventKind::Delivery { result, .. } if !result.changed);
    assert!(events.iter().any(is_empty), "{events:?}");
    assert_eq!(server.branches(), [""; 0]);
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crashed_agent_fails_its_session_and_the_work_is_kept() {
    let steps = r#"[[turn]]
        steps = [{ write = { path = "half.txt", text = "half" } }, { exit = 9 }]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let id = server.create("scenario").await;
    let session = server.ended(id).await;
    let reason = (session.status, session.end_reason);
    let story = server.story(id).await;
    assert_eq!(reason, (SessionStatus::Failed, Some(SessionEndReason::Agent)), "{story:#?}");
    assert_eq!(session.end_detail.as_deref(), Some("the agent ended with exit code 9"));
    let diff = server.control.store().get_session_artifact(id, "diff").await.unwrap();
    assert!(diff.contains("half.txt"), "{diff}");
    assert_eq!(server.branches(), [""; 0]);
    server.assert_clean(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn continued_session_finds_the_work_of_the_earlier_one() {
    let steps = r#"[[turn]]
        steps = [{ write = { path = "first.txt", text = "one\n" } }, { say = "ready\n" },
                 { hang = "until_cancelled" }]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let before = server.create("scenario").await;
    server.said(before, "ready").await;
    let running = server.control.continue_session(before, None, None).await;
    assert!(matches!(running, Err(ControlPlaneError::SessionNotEnded(_))), "{running:?}");
    server.control.stop_session(before).await.unwrap();
    let ended = server.ended(before).await;
    assert_eq!(ended.status, SessionStatus::Stopped);

    // The scripted agent of the second session does one turn of its own and ends.
    let next =
        server.control.continue_session(before, Some("Go on".to_owned()), None).await.unwrap();
    let twice = server.control.continue_session(before, None, None).await;
    assert!(matches!(twice, Err(ControlPlaneError::WorkspaceGone(_))), "{twice:?}");
    server.said(next, "ready").await;
    let session = server.control.store().get_session(next).await.unwrap();
    assert_eq!((session.continues, session.prompt.as_str()), (Some(before), "Go on"));
    assert_eq!(session.workspace.mount_path, ended.workspace.mount_path);
    let story = server.story(next).await;
    let says = format!("log Continues session {before} in its workspace.");
    assert!(story.contains(&says), "{story:?}");
    // The earlier session no longer owns the workspace.
    server.control.cancel_session(before).await.unwrap();
    let tree = PathBuf::from(session.workspace.mount_path.unwrap());
    assert_eq!(std::fs::read_to_string(tree.join("first.txt")).unwrap(), "one\n");

    server.control.stop_session(next).await.unwrap();
    server.ended(next).await;
    let third = server.control.continue_session(next, None, None).await.unwrap();
    server.said(third, "ready").await;
    server.control.cancel_session(third).await.unwrap();
    let third = server.ended(third).await;
    assert_eq!(third.workspace.made_by, Some(before));
    let gone = server.control.continue_session(third.id, None, None).await;
    assert!(matches!(gone, Err(ControlPlaneError::WorkspaceGone(_))), "{gone:?}");
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_does_not_start_fails_its_session() {
    let steps = "[faults]\nexit_after_lines = 0\nexit_code = 7\n[[turn]]\nsteps = []";
    let Some(server) = Server::start(Some(steps)).await else { return };
    let id = server.create("scenario").await;
    let session = server.ended(id).await;
    let reason = (session.status, session.end_reason);
    assert_eq!(reason, (SessionStatus::Failed, Some(SessionEndReason::Launch)));
    assert_eq!(session.end_detail.as_deref(), Some("the agent ended with exit code 7"));
    server.assert_clean(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_agent_may_wrap_up() {
    let steps = r#"[[turn]]
        steps = [{ say = "ready\n" }, { hang = "until_cancelled" }]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let id = server.create("scenario").await;
    server.said(id, "ready").await;
    server.control.stop_session(id).await.unwrap();
    let session = server.ended(id).await;
    let reason = (session.status, session.end_reason);
    assert_eq!(reason, (SessionStatus::Stopped, Some(SessionEndReason::Stopped)));
    server.assert_clean(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_agent_is_killed_and_its_workspace_removed() {
    let steps = r#"[[turn]]
        steps = [{ run = "sleep 1000 >/dev/null 2>&1 & echo started" }, { say = "ready\n" }, { hang = "forever" }]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let id = server.create("scenario").await;
    server.said(id, "ready").await;
    server.control.cancel_session(id).await.unwrap();
    let session = server.ended(id).await;
    let reason = (session.status, session.end_reason);
    assert_eq!(reason, (SessionStatus::Cancelled, Some(SessionEndReason::Cancelled)));
    server.assert_clean(0).await;
}
