//! Questions of the command policy. Each question becomes an approval of the session, and the
//! command waits for the decision.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_api::{Approval, ApprovalDecider, ApprovalId, ApprovalStatus, ApprovalSubject, DeciderKind};
use ab_core::error::escape_unprintable;
use ab_core::{ApprovalAnswer, ApprovalRequest, Approver, CallDigest, Principal, PrincipalKind};
use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::lock;
use super::mask::Mask;
use crate::report::{AgentQuestion, AgentQuestionId, AgentReport};

/// Maximum number of open questions of one session.
const MAX_OPEN: usize = 64;
/// Maximum number of characters of a command in a title.
const MAX_TITLE: usize = 100;

/// The settings of [`PolicyQuestions`].
pub(super) struct QuestionSettings {
    pub(super) generation: u32,
    /// Sends questions as reports. The sender is weak, so that the channel closes when the agent
    /// has ended.
    pub(super) reports: mpsc::WeakSender<AgentReport>,
    /// Hides the agent's credentials in what people see and the store keeps.
    pub(super) mask: Mask,
    /// How long a command waits for the decision. After that its caller is told to try again later.
    pub(super) wait: Duration,
}

/// The open questions of one attempt to run a session.
///
/// Every waiting command has its own question, so one approval allows one command. If the caller of
/// a command stops waiting or is told to try again later, the question stays open. The next command
/// with the same digest takes the question over, even if it is already decided.
pub(super) struct PolicyQuestions {
    settings: QuestionSettings,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    asked: u64,
    questions: HashMap<AgentQuestionId, Waiting>,
}

struct Waiting {
    digest: CallDigest,
    /// Whether a command is waiting for this question.
    taken: bool,
    state: watch::Sender<QuestionState>,
}

/// The state of a question.
#[derive(Clone)]
enum QuestionState {
    Reported,
    /// The question is stored as this approval and is not decided yet.
    Stored(ApprovalId),
    Decided(ApprovalAnswer),
}

impl PolicyQuestions {
    pub(super) fn new(settings: QuestionSettings) -> Arc<Self> {
        Arc::new(Self { settings, open: Mutex::default() })
    }

    /// Records which approval stores a question. Ids of other questions are ignored.
    pub(super) fn name(&self, question: &AgentQuestionId, approval: ApprovalId) {
        let open = lock(&self.open);
        if let Some(waiting) = open.questions.get(question) {
            waiting.state.send_if_modified(|state| match state {
                QuestionState::Reported => {
                    *state = QuestionState::Stored(approval);
                    true
                }
                QuestionState::Stored(_) | QuestionState::Decided(_) => false,
            });
        }
    }

    /// Passes a decision on to the command that waits. Ids of other questions are ignored.
    pub(super) fn answer(&self, question: &AgentQuestionId, approval: &Approval) {
        let open = lock(&self.open);
        if let Some(waiting) = open.questions.get(question) {
            waiting.state.send_replace(QuestionState::Decided(answer(approval)));
        }
    }

    /// Takes over a question that no command waits for, or opens a new one. `None` if too many
    /// questions are open, or if the control plane no longer receives reports.
    async fn take(&self, asked: &ApprovalRequest) -> Option<Taken<'_>> {
        let QuestionSettings { generation, reports, mask, .. } = &self.settings;
        // Reserve room for the report before the question is opened, so that every open question is
        // reported.
        let permit = reports.upgrade()?.reserve_owned().await.ok()?;
        let mut open = lock(&self.open);
        let abandoned = open
            .questions
            .iter_mut()
            .find(|(_, waiting)| !waiting.taken && waiting.digest == asked.digest);
        if let Some((id, waiting)) = abandoned {
            waiting.taken = true;
            let (id, state) = (id.clone(), waiting.state.subscribe());
            return Some(Taken { questions: self, id, state });
        }
        if open.questions.len() >= MAX_OPEN {
            return None;
        }
        open.asked += 1;
        let id = AgentQuestionId(format!("policy-{generation}-{}", open.asked));
        let (sender, state) = watch::channel(QuestionState::Reported);
        let waiting = Waiting { digest: asked.digest, taken: true, state: sender };
        open.questions.insert(id.clone(), waiting);
        let subject = subject(asked, mask);
        permit.send(AgentReport::Question(AgentQuestion { id: id.clone(), subject }));
        Some(Taken { questions: self, id, state })
    }
}

