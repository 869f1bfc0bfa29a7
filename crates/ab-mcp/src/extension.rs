//! Features of a server in addition to the tools of its workspace.

use std::fmt::Debug;

use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, Prompt, ReadResourceResult, Resource,
    ResourceTemplate, ServerCapabilities, Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};

/// Additional tools, prompts, resources and logging of a server. The conformance suite of MCP needs
/// an extension for its tests. The product has none.
#[async_trait]
pub trait McpServerExtension: Debug + Send + Sync + 'static {
    /// The capabilities of a server with this extension, including the capabilities for the
    /// workspace's tools.
    fn capabilities(&self) -> ServerCapabilities;

    fn tools(&self) -> &[Tool];

    /// Calls one of [`tools`](McpServerExtension::tools).
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

    /// Called in the task of the subscriber, before the subscription is confirmed.
    fn before_subscription(&self);

    /// Notifies the subscriber of changes until it disconnects.
    async fn notify_subscriber(&self, subscription: SubscriptionContext);

    #[expect(deprecated, reason = "the revisions that have it are still served")]
    fn set_level(
        &self,
        level: rmcp::model::LoggingLevel,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData>;
}
