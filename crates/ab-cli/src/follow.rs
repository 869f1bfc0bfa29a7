//! The follow view of a session: one line for each event, and a prompt for each question of the agent.

pub(crate) mod lines;
mod view;

pub(crate) use view::View;

use std::io::{self, IsTerminal};

use ab_api::{
    Approval, ApprovalDecision, ApprovalId, ApproveOrDeny, ChangeCounts, DeciderKind,
    DecisionChannel, Event, EventKind, Session, SessionActivity, SessionId, SessionStatus,
    SubjectDescriber,
};
use ab_core::ErrorKind;
use ab_core::error::escape_unprintable;
use agent_backend::SessionClient;
use agent_backend::serve_client::StreamedEvent;
use clap::ValueEnum;
use tokio::time::MissedTickBehavior;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::keyboard::Keyboard;
use crate::signals::Signals;
use crate::terminal::{Format, Terminal, talk};

/// Longer titles are cut in the line of their event, so the prompt repeats the whole title.
const MAX_TITLE_ABOVE: usize = 160;

/// After this many EOFs in a row, no more input is read.
const MAX_INPUT_ENDS: u32 = 3;

/// What is done about questions of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// Ask the person at the terminal; elsewhere, leave the question open
    #[default]
    Ask,
    /// Answer yes
    Always,
    /// Answer no
    Never,
}

/// Settings of the view.
#[derive(Debug)]
pub(crate) struct FollowOptions {
    pub(crate) approve: Approve,
    /// Only the logs.
    pub(crate) logs_only: bool,
    /// The command that follows the session again.
    pub(crate) come_back: String,
}

/// Shows the events of a session until it ends, and returns it then.
///
/// # Errors
///
/// Errors of the server. An interrupt detaches and ends with exit code 130; the session goes on.
pub(crate) async fn follow(
    client: SessionClient,
    id: SessionId,
    options: FollowOptions,
    terminal: &mut Terminal,
) -> Result<Session, Failure> {
    let mut events = client.events(id);
    let mut signals = Signals::watch();
    let mut questions = Questions::new(client.clone(), &options, terminal);
    let mut view = View::live(terminal, &options);
    let mut pace = tokio::time::interval(view::PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = events.next() => {
                let event = event.inspect_err(|_| {
                    view.clear();
                    talk(&format!("session {id} may go on; follow it again: {}\n", options.come_back));
                })?;
                let Some(StreamedEvent { event, .. }) = event else { break };
                view.show(&event, &options, terminal)?;
                questions.on_event(id, &event, terminal).await?;
                if is_idle(&event) && client.session(id).await?.activity == Some(SessionActivity::Idle) {
                    terminal.note(&format!(
                        "the agent waits: agent-backend session prompt {id} PROMPT gives it more to do, \
                         session finish {id} delivers the result"
                    ));
                }
            }
            answer = questions.answer() => questions.decide(answer, terminal).await?,
            // An open question stays at the bottom until it is answered.
            _ = pace.tick(), if view.is_live() && !questions.is_asking() => view.tick(),
            exit = signals.next() => {
                view.clear();
                terminal.finish()?;
                talk(&format!(
                    "\ndetached: session {id} goes on\nfollow it again: {}\n",
                    options.come_back
                ));
                return Err(Failure::Told(exit));
            }
        }
    }
    Ok(client.session(id).await?)
}

fn is_idle(event: &Event) -> bool {
    matches!(event.kind, EventKind::Status { activity: Some(SessionActivity::Idle), .. })
}

/// Whether a session with this status has succeeded.
pub(crate) fn is_success(status: SessionStatus) -> bool {
    status == SessionStatus::Completed
}

