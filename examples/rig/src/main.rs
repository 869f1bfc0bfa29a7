//! The tools of a session in an agent of [rig](https://docs.rs/rig-core): one small adapter, then rig's own loop.
//!
//! ```sh
//! export OPENAI_BASE_URL=https://api.openai.com/v1 OPENAI_MODEL=gpt-5 OPENAI_API_KEY=…
//! cd examples/rig && cargo run -- DIRECTORY "TASK"
//! ```

use agent_backend::agent::{
    AgentDefinition, AgentTool, AgentTools, FilesystemToolset, SessionOptions, ShellToolset,
};
use rig_core::client::CompletionClient;
use rig_core::completion::{Prompt, ToolDefinition};
use rig_core::providers::openai::CompletionsClient;
use rig_core::tool::{ToolDyn, ToolError};
use rig_core::wasm_compat::WasmBoxedFuture;
use serde_json::Value;

/// Turns after which rig gives up.
const MAX_TURNS: usize = 50;

/// A tool of ours as rig calls it.
struct RigTool {
    tool: AgentTool,
    tools: AgentTools,
}

impl ToolDyn for RigTool {
    fn name(&self) -> String {
        self.tool.name().to_owned()
    }

    fn definition<'a>(&'a self, _prompt: String) -> WasmBoxedFuture<'a, ToolDefinition> {
        let definition = ToolDefinition {
            name: self.tool.name().to_owned(),
            description: self.tool.description().to_owned(),
            parameters: self.tool.input_schema().clone(),
        };
        Box::pin(std::future::ready(definition))
    }

    /// A call that fails is an answer too: the model reads what was wrong.
    fn call<'a>(&'a self, arguments: String) -> WasmBoxedFuture<'a, Result<String, ToolError>> {
        Box::pin(async move {
            let arguments: Value = serde_json::from_str(&arguments)?;
            Ok(self.tools.call_tool(self.tool.name(), arguments).await.all_text())
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(task)) = (arguments.next(), arguments.next()) else {
        return Err("usage: rig-agent DIRECTORY TASK".into());
    };
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
    let definition = AgentDefinition::builder()
        .backend(agent_backend::local(directory)?)
        .toolset(FilesystemToolset::new().allow_writes())
        .toolset(ShellToolset::new())
        .build();
    let session = definition.start(SessionOptions::default()).await?;
    let tools = session.tools().await?;
    let adapted = tools.all_tools().iter().map(|tool| {
        Box::new(RigTool { tool: tool.clone(), tools: tools.clone() }) as Box<dyn ToolDyn>
    });
    let key = std::env::var("OPENAI_API_KEY").unwrap_or_default();
    let client =
        CompletionsClient::builder().api_key(&key).base_url(variable("OPENAI_BASE_URL")?).build()?;
    let agent = client
        .agent(variable("OPENAI_MODEL")?)
        .preamble(tools.instructions())
        .tools(adapted.collect())
        .build();
    println!("{}", agent.prompt(task).max_turns(MAX_TURNS).await?);
    Ok(())
}
