//! Handles the questions of a session's agent. Each question is stored, waits for a decision, and
//! is answered once. This also holds if the server restarts before the decision.

use std::fmt::Write;

use ab_api::{
    Approval, ApprovalDecider, ApprovalId, ApprovalStatus, ApprovalSubject, Event, LogLevel,
    SubjectDescriber, Time,
};
use ab_executor::{AgentQuestion, AgentQuestionId};
use ab_store::{
    ApprovalOwner, PromptQueuePosition, QueuedPrompt, SessionPromptChange, StoreError,
    UnansweredApproval,
};
use futures_util::future::BoxFuture;

use super::budget::BUDGET_ACTION;
use super::{Driver, log};
use crate::crash::CrashTestPoint;
use crate::session_machine::{self, RunningSessionPhase, SessionInput, SessionPhase};

/// A future that waits until an approval is decided.
pub(super) type AwaitedDecision = BoxFuture<'static, Result<Decided, StoreError>>;

/// An approval that is no longer pending, and the question that it answers. `question` is `None` if
/// no question of the current attempt waits for this approval.
pub(super) struct Decided {
    question: Option<AgentQuestionId>,
    approval: Box<Approval>,
}

/// An approval that an earlier attempt requested. The agent process that asked has ended, and the
/// restarted agent may ask again.
pub(super) struct Inherited {
    id: ApprovalId,
    digest: Option<String>,
    describer: SubjectDescriber,
    /// Whether a prompt that tells the agent the decision was queued.
    is_told: bool,
}

impl Driver {
    /// Loads the approvals whose answers no agent received before the server ended.
    pub(super) async fn inherit_approvals(&mut self) -> Result<(), StoreError> {
        for unanswered in self.plane.store.unanswered_approvals(self.session.id).await? {
            let UnansweredApproval { approval, is_decision_told: is_told } = unanswered;
            let Approval { id, subject, .. } = approval;
            if subject.action.as_deref() == Some(BUDGET_ACTION) {
                self.hold_for(id);
                continue;
            }
            let (digest, describer) = (subject.digest, subject.described_by);
            self.inherited.push(Inherited { id, digest, describer, is_told });
            self.wait_for(id, None);
        }
        Ok(())
    }

    /// Whether the session waits for decisions that an earlier attempt requested.
    pub(super) fn is_waiting_for_decisions(&self) -> bool {
        self.inherited.iter().any(|inherited| !inherited.is_told)
    }

    /// Stores a question. If an earlier attempt asked the same question, the approval of that
    /// question is used. A decision about it therefore stays valid. A session that is ending asks
    /// no person. The agent gets a refusal.
    pub(super) async fn ask(&mut self, question: AgentQuestion) -> Result<(), StoreError> {
        let AgentQuestion { id: question, subject } = question;
        if matches!(self.state.phase, SessionPhase::Closing { .. }) {
            let approval = refused_at_the_end(subject);
            self.give(&question, &approval).await;
            return Ok(());
        }
        let same = |known: &Inherited| known.digest.is_some() && known.digest == subject.digest;
        let id = match self.inherited.iter().position(same) {
            Some(index) => {
                let Inherited { id, .. } = self.inherited.remove(index);
                let approval = self.plane.store.get_approval(id).await?;
                let note = asked_again(&approval);
                self.append(vec![Event::at_current_time(log(LogLevel::Info, note))]).await?;
                id
            }
            None => {
                let mut approval = Approval::new_pending(subject, Time::now())
                    .expiring_after(self.plane.settings.approval_timeout);
                approval.session_id = Some(self.session.id);
                let id = approval.id;
                self.plane.store.add_approval(approval).await?;
                self.plane.reach(CrashTestPoint::ApprovalStored);
                id
            }
        };
        self.plane.executor.set_approval_id_of_question(&self.job(), &question, id).await;
        self.wait_for(id, Some(question));
        Ok(())
    }

    pub(super) fn wait_for(&self, id: ApprovalId, question: Option<AgentQuestionId>) {
        let store = self.plane.store.clone();
        self.awaited.push(Box::pin(async move {
            let approval = store.wait_for_decision(id).await?;
            Ok(Decided { question, approval: Box::new(approval) })
        }));
    }

    pub(super) async fn take_decision(&mut self, decided: Decided) -> Result<(), StoreError> {
        if self.budget_question == Some(decided.approval.id) {
            self.budget_decision = Some(*decided.approval);
            return Ok(());
        }
        match decided.question {
            Some(question) => self.answer(&question, *decided.approval).await,
            None => self.tell_decisions().await,
        }
    }

