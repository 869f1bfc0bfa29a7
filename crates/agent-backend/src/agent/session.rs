//! Agents and their sessions. A definition is shared by many sessions, and each session has at most
//! one backend.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::backend::OverlayWorkspace;
use ab_core::process::PathRestrictions;
use ab_core::{
    Backend, Error, ErrorCode, ErrorKind, NarrowOptions, Principal, PrincipalKind, Result, WsPath,
};
use ab_mcp::FilesReadTracker;
use serde_json::Value;

use super::approval::{self, ToolApproval};
use super::context::{AgentSessionId, SessionContext};
use super::factory::{BackendFactory, SessionBackend};
use super::overflow::ResultStore;
use super::places::ToolPlaces;
use super::tool::AgentTool;
use super::tools::AgentTools;
use super::toolset::{SessionToolset, Toolset};

/// Default time limit for a factory to make a backend.
pub const DEFAULT_FACTORY_TIMEOUT: Duration = Duration::from_secs(60);

/// What all sessions of an agent have in common, such as factory and tools. Cheap to clone.
#[derive(Clone)]
pub struct AgentDefinition(Arc<Definition>);

/// Makes a tool for a session.
type MakeTool = dyn Fn(&AgentSession) -> AgentTool + Send + Sync;

struct Definition {
    factory: Option<Arc<dyn BackendFactory>>,
    factory_timeout: Duration,
    toolsets: Vec<Arc<dyn Toolset>>,
    tools: Vec<Arc<MakeTool>>,
    instructions: Option<String>,
    approval: Option<ToolApproval>,
}

impl AgentDefinition {
    /// Starts to build a definition, at first without a backend and without tools.
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

    /// Starts a session. If the definition has a factory, it is called once and its backend is
    /// attached.
    ///
    /// Dropping the future cancels the factory, and no session is started.
    ///
    /// # Errors
    ///
    /// Returns the error of the factory, or `TIMEOUT` if the factory took longer than the
    /// definition allows.
    pub async fn start(&self, options: SessionOptions) -> Result<AgentSession> {
        self.start_with(options, Inherited::default()).await
    }

