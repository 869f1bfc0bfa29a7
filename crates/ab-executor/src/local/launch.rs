//! Launches an agent in a workspace. The launch ends when the agent accepts prompts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_acp::agent_readiness::AgentReadyToLaunch;
use ab_acp::launch::{AgentLaunchOptions, LaunchedAgent};
use ab_acp::login_files::copy_login_files_to_agent_home;
use ab_acp::{AcpClient, AcpError, AcpSessionId, AcpSessionSetup, AgentCapabilities, McpServer};
use ab_api::{NetworkMode, RuntimeType, SessionEndReason};
use ab_core::Isolation;
use ab_snapshot::PreparedWorkspace;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::agent::{Agent, Pump, Shared};
use super::audit::AuditLog;
use super::configured::Configured;
use super::endpoint_socket::EndpointSocket;
use super::groups::{self, MadeGroup};
use super::mask::Mask;
use super::questions::{PolicyQuestions, QuestionSettings};
use super::translate::Translator;
use super::usage::UsageCounter;
use super::{HandleSetup, LocalExecutor, Running, conversation, failed, lock, setup};
use crate::contract::{
    AgentLaunchMode, Executor, ExecutorError, LaunchedAgentInfo, SessionAttempt,
};
use crate::report::AgentReportSender;

/// The name under which the agent sees its session's MCP endpoint.
const MCP_NAME: &str = "workspace";
const NO_ENDPOINT_NOTE: &str = "The agent cannot reach the MCP endpoint of its session: this requires bwrap, or an agent \
     that uses MCP over HTTP and a shared network.";
/// How long an agent process may take to exit after a failed launch.
const END_TIME: Duration = Duration::from_secs(5);

/// Starts the agent and opens its conversation.
pub(super) async fn launch(
    executor: &LocalExecutor,
    job: &SessionAttempt,
    mode: &AgentLaunchMode,
    reports: AgentReportSender,
) -> Result<LaunchedAgentInfo, ExecutorError> {
    let id = job.session.id;
    let runtime = &job.session.runtime;
    match runtime.kind {
        RuntimeType::Local => {}
        RuntimeType::Disabled if executor.settings.allow_disabled_runtime => {}
        RuntimeType::Disabled => {
            return Err(unlaunched(
                "runtime.type: sessions without a sandbox are not allowed here",
            ));
        }
        RuntimeType::Devcontainer => {
            return Err(unlaunched("runtime.type: devcontainer is not available yet"));
        }
    }
    // Check again, because an earlier server process with other settings may have accepted the
    // session.
    let is_shared = runtime.network.unwrap_or_default() == NetworkMode::Shared;
    if is_shared && executor.settings.refuses_shared_network {
        return Err(unlaunched(
            "runtime.network: must be \"none\": this server requires no token, so an agent on its network could approve its own requests",
        ));
    }
    let resolved = executor.find_agent(&job.session);
    let resolved = resolved.map_err(|missing| unlaunched(format!("agent.type: {missing}")))?;
    let entry = &resolved.entry;
    let workspace = executor.workspace(job, SessionEndReason::Launch)?;
    // End the processes of an earlier attempt.
    executor.terminate_session(id, Duration::ZERO).await?;
    let logins = copy_login_files_to_agent_home(&workspace.home, &resolved.login_files).await;
    let logins = logins.map_err(|error| {
        unlaunched(format!("cannot give the agent {} its login: {error}", entry.title()))
    })?;
    let mask = Mask::new(&resolved.credentials, &logins);
    let questions = PolicyQuestions::new(QuestionSettings {
        generation: job.generation,
        reports: reports.downgrade(),
        mask: mask.clone(),
        wait: executor.settings.approval_wait_timeout,
    });
    let entries = executor.settings.audit.clone();
    let audit = AuditLog { session: id, mask: mask.clone(), entries };
    let mut handle =
        HandleSetup::of_session(&executor.settings.extra_policy_rules, &questions, audit);
    let socket = EndpointSocket::make(&workspace);
    let socket =
        socket.map_err(|error| unlaunched(format!("cannot create the socket: {error}")))?;
    handle.socket = Some(socket.directory().to_owned());
    let MadeGroup { group, note } = groups::make(&executor.settings, &job.session).await?;
    let sandbox = executor.sandbox(&workspace, runtime, Some(entry), handle, group.clone()).await;
    let sandbox = sandbox.map_err(|error| unlaunched(error.to_string()))?;
    let for_agent = executor.agent_handle(&sandbox.backend);
    let for_agent = for_agent.map_err(|error| unlaunched(error.to_string()))?;
    let isolation = sandbox.backend.effective_policy().await.ok().and_then(|it| it.isolation);
    let socket = match isolation {
        // Landlock does not allow programs to use local sockets.
        Some(Isolation::Landlock) => None,
        Some(Isolation::Auto | Isolation::Bwrap | Isolation::Software | Isolation::None) | None => {
            let served = socket.serve(id, &for_agent);
            Some(served.map_err(|error| unlaunched(format!("cannot create the socket: {error}")))?)
        }
    };
    let running = Arc::new(Running {
        generation: job.generation,
        backend: sandbox.backend,
        launcher: sandbox.launcher,
        group,
        questions,
        mask,
        agent: Mutex::default(),
        socket,
    });
    executor.running().insert(id, Arc::clone(&running));
    executor.endpoints.open(id, for_agent);
    let started = async {
        if let AgentLaunchMode::New { .. } = mode {
            setup::run(&executor.settings, job, &running, &reports).await?;
        }
        start(executor, &resolved, job, &workspace, &running, mode, reports).await
    };
    let started = started.await;
    match started {
        Ok(Started { agent, mut notes }) => {
            let limits = groups::shown(running.group.as_ref());
            notes.extend(note);
            Ok(LaunchedAgentInfo { agent, isolation, limits, notes })
        }
        Err(error) => {
            executor.terminate_session(id, Duration::ZERO).await?;
            Err(error)
        }
    }
}

