//! An executor by script, and a port over a control plane with it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_api::{
    AgentDescription, AgentSetting, AgentSettingKind, Approval, ApprovalId, ApprovalSubject,
    DeliveryResult, EventKind, ExecutorDescription, ExecutorHealth, FieldViolations, LogLevel,
    LogSource, OverlayNetwork, Session, SessionEndReason, SessionId, SnapshotProvider,
    WorkspaceStorage,
};
use ab_control::{ControlPlane, ControlPlaneSettings};
use ab_executor::{
    AgentLaunchMode, AgentQuestion, AgentQuestionId, AgentReport, AgentReportSender, CleanupToken,
    DeliveryOutcome, Executor, ExecutorError, LaunchedAgentInfo, ProvisionedWorkspace,
    RepoBranchList, SessionAttempt, StoredResources, TurnOutcome,
};
use ab_server::{
    ControlPlaneRoutes, HttpApp, HttpServer, HttpServerLimits, RunningHttpServer, TaskChoices,
};
use ab_store::{DataDir, Store};
use async_trait::async_trait;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::caller::{Got, guarded, head, open_with, send};

/// What the agent does with a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// Thinks and ends its turn.
    Work,
    /// Asks a question and ends its turn with the answer.
    Ask,
    /// Thinks and never ends its turn.
    Silence,
    /// Never ends its turn, and a diff that was begun fails when its session ends.
    DiffEndsWithSession,
    /// Waits until it is released, prints this many lines and ends its turn.
    Flood(u64),
}

/// Bytes of each line of [`Script::Flood`].
pub(crate) const FLOOD_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Fake {
    script: Script,
    /// Of every session: a session whose sender is dropped fails.
    reports: Mutex<HashMap<SessionId, AgentReportSender>>,
    /// The secret of the last agent.
    token: Mutex<Option<String>>,
    /// Whether the flood may begin.
    released: watch::Sender<bool>,
    /// How many diffs were begun.
    diffs: watch::Sender<usize>,
    /// Whether the processes of a session were ended.
    is_terminated: watch::Sender<bool>,
}

