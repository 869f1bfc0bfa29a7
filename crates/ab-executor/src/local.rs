//! The executor in the server's own process: sessions in sandboxes on this machine.

mod agent;
mod conversation;
mod launch;
mod lines;
mod program;
mod request;
mod translate;
mod turns;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_acp::catalog::{AgentEntry, Catalog};
use ab_api::{
    Changes, Choice, DeliveryMode, DeliveryResult, EndReason, ExecutorHealth, ExecutorListing,
    NetworkType, Overlay, Provider, RuntimeChoice, RuntimeType, SessionId,
};
use ab_core::{Backend, Isolation, Network};
use ab_host::Toolchain;
use ab_local::{Launcher, LocalWorkspace};
use ab_snapshot::{
    Collected, GitAuthor, OPERATOR_VARIABLES, SnapshotSettings, Workspace, Workspaces,
};
use async_trait::async_trait;

use self::agent::Agent;
use self::turns::Turns;
use crate::contract::{
    CleanupToken, Delivered, Executor, ExecutorError, Job, LaunchMode, Launched, Provisioned,
};
use crate::report::{QuestionId, Reports};

/// The executor's id in listings and sessions.
const ID: &str = "local";
/// Bytes of a diff that the control plane stores.
const MAX_DIFF: usize = 8 * 1024 * 1024;
const SHARED_NOTE: &str = "The agent runs in a sandbox. It shares the network of this machine.";
const NO_NETWORK_NOTE: &str = "The agent runs in a sandbox without a network.";
const DISABLED_NOTE: &str = "The agent runs without a sandbox: it can act as you.";

/// What a [`LocalExecutor`] is made with.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The server's data directory. The executor keeps everything in `sessions` below it.
    pub data_dir: PathBuf,
    /// The `agent-backend` program, which is also the scripted agent.
    pub own_executable: PathBuf,
    /// The server's environment. Git gets the operator's settings from it, and an agent gets the credentials that
    /// its catalog entry lists. Empty by default.
    pub environment: Vec<(OsString, OsString)>,
    /// The agents that can be launched.
    pub catalog: Catalog,
    /// How sessions are isolated.
    pub isolation: Isolation,
    /// The weakest isolation with which a session starts. Landlock at least: below it an agent can read the server's
    /// token.
    pub isolation_floor: Isolation,
    /// Programs of this machine that every session may use, such as compilers.
    pub toolchains: Vec<Toolchain>,
    /// Whether a task may ask for an agent without a sandbox.
    pub allow_disabled_runtime: bool,
    /// Whether no agent may share the network of this machine, because the server's port asks no caller for a token.
    pub refuses_shared_network: bool,
}

impl ExecutorSettings {
    /// The built-in agents, the strongest isolation, and an empty environment.
    pub fn new(data_dir: impl Into<PathBuf>, own_executable: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            own_executable: own_executable.into(),
            environment: Vec::new(),
            catalog: Catalog::default(),
            isolation: Isolation::Auto,
            isolation_floor: Isolation::Landlock,
            toolchains: Vec::new(),
            allow_disabled_runtime: false,
            refuses_shared_network: false,
        }
    }

    /// The value of a variable of the server.
    fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// Runs sessions on this machine: workspaces by git, agents in sandboxes, delivery as branches and patches.
pub struct LocalExecutor {
    settings: ExecutorSettings,
    workspaces: Workspaces,
    running: Mutex<HashMap<SessionId, Arc<Running>>>,
    turns: Turns,
}

/// A session with a sandbox. Registered before anything starts in it, so that
/// [`terminate`](Executor::terminate) finds what an interrupted launch began.
struct Running {
    generation: u32,
    backend: Backend,
    launcher: Launcher,
    /// Present once the agent takes prompts.
    agent: Mutex<Option<Arc<Agent>>>,
}

impl LocalExecutor {
    /// Makes the directories of the executor and looks for git.
    ///
    /// # Errors
    ///
    /// The data directory cannot be used, or there is no git.
    pub fn new(settings: ExecutorSettings) -> Result<Self, ExecutorError> {
        let path = settings.variable("PATH").cloned();
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let is_operators =
            |name: &OsString| OPERATOR_VARIABLES.iter().any(|known| name.as_os_str() == *known);
        let operator = settings.environment.iter().filter(|(name, _)| is_operators(name));
        let snapshots = SnapshotSettings {
            directory: settings.data_dir.join("sessions"),
            path: std::env::split_paths(&path).collect(),
            operator: operator.cloned().collect(),
        };
        let workspaces = Workspaces::open(snapshots)
            .map_err(|error| failed(EndReason::ExecutorLost, error.to_string()))?;
        Ok(Self { settings, workspaces, running: Mutex::default(), turns: Turns::default() })
    }

    /// The agents that can be launched.
    pub fn catalog(&self) -> &Catalog {
        &self.settings.catalog
    }

