//! Performs the steps of one turn of the scripted agent.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::memory::{Memory, Remembered};
use super::scenario::{Ask, AskOption, Flood, Hang, ReportTokens, Step};
use super::workspace::{Outcome, Workspace};
use crate::rpc::{Rpc, RpcError};

/// How long the agent waits for a response from its client. This is long, because a person may have
/// to decide.
const CLIENT_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A long line is sent in pieces of this size.
const PIECE: usize = 64 * 1024;

const END_TURN: &str = "end_turn";
const CANCELLED: &str = "cancelled";

/// How a turn ended.
#[derive(Debug, PartialEq)]
pub(super) enum Ended {
    Stop(String),
    Error(RpcError),
    /// The agent's process exits with this code.
    Exit(u8),
    /// The client disconnected while a question waited for an answer. When the client loads the
    /// session again, the turn continues at this question.
    ClientGone,
}

/// A turn that is being performed.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) rpc: Rpc,
    pub(super) session: String,
    pub(super) cwd: String,
    pub(super) workspace: Arc<Workspace>,
    pub(super) prompt: String,
    /// The number of the turn, counted from 1 and continued after a restart.
    pub(super) number: usize,
    pub(super) plan: Vec<String>,
    /// The output of the last tool, which later steps insert with `{output}`.
    pub(super) output: String,
    /// The text of the answer that was sent so far.
    pub(super) answer: String,
    /// The id of the tool call for which permission was requested. The next tool step uses this id.
    pub(super) asked: Option<String>,
    pub(super) calls: u64,
    /// The token counts that are reported with the end of the turn.
    pub(super) tokens: Option<ReportTokens>,
    /// Whether the turn ignores cancellation.
    pub(super) deaf: Arc<AtomicBool>,
    pub(super) memory: Memory,
    pub(super) remembered: Remembered,
}

impl Turn {
    /// The answer to the prompt.
    pub(super) fn answer(&self, stop_reason: &str) -> Value {
        let mut answer = json!({ "stopReason": stop_reason });
        if let Some(ReportTokens { input, output }) = self.tokens {
            answer["usage"] = json!({
                "inputTokens": input, "outputTokens": output,
                "totalTokens": input.saturating_add(output),
            });
        }
        answer
    }

    /// Performs the steps from index `first` on, until a step ends the turn or `cancel` is
    /// cancelled.
    pub(super) async fn play(
        &mut self,
        steps: &[Step],
        first: usize,
        cancel: &CancellationToken,
    ) -> Ended {
        let deaf = self.deaf.clone();
        let cancelled = async {
            cancel.cancelled().await;
            if deaf.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = cancelled => Ended::Stop(CANCELLED.to_owned()),
            ended = self.steps_from(steps, first) => {
                ended.unwrap_or_else(|| Ended::Stop(END_TURN.to_owned()))
            }
        }
    }

    /// Performs the steps of the turn. Stores the index of each question before it asks the
    /// question. If the process is killed, the turn can then continue at the question.
    async fn steps_from(&mut self, steps: &[Step], first: usize) -> Option<Ended> {
        for (index, step) in steps.iter().enumerate() {
            if index < first {
                if let Step::Plan(entries) = step {
                    self.plan = entries.iter().map(|entry| self.filled(entry)).collect();
                }
                continue;
            }
            let is_question = matches!(step, Step::Ask(_));
            if is_question {
                self.note_asking(Some(index)).await;
            }
            let ended = self.step(step).await;
            if is_question && ended != Some(Ended::ClientGone) {
                self.note_asking(None).await;
            }
            if ended.is_some() {
                return ended;
            }
        }
        None
    }

    async fn note_asking(&mut self, asking: Option<usize>) {
        self.remembered.asking = asking;
        // Ignore this error, because the end of the turn reports it. If the state is not stored and
        // the agent is killed, the restarted agent starts a new turn.
        let _ = self.memory.save(&self.session, &self.remembered).await;
    }

