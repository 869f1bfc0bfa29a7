//! A launched agent. One task reads the agent's messages and reports them. A handle sends messages
//! to the agent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_acp::{
    AcpClient, AcpError, AcpSessionId, AgentEvent, AgentEventStream, PermissionAnswer,
    PermissionQuestion, PromptPart, StopReason, TurnEnd,
};
use ab_api::{Approval, ApprovalStatus, EventKind, LogLevel, LogSource, SessionEndReason};
use ab_core::process::ProcessExit;
use ab_host::ControlGroup;
use ab_local::ProcessOutputReader;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::lines::{Lines, cut};
use super::mask::Mask;
use super::translate::{Translator, log};
use super::{failed, lock};
use crate::contract::ExecutorError;
use crate::report::{AgentQuestion, AgentQuestionId, AgentReport, AgentReportSender, TurnOutcome};

/// How long an agent may keep running after it closed its output. After this time the agent is
/// killed.
const EXIT_TIME: Duration = Duration::from_secs(2);
/// Number of bytes read from standard error at a time.
const STDERR_PIECE: usize = 8 * 1024;

/// A launched agent with an open conversation, so that prompts can be sent to it.
pub(super) struct Agent {
    pub(super) client: AcpClient,
    pub(super) session: AcpSessionId,
    pub(super) shared: Arc<Shared>,
    /// The number of the last turn whose prompt was sent to the agent.
    pub(super) prompted: tokio::sync::Mutex<u32>,
    /// Dropping the task's handle ends the agent's process.
    pub(super) _pump: AbortOnDropHandle<String>,
}

/// State that the handle and the task share.
pub(super) struct Shared {
    questions: Mutex<HashMap<AgentQuestionId, PermissionQuestion>>,
    stage: Mutex<Stage>,
    /// Cancelled to kill the agent. Nothing is reported after that.
    kill: CancellationToken,
    /// Cancelled when the agent's processes have ended.
    ended: CancellationToken,
    /// Whether a turn is running.
    busy: watch::Sender<bool>,
    /// Whether the running turn is being cancelled.
    cancelling: AtomicBool,
    /// Hides the agent's credentials in reports.
    mask: Mask,
}

/// How the end of the agent is reported. This depends on how far the launch is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The end of the agent is the result of the launch.
    Launching,
    /// The end of the agent is sent as a report.
    Attached,
    Ended,
}

impl Shared {
    pub(super) fn new(mask: Mask) -> Arc<Self> {
        Arc::new(Self {
            questions: Mutex::default(),
            stage: Mutex::new(Stage::Launching),
            kill: CancellationToken::new(),
            ended: CancellationToken::new(),
            busy: watch::Sender::new(false),
            cancelling: AtomicBool::new(false),
            mask,
        })
    }

    /// Marks the launch as complete. From now on, the end of the agent is sent as a report. Returns
    /// `false` if the agent has already ended.
    pub(super) fn attach(&self) -> bool {
        let mut stage = lock(&self.stage);
        let is_launching = *stage == Stage::Launching;
        if is_launching {
            *stage = Stage::Attached;
        }
        is_launching
    }

    /// Records that the agent has ended, and returns how far the launch was before.
    fn end(&self) -> Stage {
        std::mem::replace(&mut *lock(&self.stage), Stage::Ended)
    }
}

impl Agent {
    /// Sends the agent the prompt of a turn. Does nothing if the prompt was already sent.
    pub(super) async fn prompt(&self, turn: u32, prompt: &str) -> Result<(), ExecutorError> {
        let mut prompted = self.prompted.lock().await;
        if turn <= *prompted {
            return Ok(());
        }
        *prompted = turn;
        self.shared.cancelling.store(false, Ordering::Release);
        self.shared.busy.send_replace(true);
        let parts = [PromptPart::Text(prompt.to_owned())];
        let Err(error) = self.client.start_turn(&self.session, &parts).await else { return Ok(()) };
        self.shared.busy.send_replace(false);
        if error.ends_connection() {
            // The agent ended before it read the prompt. The agent's task reports the end with the
            // exit code.
            return Ok(());
        }
        Err(failed(SessionEndReason::Agent, error.to_string()))
    }

    /// Asks the agent to end the turn, if that turn is running.
    pub(super) async fn cancel_turn(&self, turn: u32) -> Result<(), ExecutorError> {
        // Hold the lock while the request is sent. The request then comes after the prompt that it
        // cancels and before the next prompt.
        let prompted = self.prompted.lock().await;
        if *prompted != turn || !*self.shared.busy.borrow() {
            return Ok(());
        }
        self.shared.cancelling.store(true, Ordering::Release);
        let cancelled = self.client.cancel_turn(&self.session).await;
        cancelled.map_err(|error| failed(SessionEndReason::Agent, error.to_string()))
    }