    fn running(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Running>>> {
        lock(&self.running)
    }

    /// The launched agent of this job.
    fn agent(&self, job: &Job) -> Result<Arc<Agent>, ExecutorError> {
        let running = self.running().get(&job.session.id).cloned();
        let running = running.filter(|running| running.generation == job.generation);
        let agent = running.and_then(|running| lock(&running.agent).clone());
        agent.ok_or_else(|| failed(EndReason::Agent, "the agent is not running"))
    }

    /// The workspace that was provisioned for this job.
    fn workspace(&self, job: &Job, reason: EndReason) -> Result<Workspace, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| failed(reason, error.to_string());
        let token = request::token(&job.session).map_err(because)?;
        let found = self.workspaces.find(&token).map_err(because)?;
        found.ok_or_else(|| failed(reason, "the session has no workspace"))
    }

    /// Opens the sandbox of a session on its workspace, with the programs of its agent.
    async fn sandbox(
        &self,
        workspace: &Workspace,
        runtime: &RuntimeChoice,
        agent: Option<&AgentEntry>,
    ) -> ab_core::Result<LocalWorkspace> {
        let (isolation, floor) = match runtime.kind {
            RuntimeType::Disabled if self.settings.allow_disabled_runtime => {
                (Isolation::None, Isolation::None)
            }
            RuntimeType::Local | RuntimeType::Disabled | RuntimeType::Devcontainer => {
                (self.settings.isolation, self.settings.isolation_floor)
            }
        };
        let mut builder = LocalWorkspace::builder(&workspace.tree)
            .isolation(isolation)
            .floor(floor)
            .network(match runtime.network.unwrap_or_default() {
                NetworkType::Shared => Network::Shared,
                NetworkType::None => Network::None,
            })
            .home(&workspace.home)
            .private_dir(&workspace.outbox);
        for toolchain in self.toolchains(agent) {
            builder = builder.toolchain(toolchain);
        }
        for directory in &workspace.read_only {
            builder = builder.read_only_dir(directory);
        }
        let own = &self.settings.own_executable;
        if !ab_host::READABLE_SYSTEM.iter().any(|directory| own.starts_with(directory)) {
            builder = builder.read_only_file(own, own);
        }
        builder.open().await
    }

    /// What an agent's sandbox shows of the host's programs: the agent's own first.
    fn toolchains(&self, agent: Option<&AgentEntry>) -> Vec<Toolchain> {
        let own = agent.into_iter().flat_map(|entry| &entry.toolchains);
        own.map(|directory| program::toolchain(directory))
            .chain(self.settings.toolchains.iter().cloned())
            .collect()
    }

    /// Brings the work out. Git on the agent's tree runs in the agent's sandbox, or in one like it.
    async fn collect(&self, job: &Job, reason: EndReason) -> Result<Brought, ExecutorError> {
        let workspace = self.workspace(job, reason)?;
        let (author, message) =
            (GitAuthor::default(), request::commit_message(&job.session.prompt));
        let running = self.running().get(&job.session.id).cloned();
        let collected = match &running {
            Some(running) => {
                let inside = &running.launcher;
                self.workspaces.collect(&workspace, inside, &author, &message).await
            }
            None => {
                let sandbox = self.sandbox(&workspace, &job.session.runtime, None).await;
                let sandbox = sandbox.map_err(|error| failed(reason, error.to_string()))?;
                let inside = &sandbox.launcher;
                let collected =
                    self.workspaces.collect(&workspace, inside, &author, &message).await;
                destroy(&sandbox.backend).await;
                collected
            }
        };
        let collected = collected.map_err(|error| failed(reason, error.to_string()))?;
        Ok(Brought { workspace, collected })
    }
}

/// The work of a session, outside of its sandbox.
struct Brought {
    workspace: Workspace,
    collected: Collected,
}

#[async_trait]
impl Executor for LocalExecutor {
    fn listing(&self) -> ExecutorListing {
        ExecutorListing {
            id: ID.to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            snapshot_capabilities: vec![Provider::Git],
            health: ExecutorHealth::Ok,
            overlay: Overlay::default(),
            controller: "server".to_owned(),
        }
    }

    fn cleanup_token(&self, job: &Job) -> CleanupToken {
        CleanupToken(request::token_text(request::maker(&job.session)))
    }

    async fn provision(&self, job: &Job) -> Result<Provisioned, ExecutorError> {
        let because =
            |error: ab_snapshot::SnapshotError| failed(EndReason::Provision, error.to_string());
        let token = request::token(&job.session).map_err(because)?;
        let is_continued = job.session.workspace.made_by.is_some();
        let workspace = if is_continued {
            self.workspace(job, EndReason::Provision)?
        } else {
            let wanted = request::workspace(&job.session).map_err(because)?;
            self.workspaces.prepare(&token, &wanted).await.map_err(because)?
        };
        let mut notes = Vec::new();
        if !is_continued {
            notes.extend(workspace.notes.iter().filter_map(request::note));
        }
        let runtime = &job.session.runtime;
        let note = match (runtime.kind, runtime.network.unwrap_or_default()) {
            (RuntimeType::Disabled, _) => DISABLED_NOTE,
            (RuntimeType::Local | RuntimeType::Devcontainer, NetworkType::Shared) => SHARED_NOTE,
            (RuntimeType::Local | RuntimeType::Devcontainer, NetworkType::None) => NO_NETWORK_NOTE,
        };
        notes.push(note.to_owned());
        Ok(Provisioned {
            provider: Provider::Git,
            mount_path: workspace.tree.display().to_string(),
            base_commit: workspace.base.map(|commit| commit.to_string()),
            notes,
        })
    }

