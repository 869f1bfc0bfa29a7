//! Updates that an agent sends while it works.

use serde_json::Value;

use crate::tool_call::ToolCallUpdate;

/// One `session/update` of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionUpdate {
    /// A part of the answer.
    Message(ContentChunk),
    /// A part of the agent's reasoning.
    Thought(ContentChunk),
    /// A part of a prompt that the agent repeats.
    UserMessage(ContentChunk),
    /// A new tool call, or a change of an existing one. Changes are merged by id with
    /// [`ToolCallTracker`](crate::tool_call::ToolCallTracker).
    ToolCall(ToolCallUpdate),
    /// The whole plan. It replaces the previous one.
    Plan(Vec<PlanEntry>),
    /// The used part of the context window, and the cost of the session so far.
    Usage(SessionUsage),
    /// A message for the user outside of the conversation.
    Notice(AgentUserNotice),
    /// Any other update, unchanged.
    Other { kind: String, body: Value },
}

/// A piece of a message. Pieces with the same message id form one message.
#[derive(Clone, Debug, PartialEq)]
pub struct ContentChunk {
    pub content: ContentBlock,
    pub message_id: Option<String>,
}

/// The content of a message or a tool call.
#[derive(Clone, Debug, PartialEq)]
pub enum ContentBlock {
    Text(String),
    /// A link to a resource.
    Link {
        name: String,
        uri: String,
    },
    /// An image, audio, an embedded resource, or a kind that this client does not know.
    Other {
        kind: String,
        body: Value,
    },
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEntry {
    pub content: String,
    pub status: PlanEntryStatus,
    /// `high`, `medium` or `low`.
    pub priority: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanEntryStatus {
    Pending,
    InProgress,
    Completed,
}

/// The state of the context window and the cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionUsage {
    /// Tokens used in the context window.
    pub context_tokens_used: Option<u64>,
    /// Size of the context window in tokens.
    pub context_window_tokens: Option<u64>,
    pub cost: Option<SessionCost>,
}

/// The cost of a session so far.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionCost {
    pub amount: f64,
    pub currency: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUserNotice {
    /// `info`, `warning`, `error`, or another word.
    pub severity: String,
    pub title: String,
    pub description: Option<String>,
}

impl SessionUpdate {
    /// Parses the `update` member of a notification. An update without a required member becomes
    /// [`SessionUpdate::Other`].
    pub(crate) fn parse(body: Value) -> SessionUpdate {
        let kind = body["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        let known = match kind.as_str() {
            "agent_message_chunk" => ContentChunk::parse(&body).map(SessionUpdate::Message),
            "agent_thought_chunk" => ContentChunk::parse(&body).map(SessionUpdate::Thought),
            "user_message_chunk" => ContentChunk::parse(&body).map(SessionUpdate::UserMessage),
            "tool_call" | "tool_call_update" => {
                ToolCallUpdate::parse(&body).map(SessionUpdate::ToolCall)
            }
            "plan" => plan(&body).map(SessionUpdate::Plan),
            "usage_update" => Some(SessionUpdate::Usage(SessionUsage::parse(&body))),
            "notice" => AgentUserNotice::parse(&body).map(SessionUpdate::Notice),
            _ => None,
        };
        known.unwrap_or_else(|| SessionUpdate::Other { kind, body })
    }
}

impl ContentChunk {
    fn parse(body: &Value) -> Option<ContentChunk> {
        let content = ContentBlock::parse(&body["content"])?;
        Some(ContentChunk { content, message_id: body["messageId"].as_str().map(str::to_owned) })
    }

    /// The text of the content. `None` if it is not text.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            ContentBlock::Text(text) => Some(text),
            ContentBlock::Link { .. } | ContentBlock::Other { .. } => None,
        }
    }
}

impl ContentBlock {
    pub(crate) fn parse(value: &Value) -> Option<ContentBlock> {
        // Some agents send a plain string instead of an object.
        if let Some(text) = value.as_str() {
            return Some(ContentBlock::Text(text.to_owned()));
        }
        let kind = value["type"].as_str()?;
        Some(match kind {
            "text" => ContentBlock::Text(value["text"].as_str()?.to_owned()),
            "resource_link" => {
                let uri = value["uri"].as_str()?.to_owned();
                ContentBlock::Link { name: value["name"].as_str().unwrap_or(&uri).to_owned(), uri }
            }
            _ => ContentBlock::Other { kind: kind.to_owned(), body: value.clone() },
        })
    }
}

