//! One task per session. It owns the state of the session, stores every change together with its
//! events, and performs the actions of the state machine.

mod budget;
mod effect;
mod queue;
mod recovery;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use ab_api::{
    Approval, ApprovalId, Event, EventKind, LogLevel, LogSource, PromptStatus, Session,
    SessionStatus, Time,
};
use ab_executor::{AgentReport, SessionAttempt, TurnOutcome};
use ab_store::{SessionPromptChange, SessionPromptChangeOutcome, SessionRecord, StoreError};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;

pub(crate) use self::effect::close_session;
use self::effect::{Doing, Done};
use self::recovery::{Recovery, RequestedEnd};
use self::waiting::{AwaitedDecision, Decided, Inherited};
use crate::control::{ControlPlaneError, Plane};
use crate::crash::CrashTestPoint;
use crate::session_machine::{
    self, RunningSessionPhase, SessionAction, SessionInput, SessionPhase, SessionState,
};

/// Maximum number of queued reports. A full queue slows the agent down.
const REPORTS: usize = 256;
/// Maximum number of reported events that are stored together.
const BATCH: usize = 64;
/// How long the processes of a session may take to end when the server shuts down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Maximum number of bytes of the reason of a failure in words.
const MAX_DETAIL: usize = 4 * 1024;

const AGENT_GONE: &str = "the agent ended without reporting a reason";

/// Receives the number of the prompt that the command is about.
pub(crate) type CommandReply = oneshot::Sender<Result<Option<u32>, ControlPlaneError>>;

/// A command from a person.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) request: SessionRequest,
    pub(crate) reply: CommandReply,
}

/// A request from a person to a session.
#[derive(Debug)]
pub(crate) enum SessionRequest {
    Input(SessionInput),
    /// A change of the prompt queue, and the input for the state machine that belongs to the
    /// change. The input is `None` if only the text of a prompt is replaced.
    Prompts {
        input: Option<SessionInput>,
        change: SessionPromptChange,
    },
}

/// How a driver (the task that runs a session) begins.
#[derive(Debug)]
pub(crate) enum DriverStart {
    New,
    /// With a session of an earlier server process. The store records that the session restarts.
    TakenUp,
    /// With a session of an earlier server process. The store could not record that it restarts.
    Unstored(StoreError),
}

pub(crate) struct Driver {
    plane: Arc<Plane>,
    session: Session,
    state: SessionState,
    commands: mpsc::Receiver<Command>,
    /// The channel on which the launched agent's reports arrive.
    reports: Option<mpsc::Receiver<AgentReport>>,
    /// Futures that wait for the decisions of pending approvals.
    awaited: FuturesUnordered<AwaitedDecision>,
    /// Approvals that an earlier attempt requested and whose answers the agent has not received.
    inherited: Vec<Inherited>,
    /// The approval that asks whether the session may continue beyond its budget. No prompt is sent
    /// until it is decided.
    budget_question: Option<ApprovalId>,
    /// The decision of `budget_question`. It is kept here until the agent waits for a prompt.
    budget_decision: Option<Approval>,
    /// When the prompt of the running turn was sent.
    turn_since: Option<Instant>,
    /// The future that sends the agent a request to end its turn.
    cancelling: Option<BoxFuture<'static, ()>>,
    /// One of the permits that limit the number of running sessions. `None` if the session has no
    /// permit.
    permit: Option<OwnedSemaphorePermit>,
    idle_since: Option<Instant>,
    /// Whether the session was already checked for the note that it waits for a place. The note is
    /// written at most once, and only if the session has to wait.
    is_queue_told: bool,
    recovery: Recovery,
}

/// What the driver waited for and must now handle.
enum Wake {
    Shutdown,
    Report(Option<AgentReport>),
    Done(Done),
    Decided(Result<Decided, StoreError>),
    Command(Option<Command>),
    CancelSent,
    IdleTimeout,
}

impl Driver {
    pub(crate) fn new(
        plane: Arc<Plane>,
        session: Session,
        state: SessionState,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let (reports, permit, idle_since) = (None, None, None);
        let (awaited, inherited) = (FuturesUnordered::new(), Vec::new());
        Self {
            plane,
            session,
            state,
            commands,
            reports,
            awaited,
            inherited,
            budget_question: None,
            budget_decision: None,
            turn_since: None,
            cancelling: None,
            permit,
            idle_since,
            is_queue_told: false,
            recovery: Recovery::default(),
        }
    }

