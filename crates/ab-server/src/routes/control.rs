//! The control plane over HTTP: tasks, sessions, their events, approvals, and the catalog.

mod approvals;
mod audit;
mod catalog;
mod cleanup;
mod diff;
mod drafts;
mod events;
mod ide;
mod idempotency;
mod inventory;
mod keys;
mod mcp;
mod problems;
mod prompts;
mod rate;
mod sessions;
mod ssh;
mod tasks;
mod uploads;

pub use catalog::{TaskChoices, TaskDefaults, settings_schema_path};

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Instant;

use ab_api::{
    ApprovalDecider, ApprovalDecision, DeciderKind, DecisionChannel, RuntimeType, SessionId,
    TaskCapabilities,
};
use ab_control::{ControlPlane, ControlPlaneError, SessionIdempotencyKey};
use ab_core::{Principal, PrincipalKind};
use ab_executor::RunningSessionWorkspaces;
use ab_remote::SshServerSettings;
use ab_store::AccessTokenOwner;
use axum::http::HeaderMap;
use serde::Serialize;
use tokio_util::task::TaskTracker;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::rate::{TaskCounter, TaskRateExceeded, TaskRateLimit};
use self::ssh::SessionSsh;
use crate::access::Access;
use crate::app::HttpApp;
use crate::problem::{Problem, ProblemKind};

/// Headers with which a proxy names the original caller.
const FORWARDED: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

/// Serves sessions at `/api/v1` and their approvals at `/v1/approvals`.
pub struct ControlPlaneRoutes {
    pub(crate) control: ControlPlane,
    pub(crate) catalog: TaskChoices,
    /// The MCP endpoints of running sessions.
    pub(crate) endpoints: RunningSessionWorkspaces,
    /// SSH access to running sessions, if it is served.
    pub(crate) ssh: Option<SessionSsh>,
    /// The rate limit on new tasks, if there is one.
    task_rate: Option<TaskRateLimit>,
}

impl ControlPlaneRoutes {
    pub fn new(control: ControlPlane, catalog: TaskChoices) -> ControlPlaneRoutes {
        let endpoints = RunningSessionWorkspaces::default();
        ControlPlaneRoutes { control, catalog, endpoints, ssh: None, task_rate: None }
    }

    /// Serves the workspaces of running sessions to their agents, at `/api/v1/sessions/{id}/mcp`.
    pub fn with_session_workspaces(
        mut self,
        endpoints: RunningSessionWorkspaces,
    ) -> ControlPlaneRoutes {
        self.endpoints = endpoints;
        self
    }

    /// Serves SSH access to the workspaces of running sessions, at `/api/v1/sessions/{id}/ssh`. The
    /// settings should accept every login, because callers are authenticated before they speak SSH.
    pub fn with_session_ssh(mut self, settings: SshServerSettings) -> ControlPlaneRoutes {
        self.ssh = Some(SessionSsh { settings, sockets: TaskTracker::new() });
        self
    }

    /// Limits the number of tasks per minute, for each caller and for each project.
    pub fn with_tasks_per_minute(mut self, limit: NonZeroU32) -> ControlPlaneRoutes {
        self.task_rate = Some(TaskRateLimit::new(limit));
        self
    }

    /// Counts a new task for the rate limit. A repeated request creates no session and is not
    /// counted.
    ///
    /// # Errors
    ///
    /// Returns a 429 problem if the caller or the project has created too many tasks.
    pub(crate) async fn count_task(
        &self,
        caller: &Principal,
        project: Option<&str>,
        key: Option<&SessionIdempotencyKey>,
    ) -> Result<(), Problem> {
        let Some(limit) = &self.task_rate else { return Ok(()) };
        if let Some(key) = key
            && self.control.sessions_of_repeated_request(key).await.map_err(of_task)?.is_some()
        {
            return Ok(());
        }
        let name = format!("{}:{}", caller.kind().as_str(), caller.id());
        let mut counters = vec![TaskCounter::Caller(name)];
        counters.extend(project.map(|name| TaskCounter::Project(name.to_owned())));
        let taken = limit.take(&counters, Instant::now());
        taken.map_err(|TaskRateExceeded { counter, per_minute, wait }| {
            let whose = match counter {
                TaskCounter::Caller(name) => format!("the caller {name}"),
                TaskCounter::Project(name) => format!("the project {name}"),
            };
            let detail = format!(
                "{whose} may begin {per_minute} tasks in a minute (limits.tasks-per-minute)"
            );
            Problem::too_many_requests(detail, wait)
        })
    }

