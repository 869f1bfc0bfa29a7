//! A model that follows a script, behind the HTTP APIs that coding agents call: chat completions and Gemini's
//! `streamGenerateContent`.
//!
//! The script is a list of steps. The number of tool results in a request says how far its conversation is, so the
//! server keeps no state and agents may ask twice. Requests without tools, such as those for a title, get one word.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Names of the tools with which agents run shell commands.
const SHELLS: [&str; 4] = ["shell", "developer__shell", "run_shell_command", "bash"];
/// Bytes of a request.
const LARGEST: usize = 64 * 1024 * 1024;

/// What the model does next.
#[derive(Clone, Debug)]
pub enum LanguageModelStep {
    /// Runs a command with the agent's shell tool.
    Run(String),
    /// Says something and ends the turn.
    Say(String),
}

/// A server on loopback. It ends when it is dropped.
#[derive(Debug)]
pub struct ScriptedLanguageModel {
    address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl ScriptedLanguageModel {
    /// Starts a model that takes these steps in every conversation.
    pub async fn start(steps: Vec<LanguageModelStep>) -> ScriptedLanguageModel {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, steps.clone()));
            }
        };
        let serving = AbortOnDropHandle::new(tokio::spawn(serving));
        ScriptedLanguageModel { address, _serving: serving }
    }

    /// The address without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Answers one request. An agent that goes away meanwhile is no failure of the model.
async fn serve(mut stream: TcpStream, steps: Vec<LanguageModelStep>) {
    let Some((path, body)) = read_request(&mut stream).await else { return };
    let (kind, text) = answer(&path, &body, &steps);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        text.len()
    );
    let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// The path and the body of a request; the body of a `GET` is null.
async fn read_request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break at;
        }
        if bytes.len() > LARGEST || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let path = text.split(' ').nth(1)?.to_owned();
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = bytes.split_off(head + 4);
    let length = length.unwrap_or(0);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((path, serde_json::from_slice(&body).unwrap_or_default()))
}

/// The content type and the body of an answer.
fn answer(path: &str, body: &Value, steps: &[LanguageModelStep]) -> (&'static str, String) {
    if path.contains("/chat/completions") {
        chat(body, steps)
    } else if path.contains(":streamGenerateContent") || path.contains(":generateContent") {
        gemini(path, body, steps)
    } else {
        let models = json!({ "object": "list", "data": [{ "id": "scripted", "object": "model" }] });
        (JSON, models.to_string())
    }
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The step of a conversation with so many tool results, and the name of the agent's shell.
fn step<'a>(tools: &[&str], results: usize, steps: &'a [LanguageModelStep]) -> Step<'a> {
    let Some(shell) = SHELLS.iter().find(|shell| tools.contains(*shell)) else {
        return Step::Say("Scripted");
    };
    match steps.get(results) {
        Some(LanguageModelStep::Run(command)) => Step::Run { shell, command },
        Some(LanguageModelStep::Say(text)) => Step::Say(text),
        None => Step::Say("The script is over."),
    }
}

enum Step<'a> {
    Run { shell: &'static str, command: &'a str },
    Say(&'a str),
}

fn events(parts: &[Value]) -> String {
    parts.iter().map(|part| format!("data: {part}\n\n")).collect()
}

fn chat(body: &Value, steps: &[LanguageModelStep]) -> (&'static str, String) {
    let all = |member: &str| body[member].as_array().cloned().unwrap_or_default();
    let tools = all("tools");
    let tools: Vec<&str> =
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    let results = all("messages").iter().filter(|message| message["role"] == "tool").count();
    let (delta, finish) = match step(&tools, results, steps) {
        Step::Say(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        Step::Run { shell, command } => {
            let arguments = json!({ "command": command }).to_string();
            let function = json!({ "name": shell, "arguments": arguments });
            let call = json!({
                "index": 0, "id": format!("call_{results}"), "type": "function", "function": function,
            });
            (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
        }
    };
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    if body["stream"] != true {
        let choice = json!({ "index": 0, "message": delta, "finish_reason": finish });
        let whole = json!({
            "id": "scripted", "object": "chat.completion", "created": 1, "model": "scripted",
            "choices": [choice], "usage": usage,
        });
        return (JSON, whole.to_string());
    }
    let chunk = |choices: Value| {
        json!({
            "id": "scripted", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": choices,
        })
    };
    let said = chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    let end = chunk(json!([{ "index": 0, "delta": {}, "finish_reason": finish }]));
    let mut counts = chunk(json!([]));
    counts["usage"] = usage;
    (EVENTS, format!("{}data: [DONE]\n\n", events(&[said, end, counts])))
}

fn gemini(path: &str, body: &Value, steps: &[LanguageModelStep]) -> (&'static str, String) {
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    let declared = tools.iter().filter_map(|tool| tool["functionDeclarations"].as_array());
    let tools: Vec<&str> = declared.flatten().filter_map(|tool| tool["name"].as_str()).collect();
    let contents = body["contents"].as_array().cloned().unwrap_or_default();
    let parts = contents.iter().filter_map(|content| content["parts"].as_array()).flatten();
    let results = parts.filter(|part| part.get("functionResponse").is_some()).count();
    let part = match step(&tools, results, steps) {
        Step::Say(text) => json!({ "text": text }),
        Step::Run { shell, command } => json!({ "functionCall": {
            "name": shell, "args": { "command": command, "description": "follows the script" },
        } }),
    };
    let whole = json!({
        "candidates": [{
            "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0,
        }],
        "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 },
    });
    if path.contains(":stream") { (EVENTS, events(&[whole])) } else { (JSON, whole.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_results_move_the_script_on() {
        let steps = [LanguageModelStep::Run("ls".into()), LanguageModelStep::Say("done".into())];
        let tools = json!([{ "function": { "name": "shell" } }]);
        let ask = |messages: Value| {
            let body = json!({ "stream": true, "tools": tools, "messages": messages });
            answer("/v1/chat/completions", &body, &steps).1
        };
        assert!(ask(json!([])).contains(r#"{\"command\":\"ls\"}"#));
        assert!(ask(json!([{ "role": "tool" }])).contains("\"content\":\"done\""));
        let untooled = answer("/v1/chat/completions", &json!({ "messages": [] }), &steps).1;
        assert!(untooled.contains("Scripted"), "{untooled}");
        let tools = json!([{ "functionDeclarations": [{ "name": "run_shell_command" }] }]);
        let asked = json!({ "tools": tools, "contents": [] });
        let (kind, text) = answer("/v1beta/models/m:streamGenerateContent?alt=sse", &asked, &steps);
        assert!(kind == EVENTS && text.contains("\"command\":\"ls\""), "{text}");
    }
}
