//! Renders events as rows of the activity list. Rows are rendered only on the server.
//! `assets/page.js` inserts them.

use std::borrow::Cow;
use std::collections::HashMap;

use ab_api::{
    ApprovalDecider, DeciderKind, Event, EventKind, LogLevel, LogSource, PromptStatus,
    SessionStatus, Time, ToolExecutionStatus, describe_tool_input,
};
use maud::{Markup, html};

use super::icon::{Icon, icon};
use super::text::{clean, exact, first_line};
use super::time::clock;

/// Renders the rows of `events`. A tool call has one row. The row shows the newest event of the
/// call. It is at the position where the call began, below the question for which the call had to
/// wait.
pub(super) fn rows(events: &[Event], start: Time) -> Markup {
    let events = || events.iter().filter(|event| !is_pending(event));
    let mut newest: HashMap<&str, &Event> = HashMap::new();
    for event in events() {
        if let Some(call) = call(event) {
            newest.insert(call, event);
        }
    }
    html! {
        @for event in events() {
            @match call(event) {
                None => (row(event, start)),
                Some(call) => @if let Some(event) = newest.remove(call) { (row(event, start)) },
            }
        }
    }
}

fn is_pending(event: &Event) -> bool {
    matches!(event.kind, EventKind::Tool { tool_status: ToolExecutionStatus::Pending, .. })
}

fn call(event: &Event) -> Option<&str> {
    match &event.kind {
        EventKind::Tool { tool_execution_id, .. } => Some(tool_execution_id),
        _ => None,
    }
}

/// The style and text of a row.
struct Row {
    kind: &'static str,
    state: Option<&'static str>,
    icon: Icon,
    words: Markup,
}

fn row(event: &Event, start: Time) -> Markup {
    let Some(Row { kind, state, icon: sign, words }) = of(&event.kind) else { return html! {} };
    let id = call(event).map(|call| format!("call-{call}"));
    html! {
        li.row id=[id] data-kind=(kind) data-state=[state] {
            span.mark { (icon(sign)) }
            div.what dir="auto" { (words) }
            time datetime=(event.ts) title=(event.ts) { (clock(start, event.ts)) }
        }
    }
}

/// Renders an event as one line of a card.
pub(super) fn line(event: &Event) -> Markup {
    let Some(Row { kind, state, icon: sign, .. }) = of(&event.kind) else { return html! {} };
    html! {
        li data-kind=(kind) data-state=[state] { (icon(sign)) span { (in_short(&event.kind)) } }
    }
}

fn of(kind: &EventKind) -> Option<Row> {
    let row = |kind, icon, words| Some(Row { kind, state: None, icon, words });
    match kind {
        EventKind::Prompt { prompt, .. } => row("prompt", Icon::Prompt, html! { (clean(prompt)) }),
        EventKind::Thought { thought } => row("thought", Icon::Thought, html! { (clean(thought)) }),
        EventKind::Log { level, message, source, .. } => {
            let (kind, icon) = match source {
                LogSource::Agent => ("message", Icon::Message),
                LogSource::Session => ("log", Icon::Dot),
                LogSource::Stderr | LogSource::Tool => ("output", Icon::Tool),
            };
            let state = match level {
                LogLevel::Error => Some("bad"),
                LogLevel::Warn => Some("wait"),
                LogLevel::Debug | LogLevel::Info => None,
            };
            Some(Row { kind, state, icon, words: html! { (clean(message)) } })
        }
        EventKind::Note { message } => row("log", Icon::Dot, html! { (clean(message)) }),
        EventKind::Tool { tool_status, .. } => {
            let (state, icon) = match tool_status {
                ToolExecutionStatus::Pending => ("pending", Icon::Tool),
                ToolExecutionStatus::Running => ("running", Icon::Tool),
                ToolExecutionStatus::Success => ("good", Icon::Yes),
                ToolExecutionStatus::Error => ("bad", Icon::No),
                ToolExecutionStatus::Cancelled => ("cancelled", Icon::No),
            };
            Some(Row { kind: "tool", state: Some(state), icon, words: tool(kind) })
        }
        EventKind::FileEdit { file_path, lines_added, lines_removed, .. } => {
            let words =
                html! { code { (clean(file_path)) } (counts(*lines_added, *lines_removed)) };
            row("edit", Icon::Edit, words)
        }
        EventKind::Status { status, .. } => {
            let (state, icon) = match status {
                SessionStatus::Completed => ("good", Icon::Yes),
                SessionStatus::Failed => ("bad", Icon::No),
                _ => ("none", Icon::Dot),
            };
            let words = html! { (in_short(kind)) };
            Some(Row { kind: "status", state: Some(state), icon, words })
        }
        EventKind::ApprovalRequested { .. } => {
            let words = html! { (in_short(kind)) };
            Some(Row { kind: "approval", state: Some("wait"), icon: Icon::Question, words })
        }
        EventKind::ApprovalDecided { status, .. } => {
            let (state, icon) = match status.as_str() {
                "approved" => ("good", Icon::Yes),
                _ => ("bad", Icon::No),
            };
            Some(Row {
                kind: "approval",
                state: Some(state),
                icon,
                words: html! { (in_short(kind)) },
            })
        }
        EventKind::Delivery { result, .. } => {
            let state = if result.changed { "good" } else { "none" };
            let words = html! { (in_short(kind)) };
            Some(Row { kind: "delivery", state: Some(state), icon: Icon::Branch, words })
        }
        EventKind::PromptReceipt {
            status: PromptStatus::Withdrawn | PromptStatus::Interrupted,
            ..
        } => row("log", Icon::Dot, html! { (in_short(kind)) }),
        // The plan and the queue are shown elsewhere. Other events are not useful to people yet.
        _ => None,
    }
}

