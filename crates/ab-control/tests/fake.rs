//! An executor by script, and a control plane on a store of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_api::{
    Approval, ApprovalId, ApprovalSubject, DeliveryResult, EventKind, ExecutorDescription,
    ExecutorHealth, FieldViolations, OverlayNetwork, PromptRequest, Session, SessionEndReason,
    SessionId, SnapshotProvider, Task, TaskCapabilities, TaskRequest, WorkspaceStorage,
};
use ab_control::{ControlPlane, ControlPlaneSettings};
use ab_executor::{
    AgentLaunchMode, AgentQuestion, AgentQuestionId, AgentReport, AgentReportSender, CleanupToken,
    DeliveryOutcome, Executor, ExecutorError, LaunchedAgentInfo, ProvisionedWorkspace,
    RepoBranchList, SessionAttempt, StoredResources, TurnOutcome,
};
use ab_store::{DataDir, EventLogScope, Store};
use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::watch;

/// Number of bytes of the error of [`Script::LongError`].
pub(crate) const LONG_ERROR: usize = 120_000;

/// A method of the executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Point {
    Provision,
    Launch,
    Prompt,
    Deliver,
    Terminate,
    Cleanup,
}

/// What the executor does at a point instead of succeeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Fail,
    /// Never returns: the server is killed here.
    Hang,
    Panic,
}

/// What the agent does with a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    Work,
    Ask,
    /// Asks when its session ends, and ends with the answer.
    AskAtTheEnd,
    Crash,
    /// Ends the turn with a long error.
    LongError,
    Silence,
    /// Reports without an end, until the receiver is dropped.
    Flood,
}

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) script: Script,
    pub(crate) fault: Option<(Point, Fault)>,
    pub(crate) can_reload: bool,
    /// What is on the disk. Removed resources leave it.
    pub(crate) stored: Mutex<StoredResources>,
    pub(crate) free_space: Option<u64>,
    /// Every call, in order.
    pub(crate) calls: Arc<Mutex<Vec<String>>>,
    pub(crate) reports: Mutex<Option<AgentReportSender>>,
    /// How many calls there were: tests wait for it.
    pub(crate) progress: watch::Sender<usize>,
}

impl Fake {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            fault: None,
            can_reload: true,
            stored: Mutex::default(),
            free_space: None,
            calls: Arc::default(),
            reports: Mutex::default(),
            progress: watch::Sender::new(0),
        }
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("calls").clone()
    }

    /// Waits until a call with this text was made.
    pub(crate) async fn called(&self, text: &str) {
        let mut progress = self.progress.subscribe();
        let is_called = |_: &usize| self.calls().iter().any(|call| call == text);
        progress.wait_for(is_called).await.expect("the executor exists");
    }

    fn note(&self, call: impl Into<String>) {
        self.calls.lock().expect("calls").push(call.into());
        self.progress.send_modify(|count| *count += 1);
    }

    async fn reach(&self, point: Point) -> Result<(), ExecutorError> {
        match self.fault {
            Some((at, Fault::Fail)) if at == point => Err(ExecutorError {
                reason: match point {
                    Point::Provision => SessionEndReason::Provision,
                    Point::Launch => SessionEndReason::Launch,
                    Point::Deliver => SessionEndReason::Delivery,
                    _ => SessionEndReason::Agent,
                },
                detail: format!("{point:?} failed"),
            }),
            Some((at, Fault::Hang)) if at == point => std::future::pending().await,
            Some((at, Fault::Panic)) if at == point => panic!("a bug at {point:?}"),
            _ => Ok(()),
        }
    }

    fn reports(&self) -> AgentReportSender {
        self.reports.lock().expect("reports").clone().expect("launched")
    }
}

/// A question that has the same digest each time.
fn question(id: &str) -> AgentReport {
    let (title, digest) = ("Run ls".to_owned(), Some("d".to_owned()));
    let subject = ApprovalSubject { title, digest, ..ApprovalSubject::default() };
    AgentReport::Question(AgentQuestion { id: AgentQuestionId(id.to_owned()), subject })
}

pub(crate) fn thought(text: &str) -> EventKind {
    EventKind::Thought { thought: text.to_owned() }
}

#[async_trait]
impl Executor for Fake {
    fn describe_executor(&self) -> ExecutorDescription {
        ExecutorDescription {
            id: "fake".to_owned(),
            os: "linux".to_owned(),
            arch: "x86_64".to_owned(),
            snapshot_capabilities: vec![SnapshotProvider::Copy],
            health: ExecutorHealth::Ok,
            overlay: OverlayNetwork::default(),
            controller: "server".to_owned(),
        }
    }

