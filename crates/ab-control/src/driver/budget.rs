//! The budget of a session: counts what the session uses, and asks a person for approval when the
//! budget is used up.

use ab_api::{
    Approval, ApprovalId, ApprovalStatus, ApprovalSubject, EventKind, LogLevel, Session,
    SessionUsage, Time,
};
use ab_store::{ApprovalOwner, SessionPromptChange, StoreError};

use super::{Driver, log};
use crate::control::Plane;
use crate::crash::CrashTestPoint;
use crate::session_machine::{
    self, RunningSessionPhase, SessionAction, SessionInput, SessionPhase, SessionState,
};

/// The name of the action in an approval that asks whether to exceed the budget.
pub(super) const BUDGET_ACTION: &str = "budget";
/// Maximum number of reports that are read again after a restart. Several reports are needed,
/// because a report contains totals but not every report contains all of them.
const MAX_REPORTS: usize = 64;

impl Driver {
    /// Updates the usage of the session with an event that reports tokens or cost. The event
    /// contains totals for the whole session.
    pub(super) fn note_usage(&mut self, kind: &EventKind) {
        note_model_usage(&mut self.session.usage, kind);
    }

    /// Adds the duration of the turn that ends now.
    pub(super) fn note_turn_time(&mut self) {
        if let Some(since) = self.turn_since.take() {
            let millis = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            let usage = &mut self.session.usage;
            usage.wall_millis = usage.wall_millis.saturating_add(millis);
        }
    }

    /// Whether the effect may begin now. If the budget is used up, a prompt may not begin, and the
    /// driver asks a person whether to continue.
    pub(super) async fn may_begin(&mut self, effect: SessionAction) -> Result<bool, StoreError> {
        if !matches!(effect, SessionAction::Prompt(_)) {
            return Ok(true);
        }
        if self.budget_question.is_some() {
            return Ok(false);
        }
        let budget = self.session.budget.unwrap_or_default();
        let used = budget.describe_exceeded_limit(&self.session.budget_start, &self.session.usage);
        let Some(used) = used else { return Ok(true) };
        let subject = ApprovalSubject {
            title: format!("Continue beyond the budget: {used} used"),
            action: Some(BUDGET_ACTION.to_owned()),
            detail: Some(format!(
                "The session has used {used}. Yes grants the same budget again and sends the next prompt. No withdraws the queued prompts and delivers the work so far."
            )),
            digest: Some(format!("{BUDGET_ACTION} after turn {}", self.state.turn)),
            ..ApprovalSubject::default()
        };
        let mut approval = Approval::new_pending(subject, Time::now())
            .expiring_after(self.plane.settings.approval_timeout);
        approval.session_id = Some(self.session.id);
        let id = approval.id;
        self.plane.store.add_approval(approval).await?;
        self.plane.reach(CrashTestPoint::ApprovalStored);
        self.hold_for(id);
        Ok(false)
    }

    /// Holds back all prompts until this approval is decided.
    pub(super) fn hold_for(&mut self, question: ApprovalId) {
        self.budget_question = Some(question);
        self.wait_for(question, None);
    }

    /// Applies the decision about the budget. If it was granted, the session continues. If it was
    /// denied or expired, the work so far is delivered. Does nothing while the agent cannot take a
    /// prompt, for example because it is being loaded or is frozen.
    pub(super) async fn apply_budget_decision(&mut self) -> Result<(), StoreError> {
        if self.state.phase != SessionPhase::Running(RunningSessionPhase::Idle) {
            return Ok(());
        }
        let Some(approval) = self.budget_decision.take() else { return Ok(()) };
        let digest = approval.subject.digest.clone().unwrap_or_default();
        let scope = ApprovalOwner::Session(self.session.id);
        let answer =
            match self.plane.store.use_decision_of_approval(approval.id, scope, digest).await {
                Ok(answer) => answer.status,
                Err(StoreError::UseDecision(_)) => ApprovalStatus::Denied,
                Err(error) => return Err(error),
            };
        self.budget_question = None;
        if answer == ApprovalStatus::Approved {
            self.session.budget_start = self.session.usage;
            let note = "The session continues with the same budget again.".to_owned();
            return self.store(self.state, Vec::new(), vec![log(LogLevel::Info, note)]).await;
        }
        // Withdraw the queued prompts. A session that is already ending refuses this input and has
        // no queue.
        while let Ok((next, kinds)) =
            session_machine::apply_session_input(&self.state, SessionInput::WithdrawPrompt)
        {
            let prompt = self.plane.store.next_queued_prompt(self.session.id).await?;
            let change = SessionPromptChange::Withdraw { number: prompt.number };
            self.store_with(next, kinds, Vec::new(), change).await?;
        }
        let note = "The budget of the session is used up. Its work so far is delivered.".to_owned();
        self.commit(SessionInput::Finish, vec![log(LogLevel::Warn, note)]).await
    }
}

impl Plane {
    /// Adds usage that is not stored yet. This is the usage that the session's log reports since
    /// the last stored usage. It also includes the time of a turn that was cut off, up to the last
    /// event of the turn.
    pub(crate) async fn count_cut_turn(
        &self,
        session: &mut Session,
        state: &SessionState,
    ) -> Result<(), StoreError> {
        let reports = self.store.last_event_records(session.id, Some("usage"), MAX_REPORTS).await?;
        for record in reports {
            note_model_usage(&mut session.usage, &record.parse_event()?.kind);
        }
        let is_in_turn = matches!(
            state.phase,
            SessionPhase::Running(RunningSessionPhase::Turn)
                | SessionPhase::Pausing(RunningSessionPhase::Turn)
                | SessionPhase::Paused(RunningSessionPhase::Turn)
                | SessionPhase::Resuming(RunningSessionPhase::Turn)
        );
        if !is_in_turn {
            return Ok(());
        }
        let prompts = self.store.last_event_records(session.id, Some("prompt"), 1).await?;
        let events = self.store.last_event_records(session.id, None, 1).await?;
        if let ([begin], [end]) = (prompts.as_slice(), events.as_slice()) {
            let millis = end.at.as_millis().saturating_sub(begin.at.as_millis());
            let millis = u64::try_from(millis).unwrap_or_default();
            session.usage.wall_millis = session.usage.wall_millis.saturating_add(millis);
        }
        Ok(())
    }
}

fn note_model_usage(usage: &mut SessionUsage, kind: &EventKind) {
    if let EventKind::Usage { input_tokens, output_tokens, cost_micros, .. } = *kind {
        usage.input_tokens = usage.input_tokens.max(input_tokens);
        usage.output_tokens = usage.output_tokens.max(output_tokens);
        usage.cost_micros = usage.cost_micros.max(cost_micros);
    }
}