    async fn launch(
        &self,
        job: &Job,
        mode: LaunchMode,
        reports: Reports,
    ) -> Result<Launched, ExecutorError> {
        launch::launch(self, job, &mode, reports).await
    }

    async fn prompt(&self, job: &Job, number: u32, prompt: &str) -> Result<(), ExecutorError> {
        self.agent(job)?.prompt(number, prompt).await
    }

    async fn answer(
        &self,
        job: &Job,
        question: &QuestionId,
        choice: Choice,
    ) -> Result<(), ExecutorError> {
        // The agent of a question that is no longer open may be gone.
        if let Ok(agent) = self.agent(job) {
            agent.answer(question, choice);
        }
        Ok(())
    }

    async fn pause(&self, _: &Job) -> Result<(), ExecutorError> {
        Err(failed(EndReason::Agent, "this executor cannot pause sessions yet"))
    }

    async fn resume(&self, _: &Job) -> Result<(), ExecutorError> {
        Err(failed(EndReason::Agent, "this executor cannot pause sessions yet"))
    }

    async fn deliver(&self, job: &Job) -> Result<Delivered, ExecutorError> {
        let because =
            |error: ab_snapshot::SnapshotError| failed(EndReason::Delivery, error.to_string());
        let _turn = self.turns.take(job.session.id).await;
        let Brought { workspace, collected } = self.collect(job, EndReason::Delivery).await?;
        let base_commit = workspace.base.as_ref().map(ToString::to_string);
        let Collected::Changed(changed) = collected else {
            let result = DeliveryResult { base_commit, ..DeliveryResult::default() };
            return Ok(Delivered { result, changes: Changes::default() });
        };
        let changes = Changes {
            files_changed: changed.files_changed,
            lines_added: changed.lines_added,
            lines_removed: changed.lines_removed,
        };
        let commit = Some(changed.head.to_string());
        let mut result =
            DeliveryResult { commit, base_commit, changed: true, ..DeliveryResult::default() };
        match job.session.delivery.mode {
            DeliveryMode::Branch => {
                let Some(branch) = &workspace.branch else {
                    return Err(failed(EndReason::Delivery, "the workspace has no branch"));
                };
                let to = request::source(&job.session).map_err(because)?;
                let made = self.workspaces.deliver(&workspace.token, &changed, &to, branch).await;
                result.branch = Some(made.map_err(because)?.branch.to_string());
            }
            // The control plane stores the patch at the end: it is what `diff` returns.
            DeliveryMode::Patch => {}
            DeliveryMode::Pr => {
                return Err(failed(EndReason::Delivery, "delivery.mode: pr is not available yet"));
            }
        }
        Ok(Delivered { result, changes })
    }

    async fn diff(&self, job: &Job) -> Result<String, ExecutorError> {
        let _turn = self.turns.take(job.session.id).await;
        let Collected::Changed(changed) = self.collect(job, EndReason::Delivery).await?.collected
        else {
            return Ok(String::new());
        };
        let patch = changed.patch.filter(|patch| patch.len() <= MAX_DIFF);
        let patch = patch.and_then(|patch| String::from_utf8(patch).ok());
        match (job.session.delivery.mode, patch) {
            (DeliveryMode::Patch, Some(patch)) => Ok(patch),
            (DeliveryMode::Branch | DeliveryMode::Patch | DeliveryMode::Pr, _) => Ok(changed.diff),
        }
    }

    async fn terminate(&self, session: SessionId, grace: Duration) -> Result<(), ExecutorError> {
        let Some(running) = self.running().get(&session).cloned() else { return Ok(()) };
        let agent = lock(&running.agent).clone();
        if let Some(agent) = agent {
            agent.end(grace).await;
        }
        destroy(&running.backend).await;
        let mut all = self.running();
        if all.get(&session).is_some_and(|known| Arc::ptr_eq(known, &running)) {
            all.remove(&session);
        }
        Ok(())
    }

    async fn cleanup(&self, token: &CleanupToken) -> Result<(), ExecutorError> {
        let because =
            |error: ab_snapshot::SnapshotError| failed(EndReason::ExecutorLost, error.to_string());
        let token = ab_snapshot::CleanupToken::parse(&token.0).map_err(because)?;
        self.workspaces.cleanup(&token).await.map_err(because)
    }
}

impl fmt::Debug for LocalExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalExecutor")
            .field("data_dir", &self.settings.data_dir)
            .field("running", &self.running().len())
            .finish_non_exhaustive()
    }
}

fn failed(reason: EndReason, detail: impl Into<String>) -> ExecutorError {
    ExecutorError { reason, detail: detail.into() }
}

/// Ends every process of a sandbox.
async fn destroy(backend: &Backend) {
    if let Err(error) = backend.destroy().await {
        tracing::warn!(%error, "cannot close a session's sandbox");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