    /// Answers a question, unless it is already answered.
    pub(super) fn answer(&self, question: &AgentQuestionId, approval: &Approval) {
        let answer = match approval.status {
            ApprovalStatus::Pending => return,
            ApprovalStatus::Approved => PermissionAnswer::Allow,
            ApprovalStatus::Denied | ApprovalStatus::Expired => PermissionAnswer::Reject,
        };
        let asked = lock(&self.shared.questions).remove(question);
        if let Some(asked) = asked {
            if !asked.offers(&answer) {
                tracing::warn!(
                    ?answer,
                    "the agent offers no option for the decision: its request is cancelled"
                );
            }
            // `false` means that the turn has been cancelled in the meantime.
            asked.answer(&answer);
        }
    }

    /// Cancels the turn and waits at most `grace` for its end. Then ends the agent's processes and
    /// waits until they have ended.
    pub(super) async fn end(&self, grace: Duration) {
        if !grace.is_zero() && *self.shared.busy.borrow() {
            let wrap_up = async {
                if let Err(error) = self.client.cancel_turn(&self.session).await {
                    tracing::debug!(%error, "cannot cancel a turn");
                }
                let mut busy = self.shared.busy.subscribe();
                // Waiting cannot fail, because the sender lives as long as `self`.
                let _ = busy.wait_for(|busy| !busy).await;
            };
            // After the grace period the agent is killed in the middle of its turn.
            let _ = timeout(grace, wrap_up).await;
        }
        self.shared.kill.cancel();
        self.shared.ended.cancelled().await;
    }
}

/// Reads the agent's messages until it ends.
pub(super) struct Pump {
    pub(super) client: AcpClient,
    pub(super) events: AgentEventStream,
    pub(super) launched: ab_local::LaunchedProgram,
    pub(super) translator: Translator,
    pub(super) reports: AgentReportSender,
    pub(super) shared: Arc<Shared>,
    /// The attempt to run the session. It makes the ids of questions unique among all attempts.
    pub(super) generation: u32,
    /// The session's control group. It is used to find out whether the agent ran out of memory.
    pub(super) group: Option<ControlGroup>,
    pub(super) asked: u64,
}

impl Pump {
    /// Reads until the agent has ended, and returns a description of its end.
    pub(super) async fn run(mut self) -> String {
        // The guard is also dropped when this task is aborted. Dropping `launched` kills the
        // process.
        let _ended = self.shared.ended.clone().drop_guard();
        let kill = self.shared.kill.clone();
        let mut stderr = self.launched.stderr.take();
        let mut lines = Lines::default();
        loop {
            let deadline = self.translator.deadline();
            let mut piece = [0; STDERR_PIECE];
            tokio::select! {
                () = kill.cancelled() => break,
                event = self.events.next() => match event {
                    Some(event) => self.event(event).await,
                    None => break,
                },
                read = read_stderr(&mut stderr, &mut piece) => match read {
                    0 => stderr = None,
                    read => self.stderr(lines.push(&piece[..read])).await,
                },
                () = until(deadline) => {
                    let events = self.translator.flush_due(Instant::now());
                    self.report_all(events).await;
                }
            }
        }
        self.finish(stderr, lines).await
    }

    async fn finish(mut self, mut stderr: Option<ProcessOutputReader>, mut lines: Lines) -> String {
        let events = self.translator.flush();
        self.report_all(events).await;
        if !self.shared.kill.is_cancelled() {
            // The reason is often the last line on standard error.
            let rest = async {
                let mut piece = [0; STDERR_PIECE];
                while stderr.is_some() {
                    match read_stderr(&mut stderr, &mut piece).await {
                        0 => break,
                        read => self.stderr(lines.push(&piece[..read])).await,
                    }
                }
            };
            let _ = timeout(EXIT_TIME, rest).await;
            self.stderr(lines.finish().into_iter().collect()).await;
        }
        let connection = if self.shared.kill.is_cancelled() {
            None
        } else {
            Some(self.client.wait_closed().await)
        };
        self.client.close().await;
        let Self { mut launched, reports, shared, group, .. } = self;
        drop(stderr);
        let exit = if shared.kill.is_cancelled() {
            None
        } else {
            timeout(EXIT_TIME, launched.wait()).await.ok().flatten()
        };
        let killed = launched.kill().await;
        lock(&shared.questions).clear();
        shared.busy.send_replace(false);
        let detail = match connection {
            Some(error @ (AcpError::LineTooLong { .. } | AcpError::NotAcp { .. })) => {
                error.to_string()
            }
            _ => ending(exit.as_ref(), killed.as_ref(), group.as_ref()),
        };
        let detail = shared.mask.text(detail);
        if shared.end() == Stage::Attached && !shared.kill.is_cancelled() {
            report(&reports, &shared, AgentReport::Exited { detail: detail.clone() }).await;
        }
        detail
    }