/// How a session ended, in one line.
pub(crate) fn summary(session: &Session) -> String {
    let mut text = format!("{} {}", session.id, session.status);
    if let Some(changes) = session.changes {
        text.push_str(&format!(" ({})", lines::changes_text(changes)));
    }
    match (&session.end_detail, session.end_reason) {
        (Some(detail), _) => text.push_str(&format!(": {}", escape_unprintable(detail))),
        (None, Some(reason)) if session.status == SessionStatus::Failed => {
            text.push_str(&format!(": {}", lines::reason_text(reason)));
        }
        (None, _) => {}
    }
    text
}

/// Whether a prompt repeats the title of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Title {
    /// The line of the event, right above, shows the title.
    IsAbove,
    Repeated,
}

/// The agent's questions, and the person who answers them.
struct Questions {
    client: SessionClient,
    approve: Approve,
    /// Whether a person can be asked.
    is_interactive: bool,
    /// Whether the view shows the event of a question, so that its title is on the screen.
    shows_titles: bool,
    open: Vec<Approval>,
    keyboard: Option<Keyboard>,
    /// The number of EOFs since the last line.
    input_ends: u32,
}

impl Questions {
    fn new(client: SessionClient, options: &FollowOptions, terminal: &Terminal) -> Self {
        let is_person = io::stdin().is_terminal() && terminal.is_heard();
        let is_interactive = is_person && terminal.format() == Format::Text;
        Self {
            client,
            approve: options.approve,
            is_interactive,
            shows_titles: !options.logs_only,
            open: Vec::new(),
            keyboard: None,
            input_ends: 0,
        }
    }

