//! Events as rows. `assets/page.js` builds the same rows for events that arrive later.

use ab_api::{Event, EventKind, LogLevel, PlanStatus, ToolStatus};
use maud::{Markup, html};

/// One event as a row of the activity list; empty for events that have no row.
pub(super) fn row(event: &Event) -> Markup {
    let Some(words) = words(&event.kind) else { return html! {} };
    let (call, tool, detail) = match &event.kind {
        EventKind::Tool { tool_execution_id, tool_status, tool_input, tool_output, .. } => {
            let parts = [tool_input.as_deref(), tool_output.as_deref()];
            let detail: Vec<&str> =
                parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
            (Some(tool_execution_id.as_str()), Some(tool_state(*tool_status)), detail.join("\n\n"))
        }
        _ => (None, None, String::new()),
    };
    let level = match &event.kind {
        EventKind::Log { level: LogLevel::Error, .. } => Some("error"),
        _ => None,
    };
    let ts = event.ts.to_string();
    html! {
        li data-type=(row_type(&event.kind)) data-call=[call] data-tool=[tool] data-level=[level] {
            span.mark aria-hidden="true" { (mark(&event.kind)) }
            span.what { (words) }
            time datetime=(ts) { (ts) }
            @if !detail.is_empty() {
                details { summary { "details" } pre { (detail) } }
            }
        }
    }
}

/// One event as a line of a card.
pub(super) fn line(event: &Event) -> Markup {
    match words(&event.kind) {
        Some(words) => html! { li { (mark(&event.kind)) " " (words) } },
        None => html! {},
    }
}

fn row_type(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::ApprovalRequested { .. } | EventKind::ApprovalDecided { .. } => "approval",
        other => other.name(),
    }
}

fn tool_state(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Pending => "pending",
        ToolStatus::Running => "running",
        ToolStatus::Success => "success",
        ToolStatus::Error => "failed",
        ToolStatus::Cancelled => "cancelled",
    }
}

fn mark(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Thought { .. } => "·",
        EventKind::Prompt { .. } => "›",
        EventKind::Tool { .. } => "⚙",
        EventKind::FileEdit { .. } => "✎",
        EventKind::Status { .. } => "○",
        EventKind::Delivery { .. } => "✓",
        EventKind::ApprovalRequested { .. } => "?",
        EventKind::ApprovalDecided { .. } => "!",
        EventKind::Plan { .. } => "☰",
        EventKind::DiffStat { .. } => "±",
        _ => "▪",
    }
}

fn words(kind: &EventKind) -> Option<Markup> {
    let said = match kind {
        EventKind::Thought { thought } => html! { (thought) },
        EventKind::Prompt { prompt, .. } => html! { (prompt) },
        EventKind::Log { message, .. } | EventKind::Note { message } => html! { (message) },
        EventKind::Tool { tool_name, .. } => html! { (tool_name) },
        EventKind::FileEdit { file_path, lines_added, lines_removed, .. } => html! {
            (file_path) (counts(*lines_added, *lines_removed))
        },
        EventKind::Plan { entries } => {
            let lines: Vec<String> = entries
                .iter()
                .map(|entry| {
                    let sign = match entry.status {
                        PlanStatus::Pending => "☐",
                        PlanStatus::InProgress => "◐",
                        PlanStatus::Completed => "☑",
                    };
                    format!("{sign} {}", entry.content)
                })
                .collect();
            html! { (lines.join("\n")) }
        }
        EventKind::Status { status, message, .. } => match message {
            Some(message) => html! { (status) ": " (message) },
            None => html! { (status) },
        },
        EventKind::ApprovalRequested { title, .. } => html! { "Waits for you: " (title) },
        EventKind::ApprovalDecided { status, reason, .. } => match reason {
            Some(reason) => html! { "Approval " (status.as_str()) ": " (reason) },
            None => html! { "Approval " (status.as_str()) },
        },
        EventKind::Delivery { result, .. } => match (&result.branch, result.changed) {
            (_, false) => html! { "Nothing changed, nothing delivered" },
            (Some(branch), true) => html! { "Delivered to branch " (branch) },
            (None, true) => html! { "Patch ready" },
        },
        _ => return None,
    };
    Some(said)
}

/// Lines added and removed, coloured.
pub(super) fn counts(added: u64, removed: u64) -> Markup {
    html! {
        span.plus { " +" (added) }
        span.minus { " −" (removed) }
    }
}
