//! The executor in the server's own process. It runs sessions in sandboxes on this machine.

mod agent;
mod attachments;
mod audit;
mod configured;
mod conversation;
mod digest;
mod endpoint_socket;
mod groups;
mod launch;
mod lines;
mod mask;
mod program;
mod questions;
mod request;
mod settings;
mod setup;
mod skills;
mod translate;
mod turns;
mod usage;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_acp::agent_readiness::{self, AgentReadyToLaunch, HostEnvironment};
use ab_acp::catalog::AgentCatalogEntry;
use ab_acp::install::AgentInstallDir;
use ab_api::{
    Approval, ApprovalId, ChangeCounts, DeliveryMode, DeliveryResult, ExecutorDescription,
    ExecutorHealth, FieldViolations, NetworkMode, OverlayNetwork, RepoMode, RequestedRuntime,
    RuntimeType, Session, SessionEndReason, SessionId, SnapshotProvider, WorkspaceStorage,
};
use ab_core::journal::{JournalGuard, JournalVerbosity};
use ab_core::process::HostDirectoryAccess;
use ab_core::{Backend, BackendOptions, Guards, Isolation, NarrowOptions, NetworkAccess};
use ab_host::directory::DirectoryUsage;
use ab_host::{ControlGroup, Toolchain};
use ab_local::{CommandPolicySettings, LocalWorkspace, SandboxProgramLauncher};
use ab_policy::PolicyRuleFile;
use ab_snapshot::{
    CollectChangesOutcome, CommitId, GIT_NETWORK_ENV_VARIABLES, GitAuthor, PreparedWorkspace,
    RepoSource, SessionChanges, SessionWorkspaceStore, SnapshotSettings, StoredCache,
};
use async_trait::async_trait;

use self::agent::Agent;
use self::audit::AuditLog;
use self::endpoint_socket::ServedSocket;
use self::mask::Mask;
use self::questions::PolicyQuestions;
use self::turns::{DiffTurn, Turns};
use crate::contract::{
    AgentLaunchMode, CleanupToken, DeliveryOutcome, Executor, ExecutorError, LaunchedAgentInfo,
    ProvisionedWorkspace, RepoBranchList, SessionAttempt, StoredRepoCache, StoredResources,
};
use crate::endpoints::RunningSessionWorkspaces;
use crate::report::{AgentQuestionId, AgentReportSender};

/// The executor's id in listings and sessions.
const ID: &str = "local";
/// Maximum number of bytes of a diff that the control plane stores.
const MAX_DIFF: usize = 8 * 1024 * 1024;
const SHARED_NOTE: &str = "The agent runs in a sandbox. It shares the network of this machine.";
const NO_NETWORK_NOTE: &str = "The agent runs in a sandbox without a network.";
const COPY_NOTE: &str =
    "The workspace is a copy of the directory with all of its files. The result is a patch for it.";
const UPLOAD_NOTE: &str =
    "The workspace has the files of the upload. The result is a patch for them.";
const DISABLED_NOTE: &str = "The agent runs without a sandbox: it can act as you.";

pub use audit::{AuditReceiver, AuditSender, SessionAuditEntry, audit_queue};
pub use settings::{DEFAULT_APPROVAL_WAIT_TIMEOUT, ExecutorSettings};
pub use setup::DEFAULT_SETUP_TIMEOUT;

/// Runs sessions on this machine. Workspaces are git clones or copies, agents run in sandboxes, and
/// results are delivered as branches or patches.
pub struct LocalExecutor {
    settings: ExecutorSettings,
    workspaces: SessionWorkspaceStore,
    running: Mutex<HashMap<SessionId, Arc<Running>>>,
    endpoints: RunningSessionWorkspaces,
    turns: Turns,
}

/// A session with a sandbox. The session is registered before the first process in the sandbox
/// starts. So [`terminate`](Executor::terminate_session) also finds the processes of an interrupted
/// launch.
struct Running {
    generation: u32,
    backend: Backend,
    launcher: SandboxProgramLauncher,
    /// The control group of the agent, its commands and git. `None` if the host supports none.
    group: Option<ControlGroup>,
    questions: Arc<PolicyQuestions>,
    /// Hides the credentials of the agent in its reports.
    mask: Mask,
    /// Set once the agent accepts prompts.
    agent: Mutex<Option<Arc<Agent>>>,
    /// Serves the workspace to an agent that does not use HTTP.
    socket: Option<ServedSocket>,
}

