//! Shortens long results: a model gets the beginning and the end, and the whole result is stored in
//! a file of the workspace.

use std::sync::Arc;

use ab_core::Backend;
use ab_mcp::{DEFAULT_MAX_RESULT_BYTES, OutputFileStore};
use serde_json::Value;

use super::places::ToolPlaces;
use super::shell::LONG_OUTPUT_DIRECTORY;
use super::tool::{AgentTool, ToolContent, ToolResult};

/// Number of bytes that notes may add to a text of the maximum length.
const NOTES: usize = 4 * 1024;

/// Stores long results of a session's tools in files. Without a backend the files cannot be
/// written, so the middle of a long result is lost.
#[derive(Clone, Debug)]
pub(super) struct ResultStore {
    place: Option<(Backend, OutputFileStore)>,
}

impl ResultStore {
    /// Chooses a directory that the tools of the session can read, if any of them reads files.
    pub(super) fn of(backend: Option<Backend>, places: &Arc<ToolPlaces>) -> ResultStore {
        let place = backend.and_then(|backend| {
            let directory = places.readable_root().child(LONG_OUTPUT_DIRECTORY).ok()?;
            let places = places.clone();
            let output = OutputFileStore::new(directory);
            Some((backend, output.with_file_description(move |path| places.describe(path))))
        });
        ResultStore { place }
    }

    /// Wraps a tool, so that long results are shortened and the whole results are stored.
    pub(super) fn bounded(&self, tool: &AgentTool) -> AgentTool {
        let store = self.clone();
        tool.wrapped(move |tool, arguments| {
            let store = store.clone();
            async move {
                let result = tool.run(arguments).await;
                store.shortened(result, tool.name()).await
            }
        })
    }

    async fn shortened(&self, result: ToolResult, name: &str) -> ToolResult {
        let result = self.with_short_text(result, name).await;
        self.with_short_data(result, name).await
    }

    async fn with_short_text(&self, result: ToolResult, name: &str) -> ToolResult {
        let text = result.all_text();
        if text.len() <= DEFAULT_MAX_RESULT_BYTES + NOTES {
            return result;
        }
        let half = DEFAULT_MAX_RESULT_BYTES / 2;
        let head = &text[..text.floor_char_boundary(half)];
        let tail = &text[text.ceil_char_boundary(text.len() - half)..];
        let told = self.keep(name, &text).await;
        let left_out = text.len() - head.len() - tail.len();
        let shown = format!(
            "{head}\n[… {left_out} bytes left out …]\n{tail}\n[the result was cut: {told}]"
        );
        let media = result.content.into_iter().filter(|it| matches!(it, ToolContent::Media { .. }));
        let content = std::iter::once(ToolContent::Text(shown)).chain(media).collect();
        // Drop the value if it equals the text, because the file contains the text.
        let is_same = |data: &Value| serde_json::to_string(data).is_ok_and(|data| data == text);
        let data = result.data.filter(|data| !is_same(data));
        ToolResult { content, data, is_error: result.is_error }
    }

    /// Shortens the value of a result too, because some clients also show it to the model.
    async fn with_short_data(&self, mut result: ToolResult, name: &str) -> ToolResult {
        let Some(long) = result.data.as_ref().map(Value::to_string) else { return result };
        // The limit is larger here, because a value may contain a text of the maximum length in
        // escaped form.
        if long.len() <= 2 * DEFAULT_MAX_RESULT_BYTES + NOTES {
            return result;
        }
        let told = self.keep(name, &long).await;
        result.data = None;
        result.content.push(ToolContent::Text(format!("[the value was cut: {told}]")));
        result
    }

    /// Stores a text and returns a note that says where it is.
    async fn keep(&self, name: &str, text: &str) -> String {
        let length = text.len();
        match &self.place {
            Some((backend, output)) => match output.save_output(backend, name, text.into()).await {
                Ok(path) => format!("all {length} bytes are in {}", output.describe_file(&path)),
                Err(error) => format!("saving the {length} bytes failed: {error}"),
            },
            None => format!("it had {length} bytes"),
        }
    }
}
