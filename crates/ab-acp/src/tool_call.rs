//! Tool calls of an agent. Updates are merged into the calls.

mod description;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::bounds::{MAX_TERMINAL_OUTPUT_BYTES, MAX_TRACKED_TOOL_CALLS};
use crate::session_update::ContentBlock;

pub use description::path_relative_to;

/// Time limit for comparing the lines of one diff. When the limit is reached, the counts are
/// approximate.
const DIFF_TIME: Duration = Duration::from_millis(200);

/// The id that an agent gave a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolCallId(pub String);

impl fmt::Display for ToolCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A new tool call, or a change of an existing one. A field that is `None` does not change the
/// call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallUpdate {
    pub id: ToolCallId,
    /// Whether the agent sent this as the start of a call. Some agents use the id of an ended call
    /// again.
    pub is_announcement: bool,
    pub title: Option<String>,
    /// The name of the tool, such as `write_file`.
    pub name: Option<String>,
    pub kind: Option<ToolKind>,
    pub status: Option<ToolCallStatus>,
    /// If set, replaces the content.
    pub content: Option<Vec<ToolCallContent>>,
    /// If set, replaces the locations.
    pub locations: Option<Vec<ToolCallLocation>>,
    pub raw_input: Option<Value>,
    pub raw_output: Option<Value>,
    /// Text to append to the terminal output.
    pub terminal_output: Option<String>,
}

/// The kind of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    #[default]
    Other,
}

impl ToolKind {
    pub const ALL: [ToolKind; 10] = [
        ToolKind::Read,
        ToolKind::Edit,
        ToolKind::Delete,
        ToolKind::Move,
        ToolKind::Search,
        ToolKind::Execute,
        ToolKind::Think,
        ToolKind::Fetch,
        ToolKind::SwitchMode,
        ToolKind::Other,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ToolKind::Read => "read",
            ToolKind::Edit => "edit",
            ToolKind::Delete => "delete",
            ToolKind::Move => "move",
            ToolKind::Search => "search",
            ToolKind::Execute => "execute",
            ToolKind::Think => "think",
            ToolKind::Fetch => "fetch",
            ToolKind::SwitchMode => "switch_mode",
            ToolKind::Other => "other",
        }
    }

    /// Parses the kind of a tool. Unknown kinds become [`ToolKind::Other`].
    fn parse(text: &str) -> ToolKind {
        ToolKind::ALL.into_iter().find(|kind| kind.as_str() == text).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolCallStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
    Failed,
}

impl ToolCallStatus {
    pub const ALL: [ToolCallStatus; 4] = [
        ToolCallStatus::Pending,
        ToolCallStatus::InProgress,
        ToolCallStatus::Completed,
        ToolCallStatus::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ToolCallStatus::Pending => "pending",
            ToolCallStatus::InProgress => "in_progress",
            ToolCallStatus::Completed => "completed",
            ToolCallStatus::Failed => "failed",
        }
    }

    pub fn has_ended(self) -> bool {
        matches!(self, ToolCallStatus::Completed | ToolCallStatus::Failed)
    }

    fn parse(text: &str) -> Option<ToolCallStatus> {
        ToolCallStatus::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ToolCallContent {
    Content(ContentBlock),
    Diff(FileDiff),
    /// The content is a terminal of the client, or of a kind that this client does not know.
    Other(Value),
}

/// A change of one file, as the agent reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    pub path: String,
    /// The previous content. `None` for a new file.
    pub old_text: Option<String>,
    pub new_text: String,
}

/// Numbers of lines that a diff adds and removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedLineCounts {
    pub added: u64,
    pub removed: u64,
}

/// A position in a file that a tool call works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCallLocation {
    pub path: String,
    pub line: Option<u64>,
}

impl FileDiff {
    /// Counts changed lines. For very large texts the counts are approximate.
    pub fn line_counts(&self) -> ChangedLineCounts {
        let old = self.old_text.as_deref().unwrap_or_default();
        let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, self.new_text.as_str());
        let mut counts = ChangedLineCounts::default();
        for change in diff.iter_all_changes() {
            match change.tag() {
                ChangeTag::Insert => counts.added += 1,
                ChangeTag::Delete => counts.removed += 1,
                ChangeTag::Equal => {}
            }
        }
        counts
    }
}

