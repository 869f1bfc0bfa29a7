//! From a workspace to an agent that takes prompts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_acp::launch::{LaunchSetup, LaunchedAgent};
use ab_acp::login::copy_login_files;
use ab_acp::resolve::{self, ReadyAgent};
use ab_acp::{AcpClient, AcpError, AcpSessionId, AgentProfile, McpServer, SessionSetup};
use ab_api::{NetworkType, RuntimeType, SessionEndReason};
use ab_snapshot::Workspace;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::agent::{Agent, Pump, Shared};
use super::groups::{self, MadeGroup};
use super::mask::Mask;
use super::questions::PolicyQuestions;
use super::translate::Translator;
use super::{HandleSetup, LocalExecutor, Running, conversation, failed, lock, program};
use crate::contract::{Executor, ExecutorError, LaunchMode, LaunchedAgentInfo, SessionAttempt};
use crate::report::AgentReportSender;

/// The name of the session's endpoint among the MCP servers of its agent.
const MCP_NAME: &str = "workspace";
/// How long an agent whose launch failed may take to end by itself.
const END_TIME: Duration = Duration::from_secs(5);

/// Starts the agent and opens its conversation.
pub(super) async fn launch(
    executor: &LocalExecutor,
    job: &SessionAttempt,
    mode: &LaunchMode,
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
    // A session of an earlier start of the server may have been accepted under other settings.
    let is_shared = runtime.network.unwrap_or_default() == NetworkType::Shared;
    if is_shared && executor.settings.refuses_shared_network {
        return Err(unlaunched(
            "runtime.network: this server asks no caller for a token, so no agent may share its network",
        ));
    }
    let kind = &job.session.agent.kind;
    let (directory, host) = (executor.agent_directory(), executor.agent_host());
    let resolved = resolve::resolve_agent(&executor.settings.catalog, kind, &directory, &host)
        .map_err(|missing| unlaunched(format!("agent.type: {missing}")))?;
    let entry = &resolved.entry;
    let toolchains = executor.toolchains(Some(entry));
    program::check(entry, &toolchains, runtime.kind).map_err(unlaunched)?;
    let workspace = executor.workspace(job, SessionEndReason::Launch)?;
    // Of an earlier attempt.
    executor.terminate(id, Duration::ZERO).await?;
    let logins = copy_login_files(&workspace.home, &resolved.login_files).await;
    let logins = logins.map_err(|error| {
        unlaunched(format!("cannot give the agent {} its login: {error}", entry.title()))
    })?;
    let mask = Mask::new(&resolved.credentials, &logins);
    let questions = PolicyQuestions::new(job.generation, reports.downgrade(), mask.clone());
    let handle = HandleSetup::of_session(id, &executor.settings.rules, &questions);
    let MadeGroup { group, note } = groups::make(&executor.settings, &job.session).await?;
    let sandbox = executor.sandbox(&workspace, runtime, Some(entry), handle, group.clone()).await;
    let sandbox = sandbox.map_err(|error| unlaunched(error.to_string()))?;
    let running = Arc::new(Running {
        generation: job.generation,
        backend: sandbox.backend,
        launcher: sandbox.launcher,
        group,
        questions,
        mask,
        agent: Mutex::default(),
    });
    executor.running().insert(id, Arc::clone(&running));
    executor.endpoints.open(id, running.backend.clone());
    let started = start(executor, &resolved, job, &workspace, &running, mode, reports).await;
    match started {
        Ok(agent) => {
            let limits = groups::shown(running.group.as_ref());
            Ok(LaunchedAgentInfo { agent, limits, notes: note.into_iter().collect() })
        }
        Err(error) => {
            executor.terminate(id, Duration::ZERO).await?;
            Err(error)
        }
    }
}

