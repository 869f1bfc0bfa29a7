//! Prompts of a session: the request, the queue, and the status of each prompt.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::time::Time;
use crate::violation::FieldViolations;

/// Maximum size of a prompt in bytes.
pub(crate) const MAX_PROMPT_BYTES: usize = 128 * 1024;

/// The body of `POST /api/v1/sessions/{id}/prompt`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptRequest {
    /// What the agent should do next.
    pub prompt: String,
    /// Whether the agent's current turn is cancelled and this prompt is sent before all others. By
    /// default the prompt waits in the queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub now: bool,
}

impl PromptRequest {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object, or the prompt is missing, empty or too long.
    pub fn parse(body: &[u8]) -> Result<PromptRequest, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let prompt = required_prompt(&mut body, &mut found);
        let now = body.flag("now", &mut found).unwrap_or_default();
        body.end(&mut found);
        found.into_result(PromptRequest { prompt, now })
    }
}

/// The body of `PUT /api/v1/sessions/{id}/prompts/{number}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptEdit {
    /// The new text of the prompt.
    pub prompt: String,
}

impl PromptEdit {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object, or the prompt is missing, empty or too long.
    pub fn parse(body: &[u8]) -> Result<PromptEdit, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let prompt = required_prompt(&mut body, &mut found);
        body.end(&mut found);
        found.into_result(PromptEdit { prompt })
    }
}

fn required_prompt(body: &mut Fields<'_>, found: &mut FieldViolations) -> String {
    let Some(prompt) = body.required_text("prompt", found) else { return String::new() };
    check_prompt(prompt, found);
    prompt.to_owned()
}

/// Checks the text of the field `prompt`.
pub(crate) fn check_prompt(prompt: &str, found: &mut FieldViolations) {
    if prompt.trim().is_empty() {
        found.add_invalid("prompt", "must not be empty");
    } else if prompt.len() > MAX_PROMPT_BYTES {
        found.add_invalid("prompt", format!("must have at most {MAX_PROMPT_BYTES} bytes"));
    }
}

/// A prompt of a session, with its status and times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPrompt {
    /// The number of the prompt in its session. The prompt of the task is 1.
    pub number: u32,
    pub status: PromptStatus,
    pub prompt: String,
    /// When the server accepted the prompt.
    pub created_at: Time,
    /// When the server recorded that it was about to send the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Time>,
    /// When the status became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}

/// The status of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptStatus {
    /// The prompt is in the queue, where it can be changed and withdrawn.
    Queued,
    /// The prompt was sent to the agent, which works on it. A prompt is never sent twice.
    Sent,
    /// The agent ended its turn.
    Answered,
    /// The turn was cancelled, or the session ended during the turn.
    Interrupted,
    /// The server ended during the turn. The agent may have received the prompt and may have worked
    /// on it.
    Unknown,
    /// The prompt was withdrawn, or the session ended before it was sent.
    Withdrawn,
}

impl PromptStatus {
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Sent,
        Self::Answered,
        Self::Interrupted,
        Self::Unknown,
        Self::Withdrawn,
    ];

    /// The name of the status in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Answered => "answered",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl fmt::Display for PromptStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PromptStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| {
            format!("must be one of: {}", Self::ALL.map(PromptStatus::as_str).join(", "))
        })
    }
}