#[async_trait]
impl Approver for PolicyQuestions {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer {
        let Some(mut taken) = self.take(asked).await else {
            return ApprovalAnswer::NoPersonAvailable;
        };
        let is_decided = |state: &QuestionState| matches!(state, QuestionState::Decided(_));
        let is_known = |state: &QuestionState| !matches!(state, QuestionState::Reported);
        // After the timeout the caller is told which approval to wait for.
        let _ = timeout(self.settings.wait, taken.reach(is_decided)).await;
        match taken.reach(is_known).await {
            Some(QuestionState::Decided(answer)) => {
                lock(&self.open).questions.remove(&taken.id);
                answer
            }
            Some(QuestionState::Stored(approval)) => {
                ApprovalAnswer::Pending(ab_core::ApprovalId::new(approval.to_string()))
            }
            Some(QuestionState::Reported) | None => ApprovalAnswer::NoPersonAvailable,
        }
    }
}

impl fmt::Debug for PolicyQuestions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyQuestions")
            .field("generation", &self.settings.generation)
            .finish_non_exhaustive()
    }
}

/// A question that a command waits for. When it is dropped, the next command with the same digest
/// can take it over.
struct Taken<'a> {
    questions: &'a PolicyQuestions,
    id: AgentQuestionId,
    state: watch::Receiver<QuestionState>,
}

impl Taken<'_> {
    /// Waits until the question is in a state for which `fits` returns `true`. The sender lives as
    /// long as the open questions.
    async fn reach(&mut self, fits: impl Fn(&QuestionState) -> bool) -> Option<QuestionState> {
        self.state.wait_for(fits).await.ok().map(|state| state.clone())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(&self.questions.open).questions.get_mut(&self.id) {
            waiting.taken = false;
        }
    }
}

/// The description of a command for people. Credentials are hidden before texts are truncated, so
/// that no part of a credential remains.
fn subject(asked: &ApprovalRequest, mask: &Mask) -> ApprovalSubject {
    let command = mask.text(asked.call.command().unwrap_or_default());
    let line = escape_unprintable(&command);
    let mut title: String = line.chars().take(MAX_TITLE).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    let subject = ApprovalSubject {
        title: format!("Run {title}"),
        action: Some("execute".to_owned()),
        asked_by: Some(asked.principal.to_string()),
        digest: Some(asked.digest.to_string()),
        ..ApprovalSubject::default()
    };
    subject.with_detail(mask.text(asked.describe()))
}

fn answer(approval: &Approval) -> ApprovalAnswer {
    let by = principal(approval.decided_by.as_ref());
    match approval.status {
        ApprovalStatus::Approved => ApprovalAnswer::Yes(by),
        ApprovalStatus::Denied | ApprovalStatus::Expired | ApprovalStatus::Pending => {
            ApprovalAnswer::No(by, approval.reason.clone().unwrap_or_default())
        }
    }
}

/// The principal that decided. Decisions by rules and timeouts are attributed to the server.
fn principal(by: Option<&ApprovalDecider>) -> Principal {
    match by {
        Some(by) if by.kind == DeciderKind::Person => {
            Principal::new(PrincipalKind::Person, &by.name)
        }
        Some(by) => Principal::new(PrincipalKind::Process, &by.name),
        None => Principal::new(PrincipalKind::Process, "server"),
    }
}

#[cfg(test)]
mod tests {
    use ab_api::Time;
    use ab_core::process::ExecRequest;
    use ab_core::{Actor, Call, TriggeringRule, Verb};

    use super::*;

    fn asked(line: &str) -> ApprovalRequest {
        let (actor, request) = (Actor::default(), ExecRequest::shell(line));
        let call = Call { request: Some(&request), ..Call::new(&actor, Verb::Exec) };
        let (rule, reason) = ("own.rule".to_owned(), "it may be wrong".to_owned());
        ApprovalRequest::new(&call, TriggeringRule { rule, reason, suggestion: None })
    }

    fn decided(status: ApprovalStatus) -> Approval {
        Approval { status, ..Approval::new_pending(ApprovalSubject::default(), Time::now()) }
    }

    fn questions(sender: &mpsc::Sender<AgentReport>, mask: Mask) -> Arc<PolicyQuestions> {
        let (reports, wait) = (sender.downgrade(), Duration::from_secs(60));
        PolicyQuestions::new(QuestionSettings { generation: 1, reports, mask, wait })
    }

    async fn reported(reports: &mut mpsc::Receiver<AgentReport>) -> AgentQuestion {
        match reports.recv().await {
            Some(AgentReport::Question(question)) => question,
            other => panic!("no question: {other:?}"),
        }
    }

