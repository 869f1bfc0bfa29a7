//! Formats events as lines for people: a mark, followed by one sentence.

use ab_api::{
    ApprovalDecider, ApprovalStatus, ChangeCounts, DeciderKind, DeliveryMode, DeliveryResult,
    EventKind, LogLevel, LogSource, PlanEntryStatus, SessionActivity, SessionEndReason,
    SessionStatus, ToolExecutionStatus, describe_tool_input,
};
use anstyle::{AnsiColor, Style};

/// Maximum length of a line of text from an agent. The whole text is in `session events --json`.
const MAX_TEXT: usize = 200;
/// Maximum number of lines that are shown of the output of a failed call.
const MAX_FAILURE_LINES: usize = 5;

const PLAIN: Style = Style::new();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default();
const BAD: Style = AnsiColor::Red.on_default();
const ASKS: Style = AnsiColor::Yellow.on_default().bold();
const WORKS: Style = AnsiColor::Cyan.on_default();

/// A line of the follow view for one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) mark: &'static str,
    pub(crate) style: Style,
    pub(crate) text: String,
}

/// The lines for an event. Events whose content is repeated by another event have none.
pub(crate) fn of(kind: &EventKind) -> Vec<Line> {
    match kind {
        EventKind::Status { status, activity, reason, message } => {
            vec![status_line(*status, *activity, *reason, message.as_deref())]
        }
        EventKind::Prompt { prompt, .. } => vec![line("›", WORKS, prompt)],
        EventKind::PromptReceipt { number, status } => {
            vec![line("›", DIM, &format!("prompt {number} {status}"))]
        }
        EventKind::Log { level, message, source, .. } => {
            let (mark, style) = match (level, source) {
                (LogLevel::Error, _) => ("✗", BAD),
                (LogLevel::Warn, _) => ("!", ASKS),
                (_, LogSource::Agent) => ("●", PLAIN),
                (_, LogSource::Session | LogSource::Stderr | LogSource::Tool) => ("·", DIM),
            };
            let lines = message.lines().filter(|text| !text.trim().is_empty());
            lines.map(|text| whole_line(mark, style, text)).collect()
        }
        EventKind::Thought { thought } => vec![whole_line("~", DIM, thought)],
        EventKind::Plan { entries } => {
            let entry = |entry: &ab_api::PlanEntry| {
                let mark = match entry.status {
                    PlanEntryStatus::Pending => "[ ]",
                    PlanEntryStatus::InProgress => "[>]",
                    PlanEntryStatus::Completed => "[x]",
                };
                line("▪", DIM, &format!("{mark} {}", entry.content))
            };
            entries.iter().map(entry).collect()
        }
        EventKind::Tool { tool_name, tool_input, tool_output, tool_status, .. } => {
            let subject =
                tool_input.as_deref().and_then(|input| describe_tool_input(tool_name, input));
            let what = match subject {
                Some(subject) => format!("{tool_name} {subject}"),
                None => tool_name.clone(),
            };
            match tool_status {
                ToolExecutionStatus::Pending => Vec::new(),
                ToolExecutionStatus::Running => vec![line("→", WORKS, &what)],
                ToolExecutionStatus::Success => vec![line("✓", GOOD, &what)],
                ToolExecutionStatus::Error => {
                    let mut lines = vec![line("✗", BAD, &format!("{what} failed"))];
                    let output = tool_output.as_deref().unwrap_or_default();
                    lines.extend(last_lines(output).map(|output| line(" ", DIM, output)));
                    lines
                }
                ToolExecutionStatus::Cancelled => {
                    vec![line("–", DIM, &format!("{what} was cancelled"))]
                }
            }
        }
        EventKind::FileEdit { file_path, lines_added, lines_removed, .. } => {
            let text = format!("{file_path} +{lines_added} -{lines_removed}");
            vec![line("±", WORKS, &text)]
        }
        EventKind::DiffStat { files_changed, lines_added, lines_removed } => {
            let (files_changed, lines_added, lines_removed) =
                (*files_changed, *lines_added, *lines_removed);
            let changes = ChangeCounts { files_changed, lines_added, lines_removed };
            vec![line("±", PLAIN, &changes_text(changes))]
        }
        EventKind::Usage { .. } => Vec::new(),
        EventKind::ApprovalRequested { title, .. } => {
            vec![line("?", ASKS, &format!("the agent asks: {title}"))]
        }
        EventKind::ApprovalDecided { status, decided_by, reason, .. } => {
            let by = decided_by.as_ref().map(|by| format!(" by {}", decider_text(by)));
            let reason = reason.as_deref().map(|reason| format!(": {reason}"));
            let (by, reason) = (by.unwrap_or_default(), reason.unwrap_or_default());
            let text = format!("{}{by}{reason}", status.as_str());
            let is_yes = *status == ApprovalStatus::Approved;
            vec![line(if is_yes { "✓" } else { "✗" }, if is_yes { GOOD } else { BAD }, &text)]
        }
        EventKind::Moment { snapshot_id, note } => {
            let note = note.as_deref().unwrap_or_default();
            vec![line("◦", DIM, &format!("snapshot {snapshot_id} {note}"))]
        }
        EventKind::Delivery { mode, result } => vec![delivery_line(*mode, result)],
        EventKind::Note { message } => vec![line("·", DIM, message)],
        EventKind::HostLog { host, message, .. } => {
            vec![line("·", DIM, &format!("{host}: {message}"))]
        }
        EventKind::HostStarted { host } => vec![line("→", WORKS, &format!("{host} started"))],
        EventKind::HostExited { host, code } => {
            vec![line("·", PLAIN, &format!("{host} exited with {code}"))]
        }
        EventKind::Summary { passed, failed } => {
            let text = format!("passed: {}; failed: {}", passed.join(", "), failed.join(", "));
            vec![line("▪", PLAIN, &text)]
        }
        EventKind::FollowersCatalog { .. }
        | EventKind::FenceStarted { .. }
        | EventKind::FenceResult { .. } => Vec::new(),
    }
}

