//! Translates an agent's updates to the events of a session. The translation does no I/O, and the
//! caller passes the time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_acp::TokenCounts;
use ab_acp::session_update::{
    ContentChunk, PlanEntry, PlanEntryStatus, SessionUpdate, SessionUsage,
};
use ab_acp::tool_call::{
    ToolCall, ToolCallId, ToolCallStatus, ToolCallTracker, ToolCallUpdate, path_relative_to,
};
use ab_api::{ApprovalSubject, EventKind, LogLevel, LogSource, SubjectDescriber};
use tokio::time::Instant;

use super::digest;
use super::lines::{MAX_TEXT, boundary, cut};
use super::mask::Mask;
use super::usage::UsageCounter;

/// How long an incomplete line waits for the rest of its text.
const TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum number of bytes of a title or a name in an event.
const MAX_NAME: usize = 1024;
/// Maximum number of files of one tool call that get their own event.
const MAX_EDITS: usize = 200;
/// Maximum number of entries of a plan, and of bytes in each, so that a plan fits into an event.
const MAX_PLAN: usize = 50;
const MAX_ENTRY: usize = 150;

/// Converts the updates of one agent to events. Keeps the state to which later updates refer.
pub(super) struct Translator {
    /// Paths below this directory are shown relative to it.
    tree: PathBuf,
    /// Finds credentials, so that text is not divided inside a credential. Neither part of a
    /// divided credential would be hidden.
    mask: Mask,
    calls: ToolCallTracker,
    pending: Option<Pending>,
    usage: UsageCounter,
}

/// An incomplete line of text that waits for its continuation.
#[derive(Debug)]
struct Pending {
    voice: Voice,
    text: String,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Message,
    Thought,
}

impl Voice {
    fn event(self, text: String) -> EventKind {
        match self {
            Voice::Message => log(LogLevel::Info, LogSource::Agent, text),
            Voice::Thought => EventKind::Thought { thought: text },
        }
    }
}

/// The parts of a tool call that are shown before the call ends.
type Shown = (String, Option<String>, ToolCallStatus);

impl Translator {
    pub(super) fn new(tree: &Path, mask: Mask, usage: UsageCounter) -> Self {
        let (calls, pending) = (ToolCallTracker::default(), None);
        Self { tree: tree.to_owned(), mask, calls, pending, usage }
    }

    /// Returns the events of an update, in order.
    pub(super) fn update(&mut self, update: SessionUpdate, now: Instant) -> Vec<EventKind> {
        match update {
            SessionUpdate::Message(chunk) => self.text(Voice::Message, &chunk, now),
            SessionUpdate::Thought(chunk) => self.text(Voice::Thought, &chunk, now),
            SessionUpdate::ToolCall(change) => self.tool_call(change),
            SessionUpdate::Plan(entries) => {
                let entries = entries.iter().take(MAX_PLAN).map(plan_entry).collect();
                self.after_text(EventKind::Plan { entries })
            }
            SessionUpdate::Usage(usage) => {
                let event = self.usage_event(&usage);
                self.after_text(event)
            }
            SessionUpdate::Notice(notice) => {
                let level = match notice.severity.as_str() {
                    "error" => LogLevel::Error,
                    "warning" => LogLevel::Warn,
                    _ => LogLevel::Info,
                };
                let description = notice.description.map(|text| format!(": {text}"));
                let text = format!("{}{}", notice.title, description.unwrap_or_default());
                self.after_text(log(level, LogSource::Agent, cut(&text)))
            }
            // The prompt is already in the stream. Other updates are not useful to people.
            SessionUpdate::UserMessage(_) | SessionUpdate::Other { .. } => Vec::new(),
        }
    }

