//! The end of a session that no driver can continue, because its driver panicked or its events can
//! never be stored.

use std::time::Duration;

use ab_api::{Event, EventKind, SessionEndReason, SessionId, SessionStatus, Time};
use ab_executor::SessionAttempt;
use ab_store::{SessionRecord, StoreError};

use super::Plane;
use crate::driver::close_session;
use crate::session_machine::{self, SessionInput, SessionState};

/// How long to wait before another attempt to store the end of a session.
const RETRY: Duration = Duration::from_secs(1);

impl Plane {
    /// Ends the processes of a session and stores that it failed. While the store does not work,
    /// for example on a full disk, this is repeated until the server shuts down.
    pub(crate) async fn abandon_session(&self, id: SessionId, detail: &str) {
        loop {
            let error = match self.try_abandon(id, detail).await {
                Ok(()) => return,
                Err(error) => error,
            };
            tracing::error!(session = %id, %error, "cannot store the end of a session");
            if error.is_permanent() || matches!(error, StoreError::Closed) {
                return;
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn try_abandon(&self, id: SessionId, detail: &str) -> Result<(), StoreError> {
        let SessionRecord { mut session, progress } = match self.store.session_record(id).await {
            Err(StoreError::NotFound) => return Ok(()),
            record => record?,
        };
        if session.status.is_terminal() {
            return Ok(());
        }
        let restored = SessionState::restore(session.status, &progress, session.keep_open);
        let mut state = restored.unwrap_or_else(|| SessionState::new(session.keep_open));
        let job = SessionAttempt { session: session.clone(), generation: state.generation };
        let notes = close_session(self, &job, Duration::ZERO).await;
        let mut kinds = Vec::new();
        for input in [SessionInput::Failed(SessionEndReason::Interrupted), SessionInput::Closed] {
            if let Ok((next, events)) = session_machine::apply_session_input(&state, input) {
                state = next;
                kinds = events;
            }
        }
        let Some(ending) = state.ending() else { return Ok(()) };
        let now = Time::now();
        session.status = ending.status;
        session.activity = None;
        session.updated_at = now;
        session.ended_at = Some(now);
        session.end_reason = Some(ending.reason);
        session.end_detail = (ending.status == SessionStatus::Failed).then(|| detail.to_owned());
        for kind in &mut kinds {
            if let EventKind::Status { message, .. } = kind {
                message.clone_from(&session.end_detail);
            }
        }
        let record = SessionRecord { session, progress: state.progress() };
        // The stored events of the session may be the reason why it ends here.
        let open_tools = self.cancelled_tools(id).await.unwrap_or_default();
        let all = open_tools.into_iter().chain(notes).chain(kinds.clone());
        let at_now = |kind| Event { kind, ts: now };
        let stored = self.store.update_session(record.clone(), all.map(at_now).collect()).await;
        match stored {
            Err(error) if error.is_permanent() => {
                let only_end = kinds.into_iter().map(at_now).collect();
                self.store.update_session(record, only_end).await?;
            }
            stored => stored?,
        }
        if Self::removes_workspace(ending.status) {
            self.cleanup(id).await?;
        }
        Ok(())
    }
}
