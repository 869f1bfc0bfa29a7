//! What a driver (the task that runs a session) does while the store does not work, such as on a
//! full disk.

use std::time::Duration;

use ab_api::SessionId;
use ab_executor::CleanupToken;
use ab_store::{StoreError, WriteUrgency};

use super::{Command, CommandReply, Driver, SessionRequest};
use crate::control::Plane;
use crate::session_machine::{SessionInput, SessionPhase};

/// How long a driver waits before it retries after an error of the store.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// What the driver must do once the store works again.
#[derive(Default)]
pub(super) struct Recovery {
    /// The end that a person asked for.
    end: Option<RequestedEnd>,
    /// The callers that wait until the end is stored.
    replies: Vec<CommandReply>,
}

/// The end that a person asks for, weaker first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestedEnd {
    Stop,
    /// The workspace may be removed before the end is stored.
    Cancel,
}

impl RequestedEnd {
    /// The end that a command asks for, if it asks for one.
    pub(super) fn of(request: &SessionRequest) -> Option<Self> {
        match request {
            SessionRequest::Input(SessionInput::Stop) => Some(Self::Stop),
            SessionRequest::Input(SessionInput::Cancel) => Some(Self::Cancel),
            SessionRequest::Input(_) | SessionRequest::Prompts { .. } => None,
        }
    }

    fn input(self) -> SessionInput {
        match self {
            Self::Stop => SessionInput::Stop,
            Self::Cancel => SessionInput::Cancel,
        }
    }
}

impl Recovery {
    /// Notes that the session is to end.
    pub(super) fn end(&mut self, end: RequestedEnd, reply: CommandReply) {
        self.end = self.end.max(Some(end));
        self.replies.push(reply);
    }

    /// Answers the callers that asked for the end of the session.
    fn answer(&mut self, outcome: Result<(), &StoreError>) {
        for reply in self.replies.drain(..) {
            // The caller may have stopped waiting for the reply.
            let _ = reply.send(outcome.map(|()| None).map_err(|error| error.clone().into()));
        }
    }
}

impl Driver {
    /// Waits until the store works again, and then restarts the session as after a restart of the
    /// server, so that the session still comes to an end after, for example, a full disk. Returns
    /// `false` if the server shuts down first. The next server process then resumes the session.
    /// Also returns `false` after an error that would occur again: the session has then failed.
    ///
    /// The processes of the session have ended before this call. If a session is cancelled on a
    /// full disk, its workspace is removed before the new state is stored. Removing the workspace
    /// frees the space that the new state needs.
    pub(super) async fn recover(&mut self, mut error: StoreError) -> bool {
        self.reports = None;
        self.cancelling = None;
        // The time of this turn is later counted from the events in the log.
        self.turn_since = None;
        self.budget_question = None;
        self.budget_decision = None;
        self.awaited.clear();
        self.inherited.clear();
        loop {
            if matches!(error, StoreError::Closed) {
                self.recovery.answer(Err(&error));
                return false;
            }
            if error.is_permanent() {
                self.recovery.answer(Err(&error));
                let detail = format!("The session's events could not be stored: {error}.");
                self.plane.abandon_session(self.session.id, &detail).await;
                return false;
            }
            // If a caller waits for the end, try at once instead of after a pause.
            if self.recovery.replies.is_empty() && !self.wait_for_retry(&error).await {
                return false;
            }
            if error.is_disk_full() && self.needs_no_workspace() {
                self.plane.make_room(self.session.id).await;
            }
            match self.begin_again(&error).await {
                Ok(()) => {
                    self.recovery.end = None;
                    self.recovery.answer(Ok(()));
                    return true;
                }
                Err(again) => error = again,
            }
            self.recovery.answer(Err(&error));
        }
    }

    /// Waits until it is time for the next attempt, or a person ends the session. Returns `false` if the server shuts
    /// down.
    async fn wait_for_retry(&mut self, error: &StoreError) -> bool {
        let retry = tokio::time::sleep(STORE_RETRY);
        tokio::pin!(retry);
        loop {
            tokio::select! {
                () = self.plane.shutdown.cancelled() => return false,
                () = &mut retry => return true,
                command = self.commands.recv() => {
                    let Some(Command { request, reply }) = command else { return false };
                    if let Some(end) = RequestedEnd::of(&request) {
                        self.recovery.end(end, reply);
                        return true;
                    }
                    // The caller may have stopped waiting for the reply.
                    drop(reply.send(Err(error.clone().into())));
                }
            }
        }
    }

    /// Whether the session will end in a way that removes its workspace.
    fn needs_no_workspace(&self) -> bool {
        let is_over = match self.state.phase {
            SessionPhase::Closing { ending, .. } => Plane::removes_workspace(ending.status),
            _ => false,
        };
        self.recovery.end == Some(RequestedEnd::Cancel) || is_over
    }

    /// Stores that the session restarts. If a person asked for its end, stores the end too.
    async fn begin_again(&mut self, cause: &StoreError) -> Result<(), StoreError> {
        let record = self.plane.store.session_record(self.session.id).await?;
        let cause = format!("The session's events could not be stored: {cause}.");
        let urgency = match self.recovery.end {
            Some(_) => WriteUrgency::Urgent,
            None => WriteUrgency::Normal,
        };
        if let Some((session, state)) = self.plane.begin_again(record, &cause, urgency).await? {
            self.session = session;
            self.state = state;
        }
        if let Some(end) = self.recovery.end {
            self.commit(end.input(), Vec::new()).await?;
        }
        Ok(())
    }
}

impl Plane {
    /// Removes the workspace of a session. The cleanup token is kept, so that the removal is
    /// repeated when the session ends.
    async fn make_room(&self, id: SessionId) {
        let made = match self.store.pending_cleanups(Some(id)).await {
            Ok(made) => made,
            Err(error) => {
                return tracing::warn!(session = %id, %error, "cannot free disk space for a session");
            }
        };
        for cleanup in made {
            if let Err(error) = self.remove_made(&CleanupToken(cleanup.token)).await {
                tracing::warn!(session = %id, %error, "cannot free disk space for a session");
            }
        }
    }
}