impl Fake {
    fn reports(&self, job: &SessionAttempt) -> AgentReportSender {
        self.reports.lock().unwrap()[&job.session.id].clone()
    }
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
        let mount_path = "/workspaces/fake".to_owned();
        let notes = Vec::new();
        Ok(ProvisionedWorkspace {
            provider: SnapshotProvider::Copy,
            mount_path,
            base_commit: None,
            notes,
        })
    }

    async fn launch_agent(
        &self,
        job: &SessionAttempt,
        mode: AgentLaunchMode,
        reports: AgentReportSender,
    ) -> Result<LaunchedAgentInfo, ExecutorError> {
        let (AgentLaunchMode::New { token } | AgentLaunchMode::Reload { token }) = mode;
        *self.token.lock().unwrap() = Some(token.as_str().to_owned());
        self.reports.lock().unwrap().insert(job.session.id, reports);
        Ok(LaunchedAgentInfo::default())
    }

    async fn send_prompt(
        &self,
        job: &SessionAttempt,
        _: u32,
        _: &str,
    ) -> Result<(), ExecutorError> {
        let reports = self.reports(job);
        let send = async |report| drop(reports.send(report).await);
        let log = |message: String| EventKind::Log {
            level: LogLevel::Info,
            message,
            source: LogSource::default(),
            tool_execution_id: None,
        };
        send(AgentReport::Event(log("looking around".to_owned()))).await;
        send(AgentReport::Event(EventKind::Thought { thought: "hm".to_owned() })).await;
        match self.script {
            Script::Work => send(AgentReport::TurnEnded(TurnOutcome::Done)).await,
            Script::Ask => {
                let subject =
                    ApprovalSubject { title: "Run ls".to_owned(), ..ApprovalSubject::default() };
                let id = AgentQuestionId("q1".to_owned());
                send(AgentReport::Question(AgentQuestion { id, subject })).await;
            }
            Script::Silence | Script::DiffEndsWithSession => {}
            Script::Flood(lines) => {
                self.released.subscribe().wait_for(|released| *released).await.unwrap();
                for number in 0..lines {
                    let text = format!("{number} {}", "x".repeat(FLOOD_BYTES));
                    send(AgentReport::Event(log(text))).await;
                }
                send(AgentReport::TurnEnded(TurnOutcome::Done)).await;
            }
        }
        Ok(())
    }

    async fn cancel_turn(&self, job: &SessionAttempt, _: u32) -> Result<(), ExecutorError> {
        let cancelled = AgentReport::TurnEnded(TurnOutcome::Cancelled);
        drop(self.reports(job).send(cancelled).await);
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
        job: &SessionAttempt,
        _: &AgentQuestionId,
        _: &Approval,
    ) -> Result<(), ExecutorError> {
        // A cancelled session no longer listens.
        drop(self.reports(job).send(AgentReport::TurnEnded(TurnOutcome::Done)).await);
        Ok(())
    }

    async fn pause_session(&self, _: &SessionAttempt) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn resume_session(&self, _: &SessionAttempt) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn deliver_result(&self, _: &SessionAttempt) -> Result<DeliveryOutcome, ExecutorError> {
        let result = DeliveryResult { changed: true, ..DeliveryResult::default() };
        Ok(DeliveryOutcome { result, ..DeliveryOutcome::default() })
    }

    async fn session_diff(&self, _: &SessionAttempt) -> Result<String, ExecutorError> {
        self.diffs.send_modify(|diffs| *diffs += 1);
        if self.script == Script::DiffEndsWithSession && !*self.is_terminated.borrow() {
            self.is_terminated.subscribe().wait_for(|ended| *ended).await.unwrap();
            let (reason, detail) = (SessionEndReason::Delivery, "its sandbox ended".to_owned());
            return Err(ExecutorError { reason, detail });
        }
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
        Ok(StoredResources::default())
    }

    async fn remove_cache(&self, _: &str) -> Result<bool, ExecutorError> {
        Ok(true)
    }

    fn free_space(&self) -> Option<u64> {
        None
    }

    async fn terminate_session(&self, _: SessionId, _: Duration) -> Result<(), ExecutorError> {
        self.is_terminated.send_replace(true);
        Ok(())
    }

    async fn clean_up_session(&self, _: &CleanupToken) -> Result<(), ExecutorError> {
        Ok(())
    }
}

/// A guarded port over a control plane of its own.
pub(crate) struct Served {
    pub(crate) port: RunningHttpServer,
    executor: Arc<Fake>,
    _data: TempDir,
}

pub(crate) async fn serve(script: Script) -> Served {
    serve_within(script, HttpServerLimits::default()).await
}

pub(crate) async fn serve_within(script: Script, bounds: HttpServerLimits) -> Served {
    serve_by(script, bounds, ControlPlaneSettings::default()).await
}

pub(crate) async fn serve_by(
    script: Script,
    bounds: HttpServerLimits,
    settings: ControlPlaneSettings,
) -> Served {
    serve_routes(script, bounds, settings, |routes| routes, |app| app).await
}

/// A port with a limit on new tasks.
pub(crate) async fn serve_limited(script: Script, per_minute: NonZeroU32) -> Served {
    let (bounds, settings) = (HttpServerLimits::default(), ControlPlaneSettings::default());
    let limited = |routes: ControlPlaneRoutes| routes.with_tasks_per_minute(per_minute);
    serve_routes(script, bounds, settings, limited, |app| app).await
}

/// A port that has other surfaces too.
pub(crate) async fn serve_beside(add: impl FnOnce(HttpApp) -> HttpApp) -> Served {
    let (bounds, settings) = (HttpServerLimits::default(), ControlPlaneSettings::default());
    serve_routes(Script::Silence, bounds, settings, |routes| routes, add).await
}

