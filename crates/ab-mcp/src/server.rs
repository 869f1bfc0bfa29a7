//! One workspace as an MCP server: what it says of itself, and its calls.

use std::fmt;
use std::sync::Arc;

use ab_core::Backend;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult,
    ErrorCode, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::Semaphore;

use crate::arguments::Arguments;
use crate::bounds::CALLS_AT_ONCE;
use crate::catalog::{self, Name};
use crate::failure::Failure;
use crate::lines::Gone;
use crate::progress::Progress;
use crate::tools::Outcome;

/// Says what paths mean, since every tool takes one.
const INSTRUCTIONS: &str = "The tools work on one workspace. Paths are taken from its root: \
    'src/main.rs', or '.' for the root itself; nothing outside it can be named. Long results end \
    with a note in brackets that says how to get the rest.";

/// The tools of a workspace. Cheap to clone; clones share their bounds.
#[derive(Clone)]
pub struct Server {
    workspace: Workspace,
    tools: Arc<[(Name, Tool)]>,
    slots: Arc<Semaphore>,
    gone: Option<Gone>,
}

/// Which workspace a call is about.
#[derive(Clone, Debug)]
enum Workspace {
    This(Backend),
    /// The one that came with the HTTP request.
    OfRequest,
}

impl Server {
    pub fn new(backend: Backend) -> Server {
        let tools = catalog::offered(&backend.info());
        Server::assembled(Workspace::This(backend), tools)
    }

    /// With the tools of `backend`, for requests that each bring a view of it.
    pub(crate) fn of_requests(backend: &Backend) -> Server {
        Server::assembled(Workspace::OfRequest, catalog::offered(&backend.info()))
    }

    fn assembled(workspace: Workspace, tools: Arc<[(Name, Tool)]>) -> Server {
        Server { workspace, tools, slots: Arc::new(Semaphore::new(CALLS_AT_ONCE)), gone: None }
    }

    /// The same tools and bounds over `backend`.
    pub(crate) fn over(&self, backend: Backend) -> Server {
        Server { workspace: Workspace::This(backend), ..self.clone() }
    }

    /// The tools that are listed.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.tools.iter().map(|(_, tool)| tool)
    }

    /// For one connection, whose end is the end of its calls.
    pub(crate) fn until(mut self, gone: Gone) -> Server {
        self.gone = Some(gone);
        self
    }

    /// The result of a call that nobody can take back.
    pub(crate) async fn called(
        &self,
        request: CallToolRequestParams,
        progress: Option<Progress>,
    ) -> Result<CallToolResult, ErrorData> {
        let Workspace::This(backend) = &self.workspace else {
            return Err(ErrorData::internal_error("the request came without a workspace", None));
        };
        let found = self.tools.iter().find(|(name, _)| name.as_str() == request.name);
        let Some((name, _)) = found else {
            let called: String = request.name.chars().take(100).collect();
            let message = format!("unknown tool: {}", ab_core::error::printable(&called));
            return Err(ErrorData::invalid_params(message, None));
        };
        Ok(match self.attempt(backend, *name, request, progress).await {
            Ok(answer) => answer.into_result(),
            Err(failure) => failure.into_result(backend).await,
        })
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
        let _slot = match name.waits() {
            // These wait for others, who may need a slot to go on.
            true => None,
            false => match self.slots.acquire().await {
                Ok(slot) => Some(slot),
                Err(_) => return Err(Failure::misuse("the server is closing")),
            },
        };
        name.call(backend, arguments, progress).await
    }

    fn of_request(&self, context: &RequestContext<RoleServer>) -> Server {
        let parts = context.extensions.get::<http::request::Parts>();
        match (&self.workspace, parts.and_then(|parts| parts.extensions.get::<Backend>())) {
            (Workspace::OfRequest, Some(backend)) => self.over(backend.clone()),
            (Workspace::OfRequest, None) | (Workspace::This(_), _) => self.clone(),
        }
    }

    /// Waits until nobody wants the answer any more.
    async fn abandoned(&self, context: &RequestContext<RoleServer>) {
        let gone = async {
            match &self.gone {
                Some(gone) => gone.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = context.ct.cancelled() => {}
            () = gone => {}
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("agent-backend", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools().cloned().collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let token = context.meta.get_progress_token();
        let progress = token.map(|token| Progress::new(context.peer.clone(), token));
        let server = self.of_request(&context);
        // Work that is let go of ends, and so does its process.
        tokio::select! {
            result = server.called(request, progress) => Ok(result?.into()),
            () = self.abandoned(&context) => {
                Err(ErrorData::internal_error("the call was cancelled", None))
            }
        }
    }

    /// What rmcp could not read as a request of the method it names ends here as well.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(100).collect();
        let method = ab_core::error::printable(&method);
        Err(match method.as_str() {
            "initialize" | "ping" | "tools/call" | "tools/list" | "server/discover" => {
                ErrorData::invalid_params(
                    format!("{method}: params are missing or of the wrong type"),
                    None,
                )
            }
            _ => {
                let message = format!("unknown method: {method}");
                ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
            }
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}
