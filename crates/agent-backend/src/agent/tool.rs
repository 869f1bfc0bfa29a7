//! A tool as a value: a description for a model, and a function to call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ab_core::{Backend, Error, WsPath};
use rmcp::model::{CallToolResult, ContentBlock, ErrorData, ResourceContents};
use serde_json::{Map, Value};

type Running = Pin<Box<dyn Future<Output = ToolResult> + Send>>;
type Run = dyn Fn(Map<String, Value>) -> Running + Send + Sync;

/// A tool that a model can call. Cheap to clone.
#[derive(Clone)]
pub struct AgentTool {
    name: Arc<str>,
    description: Arc<str>,
    schema: Arc<Value>,
    run: Arc<Run>,
    origin: Option<Arc<ToolOrigin>>,
}

/// Where a tool that works in a workspace comes from.
#[derive(Debug)]
pub(super) struct ToolOrigin {
    /// The name of the tool in the workspace.
    pub(super) name: String,
    /// The name that a model sees, with the prefix of the toolset.
    pub(super) called: String,
    /// The path of the tool's directory in the session's backend.
    pub(super) root: WsPath,
    /// A backend that is limited to the tool's directory.
    pub(super) workspace: Backend,
}

impl AgentTool {
    /// Creates your own tool. `schema` is the JSON schema of its arguments, which are an object.
    /// Dropping the future ends the call.
    pub fn new<F, Running>(
        name: impl Into<String>,
        description: impl Into<String>,
        schema: Value,
        run: F,
    ) -> Self
    where
        F: Fn(Map<String, Value>) -> Running + Send + Sync + 'static,
        Running: Future<Output = ToolResult> + Send + 'static,
    {
        Self {
            name: Arc::from(name.into()),
            description: Arc::from(description.into()),
            schema: Arc::new(schema),
            run: Arc::new(move |arguments| Box::pin(run(arguments))),
            origin: None,
        }
    }

    /// Records that the tool works in a workspace, and where it comes from.
    pub(super) fn of_workspace(mut self, origin: ToolOrigin) -> Self {
        self.origin = Some(Arc::new(origin));
        self
    }

    pub(super) fn origin(&self) -> Option<&Arc<ToolOrigin>> {
        self.origin.as_ref()
    }

    /// The tool's name in its workspace, without the prefix of the toolset. For a tool that does
    /// not work in a workspace, this is the name of the tool.
    pub(super) fn original_name(&self) -> &str {
        self.origin.as_ref().map_or(&self.name, |origin| &origin.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON schema of the arguments.
    pub fn input_schema(&self) -> &Value {
        &self.schema
    }

    /// Calls the tool. A failed call returns a result that a model can read.
    pub async fn run(&self, arguments: Map<String, Value>) -> ToolResult {
        (self.run)(arguments).await
    }

    /// Returns the tool with another name.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Arc::from(name.into());
        self
    }

    /// Wraps a tool, so that `value` lives as long as the tool and its running calls.
    pub(super) fn keeping<T: Send + Sync + 'static>(&self, value: Arc<T>) -> Self {
        self.wrapped(move |tool, arguments| {
            let value = value.clone();
            async move {
                let result = tool.run(arguments).await;
                drop(value);
                result
            }
        })
    }

    /// Wraps a tool with a function that runs around each call.
    pub(super) fn wrapped<F, Running>(&self, around: F) -> Self
    where
        F: Fn(AgentTool, Map<String, Value>) -> Running + Send + Sync + 'static,
        Running: Future<Output = ToolResult> + Send + 'static,
    {
        let inner = self.clone();
        let run = move |arguments| -> self::Running { Box::pin(around(inner.clone(), arguments)) };
        Self { run: Arc::new(run), ..self.clone() }
    }
}

impl fmt::Debug for AgentTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AgentTool").field(&self.name).finish()
    }
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResult {
    /// The content for a model.
    pub content: Vec<ToolContent>,
    /// The result as a value for programs, if there is one.
    pub data: Option<Value>,
    /// Whether the call failed. In this case the content says why and what to do instead.
    pub is_error: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ToolContent {
    Text(String),
    /// The bytes of a picture, a sound or any other file, in base64.
    Media {
        mime_type: String,
        base64: String,
    },
}

impl ToolResult {
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ToolContent::Text(text.into())], ..Self::default() }
    }

    /// A result with a value, which a model reads as JSON.
    pub fn data(value: Value) -> Self {
        Self { data: Some(value.clone()), ..Self::text(value.to_string()) }
    }

    /// The result of a failed call. The message should help a model to correct the call.
    pub fn error(message: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(message) }
    }

    /// All text of the result, in order, as one string.
    pub fn all_text(&self) -> String {
        let texts = self.content.iter().filter_map(|content| match content {
            ToolContent::Text(text) => Some(text.as_str()),
            ToolContent::Media { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl From<Error> for ToolResult {
    fn from(error: Error) -> Self {
        let text = match error.hint() {
            Some(hint) => format!("{error}\n{hint}"),
            None => error.to_string(),
        };
        Self::error(text)
    }
}

impl From<CallToolResult> for ToolResult {
    fn from(result: CallToolResult) -> Self {
        Self {
            content: result.content.into_iter().map(ToolContent::from).collect(),
            data: result.structured_content,
            is_error: result.is_error == Some(true),
        }
    }
}

impl From<ErrorData> for ToolResult {
    fn from(error: ErrorData) -> Self {
        Self::error(error.message)
    }
}

impl From<ContentBlock> for ToolContent {
    fn from(block: ContentBlock) -> Self {
        const ANY: &str = "application/octet-stream";
        const UNKNOWN: &str = "[content of a kind that this version does not know]";
        match block {
            ContentBlock::Text(text) => ToolContent::Text(text.text),
            ContentBlock::Image(image) => {
                ToolContent::Media { mime_type: image.mime_type, base64: image.data }
            }
            ContentBlock::Audio(audio) => {
                ToolContent::Media { mime_type: audio.mime_type, base64: audio.data }
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { text, .. } => ToolContent::Text(text),
                ResourceContents::BlobResourceContents { blob, mime_type, .. } => {
                    let mime_type = mime_type.unwrap_or_else(|| ANY.to_owned());
                    ToolContent::Media { mime_type, base64: blob }
                }
                _ => ToolContent::Text(UNKNOWN.to_owned()),
            },
            ContentBlock::ResourceLink(link) => ToolContent::Text(link.uri.clone()),
            _ => ToolContent::Text(UNKNOWN.to_owned()),
        }
    }
}