    async fn start_with(
        &self,
        options: SessionOptions,
        inherited: Inherited,
    ) -> Result<AgentSession> {
        let session = AgentSession::new(self, options, inherited);
        let Some(factory) = &self.0.factory else { return Ok(session) };
        let time_limit = self.0.factory_timeout;
        let made =
            tokio::time::timeout(time_limit, factory.make_backend(session.context().clone()));
        let made = made.await.unwrap_or_else(|_| {
            let message = format!(
                "no backend for session {}: the factory took longer than {time_limit:?}",
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

    /// Adds your own tool.
    pub fn tool(self, tool: AgentTool) -> Self {
        self.tool_for_session(move |_| tool.clone())
    }

    /// Adds your own tool that needs the session, for example to use its backend or to start a
    /// sub-agent. `make` is called for each session when its tools are listed.
    pub fn tool_for_session<F>(mut self, make: F) -> Self
    where
        F: Fn(&AgentSession) -> AgentTool + Send + Sync + 'static,
    {
        self.0.tools.push(Arc::new(make));
        self
    }

    /// Sets the tools that need a person's approval before they run, in sessions of this definition and
    /// in all sub-agents that they start.
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

/// Options for a new or resumed session. The default is a new session.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The id of the session. If absent, it is generated.
    pub session_id: Option<AgentSessionId>,
    pub snapshot_id: Option<String>,
    /// The principal of the session. If absent, an agent that is named after the session's id.
    pub principal: Option<Principal>,
    /// Any information for the backend factory.
    pub context: Value,
}

impl SessionOptions {
    /// Options for the session with this id, new or resumed.
    pub fn for_session(id: AgentSessionId) -> Self {
        Self { session_id: Some(id), ..Self::default() }
    }
}

/// The workspace of a sub-agent.
#[derive(Clone, Debug)]
pub enum SubAgentBackend {
    /// The workspace of the parent session.
    Inherit,
    /// The workspace of the parent session, read-only. Commands are not available, because a
    /// command without isolation could change files. Only long results of tools are written, to
    /// [`LONG_OUTPUT_DIRECTORY`](super::LONG_OUTPUT_DIRECTORY).
    ReadOnly,
    /// Only this directory of the parent's workspace.
    Scope(String),
    /// Only this directory of the parent's workspace, read-only and without commands.
    ReadOnlyScope(String),
    /// The backend that the factory of the sub-agent's own definition makes.
    FromOwnFactory,
}

/// One conversation of an agent, with its workspace. Cheap to clone: clones are the same session.
#[derive(Clone)]
pub struct AgentSession(Arc<Session>);

struct Session {
    definition: AgentDefinition,
    context: SessionContext,
    attached: Mutex<Option<Arc<SessionBackend>>>,
    ledger: Arc<FilesReadTracker>,
    places: Arc<ToolPlaces>,
    inherited: Inherited,
}

/// What a sub-agent inherits from its parent session: approvals, restrictions and directory.
#[derive(Debug, Default)]
struct Inherited {
    parent: Option<AgentSessionId>,
    approvals: Vec<ToolApproval>,
    /// The directory of the sub-agent, relative to the workspace of the outermost session.
    directory: WsPath,
    access: SubAgentAccess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SubAgentAccess {
    #[default]
    Full,
    ReadOnly,
}

impl AgentSession {
    fn new(definition: &AgentDefinition, options: SessionOptions, inherited: Inherited) -> Self {
        let SessionOptions { session_id, snapshot_id, principal, context } = options;
        let session_id = session_id.unwrap_or_else(AgentSessionId::generate);
        let principal =
            principal.unwrap_or_else(|| Principal::new(PrincipalKind::Agent, session_id.as_str()));
        let parent = inherited.parent.clone();
        Self(Arc::new(Session {
            definition: definition.clone(),
            context: SessionContext { session_id, snapshot_id, principal, parent, context },
            attached: Mutex::default(),
            ledger: Arc::default(),
            places: Arc::default(),
            inherited,
        }))
    }

    pub fn id(&self) -> &AgentSessionId {
        &self.0.context.session_id
    }

    /// The description of the session that its factory received.
    pub fn context(&self) -> &SessionContext {
        &self.0.context
    }

    fn attached(&self) -> MutexGuard<'_, Option<Arc<SessionBackend>>> {
        self.0.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a backend to the session. The session uses it as its own principal, through a
    /// handle that cannot destroy it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the session already has a backend. Also fails if `backend` was
    /// destroyed.
    pub fn attach_backend(&self, backend: impl Into<SessionBackend>) -> Result<()> {
        let mut attaching: SessionBackend = backend.into();
        let narrow = |backend: &Backend| {
            backend.narrow(NarrowOptions::for_actor(self.0.context.principal.clone()))
        };
        attaching.result_storage = attaching.result_storage.as_ref().map(narrow).transpose()?;
        attaching.backend = narrow(&attaching.backend)?;
        let mut attached = self.attached();
        if attached.is_some() {
            let message = format!("session {} already has a backend", self.id());
            return Err(Error::new(ErrorCode::Conflict, ErrorKind::Conflict, message)
                .with_hint("start another session for another backend"));
        }
        *attached = Some(Arc::new(attaching));
        Ok(())
    }

    /// The backend of the session, if it has one. If the backend comes from a pool, only the
    /// session, its tools and its sub-agents keep it in use. The returned handle does not.
    pub fn backend(&self) -> Option<Backend> {
        self.attached().as_ref().map(|attached| attached.backend.clone())
    }

    /// The backend of the session.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if no backend was attached.
    pub fn require_backend(&self) -> Result<Backend> {
        self.backend().ok_or_else(|| {
            let message = format!("session {} has no backend", self.id());
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Unavailable, message)
                .with_hint("give the definition a factory, or attach a backend to the session")
        })
    }

    /// The overlay with the changes of the session, if its factory stores changes in a separate
    /// layer.
    pub fn overlay(&self) -> Option<OverlayWorkspace> {
        self.attached().as_ref().and_then(|attached| attached.overlay.clone())
    }

    /// The current tools of the session. Tools that the backend does not support are omitted.
    ///
    /// # Errors
    ///
    /// Fails if a toolset needs a backend and there is none, or if a toolset's directory is outside
    /// the workspace. Also fails if two tools have the same name, if the schema of a tool is
    /// invalid, or if an approval names a tool that does not exist.
    pub async fn tools(&self) -> Result<AgentTools> {
        let definition = &self.0.definition.0;
        let mut opened = vec![SessionToolset {
            tools: definition.tools.iter().map(|make| make(self)).collect(),
            instructions: definition.instructions.clone(),
        }];
        for toolset in &definition.toolsets {
            opened.push(toolset.open(self).await?);
        }
        let instructions = opened.iter_mut().filter_map(|set| set.instructions.take()).collect();
        let tools: Vec<AgentTool> = opened.into_iter().flat_map(|set| set.tools).collect();
        if let Some(approval) = &definition.approval {
            approval.check_names(&tools)?;
        }
        self.0.places.set(&tools);
        let attached = self.attached().clone();
        let storage = attached.as_ref().map(|attached| attached.result_storage().clone());
        let results = ResultStore::of(storage, &self.0.places);
        let tools = tools.iter().map(|tool| {
            let tool = results.bounded(tool);
            let tool = match &attached {
                Some(attached) => tool.keeping(attached.clone()),
                None => tool,
            };
            approval::asking_first(self, &tool)
        });
        AgentTools::assemble(tools.collect(), instructions)
    }

    /// The approvals of the parent sessions, the outermost first.
    pub(super) fn inherited_approvals(&self) -> &[ToolApproval] {
        &self.0.inherited.approvals
    }

    /// The approval of the session's own definition.
    pub(super) fn own_approval(&self) -> Option<&ToolApproval> {
        self.0.definition.0.approval.as_ref()
    }

    /// The directory of this session, relative to the workspace of the outermost session.
    pub(super) fn directory(&self) -> &WsPath {
        &self.0.inherited.directory
    }

    /// Whether this session or one of its parents was started as read-only.
    pub(super) fn is_read_only(&self) -> bool {
        self.0.inherited.access == SubAgentAccess::ReadOnly
    }

    /// The tools of this session and their directories.
    pub(super) fn places(&self) -> Arc<ToolPlaces> {
        self.0.places.clone()
    }

    /// Starts a session of `definition` as a sub-agent of this one. The approvals of this session
    /// also apply to the tools of the sub-agent. They are asked before the approvals of
    /// `definition`.
    ///
    /// # Errors
    ///
    /// The same as for [`AgentDefinition::start`]. If the sub-agent uses the workspace of this
    /// session, also fails if this session has no backend, or if the directory is outside the
    /// workspace.
    pub async fn start_sub_agent(
        &self,
        definition: &AgentDefinition,
        place: SubAgentBackend,
        options: SessionOptions,
    ) -> Result<AgentSession> {
        let own = self.own_approval();
        let mut inherited = Inherited {
            parent: Some(self.id().clone()),
            approvals: self.inherited_approvals().iter().chain(own).cloned().collect(),
            directory: WsPath::root(),
            access: SubAgentAccess::Full,
        };
        let (directory, access) = match place {
            SubAgentBackend::FromOwnFactory => {
                return definition.start_with(options, inherited).await;
            }
            SubAgentBackend::Inherit => (None, self.0.inherited.access),
            SubAgentBackend::ReadOnly => (None, SubAgentAccess::ReadOnly),
            SubAgentBackend::Scope(path) => (Some(path), self.0.inherited.access),
            SubAgentBackend::ReadOnlyScope(path) => (Some(path), SubAgentAccess::ReadOnly),
        };
        let mut backend = self.require_backend()?;
        let attached = self.attached().clone();
        let mut storage = attached.as_ref().map(|attached| attached.result_storage().clone());
        inherited.directory = self.directory().clone();
        if let Some(path) = directory {
            inherited.directory = inherited.directory.join(&backend.parse_path(&path)?);
            backend = backend.scope(&path, Default::default())?;
            let scope = |storage: Backend| storage.scope(&path, Default::default());
            storage = storage.map(scope).transpose()?;
        }
        inherited.access = access;
        if access == SubAgentAccess::ReadOnly {
            let read_only = vec![WsPath::root()];
            backend =
                backend.restrict(PathRestrictions { read_only, ..PathRestrictions::default() })?;
        } else {
            storage = None;
        }
        let session = AgentSession::new(definition, options, inherited);
        match attached {
            Some(parent) => {
                session.attach_backend(SessionBackend::part_of(parent, backend, storage))?;
            }
            None => session.attach_backend(backend)?,
        }
        Ok(session)
    }

    /// Records which files the tools of this session have read.
    pub(super) fn ledger(&self) -> Arc<FilesReadTracker> {
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