    /// The time at which the waiting text must be shown, even if its line is incomplete.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.as_ref().map(|pending| pending.until)
    }

    /// Returns the incomplete line as events if it has waited long enough. A last word that may be
    /// the beginning of a credential waits longer.
    pub(super) fn flush_due(&mut self, now: Instant) -> Vec<EventKind> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        let rest = pending.text.split_off(self.mask.end_of_complete_text(&pending.text));
        let voice = pending.voice;
        let events = self.flush();
        if !rest.is_empty() {
            self.pending = Some(Pending { voice, text: rest, until: now + TIMEOUT });
        }
        events
    }

    /// Returns the waiting text as events.
    pub(super) fn flush(&mut self) -> Vec<EventKind> {
        let Some(Pending { voice, text, .. }) = self.pending.take() else { return Vec::new() };
        let text = text.trim_end_matches('\n');
        if text.is_empty() { Vec::new() } else { vec![voice.event(text.to_owned())] }
    }

    /// Returns the events at the end of a turn: the waiting text, and the tool calls that did not
    /// end.
    pub(super) fn end_turn(&mut self, tokens: Option<TokenCounts>) -> Vec<EventKind> {
        let mut events = self.flush();
        let open: Vec<ToolCallId> =
            self.calls.unfinished_calls().map(|call| call.id.clone()).collect();
        for id in open {
            let merged = self.calls.merge(ended(id));
            let (tool_name, tool_input, _) = shown(merged.call);
            events.push(EventKind::Tool {
                tool_execution_id: execution_id(&merged.call.id),
                tool_name,
                tool_input,
                tool_output: None,
                tool_status: ab_api::ToolExecutionStatus::Cancelled,
            });
        }
        self.calls.end_turn();
        events.extend(tokens.map(|tokens| {
            let (input, output) = self.usage.count_tokens(tokens);
            EventKind::Usage {
                input_tokens: Some(input),
                output_tokens: Some(output),
                context_tokens: None,
                context_limit: None,
                cost_micros: None,
            }
        }));
        events
    }

    fn usage_event(&mut self, usage: &SessionUsage) -> EventKind {
        let cost = usage.cost.as_ref().filter(|cost| cost.currency == "USD" && cost.amount >= 0.0);
        // Rounded to whole millionths.
        let micros = cost.map(|cost| (cost.amount * 1e6).round() as u64);
        EventKind::Usage {
            input_tokens: None,
            output_tokens: None,
            context_tokens: usage.context_tokens_used,
            context_limit: usage.context_window_tokens,
            cost_micros: micros.map(|micros| self.usage.count_cost(micros)),
        }
    }

    /// Returns the events of the tool call in a question, and the subject that a person decides
    /// about.
    pub(super) fn question(&mut self, call: ToolCallUpdate) -> (Vec<EventKind>, ApprovalSubject) {
        let id = call.id.clone();
        let events = self.tool_call(call);
        let subject = match self.calls.get(&id) {
            Some(call) => self.subject(call),
            None => ApprovalSubject::default(),
        };
        (events, subject)
    }

    fn subject(&self, call: &ToolCall) -> ApprovalSubject {
        let (name, _, _) = shown(call);
        let title = if call.title.is_empty() { name } else { short(&call.title) };
        ApprovalSubject {
            title,
            action: Some(call.kind.as_str().to_owned()),
            detail: Some(self.description(call)).filter(|text| !text.is_empty()),
            described_by: SubjectDescriber::Agent,
            asked_by: None,
            tool_execution_id: Some(execution_id(&call.id)),
            digest: Some(digest::of_call(call)),
            is_cut: false,
        }
    }

    /// Everything that the agent said about a call in all of its updates. Nothing is truncated.
    fn description(&self, call: &ToolCall) -> String {
        let mut parts = Vec::new();
        if call.title.len() > MAX_NAME {
            parts.push(call.title.clone());
        }
        parts.push(call.description(&self.tree));
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    fn after_text(&mut self, event: EventKind) -> Vec<EventKind> {
        let mut events = self.flush();
        events.push(event);
        events
    }

    /// Adds a piece of text. Complete lines become events at once. The rest waits for its
    /// continuation.
    fn text(&mut self, voice: Voice, chunk: &ContentChunk, now: Instant) -> Vec<EventKind> {
        let Some(text) = chunk.text() else { return Vec::new() };
        let mut events = Vec::new();
        if self.pending.as_ref().is_some_and(|pending| pending.voice != voice) {
            events = self.flush();
        }
        let until = now + TIMEOUT;
        let pending =
            self.pending.get_or_insert_with(|| Pending { voice, text: String::new(), until });
        pending.text.push_str(text);
        while pending.text.len() > MAX_TEXT {
            let most = boundary(&pending.text, MAX_TEXT);
            let complete = match self.mask.end_of_complete_text(&pending.text[..most]) {
                0 => most,
                complete => complete,
            };
            let end = pending.text[..most].rfind('\n').map_or(complete, |at| at + 1);
            let rest = pending.text.split_off(end);
            let whole = std::mem::replace(&mut pending.text, rest);
            let whole = whole.trim_end_matches('\n');
            if !whole.is_empty() {
                events.push(voice.event(whole.to_owned()));
            }
            pending.until = until;
        }
        if let Some(end) = pending.text.rfind('\n') {
            let rest = pending.text.split_off(end + 1);
            events.extend(self.flush());
            if !rest.is_empty() {
                self.pending = Some(Pending { voice, text: rest, until });
            }
        }
        events
    }

    fn tool_call(&mut self, change: ToolCallUpdate) -> Vec<EventKind> {
        let before = self.calls.get(&change.id).map(shown);
        let mut events = self.flush();
        let merged = self.calls.merge(change);
        let (call, ended) = (merged.call, merged.ended);
        let now = shown(call);
        if !ended && before.as_ref() == Some(&now) {
            return events;
        }
        let (tool_name, tool_input, status) = now;
        let id = execution_id(&call.id);
        let output = call.output_text();
        events.push(EventKind::Tool {
            tool_execution_id: id.clone(),
            tool_name,
            tool_input,
            tool_output: (ended && !output.is_empty()).then(|| cut(&output)),
            tool_status: match status {
                ToolCallStatus::Pending => ab_api::ToolExecutionStatus::Pending,
                ToolCallStatus::InProgress => ab_api::ToolExecutionStatus::Running,
                ToolCallStatus::Completed => ab_api::ToolExecutionStatus::Success,
                ToolCallStatus::Failed => ab_api::ToolExecutionStatus::Error,
            },
        });
        if ended && status == ToolCallStatus::Completed {
            let edits = call.diffs().take(MAX_EDITS).map(|diff| {
                let lines = diff.line_counts();
                EventKind::FileEdit {
                    file_path: relative(&self.tree, &diff.path),
                    lines_added: lines.added,
                    lines_removed: lines.removed,
                    tool_execution_id: Some(id.clone()),
                }
            });
            events.extend(edits);
        }
        events
    }
}

