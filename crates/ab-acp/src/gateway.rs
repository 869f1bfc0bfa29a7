//! Makes agents available to clients over HTTP. Each server id that a client chooses has its own
//! agent process. The gateway forwards messages in both directions.
//!
//! The HTTP layer calls [`AgentGateway`]. The gateway starts a process for the first message to an
//! id, forwards messages unchanged, and keeps the agent's latest messages for readers that
//! reconnect. The replay buffer, the table of pending requests and the message scanner do no I/O.

mod envelope;
mod failure;
mod installing;
mod pending;
mod process;
mod replay;
mod sandbox;
mod server;
mod source;

pub use envelope::{InvalidRpcMessage, RpcId, RpcMessageKind, replace_line_breaks_by_spaces};
pub use failure::{AgentExit, AgentGatewayError};
pub use installing::{AgentProgram, AgentProgramOrigin};
pub use replay::{ReplayBatch, ReplayEvent, ReplayLimits};
pub use sandbox::AgentSandboxSettings;
pub use server::ReplayReader;
pub use source::{AgentLaunchPlan, AgentLookupResult, AgentResolver, InstallPolicy};

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use server::{AgentServer, Phase};

/// Maximum length in bytes of a server id.
pub(crate) const MAX_AGENT_SERVER_ID_BYTES: usize = 256;
/// Default for how long a request waits without output from the agent.
pub(crate) const AGENT_SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// The settings of a gateway: its agents and its limits.
#[derive(Clone, Debug)]
pub struct AgentGatewaySettings {
    pub agents: AgentResolver,
    pub sandbox: AgentSandboxSettings,
    pub replay: ReplayLimits,
    /// How long a request waits without output from the agent. While the agent waits for the
    /// client, this time does not count.
    pub request_timeout: Duration,
    /// Time limit on a whole request. `None` for no limit.
    pub total_timeout: Option<Duration>,
    pub max_servers: usize,
    /// Maximum number of pending requests of one server.
    pub max_requests: usize,
    /// Maximum length in bytes of a line from an agent. A longer line ends the agent.
    pub max_line_bytes: usize,
}

impl AgentGatewaySettings {
    pub fn new(agents: AgentResolver, sandbox: AgentSandboxSettings) -> AgentGatewaySettings {
        AgentGatewaySettings {
            agents,
            sandbox,
            replay: ReplayLimits::default(),
            request_timeout: AGENT_SILENCE_TIMEOUT,
            total_timeout: None,
            max_servers: 256,
            max_requests: 1024,
            max_line_bytes: 32 * 1024 * 1024,
        }
    }
}

/// The result of posting a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostMessageOutcome {
    /// The agent's response, unchanged.
    Response(Bytes),
    /// The message was a notification or a response and was forwarded.
    Accepted,
}

/// An agent server as `list_servers` reports it.
#[derive(Clone, Debug)]
pub struct AgentServerStatus {
    pub id: String,
    /// The agent's name, as the first request gave it.
    pub agent: String,
    pub created: SystemTime,
    pub state: AgentServerState,
}

/// Whether the process of an agent server is starting, running, or has ended.
#[derive(Clone, Debug)]
pub enum AgentServerState {
    Starting,
    Running,
    Exited(Arc<AgentExit>),
}

