//! Permission requests of an agent.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Value, json};

use crate::client::AcpSessionId;
use crate::rpc::{INVALID_PARAMS, Reply, RpcError};
use crate::tool_call::ToolCallUpdate;

/// A question that can be answered once. Dropping it answers "cancelled".
pub struct PermissionQuestion {
    pub session: AcpSessionId,
    /// The tool call that waits for the answer.
    pub call: ToolCallUpdate,
    /// The options that the agent offers to the user.
    pub options: Vec<PermissionOption>,
    slot: Arc<ReplySlot>,
}

/// An answer that the agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionOption {
    pub id: String,
    pub name: String,
    pub kind: PermissionOptionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionOptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    /// A kind that this client does not know.
    Other,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// Allows the action once. If the agent does not offer `allow_once`, its option `allow_always`
    /// is used. If the agent offers neither, the question is cancelled.
    Allow,
    /// Rejects the action. If the agent offers no option to reject, the question is cancelled.
    Reject,
    /// Selects the option with this id.
    Choose(String),
    /// The answer while the turn is being cancelled.
    Cancel,
}

/// The reply to one question. The question and the client share it, because the client answers the
/// question if the turn is cancelled.
#[derive(Debug)]
pub(crate) struct ReplySlot(Mutex<Option<Reply>>);

impl ReplySlot {
    /// Sends the answer. Returns `false` if the question was already answered.
    fn send(&self, outcome: Value) -> bool {
        let reply = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(reply) = reply else { return false };
        reply.send(Ok(json!({ "outcome": outcome })));
        true
    }

    pub(crate) fn cancel(&self) -> bool {
        self.send(json!({ "outcome": "cancelled" }))
    }

    fn is_open(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl PermissionQuestion {
    /// Parses a request. An invalid request is answered with an error, and `None` is returned.
    pub(crate) fn parse(params: &Value, reply: Reply) -> Option<PermissionQuestion> {
        let session = params["sessionId"].as_str();
        let call = ToolCallUpdate::parse(&params["toolCall"]);
        let options = params["options"].as_array();
        let (Some(session), Some(call), Some(options)) = (session, call, options) else {
            let text = "sessionId, toolCall with toolCallId, and options are required";
            reply.send(Err(RpcError::new(INVALID_PARAMS, text)));
            return None;
        };
        Some(PermissionQuestion {
            session: AcpSessionId::new(session),
            call,
            options: options.iter().filter_map(PermissionOption::parse).collect(),
            slot: Arc::new(ReplySlot(Mutex::new(Some(reply)))),
        })
    }

    /// Answers the question. Returns `false` if the client already answered the question because
    /// its turn was cancelled.
    pub fn answer(self, answer: &PermissionAnswer) -> bool {
        match self.chosen(answer) {
            Some(id) => self.slot.send(json!({ "outcome": "selected", "optionId": id })),
            None => self.slot.cancel(),
        }
    }

    /// Whether the agent offers an option for this answer. If it does not, the answer cancels the
    /// question.
    pub fn offers(&self, answer: &PermissionAnswer) -> bool {
        self.chosen(answer).is_some()
    }

    /// Whether the question is still open, so that an answer would reach the agent.
    pub fn is_unanswered(&self) -> bool {
        self.slot.is_open()
    }

    pub(crate) fn slot(&self) -> Weak<ReplySlot> {
        Arc::downgrade(&self.slot)
    }

    /// The id of the option for an answer.
    fn chosen<'a>(&'a self, answer: &'a PermissionAnswer) -> Option<&'a str> {
        use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};
        match answer {
            PermissionAnswer::Allow => self.first_of(&[AllowOnce, AllowAlways]),
            PermissionAnswer::Reject => self.first_of(&[RejectOnce, RejectAlways]),
            PermissionAnswer::Choose(id) => Some(id),
            PermissionAnswer::Cancel => None,
        }
    }

    fn first_of(&self, kinds: &[PermissionOptionKind]) -> Option<&str> {
        let of =
            |kind: &PermissionOptionKind| self.options.iter().find(|option| option.kind == *kind);
        kinds.iter().find_map(of).map(|option| option.id.as_str())
    }
}

impl Drop for PermissionQuestion {
    fn drop(&mut self) {
        self.slot.cancel();
    }
}

impl fmt::Debug for PermissionQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermissionQuestion")
            .field("session", &self.session)
            .field("call", &self.call)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl PermissionOption {
    fn parse(value: &Value) -> Option<PermissionOption> {
        let id = value["optionId"].as_str()?.to_owned();
        let name = value["name"].as_str().unwrap_or(&id).to_owned();
        let kind = match value["kind"].as_str() {
            Some("allow_once") => PermissionOptionKind::AllowOnce,
            Some("allow_always") => PermissionOptionKind::AllowAlways,
            Some("reject_once") => PermissionOptionKind::RejectOnce,
            Some("reject_always") => PermissionOptionKind::RejectAlways,
            _ => PermissionOptionKind::Other,
        };
        Some(PermissionOption { id, name, kind })
    }
}