/// The path relative to the workspace, truncated to fit in an event.
fn relative(tree: &Path, path: &str) -> String {
    short(path_relative_to(tree, path))
}

fn shown(call: &ToolCall) -> Shown {
    let name = call.name.as_deref().filter(|name| !name.is_empty());
    let name = name.or(Some(call.title.as_str()).filter(|title| !title.is_empty()));
    let input = call.raw_input.as_ref().map(|input| match input.as_str() {
        Some(text) => cut(text),
        None => cut(&input.to_string()),
    });
    (short(name.unwrap_or_else(|| call.kind.as_str())), input, call.status)
}

/// Makes an update that ends a tool call. It is used for a tool call that the agent did not end.
fn ended(id: ToolCallId) -> ToolCallUpdate {
    ToolCallUpdate {
        id,
        is_announcement: false,
        title: None,
        name: None,
        kind: None,
        status: Some(ToolCallStatus::Failed),
        content: None,
        locations: None,
        raw_input: None,
        raw_output: None,
        terminal_output: None,
    }
}

fn execution_id(id: &ToolCallId) -> String {
    short(&id.0)
}

fn short(text: &str) -> String {
    text[..boundary(text, MAX_NAME)].to_owned()
}

fn plan_entry(entry: &PlanEntry) -> ab_api::PlanEntry {
    ab_api::PlanEntry {
        content: entry.content[..boundary(&entry.content, MAX_ENTRY)].to_owned(),
        status: match entry.status {
            PlanEntryStatus::Pending => ab_api::PlanEntryStatus::Pending,
            PlanEntryStatus::InProgress => ab_api::PlanEntryStatus::InProgress,
            PlanEntryStatus::Completed => ab_api::PlanEntryStatus::Completed,
        },
    }
}

pub(super) fn log(level: LogLevel, source: LogSource, message: String) -> EventKind {
    EventKind::Log { level, message, source, tool_execution_id: None }
}

#[cfg(test)]
mod tests {
    use ab_acp::session_update::ContentBlock;
    use ab_acp::tool_call::{FileDiff, ToolCallContent, ToolKind};
    use serde_json::json;

    use super::*;

    fn translator(mask: Mask) -> Translator {
        Translator::new(Path::new("/w"), mask, UsageCounter::default())
    }

    fn said(text: &str) -> SessionUpdate {
        SessionUpdate::Message(ContentChunk {
            content: ContentBlock::Text(text.to_owned()),
            message_id: None,
        })
    }

    fn thought(text: &str) -> SessionUpdate {
        SessionUpdate::Thought(ContentChunk {
            content: ContentBlock::Text(text.to_owned()),
            message_id: None,
        })
    }

