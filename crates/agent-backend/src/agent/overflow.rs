//! Limits long results of your own tools: a model gets both ends, and the whole result is stored in
//! a file of the workspace.

use ab_core::Backend;
use ab_mcp::{DEFAULT_MAX_RESULT_BYTES, SavedOutput};

use super::shell::OUTPUT_DIRECTORY;
use super::tool::{AgentTool, ToolContent, ToolResult};

/// The same tool with results of limited length. Without a backend the rest is dropped.
pub(super) fn bounded(tool: &AgentTool, backend: Option<Backend>) -> AgentTool {
    let place = backend.and_then(|backend| {
        let directory = backend.parse_path(OUTPUT_DIRECTORY).ok()?;
        Some((backend, SavedOutput::new(directory)))
    });
    tool.wrapped(move |tool, arguments| {
        let place = place.clone();
        async move {
            let result = tool.call(arguments).await;
            shortened(result, tool.name(), place).await
        }
    })
}

async fn shortened(
    result: ToolResult,
    name: &str,
    place: Option<(Backend, SavedOutput)>,
) -> ToolResult {
    let text = result.all_text();
    if text.len() <= DEFAULT_MAX_RESULT_BYTES {
        return result;
    }
    let half = DEFAULT_MAX_RESULT_BYTES / 2;
    let head = &text[..text.floor_char_boundary(half)];
    let tail = &text[text.ceil_char_boundary(text.len() - half)..];
    let told = match place {
        Some((backend, output)) => match output.keep(&backend, name, text.clone().into()).await {
            Ok(path) => format!("all {} bytes are in '{path}'", text.len()),
            Err(error) => format!("saving the {} bytes failed: {error}", text.len()),
        },
        None => format!("it had {} bytes", text.len()),
    };
    let left_out = text.len() - head.len() - tail.len();
    let shown =
        format!("{head}\n[… {left_out} bytes left out …]\n{tail}\n[the result was cut: {told}]");
    let media = result.content.into_iter().filter(|it| matches!(it, ToolContent::Media { .. }));
    let content = std::iter::once(ToolContent::Text(shown)).chain(media).collect();
    ToolResult { content, data: result.data, is_error: result.is_error }
}