    /// Performs steps. Returns `None` if no step ended the turn.
    async fn steps(&mut self, steps: &[Step]) -> Option<Ended> {
        for step in steps {
            if let Some(ended) = self.step(step).await {
                return Some(ended);
            }
        }
        None
    }

    async fn step(&mut self, step: &Step) -> Option<Ended> {
        match step {
            Step::Say(text) => {
                let text = self.filled(text);
                self.answer.push_str(&text);
                self.chunk("agent_message_chunk", &text).await;
            }
            Step::Think(text) => {
                let text = self.filled(text);
                self.chunk("agent_thought_chunk", &text).await;
            }
            Step::Plan(entries) => {
                self.plan = entries.iter().map(|entry| self.filled(entry)).collect();
                self.send_plan(0).await;
            }
            Step::Done(count) => self.send_plan(*count).await,
            Step::Ask(ask) => return self.ask(ask).await,
            Step::Write(file) => {
                let (path, text) = (self.filled(&file.path), self.filled(&file.text));
                self.write(&path, &text).await;
            }
            Step::Edit(edit) => {
                let [path, old, new] = [&edit.path, &edit.old, &edit.new].map(|it| self.filled(it));
                self.edit(&path, &old, &new).await;
            }
            Step::Read(path) => {
                let path = self.filled(path);
                let call =
                    self.tool_call("read_text_file", "read", &format!("Read {path}"), Some(&path));
                let call = self.begin(call, json!({ "path": path })).await;
                let outcome = self.workspace.clone().read(&path).await;
                self.end(&call, outcome, Vec::new()).await;
            }
            Step::Run(command) => {
                let command = self.filled(command);
                let call = self.tool_call("exec", "execute", &format!("Run {command}"), None);
                let call = self.begin(call, json!({ "command": command })).await;
                let outcome = self.workspace.clone().run(&command).await;
                self.end(&call, outcome, Vec::new()).await;
            }
            Step::Call(tool) => {
                let arguments = to_json(&tool.arguments);
                let call =
                    self.tool_call(&tool.tool, "other", &format!("Call {}", tool.tool), None);
                let call = self.begin(call, arguments.clone()).await;
                let outcome = {
                    let workspace = self.workspace.clone();
                    workspace.call_on(tool.server.as_deref(), &tool.tool, arguments).await
                };
                self.end(&call, outcome, Vec::new()).await;
            }
            Step::Tool(tool) => {
                let (title, output) = (self.filled(&tool.title), self.filled(&tool.output));
                let call = self.tool_call("scripted", &tool.kind, &title, None);
                let call = self.begin(call, json!({})).await;
                let outcome = if tool.fails { Err(output) } else { Ok(output) };
                self.end(&call, outcome, Vec::new()).await;
            }
            Step::Usage(usage) => {
                let mut body = json!({
                    "sessionUpdate": "usage_update", "used": usage.used, "size": usage.size,
                });
                if let Some(amount) = usage.cost {
                    body["cost"] = json!({ "amount": amount, "currency": usage.currency });
                }
                self.update(body).await;
            }
            Step::Tokens(tokens) => self.tokens = Some(*tokens),
            Step::Update(body) => self.update(to_json(body)).await,
            Step::Notify(message) => {
                // Ignore a failed send: if the client is gone, the process ends anyway.
                let _ = self.rpc.notify(&message.method, to_json(&message.params)).await;
            }
            Step::Request(message) => {
                let method = message.method.clone();
                let answer = self.rpc.request(method, to_json(&message.params), CLIENT_TIME).await;
                self.output = match answer {
                    Ok(value) => value.to_string(),
                    Err(error) => error.to_string(),
                };
            }
            Step::Garbage(text) => self.raw(format!("{text}\n").into_bytes()).await,
            Step::LongLine(bytes) => self.long_line(*bytes).await,
            Step::Flood(flood) => self.flood(flood).await,
            Step::Delay(milliseconds) => {
                tokio::time::sleep(Duration::from_millis(*milliseconds)).await;
            }
            Step::Hang(hang) => {
                self.deaf.store(*hang == Hang::Forever, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
            Step::Stop(reason) => return Some(Ended::Stop(reason.clone())),
            Step::Error(error) => {
                return Some(Ended::Error(RpcError::new(error.code, self.filled(&error.message))));
            }
            Step::Exit(code) => return Some(Ended::Exit(*code)),
        }
        None
    }

    async fn ask(&mut self, ask: &Ask) -> Option<Ended> {
        let path = ask.path.as_ref().map(|path| self.filled(path));
        let title = self.filled(&ask.title);
        let mut call = self.tool_call("", &ask.kind, &title, path.as_deref());
        let id = call["toolCallId"].as_str().unwrap_or_default().to_owned();
        if let Some(command) = &ask.command {
            call["rawInput"] = json!({ "command": self.filled(command) });
        }
        let asked_about = call.clone();
        call["sessionUpdate"] = "tool_call".into();
        self.update(call).await;
        if self.remembered.always.contains(&ask.kind) {
            self.asked = Some(id);
            return None;
        }
        let params = json!({
            "sessionId": self.session,
            "toolCall": asked_about,
            "options": ask.options.iter().map(|option| option_value(*option)).collect::<Vec<_>>(),
        });
        let answer = self.rpc.request("session/request_permission", params, CLIENT_TIME).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.ends_connection() => return Some(Ended::ClientGone),
            Err(error) => {
                let text = format!("no answer to a permission request: {error}");
                return Some(Ended::Error(RpcError::new(crate::rpc::INTERNAL_ERROR, text)));
            }
        };
        match (answer["outcome"]["outcome"].as_str(), answer["outcome"]["optionId"].as_str()) {
            (Some("selected"), Some(option @ ("allow" | "always"))) => {
                if option == "always" {
                    // The choice is stored when the state is saved after the question.
                    self.remembered.always.insert(ask.kind.clone());
                }
                self.asked = Some(id);
                None
            }
            (Some("selected"), _) => {
                self.end(&id, Err("not allowed".to_owned()), Vec::new()).await;
                let ended = Box::pin(self.steps(&ask.denied)).await;
                Some(ended.unwrap_or_else(|| Ended::Stop(END_TURN.to_owned())))
            }
            _ => {
                self.end(&id, Err("cancelled".to_owned()), Vec::new()).await;
                Some(Ended::Stop(CANCELLED.to_owned()))
            }
        }
    }

    async fn write(&mut self, path: &str, text: &str) {
        let call = self.tool_call("write_file", "edit", &format!("Write {path}"), Some(path));
        let call = self.begin(call, json!({ "path": path })).await;
        let workspace = self.workspace.clone();
        let old = workspace.text(path).await;
        let outcome = workspace.write(path, text).await;
        let diff = self.diff(path, old.as_deref(), text);
        self.end(&call, outcome, vec![diff]).await;
    }

    async fn edit(&mut self, path: &str, old: &str, new: &str) {
        let call = self.tool_call("edit_file", "edit", &format!("Edit {path}"), Some(path));
        let call = self.begin(call, json!({ "path": path })).await;
        let workspace = self.workspace.clone();
        let before = workspace.text(path).await;
        let outcome = workspace.edit(path, old, new).await;
        let after = workspace.text(path).await.unwrap_or_default();
        let diff = self.diff(path, before.as_deref(), &after);
        self.end(&call, outcome, vec![diff]).await;
    }

    /// A tool call that was not reported yet: either the call that needed permission, or a new one.
    fn tool_call(&mut self, name: &str, kind: &str, title: &str, path: Option<&str>) -> Value {
        let id = self.asked.take().unwrap_or_else(|| {
            self.calls += 1;
            format!("call-{}-{}", self.number, self.calls)
        });
        let mut call =
            json!({ "toolCallId": id, "title": title, "kind": kind, "status": "pending" });
        if !name.is_empty() {
            call["name"] = name.into();
        }
        if let Some(path) = path {
            call["locations"] = json!([{ "path": self.absolute(path) }]);
        }
        call
    }

    /// Reports that a call has started and returns its id.
    async fn begin(&mut self, mut call: Value, input: Value) -> String {
        let id = call["toolCallId"].as_str().unwrap_or_default().to_owned();
        call["sessionUpdate"] = "tool_call".into();
        call["status"] = "in_progress".into();
        call["rawInput"] = input;
        self.update(call).await;
        id
    }

    /// Reports how a call ended.
    async fn end(&mut self, id: &str, outcome: Outcome, diffs: Vec<Value>) {
        let (status, text, mut content) = match outcome {
            Ok(text) => ("completed", text, diffs),
            Err(text) => ("failed", text, Vec::new()),
        };
        content.push(json!({ "type": "content", "content": { "type": "text", "text": text } }));
        self.output = text;
        self.update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status,
            "content": content,
        }))
        .await;
    }

    fn diff(&self, path: &str, old: Option<&str>, new: &str) -> Value {
        json!({ "type": "diff", "path": self.absolute(path), "oldText": old, "newText": new })
    }

    /// Makes a path absolute, as ACP requires.
    fn absolute(&self, path: &str) -> String {
        Path::new(&self.cwd).join(path).to_string_lossy().into_owned()
    }

    async fn send_plan(&mut self, completed: usize) {
        let entry = |(index, content): (usize, &String)| {
            let status = match index.cmp(&completed) {
                std::cmp::Ordering::Less => "completed",
                std::cmp::Ordering::Equal => "in_progress",
                std::cmp::Ordering::Greater => "pending",
            };
            json!({ "content": content, "priority": "medium", "status": status })
        };
        let entries: Value = self.plan.iter().enumerate().map(entry).collect();
        self.update(json!({ "sessionUpdate": "plan", "entries": entries })).await;
    }

    async fn chunk(&mut self, kind: &str, text: &str) {
        let content = json!({ "type": "text", "text": text });
        self.update(json!({ "sessionUpdate": kind, "content": content })).await;
    }

    async fn flood(&mut self, flood: &Flood) {
        let text = "x".repeat(flood.bytes);
        for _ in 0..flood.pieces {
            self.chunk("agent_message_chunk", &text).await;
        }
    }

    async fn long_line(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(PIECE);
            self.raw(vec![b'x'; piece]).await;
            left -= piece;
        }
        self.raw(b"\n".to_vec()).await;
    }

    async fn update(&mut self, body: Value) {
        let params = json!({ "sessionId": self.session, "update": body });
        // Ignore a failed send: if the client is gone, the process ends anyway.
        let _ = self.rpc.notify("session/update", params).await;
    }

    async fn raw(&mut self, bytes: Vec<u8>) {
        let _ = self.rpc.send(bytes).await;
    }

    /// Replaces `{prompt}`, `{turn}`, `{output}` and `{now}`. The inserted text is not expanded
    /// again.
    fn filled(&self, text: &str) -> String {
        let turn = self.number.to_string();
        // A clock before 1970 is treated as 0.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = now.as_micros().to_string();
        let names = [
            ("{prompt}", &self.prompt),
            ("{turn}", &turn),
            ("{output}", &self.output),
            ("{now}", &now),
        ];
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            match names.iter().find(|(name, _)| rest.starts_with(name)) {
                Some((name, value)) => {
                    filled.push_str(value);
                    rest = &rest[name.len()..];
                }
                None => {
                    filled.push('{');
                    rest = &rest[1..];
                }
            }
        }
        filled.push_str(rest);
        filled
    }
}

fn to_json(table: &toml::Table) -> Value {
    // Every TOML value has a JSON form.
    serde_json::to_value(table).unwrap_or_default()
}

/// An answer to a permission request as ACP describes it.
fn option_value(option: AskOption) -> Value {
    let (id, name, kind) = match option {
        AskOption::AllowOnce => ("allow", "Allow", "allow_once"),
        AskOption::AllowAlways => ("always", "Always allow", "allow_always"),
        AskOption::RejectOnce => ("reject", "Reject", "reject_once"),
    };
    json!({ "optionId": id, "name": name, "kind": kind })
}
