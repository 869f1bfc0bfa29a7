//! The tools of a workspace, which can be called without a transport. Each file contains one family
//! of tools: their arguments, their work and their answers.

pub(crate) mod boundary;
pub(crate) mod delete;
pub(crate) mod directories;
pub(crate) mod edit;
pub(crate) mod exec;
pub(crate) mod grep;
pub(crate) mod ignored;
pub(crate) mod info;
pub(crate) mod media;
pub(crate) mod output;
pub(crate) mod processes;
pub(crate) mod read;
pub(crate) mod relocate;
pub(crate) mod search;
pub(crate) mod several;
pub(crate) mod tree;
pub(crate) mod write;

use std::fmt;
use std::sync::Arc;

use ab_core::{Backend, WsPath};
use rmcp::model::{CallToolRequestParams, CallToolResult, ErrorData, JsonObject, Tool};
use tokio::sync::Semaphore;

use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::bounds::{DEFAULT_MAX_RESULT_BYTES, MAX_CONCURRENT_CALLS, MAX_RESULT_BYTES_ON_REQUEST};
use crate::briefing::InForce;
use crate::catalog::{self, Name, ToolFamily, With};
use crate::failure::Failure;
use crate::files_read_tracker::{FilesReadTracker, LedgerView};
use crate::outgoing::Outgoing;
use crate::output_file_store::OutputFileStore;
use crate::progress::Progress;

pub(crate) type Outcome = Result<ToolAnswer, Failure>;

/// The tools of a workspace and their calls. Cheap to clone: clones share their limits.
/// [`McpServer`](crate::McpServer) and [`McpHttpEndpoint`](crate::McpHttpEndpoint) are built on it.
#[derive(Clone)]
pub struct WorkspaceTools {
    workspace: Workspace,
    offered: Arc<[(Name, Tool)]>,
    slots: Arc<Semaphore>,
    outgoing: Outgoing,
    in_force: InForce,
    ledger: Option<LedgerView>,
    saved_output: Option<OutputFileStore>,
    max_requested_bytes: usize,
    name_prefix: Arc<str>,
}

/// The workspace that the tools use.
#[derive(Clone, Debug)]
enum Workspace {
    This(Backend),
    /// The workspace that came with each HTTP request.
    OfRequest,
}

impl WorkspaceTools {
    /// Creates the tools that `backend` supports.
    pub fn new(backend: Backend) -> WorkspaceTools {
        let offered = catalog::offered(&backend.info());
        WorkspaceTools::assembled(Workspace::This(backend), offered)
    }

    /// Creates the tools that `backend` supports. Each call uses the backend that came with its
    /// HTTP request.
    pub(crate) fn of_requests(backend: &Backend) -> WorkspaceTools {
        WorkspaceTools::assembled(Workspace::OfRequest, catalog::offered(&backend.info()))
    }

