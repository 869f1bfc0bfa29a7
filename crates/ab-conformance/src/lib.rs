//! Fixtures that the official conformance suite calls by name, beside the tools of the workspace.
//!
//! The suite uses the tools, resources and prompts of a reference server. With these fixtures its
//! scenarios run through the same server, endpoint and protocol code as real clients. The fixtures
//! do not touch a workspace. Only tests use this crate; the product does not contain it.

mod content;
mod listeners;
mod prompts;
mod resources;
mod rounds;
mod talk;

use std::hash::{BuildHasher, RandomState};

use ab_mcp::McpServerExtension;
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ContentBlock, ErrorData, GetPromptRequestParams, GetPromptResponse, JsonObject, Prompt,
    ReadResourceResult, RequestStateCodec, Resource, ResourceTemplate, ServerCapabilities, Tool,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use serde_json::Value;

use listeners::Listeners;

/// One red pixel, as PNG.
const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";

/// The fixtures, and their state, which lives as long as the server.
#[derive(Debug)]
pub struct ConformanceExtension {
    tools: Vec<Tool>,
    listeners: Listeners,
    level: talk::Threshold,
    states: RequestStateCodec,
}

impl Default for ConformanceExtension {
    fn default() -> Self {
        ConformanceExtension::new()
    }
}

impl ConformanceExtension {
    pub fn new() -> ConformanceExtension {
        // The signed states are valid only in this process and protect nothing else. So the random
        // numbers of hash tables are good enough as a key.
        let seed = RandomState::new();
        let key = (0..4u8).flat_map(|part| seed.hash_one(part).to_le_bytes());
        ConformanceExtension {
            tools: [content::tools(), talk::tools(), rounds::tools()].concat(),
            listeners: Listeners::default(),
            level: talk::Threshold::default(),
            states: RequestStateCodec::new_unchecked(key.collect::<Vec<u8>>()),
        }
    }
}

#[async_trait]
impl McpServerExtension for ConformanceExtension {
    #[expect(deprecated, reason = "the revisions that have logging are still served")]
    fn capabilities(&self) -> ServerCapabilities {
        ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build()
    }

    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.clone().unwrap_or_default();
        if let Some(result) = content::call(&request.name, &arguments) {
            return Ok(result?.into());
        }
        if let Some(result) = self.talk(&request.name, &arguments, context).await {
            return Ok(result?.into());
        }
        self.rounds(&request, context)
    }

    fn prompts(&self) -> Vec<Prompt> {
        prompts::all()
    }

    fn get_prompt(
        &self,
        request: &GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        match request.name.as_str() {
            rounds::PROMPT => self.rounds_of_prompt(request, context),
            name => Ok(prompts::get(name, request.arguments.as_ref())?.into()),
        }
    }

    fn complete(&self, request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        prompts::complete(request)
    }

    fn resources(&self) -> Vec<Resource> {
        resources::all()
    }

    fn resource_templates(&self) -> Vec<ResourceTemplate> {
        vec![resources::template()]
    }

    fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        resources::read(uri)
    }

    fn before_subscription(&self) {
        self.listeners.expect();
    }

    async fn notify_subscriber(&self, subscription: SubscriptionContext) {
        self.listeners.keep(subscription).await;
    }

    #[expect(deprecated, reason = "the revisions that have it are still served")]
    fn set_level(
        &self,
        level: rmcp::model::LoggingLevel,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.threshold(level, context)
    }
}

/// A tool with these properties, all of them required.
fn tool(name: &'static str, description: &'static str, properties: Value) -> Tool {
    let required = properties.as_object().into_iter().flat_map(JsonObject::keys);
    let required = required.cloned().collect::<Vec<_>>();
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties);
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    Tool::new(name, description, schema)
}

fn said(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

fn failed(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// The text at `pointer`, or an empty string.
fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