/// What is reported about an agent whose conversation was opened.
struct Started {
    /// The name that the agent reported.
    agent: Option<String>,
    notes: Vec<String>,
}

/// Starts the agent's process.
async fn start(
    executor: &LocalExecutor,
    resolved: &AgentReadyToLaunch,
    job: &SessionAttempt,
    workspace: &PreparedWorkspace,
    running: &Running,
    mode: &AgentLaunchMode,
    reports: AgentReportSender,
) -> Result<Started, ExecutorError> {
    let entry = &resolved.entry;
    let mut configured =
        Configured::apply(&job.session, resolved, &executor.workspaces, workspace).await;
    let setup = AgentLaunchOptions {
        own_executable: Some(executor.settings.own_executable.clone()),
        credentials: resolved.credentials.clone(),
        env: executor.settings.variables.clone(),
        ..AgentLaunchOptions::default()
    };
    let launched = ab_acp::launch::launch_agent(&running.launcher, entry, &setup).await;
    let LaunchedAgent { client, events, program: launched } = launched.map_err(|error| {
        unlaunched(format!("cannot start the agent {}: {error}", entry.title()))
    })?;
    let shared = Shared::new(running.mask.clone());
    let usage = UsageCounter::new(entry.token_reports.unwrap_or_default(), &job.session.usage);
    let pump = Pump {
        client: client.clone(),
        events,
        launched,
        translator: Translator::new(&workspace.tree, running.mask.clone(), usage),
        reports,
        shared: Arc::clone(&shared),
        generation: job.generation,
        group: running.group.clone(),
        asked: 0,
    };
    let mut pump = AbortOnDropHandle::new(tokio::spawn(pump.run()));
    let offers = Offers {
        http: http_offer(executor, job, mode),
        socket: { running.socket.as_ref() }
            .map(|socket| socket.offer(MCP_NAME, &executor.settings.own_executable)),
    };
    let opened = open(&client, resolved, workspace, mode, offers, &mut configured).await;
    let Opened { profile, session } = match opened {
        Ok(opened) => opened,
        Err(Unopened::Acp(error)) if error.ends_connection() => {
            // If the process has ended, report how it ended. This explains more than the protocol
            // error.
            let ended = timeout(END_TIME, &mut pump).await.ok().and_then(Result::ok);
            return Err(unlaunched(ended.unwrap_or_else(|| error.to_string())));
        }
        Err(Unopened::Acp(error)) => return Err(unlaunched(error.to_string())),
        Err(Unopened::Other(detail)) => return Err(unlaunched(detail)),
    };
    if !shared.attach() {
        let ended = timeout(END_TIME, &mut pump).await.ok().and_then(Result::ok);
        return Err(unlaunched(ended.unwrap_or_else(|| "the agent exited immediately".to_owned())));
    }
    let prompted = tokio::sync::Mutex::default();
    let agent = Agent { client, session, shared, prompted, _pump: pump };
    *lock(&running.agent) = Some(Arc::new(agent));
    Ok(Started { agent: name(&profile), notes: configured.notes })
}

