//! An MCP server for one workspace: its description and the handling of calls.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use ab_core::Backend;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ConstString, CustomRequest, CustomResult, ErrorCode, ErrorData, GetPromptRequestMethod,
    GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceRequestMethod, ReadResourceRequestParams, ReadResourceResponse,
    RequestId, ServerCapabilities, ServerConfig, SetLevelRequestMethod, SubscribeRequestMethod,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestMethod,
    UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use serde_json::Value;

use crate::arguments::described;
use crate::extension::McpServerExtension;
use crate::http::FIRST_REVISION;
use crate::http::running_calls::RunningCall;
use crate::lines::{Calls, Gone};
use crate::progress::Progress;
use crate::tools::WorkspaceTools;

/// Instructions for the model. They explain paths, because every tool has a path argument.
const INSTRUCTIONS: &str = "The tools work on one workspace. Paths are taken from its root: \
    'src/main.rs', or '.' for the root itself; paths outside it are refused. Long results end \
    with a note in brackets that says how to get the rest.";

/// The tools of a workspace as an MCP server. Cheap to clone; clones share their limits.
#[derive(Clone)]
pub struct McpServer {
    tools: WorkspaceTools,
    line: Option<Line>,
    extension: Option<Arc<dyn McpServerExtension>>,
}

/// The connection of a client that sends JSON lines. It is `None` in [`McpServer`] if the server
/// handles independent HTTP requests.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) gone: Gone,
    pub(crate) calls: Arc<Calls>,
}

impl McpServer {
    pub fn new(backend: Backend) -> McpServer {
        McpServer { tools: WorkspaceTools::new(backend), line: None, extension: None }
    }

    /// Creates a server with the tools of `backend`. Each call uses the backend that came with its
    /// HTTP request.
    pub(crate) fn of_requests(backend: &Backend) -> McpServer {
        McpServer { tools: WorkspaceTools::of_requests(backend), line: None, extension: None }
    }

    /// Adds the tools, prompts and resources of `extension`.
    pub(crate) fn with_extension(
        mut self,
        extension: Option<Arc<dyn McpServerExtension>>,
    ) -> McpServer {
        self.extension = extension;
        self
    }