fn plan(body: &Value) -> Option<Vec<PlanEntry>> {
    let entries = body["entries"].as_array()?;
    Some(entries.iter().filter_map(PlanEntry::parse).collect())
}

impl PlanEntry {
    fn parse(value: &Value) -> Option<PlanEntry> {
        let content = value["content"].as_str()?.to_owned();
        let status = match value["status"].as_str() {
            Some("completed") => PlanEntryStatus::Completed,
            Some("in_progress") => PlanEntryStatus::InProgress,
            _ => PlanEntryStatus::Pending,
        };
        Some(PlanEntry { content, status, priority: value["priority"].as_str().map(str::to_owned) })
    }
}

impl PlanEntryStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            PlanEntryStatus::Pending => "pending",
            PlanEntryStatus::InProgress => "in_progress",
            PlanEntryStatus::Completed => "completed",
        }
    }
}

impl SessionUsage {
    fn parse(body: &Value) -> SessionUsage {
        let cost = &body["cost"];
        SessionUsage {
            context_tokens_used: body["used"].as_u64(),
            context_window_tokens: body["size"].as_u64(),
            cost: cost["amount"].as_f64().map(|amount| SessionCost {
                amount,
                currency: cost["currency"].as_str().unwrap_or("USD").to_owned(),
            }),
        }
    }
}

impl AgentUserNotice {
    fn parse(body: &Value) -> Option<AgentUserNotice> {
        Some(AgentUserNotice {
            severity: body["severity"].as_str().unwrap_or("info").to_owned(),
            title: body["title"].as_str()?.to_owned(),
            description: body["description"].as_str().map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(body: Value, expected: SessionUpdate) {
        assert_eq!(SessionUpdate::parse(body), expected);
    }

    fn text(text: &str) -> ContentChunk {
        ContentChunk { content: ContentBlock::Text(text.to_owned()), message_id: None }
    }

    #[test]
    fn chunks_are_read() {
        let chunk = |kind: &str| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": "a" } });
        check(chunk("agent_message_chunk"), SessionUpdate::Message(text("a")));
        check(chunk("agent_thought_chunk"), SessionUpdate::Thought(text("a")));
        check(chunk("user_message_chunk"), SessionUpdate::UserMessage(text("a")));
        let image = json!({ "type": "image", "data": "x", "mimeType": "image/png" });
        let body =
            json!({ "sessionUpdate": "agent_message_chunk", "content": image, "messageId": "m" });
        let content = ContentBlock::Other { kind: "image".into(), body: image };
        check(body, SessionUpdate::Message(ContentChunk { content, message_id: Some("m".into()) }));
    }

    #[test]
    fn plans_usage_and_notices_are_read() {
        let entry =
            |content: &str, status| PlanEntry { content: content.into(), status, priority: None };
        check(
            json!({ "sessionUpdate": "plan", "entries": [
                { "content": "a", "status": "completed" }, { "content": "b" }, { "status": "pending" },
            ] }),
            SessionUpdate::Plan(vec![
                entry("a", PlanEntryStatus::Completed),
                entry("b", PlanEntryStatus::Pending),
            ]),
        );
        check(
            json!({ "sessionUpdate": "usage_update", "used": 10, "size": 200, "cost": { "amount": 0.5, "currency": "EUR" } }),
            SessionUpdate::Usage(SessionUsage {
                context_tokens_used: Some(10),
                context_window_tokens: Some(200),
                cost: Some(SessionCost { amount: 0.5, currency: "EUR".into() }),
            }),
        );
        let notice =
            AgentUserNotice { severity: "warning".into(), title: "slow".into(), description: None };
        check(
            json!({ "sessionUpdate": "notice", "severity": "warning", "title": "slow" }),
            SessionUpdate::Notice(notice),
        );
    }

    #[test]
    fn unknown_and_broken_updates_are_passed_on() {
        for body in [
            json!({ "sessionUpdate": "config_option_update", "configOptions": [] }),
            json!({ "sessionUpdate": "tool_call", "title": "no id" }),
            json!({ "sessionUpdate": "agent_message_chunk" }),
        ] {
            let kind = body["sessionUpdate"].as_str().unwrap().to_owned();
            check(body.clone(), SessionUpdate::Other { kind, body });
        }
        check(json!(7), SessionUpdate::Other { kind: String::new(), body: json!(7) });
    }
}
