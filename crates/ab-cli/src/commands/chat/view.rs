//! Shows an agent's work in a chat: its text as it arrives, a line for each tool call, and the
//! changes of files.

use std::path::PathBuf;

use ab_acp::session_update::{PlanEntry, PlanEntryStatus, SessionUpdate};
use ab_acp::tool_call::{
    FileDiff, MergedToolCall, ToolCall, ToolCallStatus, ToolCallTracker, ToolCallUpdate, ToolKind,
};
use ab_acp::{PermissionQuestion, StopReason, TurnEnd};
use ab_core::edit::unified_diff;
use ab_core::error::escape_unprintable;
use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::follow::detail_lines;
use crate::terminal::{Format, Terminal};

const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const ASKS: Style = AnsiColor::Yellow.on_default().bold();
const WORKS: Style = AnsiColor::Cyan.on_default();

/// Maximum number of lines that are shown of one change.
const DIFF_LINES: usize = 40;
/// Maximum number of lines that are shown of the output of a command or a failed tool call.
const OUTPUT_LINES: usize = 10;
/// Maximum number of bytes that are shown of each of these lines.
const OUTPUT_LINE_BYTES: usize = 500;

/// The kind of text that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Running {
    Message,
    Thought,
}

#[derive(Debug)]
pub(super) struct View {
    /// The root of the workspace. Paths below it are shown relative to it.
    root: PathBuf,
    calls: ToolCallTracker,
    running: Option<Running>,
    /// Whether the last line has no line end yet.
    is_open: bool,
}

impl View {
    pub(super) fn new(root: PathBuf) -> View {
        View { root, calls: ToolCallTracker::default(), running: None, is_open: false }
    }

    pub(super) fn show(
        &mut self,
        update: SessionUpdate,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        if terminal.format() == Format::Json {
            return self.show_value(update, terminal);
        }
        match update {
            SessionUpdate::Message(chunk) => {
                self.stream(Running::Message, chunk.text(), terminal)?
            }
            SessionUpdate::Thought(chunk) => {
                self.stream(Running::Thought, chunk.text(), terminal)?
            }
            SessionUpdate::ToolCall(change) => self.tool_call(change, terminal)?,
            SessionUpdate::Plan(entries) => {
                self.close(terminal)?;
                for entry in &entries {
                    let line = terminal.painted(DIM, &plan_line(entry));
                    terminal.line(&line)?;
                }
            }
            SessionUpdate::Notice(notice) => {
                self.close(terminal)?;
                let detail = notice.description.map(|text| format!(": {text}")).unwrap_or_default();
                terminal.note(&format!("{}{detail}", notice.title));
            }
            SessionUpdate::UserMessage(_)
            | SessionUpdate::Usage(_)
            | SessionUpdate::Other { .. } => {}
        }
        terminal.finish()
    }

    /// Shows the end of a turn.
    pub(super) fn end_turn(
        &mut self,
        end: &TurnEnd,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        self.calls.end_turn();
        if terminal.format() == Format::Json {
            let tokens = end.tokens.map(|tokens| tokens.total);
            let value = json!({ "type": "turn_ended", "stop": stop_word(&end.stop_reason), "tokens": tokens });
            terminal.line(&value.to_string())?;
            return terminal.finish();
        }
        self.close(terminal)?;
        match &end.stop_reason {
            StopReason::EndTurn => {}
            other => terminal.note(&format!("the turn ended: {}", stop_word(other))),
        }
        terminal.line("")?;
        terminal.finish()
    }

    /// Ends a turn that failed. The caller shows the error.
    pub(super) fn fail_turn(&mut self, terminal: &mut Terminal) -> Result<(), Failure> {
        self.calls.end_turn();
        self.close(terminal)
    }

    /// Shows a question with everything that the agent sent about the call. The line for the answer
    /// is not included.
    pub(super) fn ask(
        &mut self,
        question: &PermissionQuestion,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        let call = self.calls.merge(question.call.clone()).call.clone();
        let detail = call.description(&self.root);
        if terminal.format() == Format::Json {
            let options: Vec<Value> =
                question.options.iter().map(|it| json!({ "id": it.id, "name": it.name })).collect();
            let value = json!({
                "type": "question",
                "tool": call_value(&call),
                "detail": detail,
                "input": call.raw_input,
                "options": options,
            });
            terminal.line(&value.to_string())?;
            return terminal.finish();
        }
        self.close(terminal)?;
        let line = format!("{} {}", terminal.painted(ASKS, "?"), escape_unprintable(&title(&call)));
        terminal.line(&line)?;
        for line in detail_lines(&detail) {
            terminal.line(&line)?;
        }
        terminal.finish()
    }

    /// Ends the line that is currently being written.
    pub(super) fn close(&mut self, terminal: &mut Terminal) -> Result<(), Failure> {
        self.running = None;
        if std::mem::take(&mut self.is_open) {
            terminal.line("")?;
        }
        Ok(())
    }

    fn stream(
        &mut self,
        running: Running,
        text: Option<&str>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
        if self.running != Some(running) {
            self.close(terminal)?;
            self.running = Some(running);
        }
        self.is_open = !text.ends_with('\n');
        let text = terminal.shown(text).into_owned();
        let text = match running {
            Running::Message => text,
            Running::Thought => terminal.painted(DIM, &text),
        };
        terminal.bytes(text.as_bytes())
    }