    /// Sends the agent the answer to its question. The answer is recorded as used before the agent
    /// gets it, so that no approval is used twice.
    async fn answer(
        &mut self,
        question: &AgentQuestionId,
        approval: Approval,
    ) -> Result<(), StoreError> {
        self.plane.reach(CrashTestPoint::DecisionStored);
        let digest = approval.subject.digest.clone().unwrap_or_default();
        let scope = ApprovalOwner::Session(self.session.id);
        let answer =
            match self.plane.store.use_decision_of_approval(approval.id, scope, digest).await {
                Ok(answer) => answer,
                Err(StoreError::UseDecision(refusal)) => {
                    let reason = Some(refusal.to_string());
                    Approval { status: ApprovalStatus::Denied, reason, ..approval }
                }
                Err(error) => return Err(error),
            };
        self.plane.reach(CrashTestPoint::DecisionUsed);
        self.give(question, &answer).await;
        self.plane.reach(CrashTestPoint::DecisionDelivered);
        Ok(())
    }

    async fn give(&mut self, question: &AgentQuestionId, answer: &Approval) {
        let job = self.job();
        if let Err(error) = self.plane.executor.answer_question(&job, question, answer).await {
            tracing::warn!(session = %self.session.id, %error, "cannot answer the agent");
        }
    }

    /// Queues one prompt for the restarted agent that lists everything that was decided while it
    /// was not running. Does nothing while the agent is in a turn, because an agent in a turn asks
    /// again if it still needs the answer.
    async fn tell_decisions(&mut self) -> Result<(), StoreError> {
        let is_at_work = matches!(
            self.state.phase,
            SessionPhase::Running(RunningSessionPhase::Turn)
                | SessionPhase::Pausing(RunningSessionPhase::Turn)
        );
        if is_at_work {
            return Ok(());
        }
        let mut decided = Vec::new();
        for unanswered in self.plane.store.unanswered_approvals(self.session.id).await? {
            let UnansweredApproval { approval, .. } = unanswered;
            let is_awaited =
                self.inherited.iter().any(|known| known.id == approval.id && !known.is_told);
            if is_awaited && approval.status != ApprovalStatus::Pending {
                decided.push(approval);
            }
        }
        if decided.is_empty() {
            return Ok(());
        }
        // A session that is ending accepts no prompt.
        let Ok((next, kinds)) =
            session_machine::apply_session_input(&self.state, SessionInput::QueuePrompt)
        else {
            return Ok(());
        };
        let told: Vec<ApprovalId> = decided.iter().map(|approval| approval.id).collect();
        let change = SessionPromptChange::Queue(QueuedPrompt {
            prompt: go_on(&decided),
            position: PromptQueuePosition::Last,
            told_approvals: told.clone(),
            idempotency: None,
        });
        self.store_with(next, kinds, Vec::new(), change).await?;
        for known in self.inherited.iter_mut().filter(|known| told.contains(&known.id)) {
            known.is_told = true;
        }
        self.plane.reach(CrashTestPoint::DecisionTold);
        Ok(())
    }

    /// Called at the end of a turn. Withdraws the questions of earlier attempts that the agent did
    /// not ask again. Questions about commands stay open, because the agent may repeat the command
    /// in a later turn.
    pub(super) async fn drop_inherited(&mut self) -> Result<(), StoreError> {
        for known in std::mem::take(&mut self.inherited) {
            if known.describer == SubjectDescriber::Agent {
                let by = ApprovalDecider::for_server_rule("end of the turn");
                let reason = "the agent ended its turn without asking again".to_owned();
                self.plane.store.withdraw_approval(known.id, by, reason).await?;
            } else {
                self.inherited.push(Inherited { is_told: true, ..known });
            }
        }
        Ok(())
    }
}

/// The answer to a question that an agent asks while its session ends. It is not stored.
fn refused_at_the_end(subject: ApprovalSubject) -> Approval {
    Approval {
        status: ApprovalStatus::Expired,
        decided_by: Some(ApprovalDecider::for_server_rule("end of the session")),
        reason: Some("the session is ending".to_owned()),
        ..Approval::new_pending(subject, Time::now())
    }
}

/// The line of the session's log about a question that the agent asked before a restart.
fn asked_again(approval: &Approval) -> String {
    let id = approval.id;
    match approval.status {
        ApprovalStatus::Pending => {
            format!("The agent asked again; approval {id} still waits for a decision.")
        }
        status => {
            let status = status.as_str();
            format!("The agent asked again; the decision of approval {id} is used: {status}.")
        }
    }
}

/// The text of the prompt that tells the agent about the decisions after a restart of the server.
fn go_on(decided: &[Approval]) -> String {
    let mut text =
        "[agent-backend] The server was restarted while you waited for a decision.\n".to_owned();
    for approval in decided {
        let title = &approval.subject.title;
        let outcome = match approval.status {
            ApprovalStatus::Approved => "approved",
            ApprovalStatus::Denied => "denied",
            ApprovalStatus::Expired | ApprovalStatus::Pending => "not approved in time",
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "Your request {title:?} was {outcome}");
        if let Some(reason) = approval.reason.as_ref().filter(|_| outcome == "denied") {
            let _ = write!(text, ": {reason}");
        }
        text.push_str(".\n");
    }
    if decided.iter().any(|approval| approval.status == ApprovalStatus::Approved) {
        text.push_str("Continue the interrupted work. If you ask again, the answer is yes.\n");
    } else {
        text.push_str("Continue the interrupted work without it.\n");
    }
    text
}