impl ToolCallUpdate {
    /// Parses a `tool_call`, a `tool_call_update`, or the call of a permission request. `None` if
    /// it has no id.
    pub(crate) fn parse(body: &Value) -> Option<ToolCallUpdate> {
        let text = |key: &str| body[key].as_str().map(str::to_owned);
        let list = |key: &str| body[key].as_array();
        let value = |key: &str| body.get(key).filter(|value| !value.is_null()).cloned();
        Some(ToolCallUpdate {
            id: ToolCallId(text("toolCallId")?),
            is_announcement: body["sessionUpdate"] == "tool_call",
            title: text("title"),
            name: text("name"),
            kind: body["kind"].as_str().map(ToolKind::parse),
            status: body["status"].as_str().and_then(ToolCallStatus::parse),
            content: list("content").map(|list| list.iter().map(ToolCallContent::parse).collect()),
            locations: list("locations")
                .map(|list| list.iter().filter_map(ToolCallLocation::parse).collect()),
            raw_input: value("rawInput"),
            raw_output: value("rawOutput"),
            terminal_output: terminal_output(&body["_meta"]),
        })
    }
}

/// The output of a command since the last update. Codex, and agents that were written for some
/// editors, report the output as metadata and not as content.
fn terminal_output(meta: &Value) -> Option<String> {
    let keys = ["terminal_output_delta", "terminal_output"];
    keys.iter().find_map(|key| meta[*key]["data"].as_str()).map(str::to_owned)
}

impl ToolCallContent {
    fn parse(value: &Value) -> ToolCallContent {
        let known = match value["type"].as_str() {
            Some("content") => ContentBlock::parse(&value["content"]).map(ToolCallContent::Content),
            Some("diff") => FileDiff::parse(value).map(ToolCallContent::Diff),
            _ => None,
        };
        known.unwrap_or_else(|| ToolCallContent::Other(value.clone()))
    }
}

impl FileDiff {
    fn parse(value: &Value) -> Option<FileDiff> {
        Some(FileDiff {
            path: value["path"].as_str()?.to_owned(),
            old_text: value["oldText"].as_str().map(str::to_owned),
            new_text: value["newText"].as_str()?.to_owned(),
        })
    }
}

impl ToolCallLocation {
    fn parse(value: &Value) -> Option<ToolCallLocation> {
        Some(ToolCallLocation {
            path: value["path"].as_str()?.to_owned(),
            line: value["line"].as_u64(),
        })
    }
}

/// A tool call with all changes so far merged.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: ToolCallId,
    pub title: String,
    pub name: Option<String>,
    pub kind: ToolKind,
    pub status: ToolCallStatus,
    pub content: Vec<ToolCallContent>,
    pub locations: Vec<ToolCallLocation>,
    pub raw_input: Option<Value>,
    pub raw_output: Option<Value>,
    /// The output of a command, if the agent reports it separately from the content. Only the first
    /// [`MAX_TERMINAL_OUTPUT_BYTES`] are kept.
    pub terminal_output: String,
}

impl ToolCall {
    fn new(id: ToolCallId) -> ToolCall {
        ToolCall {
            id,
            title: String::new(),
            name: None,
            kind: ToolKind::default(),
            status: ToolCallStatus::default(),
            content: Vec::new(),
            locations: Vec::new(),
            raw_input: None,
            raw_output: None,
            terminal_output: String::new(),
        }
    }

    fn merge(&mut self, change: ToolCallUpdate) {
        let ToolCallUpdate { title, name, kind, status, content, locations, .. } = change;
        replace(&mut self.title, title);
        replace(&mut self.kind, kind);
        replace(&mut self.status, status);
        replace(&mut self.content, content);
        replace(&mut self.locations, locations);
        self.name = name.or(self.name.take());
        self.raw_input = change.raw_input.or(self.raw_input.take());
        self.raw_output = change.raw_output.or(self.raw_output.take());
        if let Some(output) = change.terminal_output {
            let room = MAX_TERMINAL_OUTPUT_BYTES.saturating_sub(self.terminal_output.len());
            self.terminal_output.push_str(&output[..output.floor_char_boundary(room)]);
        }
    }

