//! The digest of an agent's question: SHA-256 over all information about the tool call.
//!
//! Every field is preceded by its length, so that two different questions never produce the same
//! bytes.

use ab_acp::session_update::ContentBlock;
use ab_acp::tool_call::{ToolCall, ToolCallContent};
use sha2::{Digest, Sha256};

/// A prefix of the digested bytes. Change it whenever the encoding changes, so that digests of two
/// versions are never equal.
const VERSION: &str = "agent-backend permission 1";

/// The digest in hexadecimal. It does not cover the id of the call, so that a repeated question has
/// the same digest.
pub(super) fn of_call(call: &ToolCall) -> String {
    let ToolCall { id: _, title, name, kind, status: _, content, locations, raw_input, .. } = call;
    let mut out = Encoder(Sha256::new());
    out.text(VERSION);
    out.text(title);
    out.optional(name.as_deref());
    out.text(kind.as_str());
    out.optional(raw_input.as_ref().map(ToString::to_string).as_deref());
    out.number(locations.len() as u64);
    for location in locations {
        out.text(&location.path);
        out.optional(location.line.map(|line| line.to_string()).as_deref());
    }
    out.number(content.len() as u64);
    for part in content {
        match part {
            ToolCallContent::Diff(diff) => {
                out.text("diff");
                out.text(&diff.path);
                out.optional(diff.old_text.as_deref());
                out.text(&diff.new_text);
            }
            ToolCallContent::Content(ContentBlock::Text(text)) => {
                out.text("text");
                out.text(text);
            }
            ToolCallContent::Content(ContentBlock::Link { name, uri }) => {
                out.text("link");
                out.text(name);
                out.text(uri);
            }
            ToolCallContent::Content(ContentBlock::Other { kind, body }) => {
                out.text("body");
                out.text(kind);
                out.text(&body.to_string());
            }
            ToolCallContent::Other(value) => {
                out.text("other");
                out.text(&value.to_string());
            }
        }
    }
    out.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Encoder(Sha256);

impl Encoder {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        self.number(text.is_some().into());
        if let Some(text) = text {
            self.text(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use ab_acp::tool_call::{ToolCallId, ToolCallLocation, ToolCallStatus, ToolKind};

    use super::*;

    #[test]
    fn digest_covers_what_is_asked_and_not_who_counts_it() {
        let call = |id: &str, title: &str, path: &str| ToolCall {
            id: ToolCallId(id.to_owned()),
            title: title.to_owned(),
            name: None,
            kind: ToolKind::Edit,
            status: ToolCallStatus::Pending,
            content: vec![ToolCallContent::Content(ContentBlock::Text("x".to_owned()))],
            locations: vec![ToolCallLocation { path: path.to_owned(), line: None }],
            raw_input: None,
            raw_output: None,
            terminal_output: String::new(),
        };
        let first = of_call(&call("1", "Edit", "a"));
        assert_eq!(first.len(), 64);
        assert_eq!(first, of_call(&call("2", "Edit", "a")));
        for other in [call("1", "Edit", "b"), call("1", "Edi", "ta")] {
            assert_ne!(first, of_call(&other));
        }
        let longer = ToolCall { content: Vec::new(), ..call("1", "Edit", "a") };
        assert_ne!(first, of_call(&longer));
    }
}
