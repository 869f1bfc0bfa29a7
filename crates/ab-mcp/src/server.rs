//! One workspace as an MCP server: what it says of itself, and its calls.

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
use tokio::sync::Semaphore;

use crate::arguments::{Arguments, described};
use crate::bounds::CALLS_AT_ONCE;
use crate::briefing::InForce;
use crate::catalog::{self, Name, With};
use crate::failure::Failure;
use crate::fixtures::Fixtures;
use crate::http::FIRST_REVISION;
use crate::http::flights::Flight;
use crate::lines::{Calls, Gone};
use crate::outgoing::Outgoing;
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
    outgoing: Outgoing,
    line: Option<Line>,
    fixtures: Option<Arc<Fixtures>>,
    in_force: InForce,
}

/// The one connection that a server serves, where that is so.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) gone: Gone,
    pub(crate) calls: Arc<Calls>,
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
        let slots = Arc::new(Semaphore::new(CALLS_AT_ONCE));
        let outgoing = Outgoing::new();
        let in_force = InForce::default();
        Server { workspace, tools, slots, outgoing, line: None, fixtures: None, in_force }
    }

    /// With what the conformance suite calls by name, beside the tools.
    pub(crate) fn with_fixtures(mut self) -> Server {
        self.fixtures = Some(Arc::new(Fixtures::new()));
        self
    }

    /// The same tools and bounds over `backend`.
    pub(crate) fn over(&self, backend: Backend) -> Server {
        Server { workspace: Workspace::This(backend), ..self.clone() }
    }

    /// The tools, with descriptions that hold wherever commands run.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        let fixtures = self.fixtures.iter().flat_map(|fixtures| fixtures.tools());
        self.tools.iter().map(|(_, tool)| tool).chain(fixtures)
    }

    /// The tools as they are listed: `exec` says what is in force.
    async fn described(&self) -> Vec<Tool> {
        let mut tools: Vec<Tool> = self.tools().cloned().collect();
        let exec = tools.iter_mut().find(|tool| tool.name == catalog::EXEC);
        if let (Some(exec), Ok(backend)) = (exec, self.backend()) {
            exec.description = Some(self.in_force.description(backend).await.into());
        }
        tools
    }

    /// Whether a tool of this name is none of the workspace.
    pub(crate) fn is_fixture(&self, name: &str) -> bool {
        self.fixtures.as_ref().is_some_and(|fixtures| fixtures.has_tool(name))
    }

    /// The fixtures, or what a request is answered that only they could answer.
    fn fixtures<M: ConstString>(&self) -> Result<&Fixtures, ErrorData> {
        self.fixtures.as_deref().ok_or_else(ErrorData::method_not_found::<M>)
    }

    /// For one connection, whose end is the end of its calls.
    pub(crate) fn on(mut self, line: Line) -> Server {
        self.line = Some(line);
        self
    }

    /// What large answers cost.
    pub(crate) fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// The result of a call that nobody can take back.
    async fn called(
        &self,
        request: CallToolRequestParams,
        progress: Option<Progress>,
        id: &RequestId,
    ) -> Result<CallToolResult, ErrorData> {
        let mut answer = match self.outcome(request, progress).await? {
            Ok(answer) => answer,
            Err(failure) => return self.failed(failure).await,
        };
        let weight = answer.weight();
        if let Some(line) = &self.line {
            let room = match answer.take_room() {
                Some(room) => Some(room),
                None => match self.outgoing.hold(weight).await {
                    Ok(room) => room,
                    Err(crowded) => return self.failed(crowded.into()).await,
                },
            };
            // Until its line was written.
            line.calls.keep(id, room);
        }
        Ok(self.outgoing.aside(weight, || answer.into_result()).await)
    }

    /// What came of a call.
    pub(crate) async fn outcome(
        &self,
        request: CallToolRequestParams,
        progress: Option<Progress>,
    ) -> Result<Outcome, ErrorData> {
        let found = self.tools.iter().find(|(name, _)| name.as_str() == request.name);
        let Some((name, _)) = found else {
            let called: String = request.name.chars().take(100).collect();
            let message = format!("unknown tool: {}", ab_core::error::printable(&called));
            return Err(ErrorData::invalid_params(message, None));
        };
        Ok(self.attempt(self.backend()?, *name, request, progress).await)
    }

    /// The result of a call that did not work.
    pub(crate) async fn failed(&self, failure: Failure) -> Result<CallToolResult, ErrorData> {
        Ok(failure.into_result(self.backend()?).await)
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
            // These wait for others, who may need a slot to go on.
            None
        } else {
            match self.slots.acquire().await {
                Ok(slot) => Some(slot),
                Err(_) => return Err(Failure::misuse("the server is closing")),
            }
        };
        let with = With { progress, outgoing: &self.outgoing, in_force: &self.in_force };
        name.call(backend, arguments, with).await
    }

    fn of_request(&self, context: &RequestContext<RoleServer>) -> Server {
        let parts = context.extensions.get::<http::request::Parts>();
        match (&self.workspace, parts.and_then(|parts| parts.extensions.get::<Backend>())) {
            (Workspace::OfRequest, Some(backend)) => self.over(backend.clone()),
            (Workspace::OfRequest, None) | (Workspace::This(_), _) => self.clone(),
        }
    }

    /// Whether a method is one of ours, in revisions with or without a handshake.
    fn answers(&self, method: &str, handshake: bool) -> bool {
        let fixtures = self.fixtures.is_some();
        match method {
            "tools/call" | "tools/list" | "server/discover" => true,
            "initialize" | "ping" => handshake,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                handshake && fixtures
            }
            "subscriptions/listen" => !handshake && fixtures,
            "completion/complete" | "prompts/get" | "resources/read" => fixtures,
            _ => false,
        }
    }

    /// Waits until nobody wants the answer any more.
    async fn abandoned(&self, context: &RequestContext<RoleServer>) {
        let gone = async {
            match &self.line {
                Some(line) => line.gone.wait().await,
                None => std::future::pending().await,
            }
        };
        let parts = context.extensions.get::<http::request::Parts>();
        let flight = parts.and_then(|parts| parts.extensions.get::<Flight>());
        let cancelled = async {
            match flight {
                Some(flight) => flight.cancelled().await,
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

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = match &self.fixtures {
            Some(_) => Fixtures::capabilities(),
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
        Ok(ListToolsResult::with_all_items(self.of_request(&context).described().await))
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
        let call = async {
            match &self.fixtures {
                Some(fixtures) if fixtures.has_tool(&request.name) => {
                    Box::pin(fixtures.call(request, &context)).await
                }
                _ => Ok(server.called(request, progress, &context.id).await?.into()),
            }
        };
        // Work that is let go of ends, and so does its process.
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
        let prompts = self.fixtures.as_ref().map(|_| Fixtures::prompts());
        Ok(ListPromptsResult::with_all_items(prompts.unwrap_or_default()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.fixtures::<GetPromptRequestMethod>()?.prompt(&request, &context)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        match &self.fixtures {
            Some(_) => Fixtures::complete(&request),
            None => Ok(CompleteResult::default()),
        }
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = self.fixtures.as_ref().map(|_| Fixtures::resources());
        Ok(ListResourcesResult::with_all_items(resources.unwrap_or_default()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = self.fixtures.as_ref().map(|_| Fixtures::templates());
        Ok(ListResourceTemplatesResult::with_all_items(templates.unwrap_or_default()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.fixtures::<ReadResourceRequestMethod>()?;
        Ok(Fixtures::read(&request.uri)?.into())
    }

    /// No resource ever changes, so nobody has to be remembered.
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.fixtures::<SubscribeRequestMethod>()?;
        Fixtures::read(&request.uri).map(drop)
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.fixtures::<UnsubscribeRequestMethod>().map(drop)
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let fixtures = self.fixtures.as_ref()?;
        fixtures.expect_listener();
        Some(requested.supported_by(&Fixtures::capabilities()))
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        if let Some(fixtures) = &self.fixtures {
            fixtures.listen(subscription).await;
        }
        Ok(())
    }

    #[expect(deprecated, reason = "the revisions that have it are still served")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.fixtures::<SetLevelRequestMethod>()?.set_level(request.level, &context)
    }

    /// What rmcp could not read as a request of the method it names ends here as well.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method: String = request.method.chars().take(100).collect();
        let method = ab_core::error::printable(&method);
        Err(if self.answers(&method, has_handshake(&context)) {
            let why = misfit(&method, request.params.as_ref());
            ErrorData::invalid_params(format!("{method}: {why}"), None)
        } else {
            let message = format!("unknown method: {method}");
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None)
        })
    }
}

/// What a cancelled call is answered, where it has to be answered at all.
pub(crate) fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

/// What is wrong with the params of a method of ours.
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

/// Whether the request is of a revision before 2026-07-28.
pub(crate) fn has_handshake(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}