    /// Runs the session until it ends or the server shuts down.
    pub(crate) async fn run(mut self, start: DriverStart) {
        let id = self.session.id;
        if !matches!(start, DriverStart::New) {
            self.is_queue_told = true;
            // Processes of the previous server process must not run beside the new ones.
            self.end_processes(Duration::ZERO).await;
            if self.state.phase != SessionPhase::Queued {
                // A session that was already running continues even if the limit on running
                // sessions is reached.
                self.permit = Arc::clone(&self.plane.room).try_acquire_owned().ok();
            }
        }
        let mut outcome = match start {
            DriverStart::Unstored(error) => Err(error),
            DriverStart::New | DriverStart::TakenUp => self.drive().await,
        };
        while let Err(error) = outcome {
            tracing::error!(session = %id, %error, "cannot store the events of a session");
            self.end_processes(Duration::ZERO).await;
            if !self.recover(error).await {
                return;
            }
            outcome = self.drive().await;
        }
        let Some(ending) = self.state.ending() else { return };
        self.plane.reach(CrashTestPoint::Ended);
        if Plane::removes_workspace(ending.status)
            && let Err(error) = self.plane.cleanup(id).await
        {
            tracing::warn!(session = %id, %error, "cannot clean up");
        }
    }

    async fn drive(&mut self) -> Result<(), StoreError> {
        let mut doing: Option<Doing> = None;
        self.inherit_approvals().await?;
        while self.state.ending().is_none() {
            self.apply_budget_decision().await?;
            if let Some(effect) = session_machine::next_session_action(&self.state)
                && self.may_begin(effect).await?
                && doing.as_ref().is_none_or(|doing| doing.yields_to(effect, self.state.generation))
            {
                // Drop the old effect before the new one starts: dropping cancels it.
                drop(doing.take());
                doing = Some(self.begin(effect).await?);
            }
            match self.wait(&mut doing).await {
                Wake::Shutdown => {
                    drop(doing);
                    self.end_processes(SHUTDOWN_GRACE).await;
                    return Ok(());
                }
                Wake::Report(Some(report)) => self.take_reports(report).await?,
                Wake::Report(None) => {
                    self.reports = None;
                    // During a launch, the launch itself reports the error.
                    if self.state.attached {
                        self.fail(ab_api::SessionEndReason::Agent, AGENT_GONE).await?;
                    }
                }
                Wake::Done(done) => {
                    doing = None;
                    self.finish(done).await?;
                }
                Wake::Decided(decided) => self.take_decision(decided?).await?,
                Wake::Command(Some(command)) => self.obey(command).await?,
                Wake::Command(None) => return Ok(()),
                Wake::CancelSent => self.cancelling = None,
                Wake::IdleTimeout => self.commit(SessionInput::Finish, Vec::new()).await?,
            }
        }
        Ok(())
    }

    /// Waits for the next thing to do. Commands come before reports. Otherwise an agent that sends
    /// reports without a pause could delay the end of its session.
    async fn wait(&mut self, doing: &mut Option<Doing>) -> Wake {
        let is_idle = self.state.phase == SessionPhase::Running(RunningSessionPhase::Idle)
            && session_machine::next_session_action(&self.state).is_none()
            && !self.is_waiting_for_decisions();
        self.idle_since = if is_idle { self.idle_since.or(Some(Instant::now())) } else { None };
        let deadline = self.idle_since.map(|since| since + self.plane.settings.idle_timeout);
        let reports = OptionFuture::from(self.reports.as_mut().map(mpsc::Receiver::recv));
        tokio::select! {
            biased;
            () = self.plane.shutdown.cancelled() => Wake::Shutdown,
            command = self.commands.recv() => Wake::Command(command),
            Some(report) = reports => Wake::Report(report),
            Some(done) = OptionFuture::from(doing.as_mut().map(Doing::done)) => Wake::Done(done),
            Some(decided) = self.awaited.next() => Wake::Decided(decided),
            Some(()) = OptionFuture::from(self.cancelling.as_mut()) => Wake::CancelSent,
            Some(()) = OptionFuture::from(deadline.map(tokio::time::sleep_until)) => {
                Wake::IdleTimeout
            }
        }
    }