/// The line for a prompt whose text was changed in the queue.
pub(super) fn changed_prompt(number: u32) -> Line {
    line("›", DIM, &format!("prompt {number} changed"))
}

/// The last lines of the output of a failed call.
fn last_lines(output: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let first = lines.len().saturating_sub(MAX_FAILURE_LINES);
    lines.into_iter().skip(first)
}

/// The size of a change as text, such as `2 files changed, +10 -3`.
pub(crate) fn changes_text(changes: ChangeCounts) -> String {
    let ChangeCounts { files_changed, lines_added, lines_removed } = changes;
    let files = if files_changed == 1 { "file" } else { "files" };
    format!("{files_changed} {files} changed, +{lines_added} -{lines_removed}")
}

/// The decider of an approval and the channel of the decision, as text.
pub(crate) fn decider_text(by: &ApprovalDecider) -> String {
    match (by.kind, by.via) {
        (DeciderKind::Timeout, _) => "the timeout".to_owned(),
        (DeciderKind::Rule, Some(via)) => format!("the rule {} via {}", by.name, via.as_str()),
        (DeciderKind::Rule, None) => format!("the rule {}", by.name),
        (DeciderKind::Person, Some(via)) => format!("{} via {}", by.name, via.as_str()),
        (DeciderKind::Person, None) => by.name.clone(),
    }
}

pub(crate) fn activity_text(activity: SessionActivity) -> &'static str {
    match activity {
        SessionActivity::Working => "working",
        SessionActivity::AwaitingApproval => "waits for a decision",
        SessionActivity::Idle => "waits for a prompt",
        SessionActivity::Delivering => "delivering",
    }
}

fn status_line(
    status: SessionStatus,
    activity: Option<SessionActivity>,
    reason: Option<SessionEndReason>,
    message: Option<&str>,
) -> Line {
    let (mark, style) = match status {
        SessionStatus::Completed => ("✓", GOOD),
        SessionStatus::Failed => ("✗", BAD),
        SessionStatus::Stopped | SessionStatus::Cancelled => ("■", BAD),
        _ => ("○", DIM),
    };
    let mut text = status.as_str().to_owned();
    if let Some(activity) = activity {
        text.push_str(&format!(", {}", activity_text(activity)));
    }
    match (message, reason) {
        (Some(message), _) => text.push_str(&format!(": {message}")),
        (None, Some(reason)) if status == SessionStatus::Failed => {
            text.push_str(&format!(": {}", reason_text(reason)));
        }
        (None, _) => {}
    }
    line(mark, style, &text)
}

/// Why a session ended, as text.
pub(crate) fn reason_text(reason: SessionEndReason) -> &'static str {
    match reason {
        SessionEndReason::Done => "the agent finished",
        SessionEndReason::Stopped => "a person stopped it",
        SessionEndReason::Cancelled => "a person cancelled it",
        SessionEndReason::Provision => "the workspace could not be created",
        SessionEndReason::Launch => "the agent did not start",
        SessionEndReason::Agent => "the agent failed",
        SessionEndReason::Delivery => "the result could not be delivered; the work is kept",
        SessionEndReason::Interrupted => "the server stopped while the agent worked",
        SessionEndReason::ExecutorLost => "the executor is not connected",
    }
}

