//! An executor by script, and a port over a control plane with it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_api::{
    AgentListing, Approval, ApprovalSubject, DeliveryResult, EventKind, ExecutorHealth,
    ExecutorListing, LogLevel, LogSource, Overlay, Provider, Session, SessionId, Violations,
};
use ab_control::{Control, ControlSettings};
use ab_executor::{
    CleanupToken, Delivered, Executor, ExecutorError, Job, LaunchMode, Launched, Provisioned,
    Question, QuestionId, Report, ReportSender, TurnOutcome,
};
use ab_server::{App, ControlSurface, Port, PortLimits, RunningPort, TaskCatalog};
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
    /// Waits until it is released, prints this many lines and ends its turn.
    Flood(u64),
}

/// Bytes of each line of [`Script::Flood`].
pub(crate) const FLOOD_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Fake {
    script: Script,
    /// Of every session: a session whose sender is dropped fails.
    reports: Mutex<HashMap<SessionId, ReportSender>>,
    /// The secret of the last agent.
    token: Mutex<Option<String>>,
    /// Whether the flood may begin.
    released: watch::Sender<bool>,
}

impl Fake {
    fn reports(&self, job: &Job) -> ReportSender {
        self.reports.lock().unwrap()[&job.session.id].clone()
    }
}

#[async_trait]
impl Executor for Fake {
    fn listing(&self) -> ExecutorListing {
        ExecutorListing {
            id: "fake".to_owned(),
            os: "linux".to_owned(),
            arch: "x86_64".to_owned(),
            snapshot_capabilities: vec![Provider::Copy],
            health: ExecutorHealth::Ok,
            overlay: Overlay::default(),
            controller: "server".to_owned(),
        }
    }

    async fn accept(&self, _: &Session) -> Result<Provider, Violations> {
        Ok(Provider::Copy)
    }

    fn cleanup_token(&self, job: &Job) -> CleanupToken {
        CleanupToken(format!("fake:{}", job.session.id))
    }

    async fn provision(&self, _: &Job) -> Result<Provisioned, ExecutorError> {
        let mount_path = "/workspaces/fake".to_owned();
        let notes = Vec::new();
        Ok(Provisioned { provider: Provider::Copy, mount_path, base_commit: None, notes })
    }

    async fn launch(
        &self,
        job: &Job,
        mode: LaunchMode,
        reports: ReportSender,
    ) -> Result<Launched, ExecutorError> {
        let (LaunchMode::New { token } | LaunchMode::Reload { token }) = mode;
        *self.token.lock().unwrap() = Some(token.expose().to_owned());
        self.reports.lock().unwrap().insert(job.session.id, reports);
        Ok(Launched::default())
    }

    async fn prompt(&self, job: &Job, _: u32, _: &str) -> Result<(), ExecutorError> {
        let reports = self.reports(job);
        let send = async |report| drop(reports.send(report).await);
        let log = |message: String| EventKind::Log {
            level: LogLevel::Info,
            message,
            source: LogSource::default(),
            tool_execution_id: None,
        };
        send(Report::Event(log("looking around".to_owned()))).await;
        send(Report::Event(EventKind::Thought { thought: "hm".to_owned() })).await;
        match self.script {
            Script::Work => send(Report::TurnEnded(TurnOutcome::Done)).await,
            Script::Ask => {
                let subject =
                    ApprovalSubject { title: "Run ls".to_owned(), ..ApprovalSubject::default() };
                let id = QuestionId("q1".to_owned());
                send(Report::Question(Question { id, subject })).await;
            }
            Script::Silence => {}
            Script::Flood(lines) => {
                self.released.subscribe().wait_for(|released| *released).await.unwrap();
                for number in 0..lines {
                    let text = format!("{number} {}", "x".repeat(FLOOD_BYTES));
                    send(Report::Event(log(text))).await;
                }
                send(Report::TurnEnded(TurnOutcome::Done)).await;
            }
        }
        Ok(())
    }

    async fn answer(&self, job: &Job, _: &QuestionId, _: &Approval) -> Result<(), ExecutorError> {
        // A cancelled session no longer listens.
        drop(self.reports(job).send(Report::TurnEnded(TurnOutcome::Done)).await);
        Ok(())
    }

    async fn pause(&self, _: &Job) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn resume(&self, _: &Job) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn deliver(&self, _: &Job) -> Result<Delivered, ExecutorError> {
        let result = DeliveryResult { changed: true, ..DeliveryResult::default() };
        Ok(Delivered { result, ..Delivered::default() })
    }

    async fn diff(&self, _: &Job) -> Result<String, ExecutorError> {
        Ok("a diff".to_owned())
    }

    async fn terminate(&self, _: SessionId, _: Duration) -> Result<(), ExecutorError> {
        Ok(())
    }

    async fn cleanup(&self, _: &CleanupToken) -> Result<(), ExecutorError> {
        Ok(())
    }
}

/// A guarded port over a control plane of its own.
pub(crate) struct Served {
    pub(crate) port: RunningPort,
    executor: Arc<Fake>,
    _data: TempDir,
}

pub(crate) async fn serve(script: Script) -> Served {
    serve_within(script, PortLimits::default()).await
}

pub(crate) async fn serve_within(script: Script, bounds: PortLimits) -> Served {
    let data = tempfile::tempdir().unwrap();
    let store = Store::open(DataDir::open(data.path().join("data")).unwrap()).await.unwrap();
    let (reports, token) = (Mutex::default(), Mutex::default());
    let released = watch::Sender::new(false);
    let executor = Arc::new(Fake { script, reports, token, released });
    let shared: Arc<dyn Executor> = Arc::<Fake>::clone(&executor);
    let control = Control::start(store, shared, ControlSettings::default()).await.unwrap();
    let (kind, versions) = ("a".to_owned(), vec!["latest".to_owned()]);
    let agents = vec![AgentListing {
        title: kind.clone(),
        kind,
        aliases: Vec::new(),
        versions,
        settings_schema_ref: None,
    }];
    let catalog = TaskCatalog { agents, ..TaskCatalog::default() };
    let app = App::new(guarded()).with_control(ControlSurface::new(control, catalog));
    let port = open_with(Port::new(app).with_limits(bounds)).await;
    Served { port, executor, _data: data }
}

pub(crate) const TASK: &str =
    r#"{"prompt":"fix it","repo":{"url":"https://h/x"},"agent":{"type":"a"}}"#;
pub(crate) const SHOWN: (&str, &str) = ("authorization", "Bearer not-a-secret");
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

impl Served {
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