    fn job(&self) -> SessionAttempt {
        SessionAttempt { session: self.session.clone(), generation: self.state.generation }
    }

    /// Starts an effect. A prompt is recorded as sent before it is sent.
    async fn begin(&mut self, effect: SessionAction) -> Result<Doing, StoreError> {
        if let SessionAction::Prompt(turn) = effect {
            let prompt = self.send_next().await?;
            return Ok(Doing::prompt(Arc::clone(&self.plane), self.job(), turn, prompt));
        }
        if matches!(effect, SessionAction::Launch | SessionAction::Reload) {
            let (sender, reports) = mpsc::channel(REPORTS);
            self.reports = Some(reports);
            return Ok(Doing::launch(Arc::clone(&self.plane), self.job(), effect, sender));
        }
        if effect == SessionAction::AssignExecutor && !self.is_queue_told {
            self.is_queue_told = true;
            if let Ok(permit) = Arc::clone(&self.plane.room).try_acquire_owned() {
                return Ok(Doing::placed(self.state.generation, permit));
            }
            let most = self.plane.settings.max_running;
            let note = format!(
                "The maximum of {most} running sessions is reached. This session starts when another one ends."
            );
            self.append(vec![Event::at_current_time(log(LogLevel::Info, note))]).await?;
        }
        Ok(Doing::other(Arc::clone(&self.plane), self.job(), effect))
    }

    async fn finish(&mut self, done: Done) -> Result<(), StoreError> {
        match done {
            Done::Placed(permit) => {
                self.permit = Some(permit);
                self.session.workspace.host = Some(self.plane.executor.describe_executor().id);
                self.commit(SessionInput::ExecutorAssigned, Vec::new()).await
            }
            Done::Provisioned(made) => {
                self.session.workspace.snapshot_provider = Some(made.provider);
                self.session.workspace.mount_path = Some(made.mount_path);
                self.session.vcs.base_commit = made.base_commit;
                let notes = made.notes.into_iter().map(|note| log(LogLevel::Info, note));
                self.commit(SessionInput::Provisioned, notes.collect()).await
            }
            Done::Launched(launched) => {
                self.session.limits = Some(launched.limits);
                let started = launched.describe_start().map(|note| log(LogLevel::Info, note));
                let notes = launched.notes.into_iter().map(|note| log(LogLevel::Warn, note));
                self.commit(SessionInput::Launched, notes.chain(started).collect()).await?;
                self.check_agent().await
            }
            Done::Resumed => {
                self.commit(SessionInput::Resumed, Vec::new()).await?;
                self.check_agent().await
            }
            Done::Prompted => Ok(()),
            Done::Paused => self.commit(SessionInput::Paused, Vec::new()).await,
            Done::NotPaused { detail } => {
                let note = log(LogLevel::Warn, format!("The session cannot be paused: {detail}"));
                self.commit(SessionInput::Resumed, vec![note]).await
            }
            Done::Delivered(delivered) => {
                let changes = delivered.changes;
                self.session.changes = Some(changes);
                if let Some(branch) = &delivered.result.branch {
                    self.session.vcs.delivered_branch = Some(branch.clone());
                    self.session.vcs.delivered_commit.clone_from(&delivered.result.commit);
                }
                let stat = EventKind::DiffStat {
                    files_changed: changes.files_changed,
                    lines_added: changes.lines_added,
                    lines_removed: changes.lines_removed,
                };
                let mode = self.session.delivery.mode;
                let delivery = EventKind::Delivery { mode, result: delivered.result };
                let notes = delivered.notes.into_iter().map(|note| log(LogLevel::Warn, note));
                let events = notes.chain([stat, delivery]).collect();
                self.commit(SessionInput::Delivered, events).await
            }
            Done::Closed { notes } => {
                self.reports = None;
                self.note_turn_time();
                // An agent that was killed during a turn leaves tool calls open.
                let mut events = self.plane.cancelled_tools(self.session.id).await?;
                events.extend(notes);
                self.commit(SessionInput::Closed, events).await
            }
            Done::Failed { reason, detail } => self.fail(reason, &detail).await,
        }
    }

