//! Agents and their sessions: a definition is made once, a session has at most one backend.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::backend::OverlayWorkspace;
use ab_core::{
    Backend, Error, ErrorCode, ErrorKind, NarrowOptions, Principal, PrincipalKind, Result,
};
use ab_mcp::ReadLedger;
use serde_json::Value;

use super::approval::ToolApproval;
use super::context::{AgentSessionId, SessionContext};
use super::factory::{AttachedBackend, BackendFactory};
use super::overflow;
use super::tool::AgentTool;
use super::tools::AgentTools;
use super::toolset::{OpenedToolset, Toolset};

/// Default time limit of a factory.
pub const DEFAULT_FACTORY_TIMEOUT: Duration = Duration::from_secs(60);

/// What all sessions of an agent have in common. Cheap to clone.
#[derive(Clone)]
pub struct AgentDefinition(Arc<Definition>);

struct Definition {
    factory: Option<Arc<dyn BackendFactory>>,
    factory_timeout: Duration,
    toolsets: Vec<Arc<dyn Toolset>>,
    tools: Vec<AgentTool>,
    instructions: Option<String>,
    approval: Option<ToolApproval>,
}

impl AgentDefinition {
    /// A definition without a backend and without tools.
    pub fn builder() -> AgentDefinitionBuilder {
        AgentDefinitionBuilder(Definition {
            factory: None,
            factory_timeout: DEFAULT_FACTORY_TIMEOUT,
            toolsets: Vec::new(),
            tools: Vec::new(),
            instructions: None,
            approval: None,
        })
    }

    /// Starts a session. The factory, if there is one, is called once and its backend is attached.
    ///
    /// Dropping the future ends the factory's work and starts no session.
    ///
    /// # Errors
    ///
    /// The error of the factory, or `TIMEOUT` if it took longer than the definition allows.
    pub async fn start(&self, options: SessionOptions) -> Result<AgentSession> {
        self.start_below(options, None).await
    }

    async fn start_below(
        &self,
        options: SessionOptions,
        parent: Option<AgentSessionId>,
    ) -> Result<AgentSession> {
        let session = AgentSession::new(self, options, parent);
        let Some(factory) = &self.0.factory else { return Ok(session) };
        let patience = self.0.factory_timeout;
        let made = tokio::time::timeout(patience, factory.make_backend(session.context().clone()));
        let made = made.await.unwrap_or_else(|_| {
            let message = format!(
                "no backend for session {}: the factory took longer than {patience:?}",
                session.id()
            );
            Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message))
        });
        session.attach_backend(made?)?;
        Ok(session)
    }
}

impl fmt::Debug for AgentDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentDefinition")
            .field("has_backend", &self.0.factory.is_some())
            .field("toolsets", &self.0.toolsets)
            .finish_non_exhaustive()
    }
}

pub struct AgentDefinitionBuilder(Definition);

impl AgentDefinitionBuilder {
    /// Sets the factory that makes the backend of each session. Without it sessions start without a
    /// backend.
    pub fn backend(mut self, factory: impl BackendFactory + 'static) -> Self {
        self.0.factory = Some(Arc::new(factory));
        self
    }

    pub fn factory_timeout(mut self, timeout: Duration) -> Self {
        self.0.factory_timeout = timeout;
        self
    }

    pub fn toolset(mut self, toolset: impl Toolset + 'static) -> Self {
        self.0.toolsets.push(Arc::new(toolset));
        self
    }

    /// Adds your own tool to those of the toolsets. If its result is too long for a model, it is
    /// stored in a file of the session's backend.
    pub fn tool(mut self, tool: AgentTool) -> Self {
        self.0.tools.push(tool);
        self
    }

    /// Sets the tools that need a person's approval before they run.
    pub fn approval(mut self, approval: ToolApproval) -> Self {
        self.0.approval = Some(approval);
        self
    }

    /// Sets the system instructions of the agent.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.0.instructions = Some(text.into());
        self
    }

    pub fn build(self) -> AgentDefinition {
        AgentDefinition(Arc::new(self.0))
    }
}

impl fmt::Debug for AgentDefinitionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentDefinitionBuilder")
            .field("toolsets", &self.0.toolsets)
            .finish_non_exhaustive()
    }
}

/// Which session to start. The default is a new one.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The id; generated if absent.
    pub session_id: Option<AgentSessionId>,
    pub snapshot_id: Option<String>,
    /// The principal; if absent, an agent named by the session's id.
    pub principal: Option<Principal>,
    /// Any information for the factory.
    pub context: Value,
}

impl SessionOptions {
    /// The session with this id, new or resumed.
    pub fn for_session(id: AgentSessionId) -> Self {
        Self { session_id: Some(id), ..Self::default() }
    }
}

/// The workspace of a sub-agent.
#[derive(Clone, Debug)]
pub enum SubAgentBackend {
    /// The workspace of the parent session.
    Inherit,
    /// A directory of the parent's workspace, and nothing else.
    Scope(String),
    /// The backend from the factory of its own definition.
    Own,
}

