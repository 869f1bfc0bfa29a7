//! The state of the follow view between events, and the status line at the bottom with the current
//! activity.

use std::time::{Duration, Instant};

use ab_api::{
    ApprovalId, Event, EventKind, PlanEntry, PromptStatus, SessionActivity, SessionId,
    SessionStatus, ToolExecutionStatus,
};
use ab_core::error::is_bidi_control;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use super::FollowOptions;
use super::lines::{self, Line};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal, talk};

/// How often the status line is redrawn.
pub(super) const PACE: Duration = Duration::from_millis(120);
const CLEAR: &str = "\r\u{1b}[K";
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const NARROWEST: usize = 20;

/// Prints events. At a terminal, a status line at the bottom shows what the agent is doing.
/// Elsewhere every event is printed as a line.
#[derive(Debug)]
pub(crate) struct View {
    liveness: Liveness,
    /// The last plan. Only entries that have changed since then are printed.
    plan: Vec<PlanEntry>,
    /// The names and ids of the running calls, the newest last.
    calls: Vec<(String, String)>,
    /// The approvals that wait for a decision.
    asked: Vec<ApprovalId>,
    /// The numbers of the prompts in the queue.
    queued: Vec<u32>,
    doing: String,
    begun: Instant,
    frame: usize,
    is_drawn: bool,
}

/// Whether there is a status line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Liveness {
    Live,
    Plain,
}

impl View {
    /// A view without a status line, for past events.
    pub(crate) fn plain() -> View {
        View {
            liveness: Liveness::Plain,
            plan: Vec::new(),
            calls: Vec::new(),
            asked: Vec::new(),
            queued: Vec::new(),
            doing: "connecting".to_owned(),
            begun: Instant::now(),
            frame: 0,
            is_drawn: false,
        }
    }

    /// A view for a person who follows a running session.
    pub(crate) fn live(terminal: &Terminal, options: &FollowOptions) -> View {
        let is_live = terminal.is_watched()
            && terminal.is_heard()
            && terminal.can_redraw()
            && terminal.format() == Format::Text
            && !options.logs_only;
        let liveness = if is_live { Liveness::Live } else { Liveness::Plain };
        let mut view = View::plain();
        view.liveness = liveness;
        view
    }

    pub(super) fn is_live(&self) -> bool {
        self.liveness == Liveness::Live
    }

    /// Prints one event: as a line of JSON for programs, or as lines with marks for people.
    pub(crate) fn show(
        &mut self,
        event: &Event,
        options: &FollowOptions,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        if options.logs_only && !matches!(event.kind, EventKind::Log { .. }) {
            return Ok(());
        }
        self.clear();
        match terminal.format() {
            Format::Json => terminal.line(&json_line(options.session, event))?,
            Format::Text => {
                for line in self.lines(&event.kind) {
                    let mark = terminal.painted(line.style, line.mark);
                    let text = terminal.painted(line.style, &terminal.shown(&line.text));
                    terminal.line(&format!("{mark} {text}"))?;
                }
            }
        }
        terminal.finish()
    }