/// Why the agent's conversation could not be opened.
enum Unopened {
    Acp(AcpError),
    Other(String),
}

impl From<AcpError> for Unopened {
    fn from(error: AcpError) -> Self {
        Self::Acp(error)
    }
}

/// The entries that tell the agent how to reach the session's MCP endpoint. One is for HTTP, and
/// one is for a local socket. A field is `None` if the agent cannot use this transport.
struct Offers {
    http: Option<McpServer>,
    socket: Option<McpServer>,
}

/// An open conversation with an agent.
struct Opened {
    profile: AgentCapabilities,
    session: AcpSessionId,
}

/// The session's MCP endpoint over HTTP. `None` for an agent without network access.
fn http_offer(
    executor: &LocalExecutor,
    job: &SessionAttempt,
    mode: &AgentLaunchMode,
) -> Option<McpServer> {
    if job.session.runtime.network == Some(NetworkMode::None) {
        return None;
    }
    let base = executor.settings.server_url.as_ref()?;
    let (AgentLaunchMode::New { token } | AgentLaunchMode::Reload { token }) = mode;
    Some(McpServer::Http {
        name: MCP_NAME.to_owned(),
        url: format!("{base}/api/v1/sessions/{}/mcp", job.session.id),
        headers: vec![("Authorization".to_owned(), format!("Bearer {}", token.as_str()))],
    })
}

/// Performs the ACP handshake, and opens a new conversation or the stored one.
async fn open(
    client: &AcpClient,
    agent: &AgentReadyToLaunch,
    workspace: &PreparedWorkspace,
    mode: &AgentLaunchMode,
    offers: Offers,
    configured: &mut Configured,
) -> Result<Opened, Unopened> {
    let unusable = |error| Unopened::Other(format!("cannot use the conversation's file: {error}"));
    let profile = client.initialize().await?.clone();
    let cwd = workspace.tree.display().to_string();
    let Offers { http, socket } = offers;
    let endpoint = http.filter(|_| profile.mcp_http).or(socket);
    if endpoint.is_none() {
        configured.notes.push(NO_ENDPOINT_NOTE.to_owned());
    }
    let further = configured.servers(agent, &profile, MCP_NAME, workspace);
    let mcp_servers = endpoint.into_iter().chain(further).collect();
    let setup = AcpSessionSetup { cwd, mcp_servers };
    let session = match mode {
        AgentLaunchMode::New { .. } => {
            let session = client.new_session(&setup).await?;
            conversation::store(workspace, &session).await.map_err(unusable)?;
            session
        }
        AgentLaunchMode::Reload { .. } => {
            let stored = conversation::load(workspace).await.map_err(unusable)?;
            let Some(session) = stored else {
                return Err(Unopened::Other("the session has no stored conversation".to_owned()));
            };
            client.load_or_resume_session(&session, &setup).await?;
            session
        }
    };
    Ok(Opened { profile, session })
}

/// The name and version that the agent gave itself.
fn name(profile: &AgentCapabilities) -> Option<String> {
    let name = profile.title.as_ref().or(profile.name.as_ref())?;
    Some(match &profile.version {
        Some(version) => format!("{name} {version}"),
        None => name.clone(),
    })
}

fn unlaunched(detail: impl Into<String>) -> ExecutorError {
    failed(SessionEndReason::Launch, detail)
}