    /// Stores reports. Events that are already queued are stored together.
    async fn take_reports(&mut self, first: AgentReport) -> Result<(), StoreError> {
        let mut events = Vec::new();
        let mut next = Some(first);
        while let Some(report) = next.take() {
            match report {
                AgentReport::Event(kind) => {
                    self.note_changes(&kind);
                    events.push(Event::at_current_time(kind));
                    if events.len() < BATCH {
                        next = self.reports.as_mut().and_then(|reports| reports.try_recv().ok());
                    }
                }
                report => {
                    self.append(std::mem::take(&mut events)).await?;
                    return self.take_other(report).await;
                }
            }
        }
        self.append(events).await
    }

    async fn take_other(&mut self, report: AgentReport) -> Result<(), StoreError> {
        match report {
            AgentReport::Event(kind) => self.append(vec![Event::at_current_time(kind)]).await,
            AgentReport::Question(question) => self.ask(question).await,
            AgentReport::TurnEnded(TurnOutcome::Done) => {
                self.drop_inherited().await?;
                self.end_turn(PromptStatus::Answered).await
            }
            AgentReport::TurnEnded(TurnOutcome::Cancelled) => {
                self.drop_inherited().await?;
                self.withdraw_questions().await?;
                self.end_turn(PromptStatus::Interrupted).await
            }
            AgentReport::TurnEnded(TurnOutcome::Failed { detail }) => {
                self.fail(ab_api::SessionEndReason::Agent, &detail).await
            }
            AgentReport::Exited { detail } => {
                self.reports = None;
                self.fail(ab_api::SessionEndReason::Agent, &detail).await
            }
        }
    }