    /// The output as text: the first of text content, terminal output and raw output that is
    /// present.
    pub fn output_text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(ToolCallContent::text).collect();
        if !texts.is_empty() {
            return texts.join("\n");
        }
        if !self.terminal_output.is_empty() {
            return self.terminal_output.clone();
        }
        match &self.raw_output {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        }
    }

    /// The changes of files.
    pub fn diffs(&self) -> impl Iterator<Item = &FileDiff> {
        self.content.iter().filter_map(|content| match content {
            ToolCallContent::Diff(diff) => Some(diff),
            ToolCallContent::Content(_) | ToolCallContent::Other(_) => None,
        })
    }
}

impl ToolCallContent {
    fn text(&self) -> Option<&str> {
        match self {
            ToolCallContent::Content(ContentBlock::Text(text)) => Some(text),
            ToolCallContent::Content(_) | ToolCallContent::Diff(_) | ToolCallContent::Other(_) => {
                None
            }
        }
    }
}

fn replace<T>(value: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *value = new;
    }
}

/// The tool calls of a session, by id. Keeps only the newest [`MAX_TRACKED_TOOL_CALLS`]. An update
/// of an older call starts a new call. The agent may also reuse an id: if it announces a call with
/// the id of a call that has ended or that belongs to an earlier turn, a new call starts.
#[derive(Debug, Default)]
pub struct ToolCallTracker {
    calls: HashMap<ToolCallId, Tracked>,
    order: VecDeque<ToolCallId>,
    /// The number of turns that have ended.
    turn: u64,
}

#[derive(Debug)]
struct Tracked {
    call: ToolCall,
    /// The number of the turn in which the call began.
    turn: u64,
}

/// The result of merging an update.
#[derive(Debug, PartialEq)]
pub struct MergedToolCall<'a> {
    pub call: &'a ToolCall,
    /// Whether this is the first update of the call.
    pub is_new: bool,
    /// Whether the call was still running before this update and this update ended it.
    pub ended: bool,
}

