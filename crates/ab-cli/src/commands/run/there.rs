//! Runs on a server: starts a run, follows it live, and asks for decisions at the terminal.

use std::time::Duration;

use ab_api::{ApprovalId, ApprovalStatus, Run, RunId, RunStatus, SpaceId};
use ab_core::ErrorKind;
use ab_core::process::OutputChannel;
use ab_spaces::{EventsMessage, MessageStatus, Operation, ProtocolEvent};
use agent_backend::ServeClient;
use agent_backend::serve_client::{OperationOutputChannel, RunUpdate};
use serde_json::Value;

use super::view::{OutputSource, RunView};
use crate::failure::Failure;
use crate::follow::{Answered, Approve, Questions, Titles};
use crate::signals::Signals;
use crate::terminal::{Format, Terminal, talk};

/// If a run reports nothing for this time at its start, the person is told why it may have to wait.
const SILENCE: Duration = Duration::from_secs(2);

/// A run to follow.
pub(super) struct FollowedRun<'a> {
    pub(super) client: &'a ServeClient,
    pub(super) run: RunId,
    pub(super) space: SpaceId,
    /// The approval up to whose question the updates of the run were already shown.
    pub(super) after: Option<ApprovalId>,
    pub(super) operations: Vec<Operation>,
    pub(super) approve: Approve,
    /// The flags with which a later command reaches the same server.
    pub(super) server_flags: &'a str,
}

/// Shows a run until it ends or waits for a decision that is not made here.
pub(super) async fn follow(
    followed: FollowedRun<'_>,
    terminal: &mut Terminal,
) -> Result<EventsMessage, Failure> {
    let FollowedRun { client, run, space, mut after, operations, approve, server_flags } = followed;
    let mut updates = client.follow_run(run);
    let mut signals = Signals::watch();
    let mut questions =
        Questions::new(client.clone(), approve, Titles::Repeated, server_flags, terminal);
    let mut view = RunView::new(OutputSource::Server, operations);
    let mut events = Vec::new();
    let mut asked = None;
    let silence = tokio::time::sleep(SILENCE);
    tokio::pin!(silence);
    let mut is_silent = true;
    // Whether the reader of standard output has closed the pipe.
    let mut is_closed = false;
    loop {
        let update = tokio::select! {
            update = updates.next() => update?,
            answer = questions.answer() => {
                if questions.decide(answer, terminal).await? == Answered::Later {
                    return Ok(EventsMessage::new(run, MessageStatus::AwaitingApproval, events));
                }
                continue;
            }
            () = &mut silence, if is_silent => {
                is_silent = false;
                tell_turn(client, run, space, terminal).await?;
                continue;
            }
            exit = signals.next() => {
                terminal.finish()?;
                let waits = asked.map(|id| {
                    format!("it waits for a decision: agent-backend approvals show {id}{server_flags}\n")
                });
                talk(&format!(
                    "\ndetached: the run goes on\n{}see it: agent-backend run show {run}{server_flags}\n\
                     stop it: agent-backend run cancel {run}{server_flags}\n",
                    waits.unwrap_or_default()
                ));
                return Err(Failure::Told(exit));
            }
        };
        is_silent = false;
        // An update after the question means that the question is decided.
        if let Some(id) = asked.take() {
            if questions.is_asking() {
                talk("\n");
            }
            questions.close(id);
        }
        let Some(update) = update else {
            // The run has ended between two requests.
            let status = client.run(run).await?.status;
            return Ok(EventsMessage::new(run, status.into(), events));
        };
        if let Some(shown) = after {
            if matches!(&update, RunUpdate::WaitingForApproval(run) if asks(run) == Some(shown)) {
                after = None;
            }
            continue;
        }
        let lines = match update {
            RunUpdate::Operation(operation) => view.begin(&operation.operation_id),
            RunUpdate::Output(output) => {
                let channel = match output.channel {
                    OperationOutputChannel::Stdout => OutputChannel::Stdout,
                    OperationOutputChannel::Stderr => OutputChannel::Stderr,
                };
                view.output(&output.operation_id, channel, output.text.as_bytes())
            }
            RunUpdate::Event(event) => {
                let event: ProtocolEvent = parsed(&event)?;
                // The prompt already shows the question.
                let is_asked = matches!(event, ProtocolEvent::ApprovalRequired { .. })
                    && approve == Approve::Ask
                    && questions.is_interactive();
                let lines = if is_asked { Vec::new() } else { view.event(&event) };
                events.push(event);
                lines
            }
            RunUpdate::WaitingForApproval(parked) => {
                let Some(id) = asks(&parked) else { continue };
                let approval = match client.approval(id).await {
                    // A caller with the token of a space is not allowed to read approvals.
                    Err(error) if error.kind() == ErrorKind::DeniedByPolicy => {
                        terminal.note(
                            "the run waits for the decision of a person, and this token cannot decide; \
                             the run continues when it is decided",
                        );
                        let status = MessageStatus::AwaitingApproval;
                        return Ok(EventsMessage::new(run, status, events));
                    }
                    approval => approval?,
                };
                // Skip an approval that another caller has already decided.
                if approval.status == ApprovalStatus::Pending {
                    if approve == Approve::Ask && !questions.is_interactive() {
                        let status = MessageStatus::AwaitingApproval;
                        tell_waiting(run, id, server_flags, terminal);
                        return Ok(EventsMessage::new(run, status, events));
                    }
                    asked = Some(id);
                    questions.open(approval, terminal).await?;
                }
                continue;
            }
            RunUpdate::Complete(ended) => {
                return Ok(EventsMessage::new(run, ended.status.into(), events));
            }
        };
        if terminal.format() == Format::Text && !is_closed {
            let written = lines.iter().try_for_each(|line| terminal.line(line));
            match written.and_then(|()| terminal.finish()) {
                // The exit code still says what becomes of the run.
                Err(Failure::ClosedPipe) => is_closed = true,
                printed => printed?,
            }
        }
    }
}

/// The id of the approval for which a run waits.
fn asks(run: &Run) -> Option<ApprovalId> {
    run.pending_approval.as_ref().map(|pending| pending.approval_id)
}

fn tell_waiting(run: RunId, approval: ApprovalId, server_flags: &str, terminal: &mut Terminal) {
    terminal.note(&format!(
        "the run waits for a decision: `agent-backend run resume {run}{server_flags}` approves it, \
         with --deny refuses it; show what it is about: agent-backend approvals show \
         {approval}{server_flags}"
    ));
}

/// If another run of the space waits for a person, tells the user that this is why nothing happens.
async fn tell_turn(
    client: &ServeClient,
    run: RunId,
    space: SpaceId,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    if client.run(run).await?.status != RunStatus::Queued {
        return Ok(());
    }
    let shown = client.send_request("GET", &format!("/v1/spaces/{space}"), None).await?;
    let why = if shown["data"]["status"] == "paused" {
        "another run of the space waits for an approval: `agent-backend approvals list` shows it"
    } else {
        "another run of the space is at work"
    };
    terminal.note(&format!("run {run} waits for its turn: {why}"));
    Ok(())
}

pub(super) fn parsed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, Failure> {
    serde_json::from_value(value.clone()).map_err(|error| {
        Failure::usage(format!("the server sent something unknown: {error}"))
            .with_hint("client and server may be of different versions: agent-backend version")
    })
}