async fn serve_routes(
    script: Script,
    bounds: HttpServerLimits,
    settings: ControlPlaneSettings,
    change: impl FnOnce(ControlPlaneRoutes) -> ControlPlaneRoutes,
    add: impl FnOnce(HttpApp) -> HttpApp,
) -> Served {
    let data = tempfile::tempdir().unwrap();
    let store = Store::open(DataDir::open(data.path().join("data")).unwrap()).await.unwrap();
    let (reports, token) = (Mutex::default(), Mutex::default());
    let (released, diffs, is_terminated) =
        (watch::Sender::new(false), watch::Sender::new(0), watch::Sender::new(false));
    let executor = Arc::new(Fake { script, reports, token, released, diffs, is_terminated });
    let shared: Arc<dyn Executor> = Arc::<Fake>::clone(&executor);
    let control = ControlPlane::start(store, shared, settings).await.unwrap();
    let (kind, versions) = ("a".to_owned(), vec!["latest".to_owned()]);
    let agents = vec![AgentDescription {
        title: kind.clone(),
        kind,
        aliases: Vec::new(),
        versions,
        settings_schema_ref: None,
    }];
    let setting = AgentSetting {
        name: "model".to_owned(),
        description: "The model.".to_owned(),
        kind: AgentSettingKind::Text { max_bytes: 100 },
    };
    let settings = BTreeMap::from([("a".to_owned(), vec![setting])]);
    let catalog = TaskChoices { agents, agent_settings: settings, ..TaskChoices::default() };
    let app = HttpApp::new(guarded())
        .with_control_plane_routes(change(ControlPlaneRoutes::new(control, catalog)));
    let port = open_with(HttpServer::new(add(app)).with_limits(bounds)).await;
    Served { port, executor, _data: data }
}

pub(crate) const TASK: &str =
    r#"{"prompt":"fix it","repo":{"url":"https://h/x"},"agent":{"type":"a"}}"#;
pub(crate) const SHOWN: (&str, &str) = ("authorization", "Bearer not-a-secret");
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

impl Served {
    /// The secret of a new API key.
    pub(crate) async fn key(&self, name: &str) -> String {
        let body = serde_json::json!({ "name": name }).to_string();
        let made = self.ask("POST", "/api/v1/keys", &body).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["secret"].as_str().unwrap().to_owned()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Asks with the admin's token.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: &str) -> Got {
        self.ask_with(method, path, &[JSON], body).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Got {
        let all = [&[SHOWN], headers].concat();
        send(self.address(), &head(method, path, &all), body).await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let got = self.ask("GET", path, "").await;
        assert_eq!(got.status, 200, "{path}: {got:?}");
        got.json()
    }

    /// The path of a new session.
    pub(crate) async fn create(&self) -> String {
        let got = self.ask("POST", "/api/v1/tasks", TASK).await;
        assert_eq!(got.status, 201, "{got:?}");
        got.header("location").unwrap().to_owned()
    }

    /// Reads the events of a session until it ends.
    pub(crate) async fn events(&self, session: &str, headers: &[(&str, &str)]) -> Got {
        self.ask_with("GET", &format!("{session}/events"), headers, "").await
    }

    /// Waits until a diff was begun.
    pub(crate) async fn diff_begun(&self) {
        self.executor.diffs.subscribe().wait_for(|diffs| *diffs > 0).await.unwrap();
    }

    /// Lets the flood begin.
    pub(crate) fn release(&self) {
        self.executor.released.send_replace(true);
    }

    /// The secret of the agent that runs. Waits until there is one.
    pub(crate) async fn agent_token(&self) -> String {
        loop {
            if let Some(token) = self.executor.token.lock().unwrap().clone() {
                return token;
            }
            tokio::task::yield_now().await;
        }
    }
}