    /// Whether a question waits for the person at the terminal.
    fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    async fn on_event(
        &mut self,
        session: SessionId,
        event: &Event,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        match &event.kind {
            EventKind::ApprovalRequested { approval_id, .. } => {
                self.on_question(session, *approval_id, terminal).await
            }
            EventKind::ApprovalDecided { approval_id, .. } => {
                let was_asking = self.open.first().is_some_and(|open| open.id == *approval_id);
                self.open.retain(|open| open.id != *approval_id);
                if was_asking {
                    self.ask(Title::Repeated);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn on_question(
        &mut self,
        session: SessionId,
        id: ApprovalId,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        // A replayed question may have been decided long ago.
        let pending = self.client.pending_approvals(session).await?;
        let Some(approval) = pending.into_iter().find(|approval| approval.id == id) else {
            return Ok(());
        };
        match self.approve {
            Approve::Always => self.send(id, ApproveOrDeny::Approve).await,
            Approve::Never => self.send(id, ApproveOrDeny::Deny).await,
            Approve::Ask if self.is_interactive => {
                self.open.push(approval);
                if self.open.len() == 1 {
                    let is_whole = self.open[0].subject.title.len() <= MAX_TITLE_ABOVE;
                    let is_above = self.shows_titles && is_whole;
                    let title = if is_above { Title::IsAbove } else { Title::Repeated };
                    self.ask(title);
                }
                Ok(())
            }
            Approve::Ask => {
                terminal.note(&format!(
                    "the session waits for a decision: agent-backend approvals show {id}, then \
                     approvals approve or deny {id}"
                ));
                Ok(())
            }
        }
    }

    /// Shows the first open question.
    fn ask(&mut self, title: Title) {
        let Some(approval) = self.open.first() else { return };
        self.keyboard.get_or_insert_with(Keyboard::open).forget();
        talk(&question(approval, title));
    }

    /// The next line that the person types while a question is open; `None` at EOF.
    async fn answer(&mut self) -> Option<io::Result<String>> {
        match &mut self.keyboard {
            Some(keyboard) if !self.open.is_empty() && self.input_ends < MAX_INPUT_ENDS => {
                keyboard.next().await
            }
            _ => std::future::pending().await,
        }
    }

    async fn decide(
        &mut self,
        line: Option<io::Result<String>>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        let Some(line) = line else {
            // At a terminal, more can be typed after Ctrl-D.
            self.keyboard = None;
            self.input_ends += 1;
            if self.input_ends < MAX_INPUT_ENDS {
                terminal.note("answer y or n; Ctrl-C detaches and leaves the question open");
                self.ask(Title::Repeated);
            } else {
                terminal.note("the input has ended; the question stays open");
            }
            return Ok(());
        };
        self.input_ends = 0;
        let line = line.map_err(|error| Failure::input("read the answer", error))?;
        let Some(approval) = self.open.first() else { return Ok(()) };
        let id = approval.id;
        let choice = match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => ApproveOrDeny::Approve,
            "n" | "no" => ApproveOrDeny::Deny,
            "l" | "later" => {
                self.open.remove(0);
                terminal.note(&format!(
                    "{id} stays open: agent-backend approvals approve or deny decides it later"
                ));
                self.ask(Title::Repeated);
                return Ok(());
            }
            _ => {
                terminal.note("answer y, n or l for later");
                self.ask(Title::Repeated);
                return Ok(());
            }
        };
        self.open.remove(0);
        self.send(id, choice).await?;
        self.ask(Title::Repeated);
        Ok(())
    }

    async fn send(&self, id: ApprovalId, decision: ApproveOrDeny) -> Result<(), Failure> {
        let by = match self.approve {
            Approve::Ask => DeciderKind::Person,
            Approve::Always | Approve::Never => DeciderKind::Rule,
        };
        let (by, via) = (Some(by), Some(DecisionChannel::Cli));
        let decision = ApprovalDecision { by, via, ..decision.into() };
        match self.client.decide_approval(id, &decision).await {
            // Another client decided first, or the question cannot be shown whole.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }
}

/// The text of the prompt. Nothing in it can move the cursor or change a colour.
fn question(approval: &Approval, title: Title) -> String {
    let subject = &approval.subject;
    let mut text = match title {
        Title::IsAbove => String::new(),
        Title::Repeated => format!("? {}\n", escape_unprintable(&subject.title)),
    };
    for line in subject.detail.as_deref().unwrap_or_default().lines() {
        text.push_str(&format!("  {}\n", escape_unprintable(line)));
    }
    if subject.described_by == SubjectDescriber::Agent && subject.detail.is_some() {
        text.push_str("  (as the agent describes it)\n");
    }
    if subject.is_cut {
        text.push_str("  this is not everything; it can only be denied\n");
    }
    text.push_str("allow it? [y/n/l] ");
    text
}

/// The exit of a command that followed `session` to its end. A person is told what can be done next.
pub(crate) fn end(
    session: &Session,
    server_flags: &str,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if terminal.is_watched() && terminal.format() == Format::Text {
        let id = session.id;
        let has_changes = session.changes.is_some_and(|changes| changes != ChangeCounts::default());
        match session.status {
            SessionStatus::Completed if has_changes => {
                terminal.note(&format!(
                    "see the change: agent-backend session diff {id}{server_flags}"
                ));
            }
            SessionStatus::Failed | SessionStatus::Stopped
                if session.workspace.mount_path.is_some() =>
            {
                terminal.note(&format!(
                    "the work is kept; go on with it: agent-backend session continue {id}{server_flags}"
                ));
            }
            _ => {}
        }
    }
    if is_success(session.status) { Ok(()) } else { Err(Failure::Told(Exit::Failed)) }
}

#[cfg(test)]
mod tests {
    use ab_api::{ApprovalSubject, Time};

    use super::*;

    #[test]
    fn a_question_cannot_move_the_cursor() {
        let subject = ApprovalSubject {
            title: "Run \u{1b}[2Kls\r".to_owned(),
            detail: Some("rm -rf build\n\u{7}echo".to_owned()),
            ..ApprovalSubject::default()
        };
        let approval = Approval::pending(subject, Time::now());
        let rest = "  rm -rf build\n  \\u{7}echo\nallow it? [y/n/l] ";
        let whole = format!("? Run \\u{{1b}}[2Kls\\r\n{rest}");
        assert_eq!(question(&approval, Title::Repeated), whole);
        // The line of the event has shown the title.
        assert_eq!(question(&approval, Title::IsAbove), rest);
    }
}
