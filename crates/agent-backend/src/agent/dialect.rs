//! The tools in the formats of two model APIs: OpenAI's function calling and Anthropic's tool use.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::tool::{ToolContent, ToolResult};
use super::tools::AgentTools;

impl AgentTools {
    /// The field `tools` of a request to an OpenAI-style chat API.
    pub fn openai_tools(&self) -> Value {
        let tools = self.list().iter().map(|tool| {
            json!({
                "type": "function",
                "function": {
                    "name": tool.name(),
                    "description": tool.description(),
                    "parameters": tool.schema(),
                },
            })
        });
        tools.collect()
    }

    /// The field `tools` of a request to an Anthropic-style messages API.
    pub fn anthropic_tools(&self) -> Value {
        let tools = self.list().iter().map(|tool| {
            json!({
                "name": tool.name(),
                "description": tool.description(),
                "input_schema": tool.schema(),
            })
        });
        tools.collect()
    }

    /// Runs the calls of an OpenAI-style assistant message in parallel and returns the messages to
    /// send back: one for each call, in the order of the calls, then one with the pictures, if
    /// there are any. Empty if the message has no calls.
    pub async fn answer_openai(&self, message: &Value) -> Vec<Value> {
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        let results = join_all(calls.iter().map(|call| async {
            let function = &call["function"];
            let name = function["name"].as_str().unwrap_or_default();
            // The arguments are JSON in a string; some servers send the object itself.
            let arguments = match &function["arguments"] {
                Value::String(text) if text.trim().is_empty() => Ok(Value::Null),
                Value::String(text) => serde_json::from_str(text),
                other => Ok(other.clone()),
            };
            match arguments {
                Ok(arguments) => self.call(name, arguments).await,
                Err(error) => {
                    ToolResult::error(format!("the arguments of {name} are not JSON: {error}"))
                }
            }
        }));
        let mut pictures = Vec::new();
        let mut messages: Vec<Value> = Vec::with_capacity(calls.len() + 1);
        for (call, result) in calls.iter().zip(results.await) {
            let content = openai_text(result, &mut pictures);
            messages
                .push(json!({ "role": "tool", "tool_call_id": call["id"], "content": content }));
        }
        if !pictures.is_empty() {
            messages.push(json!({ "role": "user", "content": pictures }));
        }
        messages
    }

    /// Runs the calls in the content of an Anthropic-style assistant message in parallel and
    /// returns the user message to send back. Null if the content has no calls.
    pub async fn answer_anthropic(&self, content: &Value) -> Value {
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let calls: Vec<&Value> =
            blocks.iter().filter(|block| block["type"] == "tool_use").collect();
        if calls.is_empty() {
            return Value::Null;
        }
        let results = join_all(calls.iter().map(|call| {
            self.call(call["name"].as_str().unwrap_or_default(), call["input"].clone())
        }));
        let blocks = calls.iter().zip(results.await).map(|(call, result)| {
            let is_error = result.is_error;
            let content: Vec<Value> = result.content.into_iter().map(anthropic_block).collect();
            json!({
                "type": "tool_result", "tool_use_id": call["id"], "is_error": is_error,
                "content": content,
            })
        });
        json!({ "role": "user", "content": blocks.collect::<Vec<Value>>() })
    }
}

/// The text of a result. Tool messages contain only text, so pictures go to a separate message.
fn openai_text(result: ToolResult, pictures: &mut Vec<Value>) -> String {
    let parts = result.content.into_iter().map(|content| match content {
        ToolContent::Text(text) => text,
        ToolContent::Media { mime_type, base64 } if mime_type.starts_with("image/") => {
            let url = format!("data:{mime_type};base64,{base64}");
            pictures.push(json!({ "type": "image_url", "image_url": { "url": url } }));
            format!("[the picture, {mime_type}, follows in a message of its own]")
        }
        other => unseen(&other),
    });
    parts.collect::<Vec<_>>().join("\n")
}

fn anthropic_block(content: ToolContent) -> Value {
    match content {
        ToolContent::Text(text) => json!({ "type": "text", "text": text }),
        ToolContent::Media { mime_type, base64 } if mime_type.starts_with("image/") => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": mime_type, "data": base64 },
        }),
        other => json!({ "type": "text", "text": unseen(&other) }),
    }
}

/// The placeholder for content that the API does not support.
fn unseen(content: &ToolContent) -> String {
    match content {
        ToolContent::Text(text) => text.clone(),
        ToolContent::Media { mime_type, base64 } => {
            let bytes = base64.len() / 4 * 3;
            format!("[about {bytes} bytes of {mime_type}, which cannot be shown here]")
        }
    }
}