    #[tokio::test]
    async fn each_command_has_a_question_of_its_own() {
        let (sender, mut reports) = mpsc::channel(8);
        let questions = questions(&sender, Mask::default());
        let same = asked("rm -r $X");
        let both = async { tokio::join!(questions.ask(&same), questions.ask(&same)) };
        let deciding = async {
            let (first, second) = (reported(&mut reports).await, reported(&mut reports).await);
            assert_ne!(first.id, second.id);
            assert_eq!(first.subject.digest, second.subject.digest);
            questions.answer(&first.id, &decided(ApprovalStatus::Approved));
            questions.answer(&second.id, &decided(ApprovalStatus::Denied));
        };
        let ((one, other), ()) = tokio::join!(both, deciding);
        assert!(matches!((one, other), (ApprovalAnswer::Yes(_), ApprovalAnswer::No(..))));
        assert!(lock(&questions.open).questions.is_empty());
    }

    #[tokio::test]
    async fn repeated_command_takes_over_the_question_of_one_that_left() {
        let (sender, mut reports) = mpsc::channel(8);
        let questions = questions(&sender, Mask::default());
        let (call, other) = (asked("rm -r $X"), asked("rm -r $Y"));
        let question = tokio::select! {
            question = reported(&mut reports) => question,
            answer = questions.ask(&call) => panic!("decided by nobody: {answer:?}"),
        };
        assert!(question.subject.title.starts_with("Run rm -r"), "{question:?}");
        assert_eq!(question.subject.asked_by, Some(call.principal.to_string()));
        questions.answer(&question.id, &decided(ApprovalStatus::Approved));
        let strange = tokio::select! {
            question = reported(&mut reports) => question,
            answer = questions.ask(&other) => panic!("the yes is for another command: {answer:?}"),
        };
        assert_ne!(strange.subject.digest, question.subject.digest);
        assert!(matches!(questions.ask(&call).await, ApprovalAnswer::Yes(_)));
        // The approval was used by the first command, so the same command opens a new question.
        tokio::select! {
            again = reported(&mut reports) => assert_ne!(again.id, question.id),
            answer = questions.ask(&call) => panic!("the yes counted twice: {answer:?}"),
        }
    }

    #[tokio::test]
    async fn a_caller_is_told_which_approval_to_come_back_for() {
        let (sender, mut reports) = mpsc::channel(8);
        let (generation, wait) = (1, Duration::ZERO);
        let (mask, downgraded) = (Mask::default(), sender.downgrade());
        let settings = QuestionSettings { generation, reports: downgraded, mask, wait };
        let questions = PolicyQuestions::new(settings);
        let (call, id) = (asked("rm -r $X"), ApprovalId::generate());
        let naming = async {
            let question = reported(&mut reports).await;
            questions.name(&question.id, id);
            question
        };
        let (answer, question) = tokio::join!(questions.ask(&call), naming);
        let later = ApprovalAnswer::Pending(ab_core::ApprovalId::new(id.to_string()));
        assert_eq!(answer, later);
        assert_eq!(questions.ask(&call).await, later, "the same question, not another one");
        questions.answer(&question.id, &decided(ApprovalStatus::Approved));
        assert!(matches!(questions.ask(&call).await, ApprovalAnswer::Yes(_)));
        assert!(lock(&questions.open).questions.is_empty());
    }

    #[tokio::test]
    async fn questions_are_bounded_and_need_a_listener() {
        let (sender, reports) = mpsc::channel(2 * MAX_OPEN);
        let questions = questions(&sender, Mask::default());
        for number in 0..MAX_OPEN {
            let call = asked(&format!("rm -r $X{number}"));
            let waiting = tokio::time::timeout(std::time::Duration::ZERO, questions.ask(&call));
            assert!(waiting.await.is_err());
        }
        assert_eq!(questions.ask(&asked("rm -r $Y")).await, ApprovalAnswer::NoPersonAvailable);
        drop(reports);
        assert_eq!(questions.ask(&asked("rm -r $X0")).await, ApprovalAnswer::NoPersonAvailable);
    }

    #[tokio::test]
    async fn credentials_in_a_command_are_hidden_also_at_the_cut() {
        let (sender, mut reports) = mpsc::channel(8);
        let secret = "sk-0123456789abcdef";
        let credentials = [("KEY".to_owned(), secret.to_owned())];
        let mask = Mask::new(&credentials.into(), &[]);
        let questions = questions(&sender, mask);
        for before in [10, MAX_TITLE - 30, MAX_TITLE - 8] {
            let call = asked(&format!("curl {} {secret}", "x".repeat(before)));
            let question = tokio::select! {
                question = reported(&mut reports) => question,
                answer = questions.ask(&call) => panic!("decided by nobody: {answer:?}"),
            };
            let shown = format!("{question:?}");
            assert!(!shown.contains(&secret[..6]) && shown.contains("[credential]"), "{shown}");
            assert_eq!(question.subject.digest, Some(call.digest.to_string()));
        }
    }
}