    /// Waits for the SSH connections, which end when the server shuts down.
    pub(crate) async fn close(&self) {
        if let Some(ssh) = &self.ssh {
            ssh.close().await;
        }
    }

    /// What tasks of this caller can request.
    pub(crate) fn offers(&self, locality: Locality) -> TaskCapabilities {
        let executor = self.control.executor().describe_executor();
        let TaskChoices {
            agents,
            agent_settings: settings,
            agent_aliases: aliases,
            runtimes,
            enforces_resource_limits: resource_limits,
            templates,
            defaults,
        } = &self.catalog;
        let kinds = runtimes.iter().map(|runtime| runtime.kind);
        TaskCapabilities {
            agents: agents
                .iter()
                .map(|agent| (agent.kind.clone(), agent.versions.clone()))
                .collect(),
            agent_settings: settings.clone(),
            agent_aliases: aliases.clone(),
            executors: vec![executor.id],
            snapshot_providers: executor.snapshot_capabilities,
            runtimes: kinds.filter(|kind| *kind != RuntimeType::Local).collect(),
            enforces_resource_limits: *resource_limits,
            templates: templates.clone(),
            allows_local_repositories: locality == Locality::ThisMachine,
            default_network: defaults.network,
            refuses_shared_network: defaults.refuses_shared_network,
            default_keep_open: defaults.keep_open,
        }
    }

    /// The caller to whom this token belongs. `None` for the server's own token.
    pub(crate) async fn owner_of_token(&self, shown: &[u8]) -> Option<AccessTokenOwner> {
        let shown = std::str::from_utf8(shown).ok()?;
        match self.control.store().token_owner(shown).await {
            Ok(owner) => owner,
            Err(error) => {
                tracing::warn!(%error, "cannot look up a token");
                None
            }
        }
    }
}

impl fmt::Debug for ControlPlaneRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlaneRoutes").field("catalog", &self.catalog).finish_non_exhaustive()
    }
}

/// Whether a caller is on this machine. Only local callers may use paths of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locality {
    ThisMachine,
    Elsewhere,
}

impl Locality {
    /// A connection from a loopback address is local, unless a proxy forwarded it for another
    /// machine.
    pub(crate) fn of(peer: IpAddr, headers: &HeaderMap) -> Locality {
        let is_forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
        if peer.to_canonical().is_loopback() && !is_forwarded {
            Locality::ThisMachine
        } else {
            Locality::Elsewhere
        }
    }
}

/// A complete list that is not divided into pages.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Items<T> {
    items: Vec<T>,
}

/// The caller in the form in which decisions record it.
///
/// # Errors
///
/// Fails for agents and executors, because they must never decide, even if their token may use the
/// route.
pub(crate) fn decided_by(
    principal: &Principal,
    decision: &ApprovalDecision,
    via: DecisionChannel,
) -> Result<ApprovalDecider, Problem> {
    check_operator(principal, "decide approvals")?;
    Ok(ApprovalDecider {
        kind: decision.by.unwrap_or(DeciderKind::Person),
        name: principal.id().to_owned(),
        via: Some(decision.via.unwrap_or(via)),
    })
}