impl LocalExecutor {
    /// Makes the directories of the executor and looks for git.
    ///
    /// # Errors
    ///
    /// Fails if the data directory cannot be used or git is not installed.
    pub fn new(settings: ExecutorSettings) -> Result<Self, ExecutorError> {
        let path = settings.variable("PATH").cloned();
        let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let is_operators = |name: &OsString| {
            GIT_NETWORK_ENV_VARIABLES.iter().any(|known| name.as_os_str() == *known)
        };
        let operator = settings.environment.iter().filter(|(name, _)| is_operators(name));
        let snapshots = SnapshotSettings {
            data_dir: settings.data_dir.join("sessions"),
            program_search_path: std::env::split_paths(&path).collect(),
            git_environment: operator.cloned().collect(),
        };
        let workspaces = SessionWorkspaceStore::open(snapshots)
            .map_err(|error| failed(SessionEndReason::ExecutorLost, error.to_string()))?;
        let endpoints = RunningSessionWorkspaces::default();
        let turns = Turns::default();
        Ok(Self { settings, workspaces, running: Mutex::default(), endpoints, turns })
    }

    /// The environment of this machine that agents may use.
    fn agent_host(&self) -> HostEnvironment {
        HostEnvironment::new(self.settings.environment.iter().cloned())
    }

    /// Finds the session's agent and checks that it can be started now.
    ///
    /// # Errors
    ///
    /// Returns what is missing and what the user can do about it.
    fn find_agent(&self, session: &Session) -> Result<AgentReadyToLaunch, String> {
        let (directory, host) = (self.agent_directory(), self.agent_host());
        let kind = &session.agent.kind;
        let agent = agent_readiness::resolve_agent(&self.settings.catalog, kind, &directory, &host);
        let mut agent = agent.map_err(|missing| missing.to_string())?;
        agent.entry.apply_settings(&session.agent.settings)?;
        program::check(&agent.entry, &self.toolchains(Some(&agent.entry)), session.runtime.kind)?;
        Ok(agent)
    }

    /// The directory of the installed agents.
    fn agent_directory(&self) -> AgentInstallDir {
        AgentInstallDir::new(&self.settings.agents_dir)
    }

    /// Whether the host can enforce the limits that tasks may request.
    pub async fn can_enforce_limits(&self) -> bool {
        groups::enforces().await
    }

    /// The MCP endpoints of the running sessions.
    pub fn running_session_workspaces(&self) -> RunningSessionWorkspaces {
        self.endpoints.clone()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Running>>> {
        lock(&self.running)
    }

    /// The running sandbox of this job, if there is one.
    fn running_job(&self, job: &SessionAttempt) -> Option<Arc<Running>> {
        let running = self.running().get(&job.session.id).cloned();
        running.filter(|running| running.generation == job.generation)
    }

    /// The launched agent of this job.
    fn agent(&self, job: &SessionAttempt) -> Result<Arc<Agent>, ExecutorError> {
        let agent = self.running_job(job).and_then(|running| lock(&running.agent).clone());
        agent.ok_or_else(|| failed(SessionEndReason::Agent, "the agent is not running"))
    }

    /// The control group of this job.
    fn group(&self, job: &SessionAttempt) -> Result<ControlGroup, ExecutorError> {
        let Some(running) = self.running_job(job) else {
            return Err(failed(SessionEndReason::Agent, "the agent is not running"));
        };
        running
            .group
            .clone()
            .ok_or_else(|| failed(SessionEndReason::Agent, "it has no control group"))
    }

    /// The workspace that was provisioned for this job.
    fn workspace(
        &self,
        job: &SessionAttempt,
        reason: SessionEndReason,
    ) -> Result<PreparedWorkspace, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| failed(reason, error.to_string());
        let token = request::token(&job.session).map_err(because)?;
        let found = self.workspaces.find_workspace(&token).map_err(because)?;
        found.ok_or_else(|| failed(reason, "the session has no workspace"))
    }

