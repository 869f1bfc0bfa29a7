//! The tools in the formats of two model APIs: OpenAI's function calling and Anthropic's tool use.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::picture::{PictureLimits, visible_type};
use super::tool::{AgentTool, ToolContent, ToolResult};
use super::tools::AgentTools;

const MIB: usize = 1024 * 1024;
/// Limits on a picture for Anthropic's API, which refuses larger pictures. The limit on width and
/// height applies once a conversation has more than 20 pictures.
const ANTHROPIC_PICTURE: PictureLimits = PictureLimits { base64_bytes: 5 * MIB, side: 2000 };
/// Maximum length of all pictures of one message in base64. A whole request may have 32 MB.
const ANTHROPIC_PICTURES_IN_ALL: usize = 15 * MIB;
/// The limit of OpenAI's API on the length of a picture. Width and height have no limit, because
/// the API scales pictures down itself.
const OPENAI_PICTURE: PictureLimits = PictureLimits { base64_bytes: 20 * MIB, side: u32::MAX };
const OPENAI_PICTURES_IN_ALL: usize = 30 * MIB;
/// The text that is sent if a result has no content.
const NO_CONTENT: &str = "[the result is empty]";

impl AgentTools {
    /// The field `tools` of a request to an OpenAI-style chat API.
    pub fn openai_tools(&self) -> Value {
        let tools = self.all_tools().iter().map(|tool| {
            json!({
                "type": "function",
                "function": {
                    "name": tool.name(),
                    "description": tool.description(),
                    "parameters": schema(tool),
                },
            })
        });
        tools.collect()
    }

    /// The field `tools` of a request to an Anthropic-style messages API.
    pub fn anthropic_tools(&self) -> Value {
        let tools = self.all_tools().iter().map(|tool| {
            json!({
                "name": tool.name(),
                "description": tool.description(),
                "input_schema": schema(tool),
            })
        });
        tools.collect()
    }

    /// Runs the calls of an OpenAI-style assistant message in parallel and returns the messages to
    /// send back: one for each call, in the order of the calls, and then one with the pictures, if
    /// there are any. Returns an empty list if the message has no calls.
    pub async fn answer_openai_tool_calls(&self, message: &Value) -> Vec<Value> {
        let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        let results = join_all(calls.iter().map(|call| async {
            let function = &call["function"];
            let name = function["name"].as_str().unwrap_or_default();
            // The arguments are JSON in a string. Some servers send the object itself.
            let arguments = match &function["arguments"] {
                Value::String(text) if text.trim().is_empty() => Ok(Value::Null),
                Value::String(text) => serde_json::from_str(text),
                other => Ok(other.clone()),
            };
            match arguments {
                Ok(arguments) => self.call_tool(name, arguments).await,
                Err(error) => {
                    ToolResult::error(format!("the arguments of {name} are not JSON: {error}"))
                }
            }
        }));
        let mut pictures = Vec::new();
        let mut room = OPENAI_PICTURES_IN_ALL;
        let mut messages: Vec<Value> = Vec::with_capacity(calls.len() + 1);
        for (call, result) in calls.iter().zip(results.await) {
            let parts = accepted(result, OPENAI_PICTURE, &mut room).into_iter();
            let content = parts.map(|part| openai_text(part, &mut pictures)).collect::<Vec<_>>();
            let content = content.join("\n");
            messages
                .push(json!({ "role": "tool", "tool_call_id": call["id"], "content": content }));
        }
        if !pictures.is_empty() {
            messages.push(json!({ "role": "user", "content": pictures }));
        }
        messages
    }

    /// Runs the calls in the content of an Anthropic-style assistant message in parallel and
    /// returns the user message to send back. Returns null if the content has no calls.
    pub async fn answer_anthropic_tool_uses(&self, content: &Value) -> Value {
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let calls: Vec<&Value> =
            blocks.iter().filter(|block| block["type"] == "tool_use").collect();
        if calls.is_empty() {
            return Value::Null;
        }
        let results = join_all(calls.iter().map(|call| {
            self.call_tool(call["name"].as_str().unwrap_or_default(), call["input"].clone())
        }));
        let mut room = ANTHROPIC_PICTURES_IN_ALL;
        let blocks = calls.iter().zip(results.await).map(|(call, result)| {
            let is_error = result.is_error;
            let parts = accepted(result, ANTHROPIC_PICTURE, &mut room).into_iter();
            json!({
                "type": "tool_result", "tool_use_id": call["id"], "is_error": is_error,
                "content": parts.map(anthropic_block).collect::<Vec<Value>>(),
            })
        });
        json!({ "role": "user", "content": blocks.collect::<Vec<Value>>() })
    }
}