/// Refuses callers that are agents or executors.
pub(crate) fn check_operator(principal: &Principal, act: &str) -> Result<(), Problem> {
    match principal.kind() {
        PrincipalKind::Process | PrincipalKind::Person | PrincipalKind::ApiKey => Ok(()),
        PrincipalKind::Agent | PrincipalKind::SpaceAgent | PrincipalKind::Executor => {
            let detail = format!("only a person or an API key of the operator can {act}");
            Err(Problem::new(ProblemKind::Forbidden, detail))
        }
    }
}

/// Reads a session. Returns a 404 problem if it does not exist.
pub(crate) async fn found(
    control: &ControlPlane,
    id: SessionId,
) -> Result<ab_api::Session, crate::problem::Problem> {
    let session = control.store().get_session(id).await.map_err(ControlPlaneError::from);
    session.map_err(|error| problems::of_session(id, error))
}

pub(crate) use diff::unified_diff;
pub(crate) use problems::{PageProblems, disk_full, of_approval, of_session, of_task, violated};

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default()
        .routes(Access::Admin.to(routes!(tasks::create)))
        .routes(Access::Admin.to(routes!(sessions::list)))
        .routes(Access::Admin.to(routes!(sessions::show, sessions::cancel)))
        .routes(Access::Admin.to(routes!(sessions::info)))
        .routes(Access::Admin.to(routes!(sessions::logs)))
        .routes(Access::Admin.to(routes!(diff::diff)))
        .routes(Access::Admin.to(routes!(audit::list)))
        .routes(Access::Admin.to(routes!(sessions::stop)))
        .routes(Access::Admin.to(routes!(sessions::resume_work)))
        .routes(Access::Admin.to(routes!(prompts::send)))
        .routes(Access::Admin.to(routes!(prompts::list)))
        .routes(Access::Admin.to(routes!(prompts::show, prompts::rewrite, prompts::withdraw)))
        .routes(Access::Admin.to(routes!(sessions::finish)))
        .routes(Access::Admin.to(routes!(sessions::pause)))
        .routes(Access::Admin.to(routes!(sessions::resume)))
        .routes(Access::SessionAgent.to(routes!(mcp::call, mcp::listen, mcp::end)))
        .routes(Access::Admin.to(routes!(ssh::connect)))
        .routes(Access::Admin.to(routes!(ide::open)))
        .routes(Access::Admin.to(routes!(events::follow)))
        .routes(Access::Admin.to(routes!(events::follow_all)))
        .routes(Access::Admin.to(routes!(catalog::agents)))
        .routes(Access::Admin.to(routes!(catalog::settings_schema)))
        .routes(Access::Admin.to(routes!(catalog::runtimes)))
        .routes(Access::Admin.to(routes!(catalog::executors)))
        .routes(Access::Admin.to(routes!(drafts::list, drafts::create)))
        .routes(Access::Admin.to(routes!(drafts::show, drafts::update, drafts::remove)))
        .routes(Access::Admin.to(routes!(uploads::list, uploads::create)))
        .routes(Access::Admin.to(routes!(uploads::show, uploads::remove)))
        // These routes are public because their handlers check the signature of the URL, or the
        // token.
        .routes(Access::Public.to(routes!(uploads::offset, uploads::replace, uploads::append)))
        .routes(Access::Admin.to(routes!(inventory::projects)))
        .routes(Access::Admin.to(routes!(inventory::repos, inventory::import)))
        .routes(Access::Admin.to(routes!(inventory::refs)))
        .routes(Access::Admin.to(routes!(inventory::workspaces)))
        .routes(Access::Admin.to(routes!(inventory::workspace)))
        .routes(Access::Admin.to(routes!(cleanup::run)))
        .routes(Access::Admin.to(routes!(keys::list, keys::create)))
        .routes(Access::Admin.to(routes!(keys::revoke)))
        .routes(Access::Admin.to(routes!(approvals::list, approvals::request)))
        .routes(Access::Admin.to(routes!(approvals::show, approvals::decide)))
        .routes(Access::Admin.to(routes!(approvals::use_answer)))
}
