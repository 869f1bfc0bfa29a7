//! Lists what the server offers: agents, runtimes and executors.

use std::collections::BTreeMap;

use ab_api::{
    AgentDescription, AgentSetting, ExecutorDescription, NetworkMode, RuntimeDescription,
    RuntimeType, agent_settings_schema,
};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::Items;
use super::problems::SessionProblems;
use crate::app::HttpApp;
use crate::extract::PathParams;
use crate::problem::{Problem, ProblemKind};

/// What tasks can request, in addition to what the executor describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChoices {
    pub agents: Vec<AgentDescription>,
    /// The settings of each agent type.
    pub agent_settings: BTreeMap<String, Vec<AgentSetting>>,
    /// Alternative names of agent types.
    pub agent_aliases: BTreeMap<String, String>,
    pub runtimes: Vec<RuntimeDescription>,
    /// Whether the executor enforces CPU and memory limits.
    pub enforces_resource_limits: bool,
    /// The directories of this machine from which tasks without a repository can start, by template
    /// name.
    pub templates: BTreeMap<String, String>,
    pub defaults: TaskDefaults,
}

/// Default values of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskDefaults {
    pub network: NetworkMode,
    /// Whether tasks that share the network are refused.
    pub refuses_shared_network: bool,
    pub keep_open: bool,
}

impl Default for TaskChoices {
    /// The default offers no agents and only the runtime `local`.
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
            agent_settings: BTreeMap::new(),
            agent_aliases: BTreeMap::new(),
            runtimes: vec![local],
            enforces_resource_limits: false,
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

/// Show the JSON Schema of the settings of an agent
///
/// This is the URL in `settingsSchemaRef` of the agent. `agent.settings` of a task is checked
/// against this schema.
#[utoipa::path(
    get,
    path = "/api/v1/schemas/agents/{file}",
    tag = "sessions",
    params(("file" = String, Path, description = "The type of the agent and `.json`")),
    responses(
        (status = OK, description = "The schema", body = Value, content_type = "application/schema+json"),
        SessionProblems
    )
)]
pub(crate) async fn settings_schema(
    State(app): State<HttpApp>,
    PathParams(file): PathParams<String>,
) -> Result<Response, Problem> {
    let catalog = &app.control()?.catalog;
    let named = file.strip_suffix(".json");
    let named = named.map(|name| catalog.agent_aliases.get(name).map_or(name, String::as_str));
    let agent = catalog.agents.iter().find(|agent| Some(agent.kind.as_str()) == named);
    let Some(AgentDescription { kind, title, .. }) = agent else {
        let detail = "there is no agent of this name: GET /api/v1/agents lists them";
        return Err(Problem::new(ProblemKind::NotFound, detail).coded("agent_not_found"));
    };
    let settings = catalog.agent_settings.get(kind).map_or(&[][..], Vec::as_slice);
    let title = if title.is_empty() { kind } else { title };
    let schema = agent_settings_schema(kind, title, &settings_schema_path(kind), settings);
    let content_type = [(header::CONTENT_TYPE, "application/schema+json")];
    Ok((content_type, Json(schema)).into_response())
}

/// The path of the schema of an agent's settings.
pub fn settings_schema_path(kind: &str) -> String {
    format!("/api/v1/schemas/agents/{kind}.json")
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
    Ok(Json(Items { items: vec![app.control()?.control.executor().describe_executor()] }))
}