fn delivery_line(mode: DeliveryMode, result: &DeliveryResult) -> Line {
    if !result.changed {
        return line("✓", DIM, "nothing changed, so nothing was delivered");
    }
    let text = match (mode, &result.branch, &result.commit) {
        (DeliveryMode::Patch, ..) => "patch ready".to_owned(),
        (_, Some(branch), Some(commit)) => {
            let short: String = commit.chars().take(10).collect();
            format!("delivered branch {branch} at {short}")
        }
        (_, Some(branch), None) => format!("delivered branch {branch}"),
        (_, None, _) => "delivered".to_owned(),
    };
    line("✓", GOOD, &text)
}

/// A line with the complete `text`. Used for text of the agent.
fn whole_line(mark: &'static str, style: Style, text: &str) -> Line {
    Line { mark, style, text: flat(text) }
}

/// A line with the shortened `text`.
fn line(mark: &'static str, style: Style, text: &str) -> Line {
    let flat = flat(text);
    let text = match flat.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat,
    };
    Line { mark, style, text }
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The lines for these events in JSON, separated by line breaks.
    fn shown(events: Value) -> String {
        let events: Vec<EventKind> = serde_json::from_value(events).unwrap();
        let lines = events.iter().flat_map(of).map(|line| format!("{} {}\n", line.mark, line.text));
        lines.collect()
    }

    #[test]
    fn a_session_is_shown_as_lines_with_marks() {
        let id = "01HVZ6K9T1N8S6M3V3Q3F0X5B7";
        let events = json!([
            { "type": "status", "status": "queued" },
            { "type": "status", "status": "provisioning" },
            { "type": "log", "level": "warn", "message": "2 uncommitted changes are left out", "source": "session" },
            { "type": "status", "status": "running", "activity": "working" },
            { "type": "prompt", "number": 1, "prompt": "Add a\nfile" },
            { "type": "thought", "thought": "Where\n  to start" },
            { "type": "plan", "entries": [
                { "content": "Look", "status": "completed" },
                { "content": "Write", "status": "in_progress" },
                { "content": "Report", "status": "pending" },
            ] },
            { "type": "tool", "tool_execution_id": "t", "tool_name": "ls", "tool_status": "pending" },
            { "type": "tool", "tool_execution_id": "t", "tool_name": "ls", "tool_input": "src", "tool_status": "running" },
            { "type": "tool", "tool_execution_id": "t", "tool_name": "ls", "tool_status": "success" },
            { "type": "tool", "tool_execution_id": "u", "tool_name": "make", "tool_output": "cc\n\nboom\n", "tool_status": "error" },
            { "type": "fileEdit", "file_path": "NOTES.md", "lines_added": 3, "lines_removed": 0 },
            { "type": "approvalRequested", "approvalId": id, "title": "Write NOTES.md" },
            { "type": "approvalDecided", "approvalId": id, "status": "approved",
              "decidedBy": { "kind": "person", "name": "ada", "via": "web" } },
            { "type": "approvalDecided", "approvalId": id, "status": "denied", "reason": "not there" },
            { "type": "log", "level": "info", "message": "Done.\n\nBye.", "source": "agent" },
            { "type": "usage", "inputTokens": 1 },
            { "type": "diffStat", "files_changed": 1, "lines_added": 3, "lines_removed": 0 },
            { "type": "delivery", "mode": "branch", "branch": "agent/notes", "commit": "0123456789abcdef", "changed": true },
            { "type": "delivery", "mode": "patch", "changed": true },
            { "type": "delivery", "mode": "branch", "changed": false },
            { "type": "status", "status": "failed", "reason": "agent" },
            { "type": "status", "status": "failed", "reason": "agent", "message": "exit code 3" },
            { "type": "status", "status": "completed", "reason": "done" },
        ]);
        let expect = "\
○ queued
○ provisioning
! 2 uncommitted changes are left out
○ running, working
› Add a file
~ Where to start
▪ [x] Look
▪ [>] Write
▪ [ ] Report
→ ls src
✓ ls
✗ make failed
  cc
  boom
± NOTES.md +3 -0
? the agent asks: Write NOTES.md
✓ approved by ada via web
✗ denied: not there
● Done.
● Bye.
± 1 file changed, +3 -0
✓ delivered branch agent/notes at 0123456789
✓ patch ready
✓ nothing changed, so nothing was delivered
✗ failed: the agent failed
✗ failed: exit code 3
✓ completed
";
        assert_eq!(shown(events), expect);
    }

    #[test]
    fn long_texts_are_cut() {
        let long = line("·", PLAIN, &"ü".repeat(500));
        assert_eq!(long.text.chars().count(), MAX_TEXT + 1);
        assert!(long.text.ends_with('…'));
    }

    #[test]
    fn words_of_the_agent_are_not_cut() {
        let words = "word ".repeat(200);
        let message =
            json!({ "type": "log", "level": "info", "message": words, "source": "agent" });
        let kind: EventKind = serde_json::from_value(message).unwrap();
        assert_eq!(of(&kind)[0].text, words.trim());
    }
}
