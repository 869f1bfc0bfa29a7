//! What a server has beside the tools of its workspace.

use std::fmt::Debug;

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, Prompt, ReadResourceResult, Resource,
    ResourceTemplate, ServerCapabilities, Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};

/// More tools, and prompts, resources and logging, from the same server. The tools of the
/// conformance suite are one; they are no part of the product.
#[async_trait]
pub trait ServerExtension: Debug + Send + Sync + 'static {
    /// The capabilities of a server with this extension, those for the workspace's tools included.
    fn capabilities(&self) -> ServerCapabilities;

    fn tools(&self) -> &[Tool];

    /// Calls one of [`tools`](ServerExtension::tools).
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData>;

    fn prompts(&self) -> Vec<Prompt>;

    fn get_prompt(
        &self,
        request: &GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData>;

    fn complete(&self, request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData>;

    fn resources(&self) -> Vec<Resource>;

    fn resource_templates(&self) -> Vec<ResourceTemplate>;

    fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, ErrorData>;

    /// A subscriber comes in this task, and is not told so yet.
    fn before_listen(&self);

    /// Tells the subscriber of changes until it is gone.
    async fn listen(&self, subscription: SubscriptionContext);

    #[expect(deprecated, reason = "the revisions that have it are still served")]
    fn set_level(
        &self,
        level: rmcp::model::LoggingLevel,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData>;
}
