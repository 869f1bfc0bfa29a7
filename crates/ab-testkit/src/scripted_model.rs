//! A model that follows a script, behind the HTTP APIs that coding agents call: OpenAI's chat completions and responses,
//! Anthropic's messages, and Gemini's `streamGenerateContent`.
//!
//! The script is a list of steps. The number of tool results in a request says how far its
//! conversation is, so the server keeps no state of conversations and agents may repeat a request.
//! Requests without tools, such as those for a title, get one word.

mod anthropic;
mod gemini;
mod openai;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Names of the tools with which agents run shell commands.
const SHELLS: [&str; 8] = [
    "exec",
    "shell",
    "developer__shell",
    "run_shell_command",
    "bash",
    "Bash",
    "exec_command",
    "shell_command",
];
/// Names of the argument that contains the command, in calls of these tools.
const COMMANDS: [&str; 2] = ["command", "cmd"];
/// Most bytes of a request.
const LARGEST: usize = 64 * 1024 * 1024;
/// Most requests that are remembered.
const MAX_REQUESTS: usize = 1000;

/// The next step of the model.
#[derive(Clone, Debug)]
pub enum LanguageModelStep {
    /// Runs a command with the agent's shell tool.
    Run(String),
    /// Calls the tool of this name with these arguments.
    Call(String, Value),
    /// Sends text and ends the turn.
    Say(String),
}

#[derive(Debug, Default)]
struct SeenRequests {
    paths: Vec<String>,
    last: Value,
}

/// A server on loopback. It ends when it is dropped.
#[derive(Debug)]
pub struct ScriptedLanguageModel {
    address: SocketAddr,
    requests: Arc<Mutex<SeenRequests>>,
    _serving: AbortOnDropHandle<()>,
}

impl ScriptedLanguageModel {
    /// Starts a model that follows these steps in every conversation.
    pub async fn start(steps: Vec<LanguageModelStep>) -> ScriptedLanguageModel {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<SeenRequests>>::default();
        let seen = Arc::clone(&requests);
        let serving = async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, steps.clone(), Arc::clone(&seen)));
            }
        };
        let serving = AbortOnDropHandle::new(tokio::spawn(serving));
        ScriptedLanguageModel { address, requests, _serving: serving }
    }

    /// The address without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The paths of the recorded requests.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).paths.clone()
    }

    /// The body of the last request, which holds the whole conversation so far.
    pub fn last_request(&self) -> Value {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }
}

/// Answers one request. It is not an error if the agent disconnects.
async fn serve(
    mut stream: TcpStream,
    steps: Vec<LanguageModelStep>,
    seen: Arc<Mutex<SeenRequests>>,
) {
    let Some((path, body)) = read_request(&mut stream).await else { return };
    {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.paths.len() < MAX_REQUESTS {
            seen.paths.push(path.clone());
        }
        seen.last = body.clone();
    }
    let reply = reply(&path, &body, &steps);
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        reply.kind,
        reply.parts.iter().map(String::len).sum::<usize>()
    );
    let _ = stream.write_all(head.as_bytes()).await;
    // Send every event as its own packet, so that an agent reads the stream in pieces.
    let _ = stream.set_nodelay(true);
    for part in reply.parts {
        let _ = stream.write_all(part.as_bytes()).await;
        tokio::task::yield_now().await;
    }
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

/// An HTTP answer.
struct Reply {
    kind: &'static str,
    /// The parts of the answer, one for each event of a stream.
    parts: Vec<String>,
}

impl Reply {
    fn json(value: &Value) -> Reply {
        Reply { kind: "application/json", parts: vec![value.to_string()] }
    }

    fn events(parts: Vec<String>) -> Reply {
        Reply { kind: "text/event-stream", parts }
    }
}

fn reply(path: &str, body: &Value, steps: &[LanguageModelStep]) -> Reply {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    if path.ends_with("/chat/completions") {
        openai::chat(body, steps)
    } else if path.ends_with("/responses") {
        openai::responses(body, steps)
    } else if path.ends_with("/messages") {
        anthropic::messages(body, steps)
    } else if path.ends_with("/messages/count_tokens") {
        Reply::json(&json!({ "input_tokens": 1 }))
    } else if path.ends_with("enerateContent") {
        gemini::generate(path, body, steps)
    } else {
        let model = json!({ "id": "scripted", "object": "model" });
        Reply::json(&json!({ "object": "list", "data": [model] }))
    }
}

/// A tool that an agent offers to the model.
struct Tool<'a> {
    name: &'a str,
    /// The JSON schema of its arguments.
    schema: &'a Value,
}

enum Step<'a> {
    Run { tool: &'a str, arguments: Value },
    Say(&'a str),
}

/// The step of a conversation with this many tool results.
fn step<'a>(tools: &[Tool<'a>], results: usize, steps: &'a [LanguageModelStep]) -> Step<'a> {
    if let Some(LanguageModelStep::Call(name, arguments)) = steps.get(results) {
        return match tools.iter().find(|tool| tool.name == name) {
            Some(tool) => Step::Run { tool: tool.name, arguments: arguments.clone() },
            None => Step::Say("The agent does not offer the tool of the script."),
        };
    }
    let Some(shell) = tools.iter().find(|tool| SHELLS.contains(&tool.name)) else {
        return Step::Say("Scripted");
    };
    match steps.get(results) {
        Some(LanguageModelStep::Run(command)) => {
            Step::Run { tool: shell.name, arguments: arguments(shell.schema, command) }
        }
        Some(LanguageModelStep::Say(text)) => Step::Say(text),
        Some(LanguageModelStep::Call(..)) | None => Step::Say("The script is over."),
    }
}

