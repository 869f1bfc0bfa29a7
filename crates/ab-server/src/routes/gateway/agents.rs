//! `/v1/agents`: the agents that can be started.

use ab_acp::catalog::{AgentCatalogEntry, AgentPromptContent};
use ab_acp::gateway::{AgentGateway, AgentProgramOrigin, AgentServerState};
use ab_acp::install::Reinstall;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problems::{GatewayProblems, described, of_server, unsupported};
use crate::app::HttpApp;
use crate::extract::{JsonBody, PathParams};
use crate::problem::{Problem, ProblemKind};
use axum::http::StatusCode;

/// The agents
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GatewayAgents {
    agents: Vec<GatewayAgent>,
}

/// One agent
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayAgent {
    id: String,
    /// Other names of the agent
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<String>,
    /// Whether its program exists
    installed: bool,
    /// Whether the server has a credential that the agent can use, or the agent needs none
    credentials_available: bool,
    /// The version of an installed package
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    capabilities: GatewayCapabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_status: Option<GatewayServerStatus>,
}

/// What clients may expect of an agent: the features that ACP has messages for
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the wire has one member for each")]
pub(crate) struct GatewayCapabilities {
    plan_mode: bool,
    permissions: bool,
    questions: bool,
    tool_calls: bool,
    tool_results: bool,
    text_messages: bool,
    images: bool,
    file_attachments: bool,
    session_lifecycle: bool,
    error_events: bool,
    reasoning: bool,
    status: bool,
    command_execution: bool,
    file_changes: bool,
    mcp_tools: bool,
    streaming_deltas: bool,
    item_started: bool,
    shared_process: bool,
}

/// Whether a process of the agent is running
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayServerStatus {
    /// `running` or `stopped`
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uptime_ms: Option<u64>,
}

/// A request to install an agent
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstallRequest {
    /// Whether to install an agent again that is already installed
    #[serde(default)]
    reinstall: bool,
    /// The version of the agent: the version in the catalog, or `latest`, which means the same
    #[serde(default)]
    agent_version: Option<String>,
    /// The version of the agent's ACP program. Has the same meaning as `agentVersion`
    #[serde(default)]
    agent_process_version: Option<String>,
}

/// What was installed
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Installed {
    already_installed: bool,
    artifacts: Vec<InstalledArtifact>,
}

/// A program of an agent
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InstalledArtifact {
    kind: &'static str,
    path: String,
    source: &'static str,
    version: Option<String>,
}

/// List the agents
#[utoipa::path(
    get,
    path = "/v1/agents",
    tag = "agents",
    responses((status = OK, body = GatewayAgents), GatewayProblems)
)]
pub(crate) async fn list(State(app): State<HttpApp>) -> Result<Json<GatewayAgents>, Problem> {
    let gateway = &app.gateway()?.gateway;
    let agents = &gateway.settings().agents;
    let entries = agents.catalog.entries().iter();
    let mut listed: Vec<GatewayAgent> = entries.map(|entry| agent(gateway, entry)).collect();
    for name in agents.agents_with_launcher_program() {
        if let Some(known) = listed.iter_mut().find(|known| known.aliases.contains(&name)) {
            known.aliases.retain(|alias| *alias != name);
        }
        if !listed.iter().any(|known| known.id == name) {
            listed.push(launched(gateway, &name));
        }
    }
    if let Some(mock) = mock(gateway) {
        for known in &mut listed {
            known.aliases.retain(|alias| *alias != MOCK);
        }
        listed.push(mock);
    }
    Ok(Json(GatewayAgents { agents: listed }))
}

/// One agent
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}",
    tag = "agents",
    params(("agent" = String, Path, description = "An id or alias")),
    responses((status = OK, body = GatewayAgent), GatewayProblems)
)]
pub(crate) async fn show(
    State(app): State<HttpApp>,
    PathParams(name): PathParams<String>,
) -> Result<Json<GatewayAgent>, Problem> {
    let gateway = &app.gateway()?.gateway;
    found(gateway, &name).map(Json)
}

/// Describes the errors of an installation.
struct InstallProblems;

impl utoipa::IntoResponses for InstallProblems {
    fn responses()
    -> std::collections::BTreeMap<String, utoipa::openapi::RefOr<utoipa::openapi::Response>> {
        described(&[
            (StatusCode::NOT_FOUND, "Agents are not enabled on this server"),
            (StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The Content-Type is not JSON"),
            (StatusCode::INTERNAL_SERVER_ERROR, "The installation failed"),
            (StatusCode::BAD_GATEWAY, "The server is closing"),
        ])
    }
}

/// Install an agent
///
/// Installs the package in the catalog with the machine's npm. If the agent's program already
/// exists, nothing is installed. Agents without a package must be installed by the operator.
#[utoipa::path(
    post,
    path = "/v1/agents/{agent}/install",
    tag = "agents",
    params(("agent" = String, Path, description = "An id or alias")),
    request_body = InstallRequest,
    responses((status = OK, body = Installed), InstallProblems)
)]
pub(crate) async fn install(
    State(app): State<HttpApp>,
    PathParams(name): PathParams<String>,
    JsonBody(request): JsonBody<InstallRequest>,
) -> Result<Json<Installed>, Problem> {
    let gateway = &app.gateway()?.gateway;
    request.check(gateway, &name)?;
    let again = if request.reinstall { Reinstall::Yes } else { Reinstall::No };
    let artifact = gateway.install_agent(&name, again).await;
    let artifact = artifact.map_err(|error| of_server(&name, error))?;
    let source = match artifact.origin {
        AgentProgramOrigin::Registry => "registry",
        AgentProgramOrigin::Host => "local_path",
        AgentProgramOrigin::BuiltIn => "builtin",
    };
    let listed = InstalledArtifact {
        kind: "agent_process",
        path: artifact.path.display().to_string(),
        source,
        version: artifact.version,
    };
    Ok(Json(Installed { already_installed: artifact.already_installed, artifacts: vec![listed] }))
}