/// One conversation of an agent, with its workspace. Cheap to clone; clones are the same session.
#[derive(Clone)]
pub struct AgentSession(Arc<Session>);

struct Session {
    definition: AgentDefinition,
    context: SessionContext,
    attached: Mutex<Option<AttachedBackend>>,
    ledger: Arc<ReadLedger>,
}

impl AgentSession {
    fn new(
        definition: &AgentDefinition,
        options: SessionOptions,
        parent: Option<AgentSessionId>,
    ) -> Self {
        let SessionOptions { session_id, snapshot_id, principal, context } = options;
        let session_id = session_id.unwrap_or_else(AgentSessionId::generate);
        let principal =
            principal.unwrap_or_else(|| Principal::new(PrincipalKind::Agent, session_id.as_str()));
        Self(Arc::new(Session {
            definition: definition.clone(),
            context: SessionContext { session_id, snapshot_id, principal, parent, context },
            attached: Mutex::default(),
            ledger: Arc::default(),
        }))
    }

    pub fn id(&self) -> &AgentSessionId {
        &self.0.context.session_id
    }

    /// The description that the factory got.
    pub fn context(&self) -> &SessionContext {
        &self.0.context
    }

    fn attached(&self) -> MutexGuard<'_, Option<AttachedBackend>> {
        self.0.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a backend to the session. The session acts on it as its own principal, through a
    /// handle that cannot destroy it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the session already has one, and an error if `backend` was
    /// destroyed.
    pub fn attach_backend(&self, backend: impl Into<AttachedBackend>) -> Result<()> {
        let mut attaching: AttachedBackend = backend.into();
        let actor = self.0.context.principal.clone();
        attaching.backend = attaching.backend.narrow(NarrowOptions::for_actor(actor))?;
        let mut attached = self.attached();
        if attached.is_some() {
            let message = format!("session {} has a backend already", self.id());
            return Err(Error::new(ErrorCode::Conflict, ErrorKind::Conflict, message)
                .with_hint("start another session for another backend"));
        }
        *attached = Some(attaching);
        Ok(())
    }

    /// The backend of the session, if it has one.
    pub fn backend(&self) -> Option<Backend> {
        self.attached().as_ref().map(|attached| attached.backend.clone())
    }

    /// The backend of the session.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if none was attached.
    pub fn require_backend(&self) -> Result<Backend> {
        self.backend().ok_or_else(|| {
            let message = format!("session {} has no backend", self.id());
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Unavailable, message)
                .with_hint("give the definition a factory, or attach a backend to the session")
        })
    }

    /// The changes of the session, if its factory stores them in a separate layer.
    pub fn overlay(&self) -> Option<OverlayWorkspace> {
        self.attached().as_ref().and_then(|attached| attached.overlay.clone())
    }

    /// The current tools of the session. Tools that the backend does not support are left out.
    ///
    /// # Errors
    ///
    /// A toolset needs a backend and there is none, its directory is outside the workspace, two
    /// tools have the same name, or an approval names a tool that does not exist.
    pub async fn tools(&self) -> Result<AgentTools> {
        let definition = &self.0.definition.0;
        let mut opened = vec![OpenedToolset {
            tools: definition
                .tools
                .iter()
                .map(|tool| overflow::bounded(tool, self.backend()))
                .collect(),
            instructions: definition.instructions.clone(),
        }];
        for toolset in &definition.toolsets {
            opened.push(toolset.open(self).await?);
        }
        let instructions = opened.iter_mut().filter_map(|set| set.instructions.take()).collect();
        let mut tools: Vec<AgentTool> = opened.into_iter().flat_map(|set| set.tools).collect();
        if let Some(approval) = &definition.approval {
            tools = approval.applied(self, tools)?;
        }
        AgentTools::assemble(tools, instructions)
    }

    /// Starts a session of `definition` as a sub-agent of this one.
    ///
    /// # Errors
    ///
    /// Those of [`AgentDefinition::start`]. If the sub-agent uses the workspace of this session:
    /// this session has no backend, or the directory is outside.
    pub async fn start_sub_agent(
        &self,
        definition: &AgentDefinition,
        place: SubAgentBackend,
        options: SessionOptions,
    ) -> Result<AgentSession> {
        let parent = Some(self.id().clone());
        let backend = match place {
            SubAgentBackend::Own => return definition.start_below(options, parent).await,
            SubAgentBackend::Inherit => self.require_backend()?,
            SubAgentBackend::Scope(path) => {
                self.require_backend()?.scope(&path, Default::default())?
            }
        };
        let session = AgentSession::new(definition, options, parent);
        session.attach_backend(backend)?;
        Ok(session)
    }

    /// The files that the tools of this session have read.
    pub(super) fn ledger(&self) -> Arc<ReadLedger> {
        self.0.ledger.clone()
    }
}

impl fmt::Debug for AgentSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSession")
            .field("context", &self.0.context)
            .field("backend", &self.backend())
            .finish()
    }
}