impl ToolCallTracker {
    /// Merges a change into its call.
    pub fn merge(&mut self, update: ToolCallUpdate) -> MergedToolCall<'_> {
        let id = update.id.clone();
        if self.starts_anew(&update) {
            self.calls.remove(&id);
            self.order.retain(|known| *known != id);
        }
        let (is_new, turn) = (!self.calls.contains_key(&id), self.turn);
        if is_new {
            if self.order.len() >= MAX_TRACKED_TOOL_CALLS
                && let Some(oldest) = self.order.pop_front()
            {
                self.calls.remove(&oldest);
            }
            self.order.push_back(id.clone());
        }
        let begun = || Tracked { call: ToolCall::new(id.clone()), turn };
        let call = &mut self.calls.entry(id.clone()).or_insert_with(begun).call;
        let had_ended = !is_new && call.status.has_ended();
        call.merge(update);
        MergedToolCall { call, is_new, ended: call.status.has_ended() && !had_ended }
    }

    /// Counts the end of a turn, so that a tool call of a later turn with a known id is a new call.
    pub fn end_turn(&mut self) {
        self.turn += 1;
    }

    /// Whether an update announces a new call that reuses the id of a known call. Some agents
    /// announce a call a second time in the same turn when the call ends. This does not start a new
    /// call.
    fn starts_anew(&self, update: &ToolCallUpdate) -> bool {
        let Some(known) = self.calls.get(&update.id) else { return false };
        let has_begun = update.status.is_none_or(|status| !status.has_ended());
        update.is_announcement
            && (known.turn < self.turn || known.call.status.has_ended() && has_begun)
    }

    pub fn get(&self, id: &ToolCallId) -> Option<&ToolCall> {
        self.calls.get(id).map(|tracked| &tracked.call)
    }

    /// Calls that have not ended, oldest first. At the end of a turn there should be none.
    pub fn unfinished_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let calls = self.order.iter().filter_map(|id| self.get(id));
        calls.filter(|call| !call.status.has_ended())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(body: Value) -> ToolCallUpdate {
        ToolCallUpdate::parse(&body).unwrap()
    }

    #[test]
    fn changes_are_merged_by_id() {
        let mut calls = ToolCallTracker::default();
        let merged = calls.merge(change(json!({
            "toolCallId": "1", "title": "Write a.txt", "kind": "edit", "status": "pending",
            "locations": [{ "path": "a.txt", "line": 3 }],
        })));
        assert!(merged.is_new && !merged.ended);
        calls.merge(change(
            json!({ "toolCallId": "1", "status": "in_progress", "rawInput": { "a": 1 } }),
        ));
        assert_eq!(calls.unfinished_calls().count(), 1);
        let merged = calls.merge(change(json!({
            "toolCallId": "1", "status": "completed",
            "content": [
                { "type": "content", "content": { "type": "text", "text": "wrote" } },
                { "type": "diff", "path": "a.txt", "oldText": "1\n2\n3\n", "newText": "1\nzwei\n3\n4\n" },
                { "type": "terminal", "terminalId": "t" },
            ],
        })));
        assert!(merged.ended && !merged.is_new);
        let call = merged.call.clone();
        assert_eq!((call.title.as_str(), call.kind), ("Write a.txt", ToolKind::Edit));
        assert_eq!(call.output_text(), "wrote");
        assert_eq!(call.locations[0].line, Some(3));
        let counts: Vec<ChangedLineCounts> = call.diffs().map(FileDiff::line_counts).collect();
        assert_eq!(counts, [ChangedLineCounts { added: 2, removed: 1 }]);
        let again = calls.merge(change(json!({ "toolCallId": "1", "status": "completed" })));
        assert!(!again.ended, "it had ended before");
        assert_eq!(calls.unfinished_calls().count(), 0);
    }

    #[test]
    fn update_of_an_unknown_call_starts_one() {
        let mut calls = ToolCallTracker::default();
        let merged = calls
            .merge(change(json!({ "toolCallId": "x", "status": "failed", "rawOutput": "no" })));
        assert!(merged.is_new && merged.ended);
        assert_eq!(merged.call.output_text(), "no");
    }

    #[test]
    fn id_that_is_used_again_is_another_call() {
        let announced = |status: &str| {
            change(json!({ "sessionUpdate": "tool_call", "toolCallId": "1", "status": status }))
        };
        let updated = |status: &str| change(json!({ "toolCallId": "1", "status": status }));
        let mut calls = ToolCallTracker::default();
        assert!(calls.merge(announced("pending")).is_new);
        assert!(!calls.merge(announced("in_progress")).is_new, "it has not ended");
        assert!(calls.merge(announced("completed")).ended);
        assert!(!calls.merge(announced("completed")).is_new, "the same call, told again");
        assert!(calls.merge(announced("pending")).is_new);
        calls.end_turn();
        assert!(!calls.merge(updated("in_progress")).is_new, "an update of the earlier call");
        let merged = calls.merge(announced("completed"));
        assert!(merged.is_new && merged.ended);
        assert_eq!(calls.unfinished_calls().count(), 0);
    }

    #[test]
    fn terminal_output_is_collected_within_its_bound() {
        let chunk = |key: &str, data: &str| {
            change(json!({ "toolCallId": "x", "_meta": { key: { "data": data } } }))
        };
        let mut calls = ToolCallTracker::default();
        calls.merge(chunk("terminal_output_delta", "one\n"));
        calls.merge(chunk("terminal_output", "two\n"));
        let end =
            json!({ "toolCallId": "x", "status": "completed", "rawOutput": { "exit_code": 0 } });
        assert_eq!(calls.merge(change(end)).call.output_text(), "one\ntwo\n");
        let flood = "ü".repeat(MAX_TERMINAL_OUTPUT_BYTES);
        let merged = calls.merge(chunk("terminal_output_delta", &flood));
        assert_eq!(merged.call.output_text().len(), MAX_TERMINAL_OUTPUT_BYTES);
    }

    #[test]
    fn new_file_counts_its_lines() {
        let diff = FileDiff { path: "a".into(), old_text: None, new_text: "1\n2\n".into() };
        assert_eq!(diff.line_counts(), ChangedLineCounts { added: 2, removed: 0 });
    }

    #[test]
    fn the_oldest_calls_are_forgotten() {
        let mut calls = ToolCallTracker::default();
        for number in 0..=MAX_TRACKED_TOOL_CALLS {
            calls.merge(change(json!({ "toolCallId": number.to_string() })));
        }
        assert!(calls.get(&ToolCallId("0".into())).is_none());
        assert_eq!(calls.unfinished_calls().count(), MAX_TRACKED_TOOL_CALLS);
    }

    #[test]
    fn unknown_words_do_not_fail() {
        let change = change(json!({ "toolCallId": "1", "kind": "dance", "status": "resting" }));
        assert_eq!((change.kind, change.status), (Some(ToolKind::Other), None));
    }
}
