//! From a workspace to an agent that takes prompts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_acp::catalog::{AgentEntry, SELF};
use ab_acp::{AcpClient, AcpError, AcpSessionId, AgentProfile, ClientSettings, SessionSetup};
use ab_api::{EndReason, NetworkType, RuntimeType};
use ab_core::process::Stdin;
use ab_local::Launch;
use ab_snapshot::Workspace;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::agent::{Agent, Pump, Shared};
use super::translate::Translator;
use super::{LocalExecutor, Running, conversation, failed, lock, program};
use crate::contract::{Executor, ExecutorError, Job, LaunchMode, Launched};
use crate::report::Reports;

/// How long an agent whose launch failed may take to end by itself.
const END_TIME: Duration = Duration::from_secs(5);

/// Starts the agent and opens its conversation.
pub(super) async fn launch(
    executor: &LocalExecutor,
    job: &Job,
    mode: &LaunchMode,
    reports: Reports,
) -> Result<Launched, ExecutorError> {
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
    let Some(entry) = executor.settings.catalog.find(kind) else {
        return Err(unlaunched(format!("agent.type: unknown agent {kind:?}")));
    };
    let toolchains = executor.toolchains(Some(entry));
    program::check(entry, &toolchains, runtime.kind).map_err(unlaunched)?;
    let workspace = executor.workspace(job, EndReason::Launch)?;
    // Of an earlier attempt.
    executor.terminate(id, Duration::ZERO).await?;
    let sandbox = executor.sandbox(&workspace, runtime, Some(entry)).await;
    let sandbox = sandbox.map_err(|error| unlaunched(error.to_string()))?;
    let running = Arc::new(Running {
        generation: job.generation,
        backend: sandbox.backend,
        launcher: sandbox.launcher,
        agent: Mutex::default(),
    });
    executor.running().insert(id, Arc::clone(&running));
    let started = start(executor, entry, job, &workspace, &running, mode, reports).await;
    match started {
        Ok(launched) => Ok(launched),
        Err(error) => {
            executor.terminate(id, Duration::ZERO).await?;
            Err(error)
        }
    }
}

async fn start(
    executor: &LocalExecutor,
    entry: &AgentEntry,
    job: &Job,
    workspace: &Workspace,
    running: &Running,
    mode: &LaunchMode,
    reports: Reports,
) -> Result<Launched, ExecutorError> {
    let launch = command(executor, entry)?;
    let launched = running.launcher.start(launch).await;
    let mut launched = launched.map_err(|error| {
        unlaunched(format!("cannot start the agent {}: {error}", entry.title()))
    })?;
    let (Some(output), Some(input)) = (launched.stdout.take(), launched.stdin.take()) else {
        return Err(unlaunched("the agent's streams are missing"));
    };
    let auth_method = entry.auth_method.clone();
    let settings = ClientSettings { auth_method, ..ClientSettings::default() };
    let (client, events) = AcpClient::connect(output, input, settings);
    let shared = Shared::new();
    let pump = Pump {
        client: client.clone(),
        events,
        launched,
        translator: Translator::new(&workspace.tree),
        reports,
        shared: Arc::clone(&shared),
        generation: job.generation,
        asked: 0,
    };
    let mut pump = AbortOnDropHandle::new(tokio::spawn(pump.run()));
    let opened = open(&client, workspace, mode).await;
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
    shared.attach();
    let prompted = tokio::sync::Mutex::default();
    let agent = Agent { client, session, shared, prompted, _pump: pump };
    *lock(&running.agent) = Some(Arc::new(agent));
    Ok(Launched { agent: name(&profile) })
}

/// The program of a catalog entry. It gets its own credentials and nothing else of the server's environment.
fn command(executor: &LocalExecutor, entry: &AgentEntry) -> Result<Launch, ExecutorError> {
    let mut argv = entry.argv.clone();
    if let Some(program) = argv.first_mut().filter(|program| *program == SELF) {
        let Some(own) = executor.settings.own_executable.to_str() else {
            return Err(unlaunched("the path of this program is not valid UTF-8"));
        };
        *program = own.to_owned();
    }
    let mut launch = Launch { stdin: Stdin::Piped, ..Launch::new(argv) };
    for name in &entry.credentials {
        if let Some(value) = executor.settings.variable(name).and_then(|value| value.to_str()) {
            launch = launch.env(name, value);
        }
    }
    launch.env.extend(entry.env.clone());
    Ok(launch)
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

/// The handshake, and a new conversation or the stored one.
async fn open(
    client: &AcpClient,
    workspace: &Workspace,
    mode: &LaunchMode,
) -> Result<(AgentProfile, AcpSessionId), Unopened> {
    let unusable = |error| Unopened::Other(format!("cannot use the conversation's file: {error}"));
    let profile = client.initialize().await?.clone();
    let cwd = workspace.tree.display().to_string();
    let setup = SessionSetup { cwd, mcp_servers: Vec::new() };
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
    failed(EndReason::Launch, detail)
}
