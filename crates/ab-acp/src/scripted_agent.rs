//! The scripted agent: a real ACP agent that follows a scenario instead of a model.
//!
//! [`run_scripted_agent`] implements the process `agent-backend agent script`. It runs inside the
//! sandbox of a session, like any other agent, and is not part of the server.

mod http;
mod memory;
mod output;
mod scenario;
mod turn;
mod workspace;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::bounds::MAX_SCRIPTED_AGENT_LINE_BYTES;
use crate::failure::AcpError;
use crate::gateway::RpcMessageKind;
use crate::mcp_server::McpServer;
use crate::rpc::{
    AUTH_REQUIRED, Arrival, AtInputEnd, INTERNAL_ERROR, INVALID_PARAMS, Inbox, Incoming,
    InvalidLine, PARSE_ERROR, RESOURCE_NOT_FOUND, Reply, Route, Rpc, RpcError, RpcSettings,
};
use memory::Memory;
use output::CountedOutput;
use turn::{Ended, Turn};
use workspace::Workspace;

pub use scenario::{AgentScenario, AgentScenarioError};

/// The methods that the agent supports.
const METHODS: [&str; 6] = [
    "initialize",
    "authenticate",
    "session/new",
    "session/load",
    "session/resume",
    "session/prompt",
];

/// How long turns may continue after the end of the input. The replies of these turns may take as
/// long again to be written.
const LAST_TURNS: Duration = Duration::from_secs(2);

/// The settings of a scripted agent.
#[derive(Clone, Debug)]
pub struct ScriptedAgentSettings {
    pub scenario: AgentScenario,
    /// The directory in which the agent stores the state of its sessions.
    pub home: PathBuf,
}

/// Why the agent's process exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptedAgentExit {
    /// The client closed the agent's input.
    Finished,
    /// The scenario demands this exit code.
    Exit(u8),
    /// The client sent a message of more than `limit` bytes.
    MessageTooLong { limit: usize },
}

/// Serves a client over a pair of streams until the client closes `input` or the scenario ends the
/// process. After the end of `input`, running turns get a short time to end, and every reply is
/// written. When this returns, all tasks have ended.
pub async fn run_scripted_agent<R, W>(
    input: R,
    output: W,
    settings: ScriptedAgentSettings,
) -> ScriptedAgentExit
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let faults = &settings.scenario.faults;
    let spent = CancellationToken::new();
    let output = CountedOutput::new(output, faults.exit_after_lines, spent.clone());
    let code = faults.exit_code.unwrap_or(1);
    let reading = RpcSettings {
        max_line_bytes: MAX_SCRIPTED_AGENT_LINE_BYTES,
        at_input_end: AtInputEnd::KeepWriting,
    };
    let (rpc, inbox) = Rpc::start(input, output, reading, |arrival, method, _| match arrival {
        Arrival::Request if !METHODS.contains(&method) => Route::Refuse,
        Arrival::Request | Arrival::Notification => Route::Queue,
    });
    let agent = ScriptedAgent {
        rpc: rpc.clone(),
        memory: Memory::in_home(&settings.home),
        scenario: Arc::new(settings.scenario),
        logged_in: false,
        conversations: HashMap::new(),
        turns: JoinSet::new(),
        unanswered: Vec::new(),
    };
    let end = tokio::select! {
        biased;
        () = spent.cancelled() => ScriptedAgentExit::Exit(code),
        end = agent.serve(inbox) => end,
    };
    rpc.close().await;
    end
}

struct ScriptedAgent {
    rpc: Rpc,
    scenario: Arc<AgentScenario>,
    memory: Memory,
    logged_in: bool,
    conversations: HashMap<String, Conversation>,
    turns: JoinSet<Option<u8>>,
    /// Requests that the scenario never answers.
    unanswered: Vec<Reply>,
}

struct Conversation {
    cwd: String,
    workspace: Arc<Workspace>,
    /// Cancels the most recently started turn.
    cancel: CancellationToken,
}

type Answer = Result<Value, RpcError>;

impl ScriptedAgent {
    async fn serve(mut self, mut inbox: Inbox) -> ScriptedAgentExit {
        for line in &self.scenario.faults.noise {
            // Ignore a failed send: if the client is gone, the input ends too.
            let _ = self.rpc.send(format!("{line}\n").into_bytes()).await;
        }
        loop {
            tokio::select! {
                incoming = inbox.next() => match incoming {
                    None => return self.finish().await,
                    Some(Incoming::Request { method, params, reply }) => {
                        self.request(&method, &params, reply).await;
                    }
                    Some(Incoming::Notification { method, params }) => {
                        self.notification(&method, &params);
                    }
                    Some(Incoming::Noise(line)) => self.refuse(&line).await,
                    // Drop a response that belongs to no request.
                    Some(Incoming::Answer { .. }) => {}
                },
                Some(ended) = self.turns.join_next() => {
                    if let Ok(Some(code)) = ended {
                        self.rpc.flushed().await;
                        return ScriptedAgentExit::Exit(code);
                    }
                }
            }
        }
    }

