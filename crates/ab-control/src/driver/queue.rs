//! The prompt queue of a session: changes by people, the next prompt, and the end of a turn.

use std::sync::Arc;

use ab_api::{ApprovalDecider, ApprovalStatus, EventKind, PromptStatus, SubjectDescriber};
use ab_store::{SessionPromptChange, SessionPromptChangeOutcome, StoreError};
use tokio::time::Instant;

use super::Driver;
use crate::control::ControlPlaneError;
use crate::crash::CrashTestPoint;
use crate::session_machine::{self, RunningSessionPhase, SessionInput, SessionPhase};

/// Maximum number of prompts in the queue of one session.
const MAX_QUEUED_PROMPTS: u64 = 100;

impl Driver {
    /// Stores a change that a person made to the queue. Returns the number of the prompt.
    pub(super) async fn change_queue(
        &mut self,
        input: Option<SessionInput>,
        change: SessionPromptChange,
    ) -> Result<Option<u32>, ControlPlaneError> {
        let (next, kinds) = match input {
            Some(input) => session_machine::apply_session_input(&self.state, input)
                .map_err(ControlPlaneError::IllegalInput)?,
            None => (self.state, Vec::new()),
        };
        let is_new = matches!(change, SessionPromptChange::Queue(_));
        let id = self.session.id;
        if is_new && self.plane.store.count_queued_prompts(id).await? >= MAX_QUEUED_PROMPTS {
            return Err(ControlPlaneError::QueueFull { limit: MAX_QUEUED_PROMPTS });
        }
        let number = match self.store_with(next, kinds, Vec::new(), change).await? {
            SessionPromptChangeOutcome::Changed(number) => number,
            SessionPromptChangeOutcome::Existing(number) => return Ok(Some(number)),
        };
        if is_new {
            self.plane.reach(CrashTestPoint::PromptQueued);
        }
        if input == Some(SessionInput::QueuePromptFirst) {
            self.cancel_turn();
        }
        Ok(number)
    }

    /// Starts to ask the agent to end its turn. The driver does not wait for this, because the
    /// agent may not read its input for a while.
    fn cancel_turn(&mut self) {
        if self.state.phase != SessionPhase::Running(RunningSessionPhase::Turn) {
            return;
        }
        let (plane, job, turn) = (Arc::clone(&self.plane), self.job(), self.state.turn);
        self.cancelling = Some(Box::pin(async move {
            if let Err(error) = plane.executor.cancel_turn(&job, turn).await {
                tracing::warn!(session = %job.session.id, %error, "cannot cancel a turn");
            }
        }));
    }

    /// Records the first prompt of the queue as sent and returns its text. The caller sends it
    /// afterwards.
    pub(super) async fn send_next(&mut self) -> Result<String, StoreError> {
        let next = self.plane.store.next_queued_prompt(self.session.id).await?;
        let event = EventKind::Prompt { number: next.number, prompt: next.prompt.clone() };
        let change = SessionPromptChange::MarkSent { number: next.number };
        if let Ok((state, kinds)) =
            session_machine::apply_session_input(&self.state, SessionInput::TurnStarted)
        {
            self.store_with(state, kinds, vec![event], change).await?;
        }
        self.turn_since = Some(Instant::now());
        Ok(next.prompt)
    }

    /// Records the end of a turn. It is ignored if the session is already ending.
    pub(super) async fn end_turn(&mut self, status: PromptStatus) -> Result<(), StoreError> {
        self.note_turn_time();
        match session_machine::apply_session_input(&self.state, SessionInput::TurnEnded) {
            Ok((next, kinds)) => {
                let change = SessionPromptChange::SetFinalStatus(status);
                self.store_with(next, kinds, Vec::new(), change).await.map(drop)
            }
            Err(illegal) => {
                tracing::debug!(session = %self.session.id, %illegal, "a late report is ignored");
                Ok(())
            }
        }
    }

    /// Withdraws the pending questions of a cancelled turn, because the agent no longer waits for
    /// their answers.
    pub(super) async fn withdraw_questions(&mut self) -> Result<(), StoreError> {
        for unanswered in self.plane.store.unanswered_approvals(self.session.id).await? {
            let approval = unanswered.approval;
            let is_agents = approval.subject.described_by == SubjectDescriber::Agent;
            if is_agents && approval.status == ApprovalStatus::Pending {
                let by = ApprovalDecider::for_server_rule("end of the turn");
                let reason = "the turn was cancelled".to_owned();
                self.plane.store.withdraw_approval(approval.id, by, reason).await?;
            }
        }
        Ok(())
    }
}