    /// The texts of all events.
    fn texts(events: &[EventKind]) -> Vec<String> {
        let text = |event: &EventKind| match event {
            EventKind::Log { message, .. } => message.clone(),
            EventKind::Thought { thought } => format!("({thought})"),
            event => event.name().to_owned(),
        };
        events.iter().map(text).collect()
    }

    #[tokio::test]
    async fn text_is_joined_until_a_newline_or_another_kind() {
        let mut translator = translator(Mask::default());
        let now = Instant::now();
        let mut events = Vec::new();
        for update in [said("a"), said("b\nc"), said("d"), thought("e"), said("f\n")] {
            events.extend(translator.update(update, now));
        }
        assert_eq!(texts(&events), ["ab", "cd", "(e)", "f"]);
        assert_eq!(translator.deadline(), None);
        translator.update(said("g"), now);
        assert_eq!(translator.deadline(), Some(now + TIMEOUT));
        translator.update(said("h"), now + TIMEOUT / 2);
        assert_eq!(translator.deadline(), Some(now + TIMEOUT), "more text does not wait longer");
        assert_eq!(texts(&translator.flush()), ["gh"]);
        assert_eq!(translator.flush(), []);
    }

    #[tokio::test]
    async fn text_is_not_divided_within_a_credential() {
        let key = ("KEY".to_owned(), "sk-0123456789".to_owned());
        let mask = Mask::new(&[key].into(), &[]);
        let mut translator = translator(mask);
        let mut now = Instant::now();
        let mut shown = Vec::new();
        for piece in ["the key is sk-01", "234", "56789 of the vendor", "s"] {
            assert_eq!(translator.update(said(piece), now), []);
            now += TIMEOUT;
            shown.extend(translator.flush_due(now));
        }
        assert_eq!(texts(&shown), ["the key is ", "sk-0123456789 of the vendor"]);
        // The text ends with the first letter of the credential. It is shown only when more text
        // follows or the text is flushed.
        assert_eq!(translator.deadline(), Some(now + TIMEOUT));
        assert_eq!(texts(&translator.flush()), ["s"]);
        let long = format!("{} sk-0123456789", "x".repeat(MAX_TEXT - 6));
        let events = translator.update(said(&long), now);
        let rest = translator.flush();
        assert_eq!(texts(&rest), ["sk-0123456789"]);
        assert_eq!(texts(&events).concat().len(), MAX_TEXT - 5);
    }

    #[test]
    fn a_question_shows_what_all_updates_of_its_call_said() {
        let id = ToolCallId("call-1".to_owned());
        let empty = || ToolCallUpdate { status: None, ..ended(id.clone()) };
        let announced = ToolCallUpdate {
            is_announcement: true,
            title: Some("Write the notes".to_owned()),
            kind: Some(ToolKind::Edit),
            raw_input: Some(json!({ "reason": "the notes are old" })),
            ..empty()
        };
        let diff = FileDiff {
            path: "/w/NOTES.md".to_owned(),
            old_text: Some("old line\n".to_owned()),
            new_text: "new line\n".to_owned(),
        };
        let changed =
            ToolCallUpdate { content: Some(vec![ToolCallContent::Diff(diff)]), ..empty() };
        let mut translator = translator(Mask::default());
        for update in [announced, changed] {
            translator.update(SessionUpdate::ToolCall(update), Instant::now());
        }
        let (_, subject) = translator.question(empty());
        assert_eq!(
            (subject.title.as_str(), subject.action.as_deref()),
            ("Write the notes", Some("edit"))
        );
        let detail = subject.detail.expect("a detail");
        for part in ["NOTES.md", "-old line", "+new line", "the notes are old"] {
            assert!(detail.contains(part), "{part}: {detail}");
        }
        assert!(!subject.is_cut);
        assert_eq!(subject.described_by, SubjectDescriber::Agent);
    }

    #[tokio::test]
    async fn long_text_becomes_several_events() {
        let mut translator = translator(Mask::default());
        let events = translator.update(said(&"ä".repeat(MAX_TEXT)), Instant::now());
        assert!(!events.is_empty() && texts(&events).iter().all(|text| text.len() <= MAX_TEXT));
        let rest = texts(&translator.flush()).concat();
        assert_eq!(texts(&events).concat() + &rest, "ä".repeat(MAX_TEXT));
    }
}