    async fn choose_snapshot_provider(
        &self,
        _: &Session,
    ) -> Result<SnapshotProvider, FieldViolations> {
        Ok(SnapshotProvider::Copy)
    }

    async fn find_base_commit(&self, _: &Session) -> Result<Option<String>, FieldViolations> {
        Ok(None)
    }

    fn cleanup_token(&self, job: &SessionAttempt) -> CleanupToken {
        CleanupToken(format!("fake:{}", job.session.id))
    }

    async fn provision_workspace(
        &self,
        _: &SessionAttempt,
    ) -> Result<ProvisionedWorkspace, ExecutorError> {
        self.note("provision");
        self.reach(Point::Provision).await?;
        Ok(ProvisionedWorkspace {
            provider: SnapshotProvider::Copy,
            mount_path: "/x".to_owned(),
            base_commit: None,
            notes: vec!["2 uncommitted changes were left out".to_owned()],
        })
    }

    async fn launch_agent(
        &self,
        _: &SessionAttempt,
        mode: AgentLaunchMode,
        reports: AgentReportSender,
    ) -> Result<LaunchedAgentInfo, ExecutorError> {
        let is_reload = matches!(mode, AgentLaunchMode::Reload { .. });
        self.note(if is_reload { "reload" } else { "launch" });
        self.reach(Point::Launch).await?;
        if is_reload && !self.can_reload {
            let detail = "the agent cannot load a conversation".to_owned();
            return Err(ExecutorError { reason: SessionEndReason::Launch, detail });
        }
        *self.reports.lock().expect("reports") = Some(reports);
        Ok(LaunchedAgentInfo { agent: Some("fake 1.0".to_owned()), ..LaunchedAgentInfo::default() })
    }

    async fn send_prompt(
        &self,
        _: &SessionAttempt,
        number: u32,
        prompt: &str,
    ) -> Result<(), ExecutorError> {
        self.note(format!("prompt {number} {prompt}"));
        self.reach(Point::Prompt).await?;
        let reports = self.reports();
        // A cancelled session no longer listens.
        let send = async |report| drop(reports.send(report).await);
        send(AgentReport::Event(thought("hm"))).await;
        match self.script {
            Script::Work => send(AgentReport::TurnEnded(TurnOutcome::Done)).await,
            Script::Ask => send(question("q1")).await,
            Script::Crash => send(AgentReport::Exited { detail: "exit code 3".to_owned() }).await,
            Script::LongError => {
                let detail = "é".repeat(LONG_ERROR / 2);
                send(AgentReport::TurnEnded(TurnOutcome::Failed { detail })).await;
            }
            Script::Silence | Script::AskAtTheEnd => {}
            Script::Flood => {
                let reports = self.reports();
                tokio::spawn(async move {
                    while reports.send(AgentReport::Event(thought("la"))).await.is_ok() {}
                });
            }
        }
        Ok(())
    }

    async fn cancel_turn(&self, _: &SessionAttempt, turn: u32) -> Result<(), ExecutorError> {
        self.note(format!("cancel {turn}"));
        let reports = self.reports();
        drop(reports.send(AgentReport::TurnEnded(TurnOutcome::Cancelled)).await);
        Ok(())
    }

    async fn set_approval_id_of_question(
        &self,
        _: &SessionAttempt,
        _: &AgentQuestionId,
        _: ApprovalId,
    ) {
    }

    async fn answer_question(
        &self,
        _: &SessionAttempt,
        question: &AgentQuestionId,
        approval: &Approval,
    ) -> Result<(), ExecutorError> {
        self.note(format!("answer {} {:?}", question.0, approval.status));
        let reports = self.reports();
        // A cancelled session no longer listens.
        drop(reports.send(AgentReport::TurnEnded(TurnOutcome::Done)).await);
        Ok(())
    }

    async fn pause_session(&self, _: &SessionAttempt) -> Result<(), ExecutorError> {
        self.note("pause");
        Ok(())
    }

    async fn resume_session(&self, _: &SessionAttempt) -> Result<(), ExecutorError> {
        self.note("resume");
        Ok(())
    }

    async fn deliver_result(&self, _: &SessionAttempt) -> Result<DeliveryOutcome, ExecutorError> {
        self.note("deliver");
        self.reach(Point::Deliver).await?;
        let result = DeliveryResult { changed: true, ..DeliveryResult::default() };
        Ok(DeliveryOutcome { result, ..DeliveryOutcome::default() })
    }

    async fn session_diff(&self, _: &SessionAttempt) -> Result<String, ExecutorError> {
        Ok("a diff".to_owned())
    }