    /// Draws the next frame of the status line.
    pub(super) fn tick(&mut self) {
        if !self.is_live() {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let width = tcgetwinsize(std::io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        let text = bottom(FRAMES[self.frame], self.current(), self.begun.elapsed(), width);
        talk(&format!("{CLEAR}{text}"));
        self.is_drawn = true;
    }

    /// Removes the status line, so that something else can be printed.
    pub(super) fn clear(&mut self) {
        if self.is_drawn {
            talk(CLEAR);
            self.is_drawn = false;
        }
    }

    fn current(&self) -> &str {
        if !self.asked.is_empty() {
            return lines::activity_text(SessionActivity::AwaitingApproval);
        }
        self.calls.last().map_or(self.doing.as_str(), |(_, what)| what)
    }

    /// The lines for an event, without parts that were printed before.
    fn lines(&mut self, kind: &EventKind) -> Vec<Line> {
        match kind {
            EventKind::Plan { entries } => {
                let before = std::mem::replace(&mut self.plan, entries.clone());
                let is_new = |entry: &&PlanEntry| !before.contains(entry);
                let changed = entries.iter().filter(is_new).cloned().collect();
                return lines::of(&EventKind::Plan { entries: changed });
            }
            EventKind::Tool { tool_execution_id, tool_status, .. } => {
                self.calls.retain(|(id, _)| id != tool_execution_id);
                if *tool_status == ToolExecutionStatus::Running {
                    let what = lines::of(kind).pop().map(|line| line.text).unwrap_or_default();
                    self.calls.push((tool_execution_id.clone(), what));
                    if self.is_live() {
                        return Vec::new();
                    }
                }
            }
            EventKind::ApprovalRequested { approval_id, .. } => self.asked.push(*approval_id),
            EventKind::ApprovalDecided { approval_id, .. } => {
                self.asked.retain(|asked| asked != approval_id);
            }
            EventKind::PromptReceipt { number, status: PromptStatus::Queued } => {
                // The text of a queued prompt was changed.
                if self.queued.contains(number) {
                    return vec![lines::changed_prompt(*number)];
                }
                self.queued.push(*number);
            }
            EventKind::Status { status, activity, .. } => {
                self.doing = doing(*status, *activity);
                // When the agent stops working, its calls have ended, even if no event says so.
                if *activity != Some(SessionActivity::Working)
                    && *activity != Some(SessionActivity::AwaitingApproval)
                {
                    self.calls.clear();
                }
                if self.is_live() && !status.is_terminal() {
                    return Vec::new();
                }
            }
            _ => {}
        }
        lines::of(kind)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.clear();
    }
}

/// An event as a line of JSON. It contains the session id, so that the lines of several sessions
/// can be merged.
fn json_line(session: SessionId, event: &Event) -> String {
    let mut line = json!({ "sessionId": session });
    if let (Value::Object(line), Value::Object(members)) = (&mut line, json!(event)) {
        line.extend(members);
    }
    line.to_string()
}

fn doing(status: SessionStatus, activity: Option<SessionActivity>) -> String {
    match (status, activity) {
        (SessionStatus::Running, Some(activity)) => lines::activity_text(activity).to_owned(),
        (SessionStatus::Queued, _) => "waiting for a free slot".to_owned(),
        (SessionStatus::Provisioning, _) => "preparing the workspace".to_owned(),
        (status, _) => status.to_string(),
    }
}

/// The text of the status line, truncated to the width of the terminal.
fn bottom(frame: char, what: &str, time: Duration, width: usize) -> String {
    let seconds = time.as_secs();
    let time = match seconds {
        ..60 => format!("{seconds}s"),
        _ => format!("{}m {:02}s", seconds / 60, seconds % 60),
    };
    let end = format!(" · {time} · Ctrl-C detaches");
    let room = width.max(NARROWEST).saturating_sub(3 + end.chars().count());
    let what: String = what.chars().filter(|c| !c.is_control() && !is_bidi_control(*c)).collect();
    let what = match what.char_indices().nth(room) {
        Some((cut, _)) => format!("{}…", &what[..cut]),
        None => what,
    };
    let line = format!("{frame} {what}{end}");
    line.chars().take(width.max(NARROWEST).saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn shown(view: &mut View, events: Value) -> Vec<String> {
        let events: Vec<EventKind> = serde_json::from_value(events).unwrap();
        let lines = events.iter().flat_map(|kind| view.lines(kind));
        lines.map(|line| format!("{} {}", line.mark, line.text)).collect()
    }

    fn plan(first: &str, second: &str) -> Value {
        json!({ "type": "plan", "entries": [
            { "content": "Look", "status": first }, { "content": "Write", "status": second },
        ] })
    }

    #[test]
    fn plan_is_repeated_only_where_it_changed() {
        let events = json!([
            plan("in_progress", "pending"),
            plan("completed", "pending"),
            plan("completed", "pending")
        ]);
        let expect = ["▪ [>] Look", "▪ [ ] Write", "▪ [x] Look"];
        assert_eq!(shown(&mut View::plain(), events), expect);
    }

    #[test]
    fn running_call_is_at_the_bottom_of_a_live_view_and_a_line_of_a_plain_one() {
        let call = |status: &str| {
            json!({ "type": "tool", "tool_execution_id": "t", "tool_name": "exec",
                    "tool_input": r#"{"command":"ls"}"#, "tool_status": status })
        };
        let mut live = View::plain();
        live.liveness = Liveness::Live;
        let working = json!({ "type": "status", "status": "running", "activity": "working" });
        assert_eq!(shown(&mut live, json!([working, call("running")])), [""; 0]);
        assert_eq!(live.current(), "exec ls");
        assert_eq!(shown(&mut live, json!([call("success")])), ["✓ exec ls"]);
        assert_eq!(live.current(), "working");
        let both = json!([call("running"), call("success")]);
        assert_eq!(shown(&mut View::plain(), both), ["→ exec ls", "✓ exec ls"]);
    }

    #[test]
    fn bottom_line_fits_the_terminal() {
        let text =
            |width| bottom('⠋', "exec cargo test --workspace", Duration::from_secs(75), width);
        assert_eq!(text(80), "⠋ exec cargo test --workspace · 1m 15s · Ctrl-C detaches");
        for width in [20, 30, 40, 50] {
            let text = text(width);
            assert!(text.chars().count() < width, "{width}: {text}");
        }
        assert_eq!(
            bottom('⠋', "a\u{1b}[2J\u{202e}b", Duration::ZERO, 80),
            "⠋ a[2Jb · 0s · Ctrl-C detaches"
        );
    }

    #[test]
    fn view_waits_while_a_question_is_open() {
        let mut view = View::plain();
        let id = ApprovalId::generate();
        let working = json!({ "type": "status", "status": "running", "activity": "working" });
        let asks = json!({ "type": "approvalRequested", "approvalId": id, "title": "Run ls" });
        shown(&mut view, json!([working, asks]));
        assert_eq!(view.current(), "waits for a decision");
        let decided = json!({ "type": "approvalDecided", "approvalId": id, "status": "approved" });
        shown(&mut view, json!([decided]));
        assert_eq!(view.current(), "working");
    }

    #[test]
    fn change_of_a_queued_prompt_is_not_shown_as_another_prompt() {
        let receipt = json!({ "type": "promptReceipt", "number": 3, "status": "queued" });
        let events = json!([receipt, receipt]);
        assert_eq!(shown(&mut View::plain(), events), ["› prompt 3 queued", "› prompt 3 changed"]);
    }

    #[test]
    fn a_call_ends_with_the_work_of_its_agent() {
        let mut view = View::plain();
        let call = json!({ "type": "tool", "tool_execution_id": "1", "tool_name": "exec",
                           "tool_input": "sleep 9", "tool_status": "running" });
        shown(&mut view, json!([call]));
        assert_eq!(view.current(), "exec sleep 9");
        shown(&mut view, json!([{ "type": "status", "status": "running", "activity": "idle" }]));
        assert_eq!(view.current(), "waits for a prompt");
    }
}
