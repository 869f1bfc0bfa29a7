//! Follows a session: prints a line for each event, and asks the questions of the agent at the
//! terminal.

pub(crate) mod lines;
mod questions;
mod view;

pub(crate) use questions::{Answered, Questions, Titles, detail_lines};
pub(crate) use view::View;

use ab_api::{ChangeCounts, Event, EventKind, Session, SessionActivity, SessionId, SessionStatus};
use ab_core::ConnectionStatus;
use ab_core::error::escape_unprintable;
use agent_backend::ServeClient;
use agent_backend::serve_client::SessionEventStreamItem;
use clap::ValueEnum;
use tokio::time::MissedTickBehavior;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::{Format, Terminal, talk};

/// The message that is printed when the connection to the server is lost.
const AWAY: &str = "the server cannot be reached; trying again (Ctrl-C stops following)\n";

/// What is done about questions of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// Ask at the terminal
    #[default]
    Ask,
    /// Approve all of them
    Always,
    /// Deny all of them
    Never,
}

/// The options for following a session.
#[derive(Debug)]
pub(crate) struct FollowOptions {
    /// The session. Its id is part of each JSON line.
    pub(crate) session: SessionId,
    pub(crate) approve: Approve,
    /// Whether only log events are shown.
    pub(crate) logs_only: bool,
    /// The command with which the user can follow the session again.
    pub(crate) come_back: String,
    /// The flags with which the user can reach the same server again.
    pub(crate) server_flags: String,
}

/// Shows the events of a session until it ends, and then returns the session.
///
/// # Errors
///
/// Fails if the server cannot be reached or reports an error. An interrupt stops following with the
/// exit code 130. The session continues.
pub(crate) async fn follow(
    client: ServeClient,
    id: SessionId,
    options: FollowOptions,
    terminal: &mut Terminal,
) -> Result<Session, Failure> {
    let mut events = client.follow_events(id);
    let mut status = events.watch_status();
    let mut is_away = false;
    let mut signals = Signals::watch();
    let titles = if options.logs_only { Titles::Repeated } else { Titles::InEvents };
    let flags = &options.server_flags;
    let mut questions = Questions::new(client.clone(), options.approve, titles, flags, terminal);
    let mut view = View::live(terminal, &options);
    let mut pace = tokio::time::interval(view::PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = events.next() => {
                let event = event.inspect_err(|_| {
                    view.clear();
                    talk(&format!("session {id} may continue; to follow it again: {}\n", options.come_back));
                })?;
                let Some(SessionEventStreamItem { event, .. }) = event else { break };
                view.show(&event, &options, terminal)?;
                on_event(&mut questions, &client, id, &event, terminal).await?;
                if is_idle(&event) && client.session(id).await?.activity == Some(SessionActivity::Idle) {
                    terminal.note(&format!(
                        "the agent waits for a prompt; to continue: agent-backend session prompt {id} PROMPT{flags}; to deliver the result: agent-backend session finish {id}{flags}"
                    ));
                }
            }
            Ok(()) = status.changed() => {
                let reconnects = *status.borrow_and_update() == ConnectionStatus::Reconnecting;
                if reconnects != is_away {
                    is_away = reconnects;
                    view.clear();
                    talk(if is_away { AWAY } else { "the server is back\n" });
                }
            }
            answer = questions.answer() => drop(questions.decide(answer, terminal).await?),
            // Do not redraw while a question is open, so that the question stays at the bottom.
            _ = pace.tick(), if view.is_live() && !questions.is_asking() => view.tick(),
            exit = signals.next() => {
                view.clear();
                terminal.finish()?;
                talk(&format!(
                    "\ndetached: session {id} continues\nto follow it again: {}\n",
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

/// One line about how a session ended.
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

/// Opens and closes questions according to the events of the session.
async fn on_event(
    questions: &mut Questions,
    client: &ServeClient,
    session: SessionId,
    event: &Event,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    match &event.kind {
        EventKind::ApprovalRequested { approval_id, .. } => {
            // The event may be old, and the question may have been decided since.
            let pending = client.pending_approvals(session).await?;
            match pending.into_iter().find(|approval| approval.id == *approval_id) {
                Some(approval) => questions.open(approval, terminal).await,
                None => Ok(()),
            }
        }
        EventKind::ApprovalDecided { approval_id, .. } => {
            questions.close(*approval_id);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The exit status of a command that followed `session` to its end. Also tells a person what can be
/// done next.
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
                    "to see the changes: agent-backend session diff {id}{server_flags}"
                ));
            }
            SessionStatus::Failed | SessionStatus::Stopped
                if session.workspace.mount_path.is_some() =>
            {
                terminal.note(&format!(
                    "the work is kept; to continue: agent-backend session continue {id}{server_flags}"
                ));
            }
            _ => {}
        }
    }
    if is_success(session.status) { Ok(()) } else { Err(Failure::Told(Exit::Failed)) }
}