    /// Opens the sandbox of a session on its workspace, with the programs of its agent and the
    /// guards of `handle`.
    async fn sandbox(
        &self,
        workspace: &PreparedWorkspace,
        runtime: &RequestedRuntime,
        agent: Option<&AgentCatalogEntry>,
        handle: HandleSetup,
        group: Option<ControlGroup>,
    ) -> ab_core::Result<LocalWorkspace> {
        let (isolation, floor) = match runtime.kind {
            RuntimeType::Disabled if self.settings.allow_disabled_runtime => {
                (Isolation::None, Isolation::None)
            }
            RuntimeType::Local | RuntimeType::Disabled | RuntimeType::Devcontainer => {
                (self.settings.isolation, self.settings.minimum_isolation)
            }
        };
        let mut builder = LocalWorkspace::builder(&workspace.tree)
            .isolation(isolation)
            .minimum_isolation(floor)
            .network(match runtime.network.unwrap_or_default() {
                NetworkMode::Shared => NetworkAccess::Shared,
                NetworkMode::None => NetworkAccess::None,
            })
            .home_dir(&workspace.home)
            .command_policy(handle.policy)
            .backend_options(handle.assembly)
            .default_command_limits(self.settings.command_limits)
            .mount_read_write_dir(&workspace.bundle_dir);
        if let Some(socket) = &handle.socket {
            builder = builder.mount_socket_dir(socket);
        }
        for toolchain in self.toolchains(agent) {
            builder = builder.add_toolchain(toolchain);
        }
        if let Some(group) = group {
            builder = builder.control_group(group);
        }
        for directory in workspace.read_only_dirs.iter().chain(&workspace.attachments_dir) {
            builder = builder.mount_read_only_dir(directory);
        }
        for mount in &self.settings.mounts {
            builder = match mount.access {
                HostDirectoryAccess::ReadOnly => builder.mount_read_only_dir(&mount.source),
                HostDirectoryAccess::ReadWrite => builder.mount_read_write_dir(&mount.source),
            };
        }
        let own = &self.settings.own_executable;
        if !ab_host::READABLE_SYSTEM_DIRS.iter().any(|directory| own.starts_with(directory)) {
            builder = builder.mount_read_only_file(own, own);
        }
        builder.open().await
    }

    /// The handle of a session's workspace for its agent. Commands that run through it have the
    /// operator's variables.
    fn agent_handle(&self, backend: &Backend) -> ab_core::Result<Backend> {
        let env = self.settings.variables.clone();
        backend.narrow(NarrowOptions { env, ..NarrowOptions::default() })
    }

    /// The programs of the host that are visible in an agent's sandbox. The agent's own programs
    /// come first.
    fn toolchains(&self, agent: Option<&AgentCatalogEntry>) -> Vec<Toolchain> {
        let own = agent.into_iter().flat_map(|entry| &entry.toolchains);
        own.map(|directory| program::toolchain_for_agent_path(directory))
            .chain(self.settings.toolchains.iter().cloned())
            .collect()
    }

    /// Copies the changes of a session out of its workspace. Git on the agent's tree runs in the
    /// agent's sandbox, or in a sandbox with the same settings.
    async fn collect(
        &self,
        job: &SessionAttempt,
        reason: SessionEndReason,
    ) -> Result<Brought, ExecutorError> {
        let workspace = self.workspace(job, reason)?;
        let (author, message) =
            (GitAuthor::default(), request::commit_message(&job.session.prompt));
        let running = self.running().get(&job.session.id).cloned();
        let is_frozen =
            |running: &Running| running.group.as_ref().is_some_and(ControlGroup::is_frozen);
        // While the agent is paused, git runs in a separate sandbox.
        let running = running.filter(|running| !is_frozen(running));
        let collected = match &running {
            Some(running) => {
                let inside = &running.launcher;
                self.workspaces.collect_changes(&workspace, inside, &author, &message).await
            }
            None => {
                // If no control group can be made, git has no limits. Git still ends together with
                // this process.
                let group = groups::make(&self.settings, &job.session).await.ok();
                let group = group.and_then(|made| made.group);
                let (runtime, handle) = (&job.session.runtime, HandleSetup::default());
                let sandbox = self.sandbox(&workspace, runtime, None, handle, group.clone()).await;
                let sandbox = sandbox.map_err(|error| failed(reason, error.to_string()))?;
                let inside = &sandbox.launcher;
                let collected =
                    self.workspaces.collect_changes(&workspace, inside, &author, &message).await;
                destroy(&sandbox.backend).await;
                clear(group.as_ref()).await;
                collected
            }
        };
        let collected = collected.map_err(|error| failed(reason, error.to_string()))?;
        Ok(Brought { workspace, collected })
    }