/// Starts the agent's process. Returns what the agent calls itself.
async fn start(
    executor: &LocalExecutor,
    resolved: &ReadyAgent,
    job: &SessionAttempt,
    workspace: &Workspace,
    running: &Running,
    mode: &LaunchMode,
    reports: AgentReportSender,
) -> Result<Option<String>, ExecutorError> {
    let entry = &resolved.entry;
    let setup = LaunchSetup {
        own_binary: Some(executor.settings.own_executable.clone()),
        credentials: resolved.credentials.clone(),
        ..LaunchSetup::default()
    };
    let launched = ab_acp::launch::launch_agent(&running.launcher, entry, &setup).await;
    let LaunchedAgent { client, events, launched } = launched.map_err(|error| {
        unlaunched(format!("cannot start the agent {}: {error}", entry.title()))
    })?;
    let shared = Shared::new(running.mask.clone());
    let pump = Pump {
        client: client.clone(),
        events,
        launched,
        translator: Translator::new(&workspace.tree),
        reports,
        shared: Arc::clone(&shared),
        generation: job.generation,
        group: running.group.clone(),
        asked: 0,
    };
    let mut pump = AbortOnDropHandle::new(tokio::spawn(pump.run()));
    let offer = offer(executor, job, mode);
    let opened = open(&client, workspace, mode, offer).await;
    let (profile, session) = match opened {
        Ok(opened) => opened,
        Err(Unopened::Acp(error)) if error.ends_connection() => {
            // The process knows better why it ended.
            let ended = timeout(END_TIME, &mut pump).await.ok().and_then(Result::ok);
            return Err(unlaunched(ended.unwrap_or_else(|| error.to_string())));
        }
        Err(Unopened::Acp(error)) => return Err(unlaunched(error.to_string())),
        Err(Unopened::Other(detail)) => return Err(unlaunched(detail)),
    };
    if !shared.attach() {
        let ended = timeout(END_TIME, &mut pump).await.ok().and_then(Result::ok);
        return Err(unlaunched(ended.unwrap_or_else(|| "the agent ended at once".to_owned())));
    }
    let prompted = tokio::sync::Mutex::default();
    let agent = Agent { client, session, shared, prompted, _pump: pump };
    *lock(&running.agent) = Some(Arc::new(agent));
    Ok(name(&profile))
}

/// Why no conversation was opened.
enum Unopened {
    Acp(AcpError),
    Other(String),
}

impl From<AcpError> for Unopened {
    fn from(error: AcpError) -> Self {
        Self::Acp(error)
    }
}

/// The session's MCP endpoint, as the agent is told of it. An agent without a network cannot reach it.
fn offer(executor: &LocalExecutor, job: &SessionAttempt, mode: &LaunchMode) -> Option<McpServer> {
    if job.session.runtime.network == Some(NetworkType::None) {
        return None;
    }
    let base = executor.settings.server_url.as_ref()?;
    let (LaunchMode::New { token } | LaunchMode::Reload { token }) = mode;
    Some(McpServer::Http {
        name: MCP_NAME.to_owned(),
        url: format!("{base}/api/v1/sessions/{}/mcp", job.session.id),
        headers: vec![("Authorization".to_owned(), format!("Bearer {}", token.expose()))],
    })
}

/// The handshake, and a new conversation or the stored one.
async fn open(
    client: &AcpClient,
    workspace: &Workspace,
    mode: &LaunchMode,
    offer: Option<McpServer>,
) -> Result<(AgentProfile, AcpSessionId), Unopened> {
    let unusable = |error| Unopened::Other(format!("cannot use the conversation's file: {error}"));
    let profile = client.initialize().await?.clone();
    let cwd = workspace.tree.display().to_string();
    let mcp_servers = offer.filter(|_| profile.mcp_http).into_iter().collect();
    let setup = SessionSetup { cwd, mcp_servers };
    let session = match mode {
        LaunchMode::New { .. } => {
            let session = client.new_session(&setup).await?;
            conversation::store(workspace, &session).await.map_err(unusable)?;
            session
        }
        LaunchMode::Reload { .. } => {
            let stored = conversation::load(workspace).await.map_err(unusable)?;
            let Some(session) = stored else {
                return Err(Unopened::Other("the session has no stored conversation".to_owned()));
            };
            client.reopen_session(&session, &setup).await?;
            session
        }
    };
    Ok((profile, session))
}

/// The name and version that the agent gave itself.
fn name(profile: &AgentProfile) -> Option<String> {
    let name = profile.title.as_ref().or(profile.name.as_ref())?;
    Some(match &profile.version {
        Some(version) => format!("{name} {version}"),
        None => name.clone(),
    })
}

fn unlaunched(detail: impl Into<String>) -> ExecutorError {
    failed(SessionEndReason::Launch, detail)
}