    /// Waits for running turns after the end of the input, and returns how the agent exits.
    async fn finish(mut self) -> ScriptedAgentExit {
        let ending = async {
            while let Some(ended) = self.turns.join_next().await {
                if let Ok(Some(code)) = ended {
                    return Some(code);
                }
            }
            None
        };
        // Turns that take longer are dropped.
        let code = timeout(LAST_TURNS, ending).await.ok().flatten();
        // If the client does not read, the remaining output is lost.
        let _ = timeout(LAST_TURNS, self.rpc.flushed()).await;
        match (code, self.rpc.end()) {
            (Some(code), _) => ScriptedAgentExit::Exit(code),
            (None, Some(AcpError::LineTooLong { limit })) => {
                ScriptedAgentExit::MessageTooLong { limit }
            }
            (None, _) => ScriptedAgentExit::Finished,
        }
    }

    /// Answers a line that is not a valid message, so that a request in it does not wait forever.
    async fn refuse(&self, line: &InvalidLine) {
        let id = match &line.kind {
            Some(RpcMessageKind::Request(id)) => id.to_json(),
            Some(RpcMessageKind::Notification | RpcMessageKind::Response(_)) => return,
            Some(RpcMessageKind::Other) | None => "null".to_owned(),
        };
        let error = json!({ "code": PARSE_ERROR, "message": format!("cannot parse the message: {}", line.why) });
        let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n");
        // Ignore a failed send: if the client is gone, the input ends too.
        let _ = self.rpc.send(answer.into_bytes()).await;
    }

    fn notification(&mut self, method: &str, params: &Value) {
        let session = params["sessionId"].as_str().unwrap_or_default();
        if method == "session/cancel"
            && let Some(conversation) = self.conversations.get(session)
        {
            conversation.cancel.cancel();
        }
    }

    async fn request(&mut self, method: &str, params: &Value, reply: Reply) {
        let faults = &self.scenario.faults;
        if faults.hang_at.as_deref() == Some(method) {
            self.unanswered.push(reply);
            return;
        }
        if faults.fail_at.as_deref() == Some(method) {
            let text = format!("the scenario makes {method} fail");
            reply.send(Err(RpcError::new(INTERNAL_ERROR, text)));
            return;
        }
        let answer = match method {
            "initialize" => Ok(self.profile()),
            "authenticate" => self.log_in(params),
            "session/new" => self.new_session(params).await,
            "session/load" => self.reopen(params, History::Sent).await,
            "session/resume" => self.reopen(params, History::Kept).await,
            "session/prompt" => return self.prompt(params, reply).await,
            _ => Err(RpcError::new(
                crate::rpc::METHOD_NOT_FOUND,
                format!("unknown method: {method}"),
            )),
        };
        reply.send(answer);
    }

    fn profile(&self) -> Value {
        let description = &self.scenario.agent;
        let info = json!({
            "name": description.name, "title": description.name, "version": env!("CARGO_PKG_VERSION"),
        });
        if description.protocol != 1 {
            let version = description.protocol;
            return json!({ "protocolVersion": version, "info": info, "capabilities": {} });
        }
        let mut sessions = json!({});
        if description.resume {
            sessions["resume"] = json!({});
        }
        let logins = description.login.iter().map(|id| json!({ "id": id, "name": id }));
        json!({
            "protocolVersion": 1,
            "agentInfo": info,
            "agentCapabilities": {
                "loadSession": description.load,
                "mcpCapabilities": { "http": description.mcp_http, "sse": false },
                "promptCapabilities": { "image": false, "audio": false, "embeddedContext": false },
                "sessionCapabilities": sessions,
            },
            "authMethods": logins.collect::<Value>(),
        })
    }

    fn log_in(&mut self, params: &Value) -> Answer {
        if self.scenario.agent.login.as_deref() != params["methodId"].as_str() {
            return Err(RpcError::new(INVALID_PARAMS, "unknown login method"));
        }
        self.logged_in = true;
        Ok(json!({}))
    }

    async fn new_session(&mut self, params: &Value) -> Answer {
        let mut bytes = [0; 16];
        let random = getrandom::fill(&mut bytes);
        random.map_err(|error| {
            RpcError::new(INTERNAL_ERROR, format!("cannot get random bytes: {error}"))
        })?;
        let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.open(&id, params).await?;
        let saved = self.memory.save(&id, &memory::Remembered::default()).await;
        saved.map_err(|error| forgotten(&error))?;
        Ok(json!({ "sessionId": id }))
    }

    async fn reopen(&mut self, params: &Value, history: History) -> Answer {
        let id = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let remembered = self.memory.load(&id).await.map_err(|error| forgotten(&error))?;
        let Some(remembered) = remembered else {
            return Err(RpcError::new(RESOURCE_NOT_FOUND, format!("unknown session: {id}")));
        };
        self.open(&id, params).await?;
        if history == History::Sent {
            for turn in &remembered.history {
                self.replay(&id, "user_message_chunk", &turn.prompt).await;
                self.replay(&id, "agent_message_chunk", &turn.answer).await;
            }
        }
        Ok(json!({}))
    }