    /// The diff of collected changes as clients see it, without credentials of the agent. For a
    /// patch it is the whole patch.
    async fn diff_text(
        &self,
        job: &SessionAttempt,
        workspace: &PreparedWorkspace,
        changed: &SessionChanges,
    ) -> Result<String, ExecutorError> {
        let mask = match self.settings.catalog.find(&job.session.agent.kind) {
            Some(entry) => Mask::of_agent(entry, &self.agent_host(), &workspace.home).await,
            None => Ok(Mask::default()),
        };
        let mask = mask.map_err(|error| failed(SessionEndReason::Delivery, error.to_string()))?;
        match (job.session.delivery.mode, stored_patch(changed)) {
            (DeliveryMode::Patch, Some(patch)) => Ok(mask.text(patch.to_owned())),
            (DeliveryMode::Branch | DeliveryMode::Patch | DeliveryMode::Pr, _) => {
                let mut diff = mask.text(changed.diff.clone());
                if changed.diff_truncated {
                    diff.push_str("\n# The diff is truncated here: the rest is not stored.\n");
                }
                Ok(diff)
            }
        }
    }
}

/// The patch, if it is small enough to be stored.
fn stored_patch(changes: &SessionChanges) -> Option<&str> {
    changes.patch.as_deref().filter(|patch| patch.len() <= MAX_DIFF)
}

/// A note that lists the files that are not part of the result.
fn left_out_note(left_out: &[String]) -> Option<String> {
    const NAMED: usize = 5;
    let named = left_out.get(..left_out.len().min(NAMED)).filter(|named| !named.is_empty())?;
    let more = left_out.len() - named.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!(
        "Not part of the result: {}{more}. Commit files there to have them delivered.",
        named.join(", ")
    ))
}

/// How the backend of a session is made. With the default, the policy asks no person: it refuses
/// commands that need an approval. The default also records nothing in the audit log.
#[derive(Default)]
struct HandleSetup {
    policy: CommandPolicySettings,
    assembly: BackendOptions,
    /// The directory of the session's socket.
    socket: Option<PathBuf>,
}

impl HandleSetup {
    /// The setup of a session: the policy asks people, and the audit log records every change.
    fn of_session(
        rules: &PolicyRuleFile,
        questions: &Arc<PolicyQuestions>,
        audit: AuditLog,
    ) -> Self {
        let (approver, rules) = (Arc::clone(questions), rules.clone());
        let policy = CommandPolicySettings { approver, rules, ..CommandPolicySettings::default() };
        let name = audit.session.to_string();
        let journal = JournalGuard::new(Arc::new(audit), JournalVerbosity::Standard);
        let journal = Some(Arc::new(journal.with_workspace_name(name)));
        let guards = Guards { journal, ..Guards::default() };
        let assembly = BackendOptions { guards, ..BackendOptions::default() };
        Self { policy, assembly, socket: None }
    }
}

/// The changes of a session after they were copied out of its sandbox, and the workspace that they
/// come from.
struct Brought {
    workspace: PreparedWorkspace,
    collected: CollectChangesOutcome,
}

#[async_trait]
impl Executor for LocalExecutor {
    fn describe_executor(&self) -> ExecutorDescription {
        ExecutorDescription {
            id: ID.to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            snapshot_capabilities: request::PROVIDERS.to_vec(),
            health: ExecutorHealth::Ok,
            overlay: OverlayNetwork::default(),
            controller: "server".to_owned(),
        }
    }

    async fn choose_snapshot_provider(
        &self,
        session: &Session,
    ) -> Result<SnapshotProvider, FieldViolations> {
        let chosen = request::accept(session, &self.workspaces, &self.settings.uploads_dir()).await;
        if let Err(why) = self.find_agent(session) {
            let mut found = chosen.err().unwrap_or_default();
            found.add_unavailable("agent.type", format!("cannot be used: {why}"));
            return Err(found);
        }
        chosen
    }