    fn tool_call(
        &mut self,
        change: ToolCallUpdate,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        self.close(terminal)?;
        let MergedToolCall { call, is_new, ended } = self.calls.merge(change);
        if is_new {
            let line =
                format!("{} {}", terminal.painted(WORKS, "→"), escape_unprintable(&title(call)));
            terminal.line(&line)?;
        }
        if !ended {
            return Ok(());
        }
        let call = call.clone();
        match call.status {
            ToolCallStatus::Failed => {
                let line =
                    format!("{} {}", terminal.painted(BAD, "✗"), escape_unprintable(&title(&call)));
                terminal.line(&line)?;
                show_output(&call, terminal)
            }
            ToolCallStatus::Pending | ToolCallStatus::InProgress | ToolCallStatus::Completed => {
                let line = format!(
                    "{} {}",
                    terminal.painted(GOOD, "✓"),
                    escape_unprintable(&title(&call))
                );
                terminal.line(&line)?;
                if has_output(&call) {
                    show_output(&call, terminal)?;
                }
                show_diffs(&call, terminal)
            }
        }
    }

    fn show_value(
        &mut self,
        update: SessionUpdate,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        let value = match update {
            SessionUpdate::Message(chunk) => json!({ "type": "message", "text": chunk.text() }),
            SessionUpdate::Thought(chunk) => json!({ "type": "thought", "text": chunk.text() }),
            SessionUpdate::ToolCall(change) => {
                json!({ "type": "tool", "tool": call_value(self.calls.merge(change).call) })
            }
            SessionUpdate::Plan(entries) => {
                let entry =
                    |it: &PlanEntry| json!({ "content": it.content, "status": it.status.as_str() });
                json!({ "type": "plan", "entries": entries.iter().map(entry).collect::<Vec<_>>() })
            }
            SessionUpdate::Notice(notice) => {
                json!({ "type": "notice", "title": notice.title, "description": notice.description })
            }
            SessionUpdate::Usage(usage) => {
                let cost = usage
                    .cost
                    .map(|cost| json!({ "amount": cost.amount, "currency": cost.currency }));
                json!({ "type": "usage", "used": usage.context_tokens_used, "size": usage.context_window_tokens, "cost": cost })
            }
            SessionUpdate::UserMessage(_) | SessionUpdate::Other { .. } => return Ok(()),
        };
        terminal.line(&value.to_string())?;
        terminal.finish()
    }
}

fn title(call: &ToolCall) -> String {
    let named = [call.title.as_str(), call.name.as_deref().unwrap_or_default(), call.kind.as_str()];
    named.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

fn call_value(call: &ToolCall) -> Value {
    let diff = |diff: &FileDiff| {
        let lines = diff.line_counts();
        json!({ "path": diff.path, "lines_added": lines.added, "lines_removed": lines.removed })
    };
    let mut value = json!({
        "id": call.id.0,
        "title": title(call),
        "kind": call.kind.as_str(),
        "status": call.status.as_str(),
        "files": call.diffs().map(diff).collect::<Vec<_>>(),
    });
    if call.status.has_ended() && has_output(call) {
        value["output"] = call.output_text().into();
    }
    value
}

/// Whether the chat shows the output of this tool call. It shows the output of commands, of failed
/// calls, and of calls of an unknown kind. Other output, such as the content of a file, is only for
/// the agent.
fn has_output(call: &ToolCall) -> bool {
    let is_shown_kind = matches!(call.kind, ToolKind::Execute | ToolKind::Other);
    is_shown_kind || call.command().is_some() || call.status == ToolCallStatus::Failed
}

fn show_output(call: &ToolCall, terminal: &mut Terminal) -> Result<(), Failure> {
    let output = call.output_text();
    let mut lines = output.trim_end().lines();
    for line in lines.by_ref().take(OUTPUT_LINES) {
        let cut = &line[..line.floor_char_boundary(OUTPUT_LINE_BYTES)];
        let more = if cut.len() < line.len() { "…" } else { "" };
        terminal.line(&format!("  {}{more}", escape_unprintable(cut)))?;
    }
    show_rest(lines.count(), terminal)
}

fn show_rest(lines: usize, terminal: &mut Terminal) -> Result<(), Failure> {
    if lines == 0 {
        return Ok(());
    }
    let line = terminal.painted(DIM, &format!("… {lines} more lines"));
    terminal.line(&format!("  {line}"))
}

fn show_diffs(call: &ToolCall, terminal: &mut Terminal) -> Result<(), Failure> {
    for diff in call.diffs() {
        let before = diff.old_text.as_deref().unwrap_or_default();
        let unified = unified_diff(&diff.path, before, &diff.new_text);
        let mut lines = unified.text.lines();
        for line in lines.by_ref().take(DIFF_LINES) {
            let style = match line.as_bytes().first() {
                Some(b'+') => GOOD,
                Some(b'-') => BAD,
                _ => DIM,
            };
            let line = terminal.painted(style, &terminal.shown(line));
            terminal.line(&format!("  {line}"))?;
        }
        show_rest(lines.count(), terminal)?;
    }
    Ok(())
}

fn plan_line(entry: &PlanEntry) -> String {
    let mark = match entry.status {
        PlanEntryStatus::Pending => "[ ]",
        PlanEntryStatus::InProgress => "[>]",
        PlanEntryStatus::Completed => "[x]",
    };
    format!("{mark} {}", escape_unprintable(&entry.content))
}

fn stop_word(stop: &StopReason) -> String {
    match stop {
        StopReason::EndTurn => "end_turn".to_owned(),
        StopReason::MaxTokens => "max_tokens".to_owned(),
        StopReason::MaxTurnRequests => "max_turn_requests".to_owned(),
        StopReason::Refusal => "refusal".to_owned(),
        StopReason::Cancelled => "cancelled".to_owned(),
        StopReason::Other(word) => escape_unprintable(word),
    }
}