/// Renders a tool call: its name and subject, and its input and output in a collapsed part.
fn tool(kind: &EventKind) -> Markup {
    let EventKind::Tool { tool_execution_id, tool_name, tool_input, tool_output, .. } = kind else {
        return html! {};
    };
    let input = tool_input.as_deref().filter(|text| !matches!(*text, "" | "{}"));
    let output = tool_output.as_deref().filter(|text| !text.is_empty());
    let about = input.and_then(|input| describe_tool_input(tool_name, input));
    let head = html! {
        code.name { (clean(tool_name)) }
        @if let Some(about) = &about { " " code.about { (first_line(about)) } }
    };
    // If the summary already shows the whole input, the input is not repeated.
    let whole = input.filter(|input| about.as_deref() != Some(*input) || input.lines().count() > 1);
    if whole.is_none() && output.is_none() {
        return head;
    }
    html! {
        details id={ "details-" (tool_execution_id) } {
            summary { (head) }
            @if let Some(whole) = whole { pre { (clean(whole)) } }
            @if let Some(output) = output { pre.output { (clean(output)) } }
        }
    }
}

/// The text of an event on one line.
fn in_short(kind: &EventKind) -> Cow<'_, str> {
    match kind {
        EventKind::Prompt { prompt: text, .. }
        | EventKind::Thought { thought: text }
        | EventKind::Log { message: text, .. }
        | EventKind::Note { message: text } => first_line(text),
        EventKind::Tool { tool_name, tool_input, .. } => {
            let about =
                tool_input.as_deref().and_then(|input| describe_tool_input(tool_name, input));
            let about = about.unwrap_or_default();
            format!("{} {}", clean(tool_name), first_line(&about)).into()
        }
        EventKind::PromptReceipt { number, status } => format!("Prompt {number} {status}").into(),
        EventKind::FileEdit { file_path, lines_added, lines_removed, .. } => {
            format!("{} +{lines_added} −{lines_removed}", clean(file_path)).into()
        }
        EventKind::Status { status, activity, message, .. } => {
            use ab_api::SessionActivity;
            let word = match (status, activity) {
                (SessionStatus::Running, Some(SessionActivity::Idle)) => {
                    "Waiting for a prompt".to_owned()
                }
                (SessionStatus::Running, Some(SessionActivity::Delivering)) => {
                    "Delivering".to_owned()
                }
                (SessionStatus::Running, Some(SessionActivity::AwaitingApproval)) => {
                    "Waiting for you".to_owned()
                }
                _ => capitalised(status.as_str()),
            };
            match message {
                Some(message) => format!("{word}: {}", clean(message)).into(),
                None => word.into(),
            }
        }
        EventKind::ApprovalRequested { title, .. } => format!("Asks: {}", exact(title)).into(),
        EventKind::ApprovalDecided { status, decided_by, reason, .. } => {
            let mut told = capitalised(status.as_str());
            match decided_by {
                Some(ApprovalDecider { kind: DeciderKind::Person, name, via }) => {
                    told.push_str(&format!(" by {}", clean(name)));
                    if let Some(via) = via {
                        told.push_str(&format!(" ({})", via.as_str()));
                    }
                }
                Some(ApprovalDecider { kind: DeciderKind::Rule, name, .. }) => {
                    told.push_str(&format!(" by a rule ({})", clean(name)));
                }
                // A timeout is stated in the reason.
                Some(ApprovalDecider { kind: DeciderKind::Timeout, .. }) | None => {}
            }
            if let Some(reason) = reason {
                told.push_str(&format!(": {}", clean(reason)));
            }
            told.into()
        }
        EventKind::Delivery { result, .. } => match (&result.branch, result.changed) {
            (_, false) => "Nothing changed, so nothing was delivered".into(),
            (Some(branch), true) => format!("Delivered branch {}", clean(branch)).into(),
            (None, true) => "The patch is ready".into(),
        },
        _ => "".into(),
    }
}