    /// All tools. Their descriptions do not say how commands are isolated.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        let extension = self.extension.iter().flat_map(|extension| extension.tools());
        self.tools.offered().chain(extension)
    }

    /// The tools of the workspace, without the tools of the extension.
    pub(crate) fn own_tools(&self) -> &WorkspaceTools {
        &self.tools
    }

    /// Whether the extension has a tool with this name.
    pub(crate) fn is_of_extension(&self, name: &str) -> bool {
        let named = |tool: &Tool| tool.name == name;
        self.extension.as_ref().is_some_and(|extension| extension.tools().iter().any(named))
    }

    /// The extension, or an error if the server has none.
    fn extension<M: ConstString>(&self) -> Result<&dyn McpServerExtension, ErrorData> {
        self.extension.as_deref().ok_or_else(ErrorData::method_not_found::<M>)
    }

    /// Binds the server to a single connection. Its calls end with the connection.
    pub(crate) fn on(mut self, line: Line) -> McpServer {
        self.line = Some(line);
        self
    }

    /// Runs a call and returns its result. The caller of this function handles cancellation.
    async fn called(
        &self,
        tools: &WorkspaceTools,
        request: CallToolRequestParams,
        progress: Option<Progress>,
        id: &RequestId,
    ) -> Result<CallToolResult, ErrorData> {
        let mut answer = match tools.outcome(request, progress).await? {
            Ok(answer) => answer,
            Err(failure) => return tools.failed(failure).await,
        };
        let weight = answer.weight();
        if let Some(line) = &self.line {
            let room = match answer.take_room() {
                Some(room) => Some(room),
                None => match tools.outgoing().hold(weight).await {
                    Ok(room) => room,
                    Err(crowded) => return tools.failed(crowded.into()).await,
                },
            };
            // Keep the memory reservation until the line with the answer has been written.
            line.calls.keep(id, room);
        }
        Ok(tools.outgoing().aside(weight, || answer.into_result()).await)
    }

    /// The tools, for the workspace that came with the HTTP request.
    fn tools_of(&self, context: &RequestContext<RoleServer>) -> WorkspaceTools {
        let parts = context.extensions.get::<http::request::Parts>();
        self.tools.over_request(parts.and_then(|parts| parts.extensions.get::<Backend>()))
    }

    /// Whether the server supports a method. `handshake` says whether the protocol revision of the
    /// request has a handshake.
    fn answers(&self, method: &str, handshake: bool) -> bool {
        let extended = self.extension.is_some();
        match method {
            "tools/call" | "tools/list" | "server/discover" => true,
            "initialize" | "ping" => handshake,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                handshake && extended
            }
            "subscriptions/listen" => !handshake && extended,
            "completion/complete" | "prompts/get" | "resources/read" => extended,
            _ => false,
        }
    }

    /// Waits until the call is cancelled or the client has disconnected.
    async fn abandoned(&self, context: &RequestContext<RoleServer>) {
        let gone = async {
            match &self.line {
                Some(line) => line.gone.wait().await,
                None => std::future::pending().await,
            }
        };
        let parts = context.extensions.get::<http::request::Parts>();
        let running_call = parts.and_then(|parts| parts.extensions.get::<RunningCall>());
        let cancelled = async {
            match running_call {
                Some(running_call) => running_call.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = context.ct.cancelled() => {}
            () = cancelled => {}
            () = gone => {}
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = match &self.extension {
            Some(extension) => extension.capabilities(),
            None => ServerCapabilities::builder().enable_tools().build(),
        };
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("agent-backend", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        static ALL: LazyLock<Vec<ProtocolVersion>> = LazyLock::new(|| {
            let first = serde_json::from_value(Value::from(FIRST_REVISION)).ok();
            first.into_iter().chain(ProtocolVersion::KNOWN_VERSIONS.iter().cloned()).collect()
        });
        Cow::Borrowed(ALL.as_slice())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = self.tools_of(&context).list_tools().await;
        tools.extend(self.extension.iter().flat_map(|extension| extension.tools()).cloned());
        Ok(ListToolsResult::with_all_items(tools))
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
        let tools = self.tools_of(&context);
        let call = async {
            match &self.extension {
                Some(extension) if self.is_of_extension(&request.name) => {
                    extension.call_tool(request, &context).await
                }
                _ => Ok(self.called(&tools, request, progress, &context.id).await?.into()),
            }
        };
        // Dropping the future of the call ends its work and its process.
        tokio::select! {
            result = call => result,
            () = self.abandoned(&context) => Err(cancelled()),
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompts = self.extension.as_ref().map(|extension| extension.prompts());
        Ok(ListPromptsResult::with_all_items(prompts.unwrap_or_default()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.extension::<GetPromptRequestMethod>()?.get_prompt(&request, &context)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match &self.extension {
            Some(extension) => extension.complete(&request),
            None => Ok(CompleteResult::default()),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.extension.as_ref().map(|extension| extension.resources());
        Ok(ListResourcesResult::with_all_items(resources.unwrap_or_default()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.extension.as_ref().map(|extension| extension.resource_templates());
        Ok(ListResourceTemplatesResult::with_all_items(templates.unwrap_or_default()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(self.extension::<ReadResourceRequestMethod>()?.read_resource(&request.uri)?.into())
    }

    /// Does nothing. Resources never change, so the server does not need to store subscribers.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.extension::<SubscribeRequestMethod>()?.read_resource(&request.uri).map(drop)
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.extension::<UnsubscribeRequestMethod>().map(drop)
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let extension = self.extension.as_ref()?;
        extension.before_subscription();
        Some(requested.supported_by(&extension.capabilities()))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        if let Some(extension) = &self.extension {
            extension.notify_subscriber(subscription).await;
        }
        Ok(())
    }

    #[expect(deprecated, reason = "the revisions that have it are still served")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.extension::<SetLevelRequestMethod>()?.set_level(request.level, &context)
    }

    /// Handles unknown methods, and also known methods whose parameters rmcp could not parse.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(100).collect();
        let method = ab_core::error::escape_unprintable(&method);
        Err(if self.answers(&method, uses_initialize_handshake(&context)) {
            let why = misfit(&method, request.params.as_ref());
            ErrorData::invalid_params(format!("{method}: {why}"), None)
        } else {
            let message = format!("unknown method: {method}");
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
        })
    }
}

/// The error for a cancelled call. Some transports must answer such a call.
pub(crate) fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

/// Describes what is wrong with the parameters of a known method.
fn misfit(method: &str, params: Option<&Value>) -> String {
    let wrong = |field: &str, expected: &str, value: &Value| {
        format!("'{field}' must be {expected}, not {}", described(value))
    };
    let params = match params {
        None | Some(Value::Null) => return "'params' is missing: it must be an object".to_owned(),
        Some(Value::Object(params)) => params,
        Some(other) => return wrong("params", "an object", other),
    };
    let object = "an object";
    let fields: &[(&str, &str)] = match method {
        "tools/call" => &[("name", "a string"), ("arguments", object), ("_meta", object)],
        "initialize" => &[
            ("protocolVersion", "a string"),
            ("capabilities", object),
            ("clientInfo", object),
            ("_meta", object),
        ],
        _ => &[("_meta", object)],
    };
    for (field, expected) in fields {
        let optional = matches!(*field, "arguments" | "_meta");
        match params.get(*field) {
            None if optional => {}
            None => return format!("'params.{field}' is missing: it must be {expected}"),
            Some(Value::Object(_)) if *expected == object => {}
            Some(Value::String(_)) if *expected != object => {}
            Some(value) => return wrong(&format!("params.{field}"), expected, value),
        }
    }
    "'params' has a field that is missing or of the wrong type".to_owned()
}

/// Whether the request uses a protocol revision before 2026-07-28, which has a handshake.
pub fn uses_initialize_handshake(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("tools", &self.tools).finish_non_exhaustive()
    }
}
