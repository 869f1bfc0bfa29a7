//! Serves the tools of a session as an MCP server.

use std::io;
use std::sync::Arc;

use ab_mcp::{CallerDisconnectSignal, serve_mcp_handler_over_streams};
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ResourceContents, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::tool::{AgentTool, ToolContent, ToolResult};
use super::tools::AgentTools;

impl AgentTools {
    /// Serves the tools to one MCP client over a pair of streams, as JSON lines. Returns when the
    /// client has disconnected.
    ///
    /// # Errors
    /// Fails if the streams fail or the client violates the protocol.
    pub async fn serve_mcp<R, W>(&self, input: R, output: W) -> io::Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let tools = self.clone();
        serve_mcp_handler_over_streams(|gone| McpTools { tools, gone }, input, output).await
    }
}

#[derive(Clone)]
struct McpTools {
    tools: AgentTools,
    gone: CallerDisconnectSignal,
}

impl ServerHandler for McpTools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("agent-backend", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.tools.instructions())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.all_tools().iter().map(described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.map_or(Value::Null, Value::Object);
        // If the client stops waiting, the call is dropped, which ends its process.
        tokio::select! {
            result = self.tools.call_tool(&request.name, arguments) => Ok(answer(result).into()),
            () = context.ct.cancelled() => Err(cancelled()),
            () = self.gone.wait() => Err(cancelled()),
        }
    }
}

fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
}

fn described(tool: &AgentTool) -> Tool {
    let schema = tool.input_schema().as_object().cloned().unwrap_or_default();
    Tool::new(tool.name().to_owned(), tool.description().to_owned(), Arc::new(schema))
}

fn answer(result: ToolResult) -> CallToolResult {
    let ToolResult { content, data, is_error } = result;
    let content: Vec<ContentBlock> = content.into_iter().map(block).collect();
    let mut answer =
        if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    // The protocol allows only objects here, so other values are omitted.
    answer.structured_content = data.filter(Value::is_object);
    answer
}

fn block(content: ToolContent) -> ContentBlock {
    match content {
        ToolContent::Text(text) => ContentBlock::text(text),
        ToolContent::Media { mime_type, base64 } => match mime_type.split('/').next() {
            Some("image") => ContentBlock::image(base64, mime_type),
            Some("audio") => ContentBlock::audio(base64, mime_type),
            _ => {
                let resource = ResourceContents::blob(base64, "workspace:///");
                ContentBlock::resource(resource.with_mime_type(mime_type))
            }
        },
    }
}