    async fn event(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Update { update, .. } => {
                let events = self.translator.update(update, Instant::now());
                self.report_all(events).await;
            }
            AgentEvent::Permission(question) => self.ask(question).await,
            AgentEvent::TurnEnded { result, .. } => self.end_turn(result).await,
            AgentEvent::Notification { method, .. } => {
                tracing::debug!(method, "an unknown notification of an agent is ignored");
            }
            AgentEvent::InvalidLine(line) => {
                let text = format!("The agent printed a line that is not a message: {line}");
                self.report_all(vec![log(LogLevel::Debug, LogSource::Session, cut(&text))]).await;
            }
        }
    }

    async fn ask(&mut self, question: PermissionQuestion) {
        let (events, subject) = self.translator.question(question.call.clone());
        // Hide credentials before the detail is truncated. If a credential is cut in half first,
        // its first half is not found and remains visible.
        let mut subject = self.shared.mask.subject(subject);
        if let Some(detail) = subject.detail.take() {
            subject = subject.with_detail(detail);
        }
        self.report_all(events).await;
        self.asked += 1;
        let id = AgentQuestionId(format!("{}-{}", self.generation, self.asked));
        lock(&self.shared.questions).insert(id.clone(), question);
        report(&self.reports, &self.shared, AgentReport::Question(AgentQuestion { id, subject }))
            .await;
    }

    async fn end_turn(&mut self, result: Result<TurnEnd, AcpError>) {
        let tokens = result.as_ref().ok().and_then(|end| end.tokens);
        let events = self.translator.end_turn(tokens);
        self.report_all(events).await;
        lock(&self.shared.questions).clear();
        self.shared.busy.send_replace(false);
        let is_cancelled = self.shared.cancelling.swap(false, Ordering::AcqRel);
        let outcome = match result {
            Ok(TurnEnd { stop_reason: StopReason::EndTurn, .. }) => TurnOutcome::Done,
            Ok(TurnEnd { stop_reason: StopReason::Cancelled, .. }) if is_cancelled => {
                TurnOutcome::Cancelled
            }
            // Some agents answer a cancelled turn with an error.
            Err(AcpError::RequestFailed { .. }) if is_cancelled => TurnOutcome::Cancelled,
            Ok(TurnEnd { stop_reason: stop, .. }) => {
                let detail = format!("the agent ended its turn early: {}", stop.as_str());
                TurnOutcome::Failed { detail }
            }
            // There is nothing to report here, because the end of the process is reported.
            Err(error) if error.ends_connection() => return,
            Err(error) => TurnOutcome::Failed { detail: error.to_string() },
        };
        report(&self.reports, &self.shared, AgentReport::TurnEnded(outcome)).await;
    }

    async fn stderr(&self, lines: Vec<String>) {
        let event = |line| log(LogLevel::Info, LogSource::Stderr, line);
        self.report_all(lines.into_iter().map(event).collect()).await;
    }

    async fn report_all(&self, events: Vec<EventKind>) {
        for event in events {
            report(&self.reports, &self.shared, AgentReport::Event(event)).await;
        }
    }
}

/// Sends a report. Waits for room in the queue, unless the agent is being killed.
async fn report(reports: &AgentReportSender, shared: &Shared, report: AgentReport) {
    let report = shared.mask.report(report);
    tokio::select! {
        biased;
        () = shared.kill.cancelled() => {}
        // Sending fails if the control plane has dropped the receiver. The report is then lost.
        _ = reports.send(report) => {}
    }
}

/// Reads standard error and returns the number of bytes, which is zero at the end of the stream. If
/// there is no stream, it waits forever.
async fn read_stderr(stderr: &mut Option<ProcessOutputReader>, piece: &mut [u8]) -> usize {
    match stderr {
        Some(reader) => reader.read(piece).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Describes how a process ended. `exit` is `None` if it had to be killed.
fn ending(
    exit: Option<&ProcessExit>,
    killed: Option<&ProcessExit>,
    group: Option<&ControlGroup>,
) -> String {
    let how = match exit {
        None => "the agent closed its standard output and was stopped".to_owned(),
        Some(ProcessExit { code: Some(code), .. }) => {
            format!("the agent ended with exit code {code}")
        }
        Some(ProcessExit { signal: Some(signal), .. }) => {
            format!("the agent was ended by signal {signal}")
        }
        Some(_) => "the agent ended".to_owned(),
    };
    if let Some(memory) =
        group.filter(|group| group.ran_out_of_memory()).and_then(|it| it.limits().memory)
    {
        let mib = memory / (1024 * 1024);
        return format!("{how}: the session ran out of its {mib} MiB of memory");
    }
    let said = exit.or(killed).map(|exit| exit.stderr_tail.trim()).unwrap_or_default();
    match said.lines().next_back() {
        Some(line) => format!("{how}: {}", cut(line)),
        None => how,
    }
}