impl InstallRequest {
    /// Checks the requested version. Only the version in the catalog is available.
    fn check(&self, gateway: &AgentGateway, name: &str) -> Result<(), Problem> {
        let entry = gateway.settings().agents.catalog.find(name);
        let pinned = entry.and_then(|entry| entry.package.as_ref()).map(|it| it.version.as_str());
        let asked = [
            ("agentVersion", &self.agent_version),
            ("agentProcessVersion", &self.agent_process_version),
        ];
        for (field, asked) in asked {
            let Some(asked) = asked.as_deref().filter(|asked| *asked != "latest") else { continue };
            if pinned != Some(asked) {
                let detail = match pinned {
                    Some(pinned) => format!("invalid {field} {asked:?}: must be {pinned:?}"),
                    None => format!("invalid {field} {asked:?}: this agent has no package"),
                };
                return Err(Problem::new(ProblemKind::Invalid, detail));
            }
        }
        Ok(())
    }
}

/// The id by which clients of sandbox-agent request an agent that uses no model.
const MOCK: &str = "mock";

/// Lists the scripted agent under the id `mock`, for clients of sandbox-agent. `None` if a launcher
/// or a catalog entry has the name `mock`.
fn mock(gateway: &AgentGateway) -> Option<GatewayAgent> {
    let agents = &gateway.settings().agents;
    agents.launchers_dir.as_ref()?;
    let id = agents.find_agent_id(MOCK).filter(|id| id != MOCK)?;
    let entry = agents.catalog.find(&id)?;
    Some(GatewayAgent { id: MOCK.to_owned(), aliases: Vec::new(), ..agent(gateway, entry) })
}

fn found(gateway: &AgentGateway, name: &str) -> Result<GatewayAgent, Problem> {
    if let Some(mock) = mock(gateway).filter(|_| name == MOCK) {
        return Ok(mock);
    }
    let agents = &gateway.settings().agents;
    let Some(id) = agents.find_agent_id(name) else {
        let detail = format!("unknown agent {name:?}: GET /v1/agents lists the agents");
        return Err(unsupported(name, detail));
    };
    Ok(match agents.catalog.entries().iter().find(|entry| entry.id == id) {
        Some(entry) => agent(gateway, entry),
        None => launched(gateway, &id),
    })
}

fn agent(gateway: &AgentGateway, entry: &AgentCatalogEntry) -> GatewayAgent {
    let agents = &gateway.settings().agents;
    GatewayAgent {
        id: entry.id.clone(),
        aliases: entry.aliases.clone(),
        installed: agents.is_installed(entry),
        credentials_available: agents.has_credential(entry),
        version: agents.find_installed(entry).map(|installed| installed.version),
        path: agents.program_path(entry).map(|path| path.display().to_string()),
        capabilities: capabilities(&entry.prompt_content),
        server_status: server_status(gateway, &entry.id),
    }
}

fn launched(gateway: &AgentGateway, name: &str) -> GatewayAgent {
    let directory = gateway.settings().agents.launchers_dir.as_ref();
    GatewayAgent {
        id: name.to_owned(),
        aliases: Vec::new(),
        installed: true,
        credentials_available: true,
        version: None,
        path: directory.map(|path| path.join(format!("{name}-acp")).display().to_string()),
        // The catalog has no information about this agent.
        capabilities: capabilities(&[]),
        server_status: server_status(gateway, name),
    }
}

/// The features of an agent. The content that prompts may contain depends on the agent. The
/// messages of ACP determine the other features.
fn capabilities(prompt_content: &[AgentPromptContent]) -> GatewayCapabilities {
    GatewayCapabilities {
        plan_mode: true,
        permissions: true,
        questions: false,
        tool_calls: true,
        tool_results: true,
        text_messages: true,
        images: prompt_content.contains(&AgentPromptContent::Images),
        file_attachments: prompt_content.contains(&AgentPromptContent::Files),
        session_lifecycle: true,
        error_events: true,
        reasoning: true,
        status: true,
        command_execution: true,
        file_changes: true,
        mcp_tools: true,
        streaming_deltas: true,
        item_started: true,
        shared_process: false,
    }
}

/// Whether a server runs the agent, and how long the first one has been running.
fn server_status(gateway: &AgentGateway, id: &str) -> Option<GatewayServerStatus> {
    let agents = &gateway.settings().agents;
    let servers = gateway.list_servers().into_iter();
    let mut of_agent = servers
        .filter(|server| agents.find_agent_id(&server.agent).as_deref() == Some(id))
        .peekable();
    of_agent.peek()?;
    let running = of_agent.filter(|server| matches!(server.state, AgentServerState::Running));
    let oldest = running.map(|server| server.created).min();
    let uptime = oldest.and_then(|created| created.elapsed().ok());
    let uptime_ms = uptime.map(|uptime| u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX));
    let status = if uptime_ms.is_some() { "running" } else { "stopped" };
    Some(GatewayServerStatus { status, uptime_ms })
}