/// All agent servers of a gateway, by the id that clients chose. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentGateway {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Arc<AgentGatewaySettings>,
    servers: Mutex<BTreeMap<String, Arc<AgentServer>>>,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl AgentGateway {
    pub fn new(settings: AgentGatewaySettings) -> AgentGateway {
        let inner = Inner {
            settings: Arc::new(settings),
            servers: Mutex::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        };
        AgentGateway { inner: Arc::new(inner) }
    }

    pub fn settings(&self) -> &AgentGatewaySettings {
        &self.inner.settings
    }

    /// Forwards one JSON-RPC message to the server `id`. If the message is a request, waits for the
    /// response. The first message to an id names the agent, and the gateway then starts this
    /// agent.
    ///
    /// # Errors
    ///
    /// See [`AgentGatewayError`]. A body that is not a message does not start an agent.
    pub async fn post_message(
        &self,
        id: &str,
        agent: Option<&str>,
        body: &[u8],
    ) -> Result<PostMessageOutcome, AgentGatewayError> {
        check_id(id)?;
        let envelope = RpcMessageKind::parse(body)
            .map_err(|error| AgentGatewayError::InvalidMessage { why: error.to_string() })?;
        if envelope == RpcMessageKind::Other {
            let why = "it has neither a method nor an id".to_owned();
            return Err(AgentGatewayError::InvalidMessage { why });
        }
        let server = self.server(id, agent)?;
        server.post(envelope, body).await
    }

    /// Returns the server and starts it if necessary.
    fn server(&self, id: &str, agent: Option<&str>) -> Result<Arc<AgentServer>, AgentGatewayError> {
        let settings = &self.inner.settings;
        let agent_id = match agent {
            Some(agent) => match settings.agents.find_agent_id(agent) {
                Some(id) => Some((agent, id)),
                None => return Err(AgentGatewayError::UnknownAgent { agent: agent.to_owned() }),
            },
            None => None,
        };
        if self.inner.closing.is_cancelled() {
            return Err(AgentGatewayError::Closed);
        }
        let mut servers = self.servers();
        if let Some(server) = servers.get(id) {
            if let Some((asked, agent_id)) = agent_id {
                if agent_id != server.agent_id {
                    let (bound, asked) = (server.agent.clone(), asked.to_owned());
                    return Err(AgentGatewayError::AgentMismatch { bound, asked });
                }
                if server.restart() {
                    self.start(server);
                }
            }
            return Ok(Arc::clone(server));
        }
        let Some((agent, agent_id)) = agent_id else { return Err(AgentGatewayError::MissingAgent) };
        if servers.len() >= settings.max_servers {
            return Err(AgentGatewayError::TooManyServers { bound: settings.max_servers });
        }
        let place = settings.sandbox.place().map_err(|error| AgentGatewayError::NotStarted {
            agent: agent.to_owned(),
            why: error.to_string(),
        })?;
        let server = AgentServer::new(id, agent, agent_id, place, Arc::clone(settings));
        let server = Arc::new(server);
        servers.insert(id.to_owned(), Arc::clone(&server));
        self.start(&server);
        Ok(server)
    }

    /// Starts the task of a server's process.
    fn start(&self, server: &Arc<AgentServer>) {
        let (gateway, server) = (self.clone(), Arc::clone(server));
        self.inner.tasks.spawn(async move {
            process::run(&server, &gateway.inner.settings).await;
            let is_gone = matches!(&*server.phase.borrow(), Phase::Gone(_));
            if is_gone {
                gateway.forget(&server);
                server.place.remove().await;
            }
        });
    }

    /// Removes a server from the list, unless a newer server already has its id.
    fn forget(&self, server: &Arc<AgentServer>) {
        server.closing.cancel();
        let mut servers = self.servers();
        if servers.get(&server.id).is_some_and(|listed| Arc::ptr_eq(listed, server)) {
            servers.remove(&server.id);
        }
    }

    /// Reads the events of a server, starting after the given event id, or at the oldest event.
    ///
    /// # Errors
    ///
    /// Fails if there is no server with this id.
    pub fn subscribe_to_messages(
        &self,
        id: &str,
        last_event_id: Option<u64>,
    ) -> Result<ReplayReader, AgentGatewayError> {
        let server = self.servers().get(id).cloned().ok_or(AgentGatewayError::UnknownServer)?;
        Ok(server.subscribe(last_event_id))
    }

    /// Ends the server's process and everything that it started. An unknown id is ignored.
    pub async fn delete_server(&self, id: &str) {
        let Some(server) = self.servers().remove(id) else { return };
        self.close_server(&server).await;
    }

    async fn close_server(&self, server: &Arc<AgentServer>) {
        server.closing.cancel();
        let mut phases = server.phase.subscribe();
        // If the process has already ended, its task has ended too and cannot remove the
        // directories. They are removed here instead.
        let has_ended = server.phase.send_if_modified(|phase| {
            let has_ended = matches!(phase, Phase::Ended(_));
            if has_ended {
                *phase = Phase::Gone(AgentGatewayError::Closed);
            }
            has_ended
        });
        if has_ended {
            server.place.remove().await;
            return;
        }
        // Waiting fails only if the server is already gone.
        let _ = phases.wait_for(|phase| matches!(phase, Phase::Gone(_))).await;
    }

    /// All servers, by id.
    pub fn list_servers(&self) -> Vec<AgentServerStatus> {
        let servers = self.servers();
        let status = |server: &Arc<AgentServer>| {
            let state = match &*server.phase.borrow() {
                Phase::Starting => AgentServerState::Starting,
                Phase::Running(_) => AgentServerState::Running,
                Phase::Ended(end) => AgentServerState::Exited(Arc::clone(end)),
                Phase::Gone(_) => return None,
            };
            Some(AgentServerStatus {
                id: server.id.clone(),
                agent: server.agent.clone(),
                created: server.created,
                state,
            })
        };
        servers.values().filter_map(status).collect()
    }

    /// Ends every server and waits until all of them have been removed. No new servers are started.
    pub async fn close(&self) {
        self.inner.closing.cancel();
        let servers = std::mem::take(&mut *self.servers());
        futures_util::future::join_all(servers.values().map(|server| self.close_server(server)))
            .await;
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<String, Arc<AgentServer>>> {
        self.inner.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_id(id: &str) -> Result<(), AgentGatewayError> {
    if id.is_empty() || id.len() > MAX_AGENT_SERVER_ID_BYTES {
        return Err(AgentGatewayError::InvalidServerId { longest: MAX_AGENT_SERVER_ID_BYTES });
    }
    Ok(())
}