    async fn list_repo_branches(&self, url: &str) -> Result<RepoBranchList, ExecutorError> {
        let commit = "0123456789012345678901234567890123456789".to_owned();
        if url.contains("unreachable") {
            let detail = "cannot read it".to_owned();
            return Err(ExecutorError { reason: SessionEndReason::Provision, detail });
        }
        Ok(RepoBranchList {
            default: Some("main".to_owned()),
            branches: vec![("main".to_owned(), commit)],
            truncated: false,
        })
    }

    async fn workspace_storage(&self, _: &CleanupToken) -> Result<WorkspaceStorage, ExecutorError> {
        Ok(WorkspaceStorage { bytes: 4096, files: 1, truncated: false })
    }

    async fn list_stored_resources(&self) -> Result<StoredResources, ExecutorError> {
        Ok(self.stored.lock().expect("stored").clone())
    }

    async fn remove_cache(&self, name: &str) -> Result<bool, ExecutorError> {
        self.note(format!("remove cache {name}"));
        self.stored.lock().expect("stored").caches.retain(|cache| cache.name != name);
        Ok(true)
    }

    fn free_space(&self) -> Option<u64> {
        self.free_space
    }

    async fn terminate_session(&self, _: SessionId, _: Duration) -> Result<(), ExecutorError> {
        self.note("terminate");
        if self.script == Script::AskAtTheEnd {
            // A cancelled session no longer listens.
            if self.reports().send(question("q2")).await.is_ok() {
                self.called("answer q2 Expired").await;
            }
        }
        self.reach(Point::Terminate).await
    }

    async fn clean_up_session(&self, token: &CleanupToken) -> Result<(), ExecutorError> {
        self.note("cleanup");
        self.reach(Point::Cleanup).await?;
        self.stored.lock().expect("stored").workspaces.retain(|known| known != token);
        Ok(())
    }
}

pub(crate) struct Scene {
    pub(crate) dir: TempDir,
    pub(crate) control: ControlPlane,
    pub(crate) executor: Arc<Fake>,
}

pub(crate) async fn scene(executor: Fake) -> Scene {
    let dir = tempfile::tempdir().expect("a temporary directory");
    start(dir, executor, ControlPlaneSettings::default()).await
}

pub(crate) async fn start(dir: TempDir, executor: Fake, settings: ControlPlaneSettings) -> Scene {
    let data = DataDir::open(dir.path().join("data")).expect("lock");
    let store = Store::open(data).await.expect("open");
    let executor = Arc::new(executor);
    let shared: Arc<dyn Executor> = Arc::<Fake>::clone(&executor);
    let control = ControlPlane::start(store, shared, settings).await.expect("start");
    Scene { dir, control, executor }
}

impl Scene {
    /// Ends the control plane where it is, and starts another one on the same data.
    pub(crate) async fn restart(self, executor: Fake) -> Scene {
        let Scene { dir, control, executor: old } = self;
        control.shutdown().await;
        control.store().close().await;
        drop((control, old));
        start(dir, executor, ControlPlaneSettings::default()).await
    }

    pub(crate) async fn create(&self, keep_open: bool) -> SessionId {
        self.control.create_session(task(keep_open), None).await.expect("create")
    }

    /// Waits for the end of a session.
    pub(crate) async fn end(&self, id: SessionId) -> Session {
        let mut follow = self.control.follow_events(EventLogScope::Session(id), 0);
        while !follow.next().await.expect("an event").is_last_of_stream() {}
        self.control.store().get_session(id).await.expect("read")
    }

    /// Waits for an event whose JSON contains `text`.
    pub(crate) async fn event(&self, id: SessionId, text: &str) {
        let mut follow = self.control.follow_events(EventLogScope::Session(id), 0);
        while !follow.next().await.expect("an event").json.contains(text) {}
    }

    /// The types of all events of a session; statuses by their names.
    pub(crate) async fn story(&self, id: SessionId) -> Vec<String> {
        let records = self
            .control
            .store()
            .event_records(EventLogScope::Session(id), 0, 1000)
            .await
            .expect("read");
        let name =
            |record: &ab_store::EventRecord| match record.parse_event().expect("an event").kind {
                EventKind::Status { status, .. } => status.to_string(),
                kind => kind.name().to_owned(),
            };
        records.iter().map(|record| name(record)).collect()
    }
}

pub(crate) fn task(keep_open: bool) -> Task {
    let body = format!(
        r#"{{"prompt":"fix","repo":{{"url":"https://h/x"}},"agent":{{"type":"a"}},"keepOpen":{keep_open}}}"#
    );
    let agents = BTreeMap::from([("a".to_owned(), Vec::new())]);
    TaskRequest::parse(body.as_bytes(), &TaskCapabilities { agents, ..TaskCapabilities::default() })
        .expect("a task")
}

pub(crate) fn prompt(text: &str) -> PromptRequest {
    PromptRequest { prompt: text.to_owned(), now: false }
}