    async fn find_base_commit(&self, session: &Session) -> Result<Option<String>, FieldViolations> {
        request::base_commit(session, &self.workspaces, &self.settings.uploads_dir()).await
    }

    fn cleanup_token(&self, job: &SessionAttempt) -> CleanupToken {
        let session = &job.session;
        CleanupToken(request::token_text(request::maker(session), request::provider(session)))
    }

    async fn provision_workspace(
        &self,
        job: &SessionAttempt,
    ) -> Result<ProvisionedWorkspace, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| {
            failed(SessionEndReason::Provision, error.to_string())
        };
        let token = request::token(&job.session).map_err(because)?;
        let provider = request::provider(&job.session);
        let is_continued = job.session.workspace.made_by.is_some();
        let workspace = if is_continued {
            self.workspace(job, SessionEndReason::Provision)?
        } else {
            let uploads = self.settings.uploads_dir();
            let wanted = request::workspace(&job.session, provider, &uploads).map_err(because)?;
            let attached = attachments::requested(&job.session, &uploads);
            self.workspaces
                .prepare_workspace_with_attachments(&token, &wanted, &attached)
                .await
                .map_err(because)?
        };
        let mut notes = Vec::new();
        if !is_continued {
            notes.extend(workspace.notes.iter().filter_map(request::note));
            match (provider, job.session.repo.mode) {
                (_, RepoMode::Upload) => notes.push(UPLOAD_NOTE.to_owned()),
                (SnapshotProvider::Copy, _) => notes.push(COPY_NOTE.to_owned()),
                _ => {}
            }
            notes.extend(attachments::note(&job.session, &workspace));
        }
        let runtime = &job.session.runtime;
        let note = match (runtime.kind, runtime.network.unwrap_or_default()) {
            (RuntimeType::Disabled, _) => DISABLED_NOTE,
            (RuntimeType::Local | RuntimeType::Devcontainer, NetworkMode::Shared) => SHARED_NOTE,
            (RuntimeType::Local | RuntimeType::Devcontainer, NetworkMode::None) => NO_NETWORK_NOTE,
        };
        notes.push(note.to_owned());
        Ok(ProvisionedWorkspace {
            provider,
            mount_path: workspace.tree.display().to_string(),
            base_commit: published(&workspace, workspace.base_commit.as_ref()),
            notes,
        })
    }

    async fn launch_agent(
        &self,
        job: &SessionAttempt,
        mode: AgentLaunchMode,
        reports: AgentReportSender,
    ) -> Result<LaunchedAgentInfo, ExecutorError> {
        launch::launch(self, job, &mode, reports).await
    }

    async fn send_prompt(
        &self,
        job: &SessionAttempt,
        turn: u32,
        prompt: &str,
    ) -> Result<(), ExecutorError> {
        let agent = self.agent(job)?;
        if turn == 1 && !job.session.task.attachments.is_empty() {
            let workspace = self.workspace(job, SessionEndReason::Agent)?;
            let prompt = attachments::with_paths(prompt, &job.session, &workspace);
            return agent.prompt(turn, &prompt).await;
        }
        agent.prompt(turn, prompt).await
    }

    async fn cancel_turn(&self, job: &SessionAttempt, turn: u32) -> Result<(), ExecutorError> {
        self.agent(job)?.cancel_turn(turn).await
    }

    async fn set_approval_id_of_question(
        &self,
        job: &SessionAttempt,
        question: &AgentQuestionId,
        approval: ApprovalId,
    ) {
        if let Some(running) = self.running_job(job) {
            running.questions.name(question, approval);
        }
    }

    async fn answer_question(
        &self,
        job: &SessionAttempt,
        question: &AgentQuestionId,
        approval: &Approval,
    ) -> Result<(), ExecutorError> {
        // The agent may have ended. The question is then no longer open.
        if let Some(running) = self.running_job(job) {
            running.questions.answer(question, approval);
            let agent = lock(&running.agent).clone();
            if let Some(agent) = agent {
                agent.answer(question, approval);
            }
        }
        Ok(())
    }

    async fn pause_session(&self, job: &SessionAttempt) -> Result<(), ExecutorError> {
        self.group(job)?
            .freeze()
            .await
            .map_err(|error| failed(SessionEndReason::Agent, error.to_string()))
    }

    async fn resume_session(&self, job: &SessionAttempt) -> Result<(), ExecutorError> {
        self.group(job)?
            .thaw()
            .await
            .map_err(|error| failed(SessionEndReason::Agent, error.to_string()))
    }

    async fn deliver_result(&self, job: &SessionAttempt) -> Result<DeliveryOutcome, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| {
            failed(SessionEndReason::Delivery, error.to_string())
        };
        let turn = self.turns.take(job.session.id).await;
        let Brought { workspace, collected } =
            self.collect(job, SessionEndReason::Delivery).await?;
        let base_commit = published(&workspace, workspace.base_commit.as_ref());
        let changed = match collected {
            CollectChangesOutcome::Changed(changed) => changed,
            CollectChangesOutcome::Unchanged { left_out_paths: left_out } => {
                let result = DeliveryResult { base_commit, ..DeliveryResult::default() };
                let notes = left_out_note(&left_out).into_iter().collect();
                return Ok(DeliveryOutcome { result, changes: ChangeCounts::default(), notes });
            }
        };
        if let Ok(diff) = self.diff_text(job, &workspace, &changed).await {
            turn.publish_diff(diff);
        }
        let mut notes: Vec<String> = left_out_note(&changed.left_out_paths).into_iter().collect();
        notes.extend(changed.history_lost_reason.as_ref().map(|why| {
            format!("The agent's commits could not be used ({why}). The files are one commit.")
        }));
        let changes = ChangeCounts {
            files_changed: changed.files_changed,
            lines_added: changed.lines_added,
            lines_removed: changed.lines_removed,
        };
        let commit = published(&workspace, Some(&changed.head));
        let mut result =
            DeliveryResult { commit, base_commit, changed: true, ..DeliveryResult::default() };
        match job.session.delivery.mode {
            DeliveryMode::Branch => {
                let Some(branch) = &workspace.branch else {
                    return Err(failed(SessionEndReason::Delivery, "the workspace has no branch"));
                };
                let to = request::source(&job.session).map_err(because)?;
                let made =
                    self.workspaces.deliver_branch(&workspace.token, &changed, &to, branch).await;
                result.branch = Some(made.map_err(because)?.branch.to_string());
            }
            // A patch is not delivered here, because the control plane stores it at the end of the
            // session. `diff` returns the patch.
            DeliveryMode::Patch if stored_patch(&changed).is_some() => {}
            DeliveryMode::Patch => {
                let most = MAX_DIFF / 1024 / 1024;
                let message = format!(
                    "the patch has more than {most} MiB, which is not stored: deliver a branch instead"
                );
                return Err(failed(SessionEndReason::Delivery, message));
            }
            DeliveryMode::Pr => {
                return Err(failed(
                    SessionEndReason::Delivery,
                    "delivery.mode: pr is not available yet",
                ));
            }
        }
        Ok(DeliveryOutcome { result, changes, notes })
    }

    async fn session_diff(&self, job: &SessionAttempt) -> Result<String, ExecutorError> {
        let _turn = match self.turns.take_for_diff(job.session.id).await {
            DiffTurn::Held(turn) => turn,
            DiffTurn::Delivering(diff) => return Ok(diff.to_string()),
        };
        let Brought { workspace, collected } =
            self.collect(job, SessionEndReason::Delivery).await?;
        match collected {
            CollectChangesOutcome::Changed(changed) => {
                self.diff_text(job, &workspace, &changed).await
            }
            CollectChangesOutcome::Unchanged { .. } => Ok(String::new()),
        }
    }

    async fn list_repo_branches(&self, url: &str) -> Result<RepoBranchList, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| {
            failed(SessionEndReason::Provision, error.to_string())
        };
        let source = RepoSource::parse(url).map_err(because)?;
        let found = self.workspaces.list_branches(&source).await.map_err(because)?;
        let branches = found.branches.into_iter();
        Ok(RepoBranchList {
            default: found.default,
            branches: branches.map(|(name, commit)| (name, commit.to_string())).collect(),
            truncated: found.truncated,
        })
    }

    async fn workspace_storage(
        &self,
        token: &CleanupToken,
    ) -> Result<WorkspaceStorage, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| {
            failed(SessionEndReason::ExecutorLost, error.to_string())
        };
        let token = ab_snapshot::WorkspaceToken::parse(&token.0).map_err(because)?;
        let usage = self.workspaces.disk_usage(&token).await.map_err(because)?;
        let DirectoryUsage { bytes, files, is_partial } = usage;
        Ok(WorkspaceStorage { bytes, files, truncated: is_partial })
    }

    async fn list_stored_resources(&self) -> Result<StoredResources, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| {
            failed(SessionEndReason::ExecutorLost, error.to_string())
        };
        let tokens = self.workspaces.list_tokens().map_err(because)?;
        let caches = self.workspaces.list_caches().await.map_err(because)?;
        let cache = |cache: StoredCache| StoredRepoCache {
            name: cache.name,
            last_used: request::time(cache.last_used),
            is_used_by_workspace: cache.is_used_by_workspace,
            bytes: cache.usage.bytes,
        };
        Ok(StoredResources {
            workspaces: tokens.iter().map(|it| CleanupToken(it.to_string())).collect(),
            caches: caches.into_iter().map(cache).collect(),
        })
    }

    async fn remove_cache(&self, name: &str) -> Result<bool, ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| {
            failed(SessionEndReason::ExecutorLost, error.to_string())
        };
        self.workspaces.remove_cache(name).await.map_err(because)
    }

    fn free_space(&self) -> Option<u64> {
        self.workspaces.free_space()
    }

    async fn terminate_session(
        &self,
        session: SessionId,
        grace: Duration,
    ) -> Result<(), ExecutorError> {
        let Some(running) = self.running().get(&session).cloned() else { return Ok(()) };
        match &running.group {
            Some(_) if grace.is_zero() => clear(running.group.as_ref()).await,
            // Unfreeze a paused agent so that it can finish.
            Some(group) => thaw(group).await,
            None => {}
        }
        let agent = lock(&running.agent).clone();
        if let Some(agent) = agent {
            agent.end(grace).await;
        }
        self.endpoints.close(session);
        destroy(&running.backend).await;
        clear(running.group.as_ref()).await;
        let mut all = self.running();
        if all.get(&session).is_some_and(|known| Arc::ptr_eq(known, &running)) {
            all.remove(&session);
        }
        Ok(())
    }

    async fn clean_up_session(&self, token: &CleanupToken) -> Result<(), ExecutorError> {
        let because = |error: ab_snapshot::SnapshotError| {
            failed(SessionEndReason::ExecutorLost, error.to_string())
        };
        let token = ab_snapshot::WorkspaceToken::parse(&token.0).map_err(because)?;
        self.workspaces.remove_workspace(&token).await.map_err(because)
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

/// The id of the result's commit. `None` for a copy, because users cannot find the commits of a
/// copy: they exist only in the executor's own repository.
fn published(workspace: &PreparedWorkspace, commit: Option<&CommitId>) -> Option<String> {
    match workspace.token.copy_method() {
        ab_snapshot::WorkspaceCopyMethod::Git => commit.map(ToString::to_string),
        ab_snapshot::WorkspaceCopyMethod::Copy => None,
    }
}

fn failed(reason: SessionEndReason, detail: impl Into<String>) -> ExecutorError {
    ExecutorError { reason, detail: detail.into() }
}

/// Ends every process of a sandbox.
async fn destroy(backend: &Backend) {
    if let Err(error) = backend.destroy().await {
        tracing::warn!(%error, "cannot close a session's sandbox");
    }
}

/// Ends the remaining processes of a session's control group.
async fn clear(group: Option<&ControlGroup>) {
    if let Some(group) = group
        && let Err(error) = group.kill_all().await
    {
        tracing::warn!(%error, "cannot end the processes of a session");
    }
}

async fn thaw(group: &ControlGroup) {
    if let Err(error) = group.thaw().await {
        // If the host cannot freeze processes, none are frozen, so this error does no harm.
        tracing::debug!(%error, "cannot resume the processes of a session");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