pub(super) fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Renders the numbers of added and removed lines in colour.
pub(super) fn counts(added: u64, removed: u64) -> Markup {
    html! {
        span.counts { span.plus { "+" (added) } " " span.minus { "−" (removed) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(status: ToolExecutionStatus, input: &str, output: Option<&str>) -> Event {
        Event::at_current_time(EventKind::Tool {
            tool_execution_id: "1".to_owned(),
            tool_name: "exec".to_owned(),
            tool_input: Some(input.to_owned()),
            tool_output: output.map(str::to_owned),
            tool_status: status,
        })
    }

    #[test]
    fn a_tool_call_has_one_row_that_shows_its_newest_event() {
        let input = r#"{"command":"make test"}"#;
        let said = Event::at_current_time(EventKind::Thought { thought: "hm".to_owned() });
        let events = [
            tool(ToolExecutionStatus::Running, input, None),
            said,
            tool(ToolExecutionStatus::Success, input, Some("<b>ok</b>")),
        ];
        let shown = rows(&events, events[0].ts).into_string();
        assert_eq!(shown.matches("id=\"call-1\"").count(), 1, "{shown}");
        assert!(shown.find("call-1") < shown.find("hm"), "{shown}");
        for part in ["data-state=\"good\"", "make test</code>", "&lt;b&gt;ok"] {
            assert!(shown.contains(part), "no {part} in {shown}");
        }
    }

    #[test]
    fn a_call_stands_below_the_question_it_waited_for() {
        let asked = Event::at_current_time(EventKind::Thought { thought: "asked".to_owned() });
        let events = [
            tool(ToolExecutionStatus::Pending, "ls", None),
            asked,
            tool(ToolExecutionStatus::Running, "ls", None),
        ];
        let shown = rows(&events, events[0].ts).into_string();
        assert!(shown.find("asked") < shown.find("call-1"), "{shown}");
        assert_eq!(shown.matches("id=\"call-1\"").count(), 1, "{shown}");
    }

    #[test]
    fn agent_output_is_text() {
        let hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>\u{1b}[31m\u{202e}";
        let log = |source| EventKind::Log {
            level: LogLevel::Info,
            message: hostile.to_owned(),
            source,
            tool_execution_id: None,
        };
        let kinds = [
            log(LogSource::Agent),
            log(LogSource::Stderr),
            EventKind::Thought { thought: hostile.to_owned() },
            EventKind::Prompt { number: 1, prompt: hostile.to_owned() },
            EventKind::FileEdit {
                file_path: hostile.to_owned(),
                lines_added: 1,
                lines_removed: 0,
                tool_execution_id: None,
            },
            EventKind::Tool {
                tool_execution_id: "\"><script>".to_owned(),
                tool_name: hostile.to_owned(),
                tool_input: Some(hostile.to_owned()),
                tool_output: Some(hostile.to_owned()),
                tool_status: ToolExecutionStatus::Success,
            },
        ];
        for kind in kinds {
            let event = Event::at_current_time(kind);
            let shown = rows(std::slice::from_ref(&event), event.ts).into_string()
                + &line(&event).into_string();
            assert!(!shown.contains("<script") && !shown.contains("<img"), "{shown}");
            assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
        }
    }
}