    fn assembled(workspace: Workspace, offered: Arc<[(Name, Tool)]>) -> WorkspaceTools {
        let slots = Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS));
        let (outgoing, in_force) = (Outgoing::new(), InForce::default());
        WorkspaceTools {
            workspace,
            offered,
            slots,
            outgoing,
            in_force,
            ledger: None,
            saved_output: None,
            max_requested_bytes: MAX_RESULT_BYTES_ON_REQUEST,
            name_prefix: Arc::default(),
        }
    }

    /// Keeps only the tools of these families.
    pub fn only_families(mut self, families: &[ToolFamily]) -> WorkspaceTools {
        let kept = self.offered.iter().filter(|(name, _)| families.contains(&name.family()));
        self.offered = kept.cloned().collect();
        self
    }

    /// Whether `name` is the name of a tool, in any kind of workspace.
    pub fn is_tool_name(name: &str) -> bool {
        catalog::is_name(name)
    }

    /// The family of a tool. It says what the tool can do. `None` for a name that is not offered.
    pub fn family_of_tool(&self, name: &str) -> Option<ToolFamily> {
        let found = self.offered.iter().find(|(offered, _)| offered.as_str() == name);
        found.map(|(name, _)| name.family())
    }

    /// Requires that the caller has read a file before it overwrites or edits the file. `ledger`
    /// records the files of a workspace. `root` is the path of these tools' root directory in this
    /// workspace.
    pub fn require_read_before_write(
        mut self,
        ledger: Arc<FilesReadTracker>,
        root: WsPath,
    ) -> WorkspaceTools {
        self.ledger = Some(LedgerView::new(ledger, root));
        self
    }

    /// Stores long output of commands in files.
    pub fn save_long_output_in(mut self, place: OutputFileStore) -> WorkspaceTools {
        self.saved_output = Some(place);
        self
    }

    /// Limits all results to [`DEFAULT_MAX_RESULT_BYTES`] of text, even if the caller requests more
    /// lines.
    pub fn limit_all_result_sizes(mut self) -> WorkspaceTools {
        self.max_requested_bytes = DEFAULT_MAX_RESULT_BYTES;
        self
    }

    /// Adds this prefix to the names of tools in descriptions, hints and notes, for a caller that
    /// knows the tools under prefixed names. [`list_tools`](Self::list_tools) and
    /// [`call_tool`](Self::call_tool) use the names without the prefix.
    pub fn with_tool_name_prefix(mut self, prefix: &str) -> WorkspaceTools {
        self.name_prefix = Arc::from(prefix);
        self
    }

    /// The same tools with the same limits, for another backend.
    pub(crate) fn over(&self, backend: Backend) -> WorkspaceTools {
        WorkspaceTools { workspace: Workspace::This(backend), ..self.clone() }
    }

    /// The same tools for the workspace that came with an HTTP request. If the tools have their own
    /// workspace, they keep it.
    pub(crate) fn over_request(&self, backend: Option<&Backend>) -> WorkspaceTools {
        match (&self.workspace, backend) {
            (Workspace::OfRequest, Some(backend)) => self.over(backend.clone()),
            (Workspace::OfRequest, None) | (Workspace::This(_), _) => self.clone(),
        }
    }

    /// The tools as clients see them. The description of `exec` says how commands are isolated.
    pub async fn list_tools(&self) -> Vec<Tool> {
        let mut tools: Vec<Tool> = self.offered().cloned().collect();
        let exec = tools.iter_mut().find(|tool| tool.name == catalog::EXEC);
        if let (Some(exec), Ok(backend)) = (exec, self.backend()) {
            exec.description = Some(self.in_force.description(backend).await.into());
        }
        if !self.name_prefix.is_empty() {
            for tool in &mut tools {
                catalog::prefix_texts(tool, &self.name_prefix);
            }
        }
        tools
    }

    /// Calls a tool. A failed call returns a result that a model can read, with `is_error` set.
    ///
    /// Dropping the future ends the call and the process that it started.
    ///
    /// # Errors
    /// Fails if there is no tool called `name`.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: JsonObject,
    ) -> Result<CallToolResult, ErrorData> {
        let request = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        let mut answer = match self.outcome(request, None).await? {
            Ok(answer) => answer,
            Err(failure) => return self.failed(failure).await,
        };
        let weight = answer.weight();
        let _room = match answer.take_room() {
            Some(room) => Some(room),
            None => match self.outgoing.hold(weight).await {
                Ok(room) => room,
                Err(crowded) => return self.failed(crowded.into()).await,
            },
        };
        Ok(self.outgoing.aside(weight, || answer.into_result()).await)
    }

    /// The tools. Their descriptions do not say how commands are isolated.
    pub(crate) fn offered(&self) -> impl Iterator<Item = &Tool> {
        self.offered.iter().map(|(_, tool)| tool)
    }

    /// The limits on memory and threads for large answers.
    pub(crate) fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// Runs a call and returns its answer or its failure.
    pub(crate) async fn outcome(
        &self,
        request: CallToolRequestParams,
        progress: Option<Progress>,
    ) -> Result<Outcome, ErrorData> {
        let found = self.offered.iter().find(|(name, _)| name.as_str() == request.name);
        let Some((name, _)) = found else {
            let called: String = request.name.chars().take(100).collect();
            let message = format!("unknown tool: {}", ab_core::error::escape_unprintable(&called));
            return Err(ErrorData::invalid_params(message, None));
        };
        Ok(self.attempt(self.backend()?, *name, request, progress).await)
    }

    /// Converts a failure to the result of the call.
    pub(crate) async fn failed(&self, failure: Failure) -> Result<CallToolResult, ErrorData> {
        Ok(failure.into_result(self.backend()?, &self.name_prefix).await)
    }

    fn backend(&self) -> Result<&Backend, ErrorData> {
        match &self.workspace {
            Workspace::This(backend) => Ok(backend),
            Workspace::OfRequest => {
                Err(ErrorData::internal_error("the request came without a workspace", None))
            }
        }
    }

    async fn attempt(
        &self,
        backend: &Backend,
        name: Name,
        request: CallToolRequestParams,
        progress: Option<Progress>,
    ) -> Outcome {
        let arguments = request.arguments.unwrap_or_default();
        let arguments = Arguments::new(name.as_str(), name.properties(), arguments)?;
        let _slot = if name.waits() {
            // These tools may wait until another call has done something. They do not count towards
            // the limit on concurrent calls, because the other call must be able to run.
            None
        } else {
            match self.slots.acquire().await {
                Ok(slot) => Some(slot),
                Err(_) => return Err(Failure::misuse("the server is closing")),
            }
        };
        let with = With {
            progress,
            outgoing: &self.outgoing,
            in_force: &self.in_force,
            ledger: self.ledger.as_ref(),
            saved_output: self.saved_output.as_ref(),
            max_requested_bytes: self.max_requested_bytes,
            name_prefix: &self.name_prefix,
        };
        let answer = name.call(backend, arguments, with).await?;
        Ok(answer.map_note(|note| catalog::prefixed(note, &self.name_prefix)))
    }
}

impl fmt::Debug for WorkspaceTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkspaceTools").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}
