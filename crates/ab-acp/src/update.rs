//! What an agent reports while it works.

use serde_json::Value;

use crate::tool_call::ToolCallChange;

/// One `session/update` of an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// A part of the answer.
    Message(Chunk),
    /// A part of what the agent thinks aloud.
    Thought(Chunk),
    /// A part of a prompt that the agent repeats.
    UserMessage(Chunk),
    /// A new tool call, or a change of one. Merge them by id with
    /// [`ToolCalls`](crate::tool_call::ToolCalls).
    ToolCall(ToolCallChange),
    /// The whole plan; it replaces the one before.
    Plan(Vec<PlanEntry>),
    /// How much of the context is used, and what the session has cost so far.
    Usage(Usage),
    /// A message for the user beside the conversation.
    Notice(Notice),
    /// Any other update, as the agent sent it.
    Other { kind: String, body: Value },
}

/// A piece of a message. Pieces with the same message id belong to one message.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    pub content: UpdateContent,
    pub message_id: Option<String>,
}

/// What a message or a tool call holds.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateContent {
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
    pub status: PlanStatus,
    /// `high`, `medium` or `low`.
    pub priority: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// The state of the context window and the cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens in the context.
    pub used: Option<u64>,
    /// Tokens that fit into the context.
    pub size: Option<u64>,
    pub cost: Option<Cost>,
}

/// What a session has cost so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    pub amount: f64,
    pub currency: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `info`, `warning`, `error`, or another word.
    pub severity: String,
    pub title: String,
    pub description: Option<String>,
}

impl Update {
    /// Reads the `update` member of a notification. An update that lacks what its kind needs becomes
    /// [`Update::Other`].
    pub(crate) fn parse(body: Value) -> Update {
        let kind = body["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        let known = match kind.as_str() {
            "agent_message_chunk" => Chunk::parse(&body).map(Update::Message),
            "agent_thought_chunk" => Chunk::parse(&body).map(Update::Thought),
            "user_message_chunk" => Chunk::parse(&body).map(Update::UserMessage),
            "tool_call" | "tool_call_update" => ToolCallChange::parse(&body).map(Update::ToolCall),
            "plan" => plan(&body).map(Update::Plan),
            "usage_update" => Some(Update::Usage(Usage::parse(&body))),
            "notice" => Notice::parse(&body).map(Update::Notice),
            _ => None,
        };
        known.unwrap_or_else(|| Update::Other { kind, body })
    }
}

impl Chunk {
    fn parse(body: &Value) -> Option<Chunk> {
        let content = UpdateContent::parse(&body["content"])?;
        Some(Chunk { content, message_id: body["messageId"].as_str().map(str::to_owned) })
    }

    /// The text, or `None` for content of another kind.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            UpdateContent::Text(text) => Some(text),
            UpdateContent::Link { .. } | UpdateContent::Other { .. } => None,
        }
    }
}

impl UpdateContent {
    pub(crate) fn parse(value: &Value) -> Option<UpdateContent> {
        // Some agents send a bare string.
        if let Some(text) = value.as_str() {
            return Some(UpdateContent::Text(text.to_owned()));
        }
        let kind = value["type"].as_str()?;
        Some(match kind {
            "text" => UpdateContent::Text(value["text"].as_str()?.to_owned()),
            "resource_link" => {
                let uri = value["uri"].as_str()?.to_owned();
                UpdateContent::Link { name: value["name"].as_str().unwrap_or(&uri).to_owned(), uri }
            }
            _ => UpdateContent::Other { kind: kind.to_owned(), body: value.clone() },
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
            Some("completed") => PlanStatus::Completed,
            Some("in_progress") => PlanStatus::InProgress,
            _ => PlanStatus::Pending,
        };
        Some(PlanEntry { content, status, priority: value["priority"].as_str().map(str::to_owned) })
    }
}

impl PlanStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            PlanStatus::Pending => "pending",
            PlanStatus::InProgress => "in_progress",
            PlanStatus::Completed => "completed",
        }
    }
}

impl Usage {
    fn parse(body: &Value) -> Usage {
        let cost = &body["cost"];
        Usage {
            used: body["used"].as_u64(),
            size: body["size"].as_u64(),
            cost: cost["amount"].as_f64().map(|amount| Cost {
                amount,
                currency: cost["currency"].as_str().unwrap_or("USD").to_owned(),
            }),
        }
    }
}

impl Notice {
    fn parse(body: &Value) -> Option<Notice> {
        Some(Notice {
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
    fn check(body: Value, expected: Update) {
        assert_eq!(Update::parse(body), expected);
    }

    fn text(text: &str) -> Chunk {
        Chunk { content: UpdateContent::Text(text.to_owned()), message_id: None }
    }

    #[test]
    fn chunks_are_read() {
        let chunk = |kind: &str| json!({ "sessionUpdate": kind, "content": { "type": "text", "text": "a" } });
        check(chunk("agent_message_chunk"), Update::Message(text("a")));
        check(chunk("agent_thought_chunk"), Update::Thought(text("a")));
        check(chunk("user_message_chunk"), Update::UserMessage(text("a")));
        let image = json!({ "type": "image", "data": "x", "mimeType": "image/png" });
        let body =
            json!({ "sessionUpdate": "agent_message_chunk", "content": image, "messageId": "m" });
        let content = UpdateContent::Other { kind: "image".into(), body: image };
        check(body, Update::Message(Chunk { content, message_id: Some("m".into()) }));
    }

    #[test]
    fn plans_usage_and_notices_are_read() {
        let entry =
            |content: &str, status| PlanEntry { content: content.into(), status, priority: None };
        check(
            json!({ "sessionUpdate": "plan", "entries": [
                { "content": "a", "status": "completed" }, { "content": "b" }, { "status": "pending" },
            ] }),
            Update::Plan(vec![entry("a", PlanStatus::Completed), entry("b", PlanStatus::Pending)]),
        );
        check(
            json!({ "sessionUpdate": "usage_update", "used": 10, "size": 200, "cost": { "amount": 0.5, "currency": "EUR" } }),
            Update::Usage(Usage {
                used: Some(10),
                size: Some(200),
                cost: Some(Cost { amount: 0.5, currency: "EUR".into() }),
            }),
        );
        let notice = Notice { severity: "warning".into(), title: "slow".into(), description: None };
        check(
            json!({ "sessionUpdate": "notice", "severity": "warning", "title": "slow" }),
            Update::Notice(notice),
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
            check(body.clone(), Update::Other { kind, body });
        }
        check(json!(7), Update::Other { kind: String::new(), body: json!(7) });
    }
}