    /// Appends events to the session's stream. An event that is too large for the store is replaced
    /// by a log line about it.
    async fn append(&mut self, events: Vec<Event>) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        match self.plane.store.append_events(self.session.id, events.clone()).await {
            Err(StoreError::TooLarge { .. }) => {}
            outcome => return outcome,
        }
        for event in events {
            let name = event.kind.name();
            match self.plane.store.append_events(self.session.id, vec![event]).await {
                Err(error @ StoreError::TooLarge { .. }) => {
                    let note =
                        log(LogLevel::Warn, format!("An event {name:?} was not stored: {error}."));
                    self.plane
                        .store
                        .append_events(self.session.id, vec![Event::at_current_time(note)])
                        .await?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn note_changes(&mut self, kind: &EventKind) {
        self.note_usage(kind);
        if let EventKind::DiffStat { files_changed, lines_added, lines_removed } = *kind {
            let changes = ab_api::ChangeCounts { files_changed, lines_added, lines_removed };
            self.session.changes = Some(changes);
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), StoreError> {
        let Command { request, reply } = command;
        let end = RequestedEnd::of(&request);
        let outcome = match request {
            SessionRequest::Input(input) => self.obey_input(input).await.map(|()| None),
            SessionRequest::Prompts { input, change } => self.change_queue(input, change).await,
        };
        // An error of the database also ends the current attempt of the driver, not only the
        // caller's request.
        let failure = match &outcome {
            Err(ControlPlaneError::Store(error)) if error.is_server_fault() => Some(error.clone()),
            Err(ControlPlaneError::ShuttingDown) => Some(StoreError::Closed),
            _ => None,
        };
        match end {
            // The session ends when there is room to store that.
            Some(end) if failure.as_ref().is_some_and(StoreError::is_disk_full) => {
                self.recovery.end(end, reply);
            }
            // The caller may have stopped waiting for the reply.
            _ => drop(reply.send(outcome)),
        }
        failure.map_or(Ok(()), Err)
    }

    async fn obey_input(&mut self, input: SessionInput) -> Result<(), ControlPlaneError> {
        let (next, kinds) = session_machine::apply_session_input(&self.state, input)
            .map_err(ControlPlaneError::IllegalInput)?;
        let stored = self.store(next, kinds, Vec::new()).await;
        if input == SessionInput::Cancel {
            // Drop the channel, so that further reports of the cancelled agent are ignored.
            self.reports = None;
        }
        Ok(stored?)
    }

    /// Checks whether the agent has already ended. The agent may end right after its launch, before
    /// the driver knows that the launch succeeded.
    async fn check_agent(&mut self) -> Result<(), StoreError> {
        if self.reports.is_some() {
            return Ok(());
        }
        self.fail(ab_api::SessionEndReason::Agent, AGENT_GONE).await
    }

    async fn fail(
        &mut self,
        reason: ab_api::SessionEndReason,
        detail: &str,
    ) -> Result<(), StoreError> {
        if self.session.end_detail.is_none() {
            self.session.end_detail = Some(shortened(detail));
        }
        self.commit(SessionInput::Failed(reason), Vec::new()).await
    }

    /// Applies an input that does not come from a person. An input that is no longer valid is
    /// ignored.
    async fn commit(
        &mut self,
        input: SessionInput,
        events: Vec<EventKind>,
    ) -> Result<(), StoreError> {
        match session_machine::apply_session_input(&self.state, input) {
            Ok((next, kinds)) => self.store(next, kinds, events).await,
            Err(illegal) => {
                tracing::debug!(session = %self.session.id, %illegal, "a late report is ignored");
                Ok(())
            }
        }
    }

    async fn store(
        &mut self,
        next: SessionState,
        kinds: Vec<EventKind>,
        before: Vec<EventKind>,
    ) -> Result<(), StoreError> {
        if next == self.state && before.is_empty() {
            return Ok(());
        }
        let (record, events) = self.changed(next, kinds, before);
        self.plane.store.update_session(record.clone(), events).await?;
        self.state = next;
        self.session = record.session;
        Ok(())
    }

    /// Stores the next state together with a change of the prompts.
    async fn store_with(
        &mut self,
        next: SessionState,
        kinds: Vec<EventKind>,
        before: Vec<EventKind>,
        change: SessionPromptChange,
    ) -> Result<SessionPromptChangeOutcome, StoreError> {
        let (record, events) = self.changed(next, kinds, before);
        let outcome =
            self.plane.store.change_session_prompts(record.clone(), change, events).await?;
        if let SessionPromptChangeOutcome::Changed(_) = outcome {
            self.state = next;
            self.session = record.session;
        }
        Ok(outcome)
    }

    /// Returns the session in the state `next`, and the events of the change. The status event
    /// comes last, because it may end the stream.
    fn changed(
        &self,
        next: SessionState,
        kinds: Vec<EventKind>,
        before: Vec<EventKind>,
    ) -> (SessionRecord, Vec<Event>) {
        let now = Time::now();
        let mut session = self.session.clone();
        session.status = next.status();
        session.activity = next.activity();
        session.updated_at = now;
        session.usage.turns = u64::from(next.turn);
        if session.status == SessionStatus::Running {
            session.started_at.get_or_insert(now);
        }
        if let Some(ending) = next.ending() {
            session.end_reason = Some(ending.reason);
            session.ended_at = Some(now);
            if ending.status != SessionStatus::Failed {
                session.end_detail = None;
            }
        }
        let mut events: Vec<Event> =
            before.into_iter().map(|kind| Event { kind, ts: now }).collect();
        for mut kind in kinds {
            if let EventKind::Status { status, message, .. } = &mut kind
                && status.is_terminal()
            {
                message.clone_from(&session.end_detail);
            }
            events.push(Event { kind, ts: now });
        }
        (SessionRecord { session, progress: next.progress() }, events)
    }

    async fn end_processes(&mut self, grace: Duration) {
        let id = self.session.id;
        if let Err(error) = self.plane.executor.terminate_session(id, grace).await {
            tracing::warn!(session = %id, %error, "cannot end the session's processes");
        }
    }
}

/// Cuts the reason of a failure, which may contain any text of an agent.
fn shortened(detail: &str) -> String {
    if detail.len() <= MAX_DETAIL {
        return detail.to_owned();
    }
    let end = (0..=MAX_DETAIL).rev().find(|end| detail.is_char_boundary(*end)).unwrap_or_default();
    format!("{}\n… ({} more bytes)", &detail[..end], detail.len() - end)
}

/// A log line from the control plane in the session's stream.
fn log(level: LogLevel, message: String) -> EventKind {
    EventKind::Log { level, message, source: LogSource::Session, tool_execution_id: None }
}