/// The schema of a tool. A missing field `properties` is added, because some servers require it.
fn schema(tool: &AgentTool) -> Value {
    let mut schema = tool.input_schema().clone();
    if let Value::Object(fields) = &mut schema {
        fields.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}

/// Content that the model API accepts. A single unacceptable block would make the API refuse the
/// whole request. The API would also refuse all later requests, because the block stays in the
/// conversation.
enum Accepted {
    Text(String),
    Picture { mime_type: &'static str, base64: String },
}

/// Converts a result to content that the API accepts: at least one part, no text that is only white
/// space, pictures only within the limits, and only text in a failed result. All other content is
/// replaced by a text.
fn accepted(result: ToolResult, limits: PictureLimits, room: &mut usize) -> Vec<Accepted> {
    let ToolResult { content, data, is_error } = result;
    let mut parts = Vec::with_capacity(content.len().max(1));
    for content in content {
        match content {
            ToolContent::Text(text) if text.is_empty() => {}
            ToolContent::Text(text) if text.trim().is_empty() => {
                parts.push(Accepted::Text(format!("[{} bytes of white space]", text.len())));
            }
            ToolContent::Text(text) => parts.push(Accepted::Text(text)),
            ToolContent::Media { mime_type, base64 } => {
                match visible(&mime_type, &base64, limits, *room) {
                    Ok(mime_type) if !is_error => {
                        *room -= base64.len();
                        parts.push(Accepted::Picture { mime_type, base64 });
                    }
                    Ok(_) => parts.push(unseen(&mime_type, &base64, "the call failed")),
                    Err(why) => parts.push(unseen(&mime_type, &base64, &why)),
                }
            }
        }
    }
    if parts.is_empty() {
        let text = data.map_or_else(|| NO_CONTENT.to_owned(), |data| data.to_string());
        parts.push(Accepted::Text(text));
    }
    parts
}

fn visible(
    mime_type: &str,
    base64: &str,
    limits: PictureLimits,
    room: usize,
) -> Result<&'static str, String> {
    // Check the type first, because a file of another type may contain the bytes of a picture. An
    // example is a raw camera file with a preview.
    if !mime_type.starts_with("image/") {
        return Err("only pictures can be shown".to_owned());
    }
    let seen = visible_type(base64, limits)?;
    if base64.len() > room {
        return Err("the pictures of this message are too large together".to_owned());
    }
    Ok(seen)
}

/// The text that replaces content that a model cannot see.
fn unseen(mime_type: &str, base64: &str, why: &str) -> Accepted {
    let bytes = base64.len() / 4 * 3;
    let hint =
        if mime_type == "image/svg+xml" { "; it is text, and can be read as such" } else { "" };
    Accepted::Text(format!("[about {bytes} bytes of {mime_type} are not shown: {why}{hint}]"))
}

/// The text of a part. Tool messages can contain only text, so pictures are collected for a
/// separate message.
fn openai_text(part: Accepted, pictures: &mut Vec<Value>) -> String {
    match part {
        Accepted::Text(text) => text,
        Accepted::Picture { mime_type, base64 } => {
            let url = format!("data:{mime_type};base64,{base64}");
            pictures.push(json!({ "type": "image_url", "image_url": { "url": url } }));
            format!("[the picture, {mime_type}, follows in a message of its own]")
        }
    }
}

fn anthropic_block(part: Accepted) -> Value {
    match part {
        Accepted::Text(text) => json!({ "type": "text", "text": text }),
        Accepted::Picture { mime_type, base64 } => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": mime_type, "data": base64 },
        }),
    }
}
