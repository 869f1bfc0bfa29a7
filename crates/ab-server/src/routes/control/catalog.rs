//! What the server offers: agents, runtimes, executors.

use std::collections::BTreeMap;

use ab_api::{AgentDescription, ExecutorDescription, NetworkMode, RuntimeDescription, RuntimeType};
use axum::Json;
use axum::extract::State;

use super::Items;
use super::problems::SessionProblems;
use crate::app::HttpApp;
use crate::problem::Problem;

/// What tasks can request, beside the executor's own description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCatalog {
    pub agents: Vec<AgentDescription>,
    /// Other names of agent types.
    pub aliases: BTreeMap<String, String>,
    pub runtimes: Vec<RuntimeDescription>,
    /// Whether the executor enforces CPU and memory limits.
    pub resource_limits: bool,
    /// Directories of this machine that tasks without a repository start from, by their names.
    pub templates: BTreeMap<String, String>,
    pub defaults: TaskDefaults,
}

/// Defaults of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskDefaults {
    pub network: NetworkMode,
    /// Whether tasks that share the network are refused.
    pub refuses_shared_network: bool,
    pub keep_open: bool,
}

impl Default for TaskCatalog {
    /// No agents, and the runtime `local`.
    fn default() -> Self {
        let local = RuntimeDescription {
            kind: RuntimeType::Local,
            images: Vec::new(),
            paths: Vec::new(),
            sandbox_profiles: vec!["default".to_owned()],
            templates: Vec::new(),
        };
        Self {
            agents: Vec::new(),
            aliases: BTreeMap::new(),
            runtimes: vec![local],
            resource_limits: false,
            templates: BTreeMap::new(),
            defaults: TaskDefaults::default(),
        }
    }
}

/// List the agents that tasks can name
#[utoipa::path(
    get,
    path = "/api/v1/agents",
    tag = "sessions",
    responses((status = OK, body = Items<AgentDescription>), SessionProblems)
)]
pub(crate) async fn agents(
    State(app): State<HttpApp>,
) -> Result<Json<Items<AgentDescription>>, Problem> {
    Ok(Json(Items { items: app.control()?.catalog.agents.clone() }))
}

/// List the runtimes that tasks can name
#[utoipa::path(
    get,
    path = "/api/v1/runtimes",
    tag = "sessions",
    responses((status = OK, body = Items<RuntimeDescription>), SessionProblems)
)]
pub(crate) async fn runtimes(
    State(app): State<HttpApp>,
) -> Result<Json<Items<RuntimeDescription>>, Problem> {
    Ok(Json(Items { items: app.control()?.catalog.runtimes.clone() }))
}

/// List the machines that run sessions
#[utoipa::path(
    get,
    path = "/api/v1/executors",
    tag = "sessions",
    responses((status = OK, body = Items<ExecutorDescription>), SessionProblems)
)]
pub(crate) async fn executors(
    State(app): State<HttpApp>,
) -> Result<Json<Items<ExecutorDescription>>, Problem> {
    Ok(Json(Items { items: vec![app.control()?.control.executor().describe()] }))
}