/// Arguments that run a command: the command, and a value for everything else that the schema requires.
fn arguments(schema: &Value, command: &str) -> Value {
    let properties = &schema["properties"];
    let name = COMMANDS.into_iter().find(|name| properties.get(name).is_some());
    let name = name.unwrap_or(COMMANDS[0]);
    let command = match properties[name]["type"].as_str() {
        Some("array") => json!(["bash", "-c", command]),
        _ => json!(command),
    };
    let mut arguments = Map::from_iter([(name.to_owned(), command)]);
    for required in members(schema, "required").iter().filter_map(Value::as_str) {
        let value = || match properties[required]["type"].as_str() {
            Some("boolean") => json!(false),
            Some("integer" | "number") => json!(60),
            _ => {
                properties[required]["enum"].get(0).cloned().unwrap_or(json!("follows the script"))
            }
        };
        arguments.entry(required).or_insert_with(value);
    }
    Value::Object(arguments)
}

/// The items of an array in an object; none if there is no such array.
fn members<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// An event of a stream, named by its `type`.
fn named(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

fn unnamed(event: &Value) -> String {
    format!("data: {event}\n\n")
}

/// The text in two pieces, as a model streams it.
fn halves(text: &str) -> [&str; 2] {
    let (first, rest) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [first, rest]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str, body: &Value) -> String {
        let steps =
            [LanguageModelStep::Run("ls -l".into()), LanguageModelStep::Say("all done".into())];
        let reply = reply(path, body, &steps);
        assert_eq!(reply.kind == "text/event-stream", body["stream"] == true, "{path}");
        reply.parts.concat()
    }

    /// Asks with no tool result, with one, and without tools.
    fn check(path: &str, tools: &Value, history: (&str, Value), expect: (&str, &str)) {
        let (name, result) = history;
        let with = |results: &[&Value], tools: &Value| {
            ask(path, &json!({ "stream": true, "tools": tools, name: results }))
        };
        let first = with(&[], tools);
        assert!(first.contains(expect.0), "{path}: {first}");
        let second = with(&[&result], tools);
        assert!(second.contains(expect.1) && !second.contains("-l"), "{path}: {second}");
        let untooled = with(&[], &json!([]));
        assert!(untooled.contains("Scri") && untooled.contains("pted"), "{path}: {untooled}");
    }

    #[test]
    fn tool_results_move_the_script_on_in_every_api() {
        check(
            "/v1/chat/completions",
            &json!([{ "function": { "name": "shell" } }]),
            ("messages", json!({ "role": "tool" })),
            (r#""arguments":"{\"command\":\"ls -l\"}""#, "all done"),
        );
        let schema = json!({ "properties": { "cmd": { "type": "string" } } });
        check(
            "/v1/responses",
            &json!([{ "type": "function", "name": "exec_command", "parameters": schema }]),
            ("input", json!({ "type": "function_call_output" })),
            (r#""arguments":"{\"cmd\":\"ls -l\"}""#, "\"text\":\"all done\""),
        );
        let schema = json!({ "properties": { "command": {}, "why": {} }, "required": ["why"] });
        check(
            "/v1/messages?beta=true",
            &json!([{ "name": "Bash", "input_schema": schema }]),
            ("messages", json!({ "role": "user", "content": [{ "type": "tool_result" }] })),
            (r#""{\"command\":\"ls -l\",\"why""#, "\"text\":\"all \""),
        );
        let tools = json!([{ "functionDeclarations": [{ "name": "run_shell_command" }] }]);
        let body = json!({ "stream": true, "tools": tools, "contents": [] });
        let text = ask("/v1beta/models/m:streamGenerateContent?alt=sse", &body);
        assert!(text.contains("\"command\":\"ls -l\""), "{text}");
    }

    #[test]
    fn answers_are_whole_where_no_stream_is_asked_for() {
        let tools = json!([{ "name": "Bash" }, { "function": { "name": "shell" } }]);
        for (path, expect) in [
            ("/v1/chat/completions", "\"finish_reason\":\"tool_calls\""),
            ("/v1/responses", "\"status\":\"completed\""),
            ("/v1/messages", "\"stop_reason\":\"tool_use\""),
            ("/v1/messages/count_tokens", "\"input_tokens\":1"),
            ("/v1/models", "\"id\":\"scripted\""),
        ] {
            let text = ask(path, &json!({ "tools": tools }));
            assert!(text.contains(expect), "{path}: {text}");
        }
    }

    #[test]
    fn commands_are_put_as_the_tool_wants_them() {
        let schema = json!({
            "properties": {
                "command": { "type": "array" }, "is_background": { "type": "boolean" },
                "seconds": { "type": "integer" }, "mode": { "type": "string", "enum": ["sync"] },
            },
            "required": ["command", "is_background", "seconds", "mode"],
        });
        let expect = json!({
            "command": ["bash", "-c", "ls"], "is_background": false, "seconds": 60, "mode": "sync",
        });
        assert_eq!(arguments(&schema, "ls"), expect);
        assert_eq!(arguments(&Value::Null, "ls"), json!({ "command": "ls" }));
    }
}