    async fn replay(&self, session: &str, kind: &str, text: &str) {
        let content = json!({ "type": "text", "text": text });
        let update = json!({ "sessionUpdate": kind, "content": content });
        // Ignore a failed send: if the client is gone, the input ends too.
        let params = json!({ "sessionId": session, "update": update });
        let _ = self.rpc.notify("session/update", params).await;
    }

    async fn open(&mut self, id: &str, params: &Value) -> Result<(), RpcError> {
        if self.scenario.agent.login.is_some() && !self.logged_in {
            return Err(RpcError::new(AUTH_REQUIRED, "log in first"));
        }
        let Some(cwd) = params["cwd"].as_str() else {
            return Err(RpcError::new(INVALID_PARAMS, "cwd is required"));
        };
        let offered = params["mcpServers"].as_array().map_or(&[][..], Vec::as_slice);
        let servers: Vec<McpServer> = offered.iter().filter_map(McpServer::parse).collect();
        if servers.len() < offered.len() {
            return Err(RpcError::new(INVALID_PARAMS, "an MCP server has an unknown type"));
        }
        let used = if self.scenario.agent.uses_mcp { servers.as_slice() } else { &[] };
        let workspace = Workspace::open(cwd, used).await;
        let workspace = workspace.map_err(|why| RpcError::new(INTERNAL_ERROR, why))?;
        let conversation = Conversation {
            cwd: cwd.to_owned(),
            workspace: Arc::new(workspace),
            cancel: CancellationToken::new(),
        };
        self.conversations.insert(id.to_owned(), conversation);
        Ok(())
    }

    async fn prompt(&mut self, params: &Value, reply: Reply) {
        let id = params["sessionId"].as_str().unwrap_or_default().to_owned();
        let Some(conversation) = self.conversations.get_mut(&id) else {
            reply.send(Err(RpcError::new(RESOURCE_NOT_FOUND, format!("unknown session: {id}"))));
            return;
        };
        let prompt = text_of(&params["prompt"]);
        let remembered = match self.memory.load(&id).await {
            Ok(remembered) => remembered.unwrap_or_default(),
            Err(error) => return reply.send(Err(forgotten(&error))),
        };
        let mut remembered = remembered;
        let (first, prompt) = match remembered.interrupted() {
            // Continue the interrupted prompt at its question. The text of the new prompt is not
            // used.
            Some(interrupted) => interrupted,
            None => {
                remembered.begin(&prompt);
                (0, prompt)
            }
        };
        if let Err(error) = self.memory.save(&id, &remembered).await {
            return reply.send(Err(forgotten(&error)));
        }
        conversation.cancel = CancellationToken::new();
        let cancel = conversation.cancel.clone();
        let mut turn = Turn {
            rpc: self.rpc.clone(),
            session: id.clone(),
            cwd: conversation.cwd.clone(),
            workspace: conversation.workspace.clone(),
            prompt,
            number: remembered.turns,
            plan: Vec::new(),
            output: String::new(),
            answer: String::new(),
            asked: None,
            calls: 0,
            tokens: None,
            deaf: Arc::default(),
            memory: self.memory.clone(),
            remembered,
        };
        let scenario = self.scenario.clone();
        self.turns.spawn(async move {
            let last = scenario.turns.len().saturating_sub(1);
            let steps = scenario.turns.get(last.min(turn.number.saturating_sub(1)));
            let ended = turn.play(steps.map_or(&[], Vec::as_slice), first, &cancel).await;
            let saved = match ended {
                Ended::ClientGone => Ok(()),
                Ended::Stop(_) | Ended::Error(_) | Ended::Exit(_) => {
                    turn.remembered.answered(&turn.answer);
                    turn.memory.save(&id, &turn.remembered).await
                }
            };
            match (ended, saved) {
                (Ended::Exit(code), _) => return Some(code),
                (Ended::ClientGone, _) => {}
                (Ended::Error(error), _) => reply.send(Err(error)),
                (Ended::Stop(_), Err(error)) => reply.send(Err(forgotten(&error))),
                (Ended::Stop(reason), Ok(())) => reply.send(Ok(turn.answer(&reason))),
            }
            None
        });
    }
}

/// Whether the history of a reopened session is sent to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    Sent,
    Kept,
}

fn forgotten(error: &std::io::Error) -> RpcError {
    let text = format!("cannot use the agent's stored sessions in its home: {error}");
    RpcError::new(INTERNAL_ERROR, text)
}

/// The text parts of a prompt.
fn text_of(prompt: &Value) -> String {
    let parts = prompt.as_array().map_or(&[][..], Vec::as_slice);
    let texts = parts.iter().filter_map(|part| part["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}
