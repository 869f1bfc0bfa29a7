//! The handle of the control plane, which the HTTP layer uses.

mod abandoned;
mod programs;
mod prompts;
mod uploads;

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_api::{
    Approval, ApprovalDecider, ApprovalDecision, ApprovalId, Event, EventKind, FieldViolations,
    LogLevel, LogSource, Session, SessionId, SessionStatus, SessionWorkspace, Task, TaskGroup,
    Time, ToolExecutionStatus,
};
use ab_executor::{CleanupToken, Executor, ExecutorError};
use ab_store::{
    CreateSessionOutcome, EventLogReader, EventLogScope, IdempotencyRecord, NewSession,
    SessionRecord, Store, StoreError, UploadLimits, WriteUrgency,
};
use futures_util::FutureExt;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::crash::CrashTestPoint;
use crate::driver::{Command, Driver, DriverStart, SessionRequest};
use crate::housekeeping::{CLEANUP_REQUESTS, CleanupRequest, CountedStorage, Housekeeper};
use crate::observation::{Observer, SessionMetrics};
use crate::session_machine::{self, IllegalSessionInput, SessionInput, SessionState};
use crate::settings::ControlPlaneSettings;

/// Maximum number of queued commands for one driver, which is the task that runs a session.
const COMMANDS: usize = 16;
/// Delays before further attempts to remove the resources of a session.
const CLEANUP_RETRIES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(2),
];

/// How many of the last tool events are searched for tool calls that did not end.
const MAX_OPEN_TOOLS: usize = 1000;
/// The longest time that the expiry task sleeps before it checks the expiry times of approvals
/// again.
const MAX_EXPIRY_WAIT: Duration = Duration::from_secs(10 * 60);
/// How long the expiry task waits after an error of the store.
const EXPIRY_RETRY: Duration = Duration::from_secs(1);
/// The reason in words of a session whose driver panicked.
const DRIVER_PANICKED: &str =
    "an internal error of the server ended the session; the log of the server says why";
const RESTARTED: &str = "The server restarted.";

/// Creates, controls and watches sessions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    pub(crate) plane: Arc<Plane>,
}

/// State that the handle and the drivers share.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) store: Store,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) settings: ControlPlaneSettings,
    /// Limits the number of running sessions.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) shutdown: CancellationToken,
    /// Requests to the housekeeper.
    pub(crate) cleanups: mpsc::Sender<CleanupRequest>,
    /// The disk use that the housekeeper counted last.
    pub(crate) storage: watch::Receiver<Option<CountedStorage>>,
    pub(crate) metrics: Arc<Mutex<SessionMetrics>>,
    drivers: Mutex<HashMap<SessionId, mpsc::Sender<Command>>>,
    tasks: TaskTracker,
    /// The tasks that store what other tasks did. They end after all other tasks.
    pub(crate) recording: TaskTracker,
    pub(crate) recorded: CancellationToken,
}

/// A key that the client chooses. A repeated request with the same key does not create a second
/// session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIdempotencyKey {
    /// Identifies the caller. Different callers can use the same key.
    pub scope: String,
    pub key: String,
    /// The body of the request. A repeated request must have the same body.
    pub request: Vec<u8>,
}

/// Why the control plane did not perform a request.
#[derive(Debug, Clone)]
pub enum ControlPlaneError {
    /// There is no session or approval with this id.
    NotFound,
    /// The executor does not support what the task requests.
    InvalidTask(FieldViolations),
    /// The session has ended and accepts no more commands.
    SessionEnded(SessionStatus),
    /// The command is not valid in the session's status.
    IllegalInput(IllegalSessionInput),
    /// The session cannot be continued because it has not ended.
    SessionNotEnded(SessionStatus),
    /// The session has ended, and its workspace is no longer available.
    WorkspaceGone(SessionStatus),
    /// The session has no prompt with this number.
    PromptNotFound(u32),
    /// The prompt is the prompt of the task. The prompt of a task can be neither changed nor
    /// withdrawn.
    TaskPromptNotChangeable,
    /// The queue of the session is full.
    QueueFull { limit: u64 },
    /// The file system has no room for another workspace.
    DiskFull { free: u64, needed: u64 },
    /// Workspaces and caches occupy more than the server may use.
    DiskLimit { used: u64, limit: u64 },
    /// The session ends because of an internal error of the server.
    Abandoned,
    /// The server is shutting down.
    ShuttingDown,
    /// The store failed or refused the request, for example because a key was reused or an approval
    /// was already decided.
    Store(StoreError),
}

impl fmt::Display for ControlPlaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::InvalidTask(violations) => violations.fmt(f),
            Self::SessionEnded(status) => write!(f, "the session has ended: it is {status}"),
            Self::IllegalInput(illegal) => illegal.fmt(f),
            Self::SessionNotEnded(status) => {
                write!(f, "the session is {status}: only a stopped or failed one can be continued")
            }
            Self::WorkspaceGone(SessionStatus::Completed) => f.write_str(
                "the session completed and its work was delivered: start a new task from its branch",
            ),
            Self::WorkspaceGone(SessionStatus::Cancelled) => {
                f.write_str("the session was cancelled and its workspace removed")
            }
            Self::WorkspaceGone(status) => write!(
                f,
                "the session is {status} and has no workspace: it ended before there was one, the workspace was removed, or another session continues it"
            ),
            Self::PromptNotFound(number) => write!(f, "the session has no prompt {number}"),
            Self::TaskPromptNotChangeable => f.write_str(
                "prompt 1 is the task itself: cancel the session and create another task instead",
            ),
            Self::QueueFull { limit } => {
                write!(f, "the queue of the session is full: {limit} prompts wait")
            }
            Self::DiskFull { free, needed } => write!(
                f,
                "the disk of the server is almost full: {free} bytes are free, and a new task needs at least {needed} (retention.free-space)"
            ),
            Self::DiskLimit { used, limit } => write!(
                f,
                "workspaces and caches of the server occupy {used} bytes, more than {limit} (retention.disk-limit), and nothing else may be removed yet: cancel sessions that were stopped or failed"
            ),
            Self::Abandoned => f.write_str(
                "the session is ending because of an internal error of the server; the log of the server says why",
            ),
            Self::ShuttingDown => f.write_str("the server is shutting down"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ControlPlaneError {}

impl From<StoreError> for ControlPlaneError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::NotFound,
            StoreError::Closed => Self::ShuttingDown,
            error => Self::Store(error),
        }
    }
}

impl ControlPlane {
    /// Starts the control plane: resumes every session that has not ended, removes the leftovers of
    /// ended sessions, and accepts new sessions.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read or written.
    pub async fn start(
        store: Store,
        executor: Arc<dyn Executor>,
        settings: ControlPlaneSettings,
    ) -> Result<Self, StoreError> {
        let (cleanups, requests) = mpsc::channel(CLEANUP_REQUESTS);
        let (counted, storage) = watch::channel(None);
        let metrics = Arc::default();
        let observer =
            Observer::new(store.clone(), Arc::clone(&metrics), settings.traces.clone()).await?;
        let plane = Arc::new(Plane {
            room: Arc::new(Semaphore::new(settings.max_running)),
            store,
            executor,
            settings,
            shutdown: CancellationToken::new(),
            cleanups,
            storage,
            metrics: Arc::clone(&metrics),
            drivers: Mutex::default(),
            tasks: TaskTracker::new(),
            recording: TaskTracker::new(),
            recorded: CancellationToken::new(),
        });
        let control = Self { plane };
        for record in control.plane.store.unfinished_sessions().await? {
            control.take_up(record).await?;
        }
        let plane = Arc::clone(&control.plane);
        let shutdown = control.plane.shutdown.clone();
        control.plane.tasks.spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = observer.run() => {}
            }
        });
        let housekeeper = Housekeeper::new(requests, counted);
        control.plane.tasks.spawn(async move {
            plane.collect_leftovers().await;
            housekeeper.run(&plane).await;
        });
        let plane = Arc::clone(&control.plane);
        control.plane.tasks.spawn(async move { plane.expire_approvals().await });
        let plane = Arc::clone(&control.plane);
        control.plane.tasks.spawn(async move { plane.sweep_uploads().await });
        Ok(control)
    }

    /// Creates a session for a task with one agent. See
    /// [`create_sessions`](ControlPlane::create_sessions).
    ///
    /// # Errors
    ///
    /// The same as for [`create_sessions`](ControlPlane::create_sessions).
    pub async fn create_session(
        &self,
        task: Task,
        key: Option<SessionIdempotencyKey>,
    ) -> Result<SessionId, ControlPlaneError> {
        let ids = self.create_sessions(task, key).await?;
        ids.first().copied().ok_or(ControlPlaneError::NotFound)
    }

    /// Creates a session for each agent of a task. A repeated request with the same key returns the
    /// sessions of the first request.
    ///
    /// # Errors
    ///
    /// [`StoreError::IdempotencyKeyReused`] in [`ControlPlaneError::Store`] if the key was used with another
    /// request. [`ControlPlaneError::InvalidTask`] if the executor does not support what the task
    /// requests. In both cases no session is created.
    pub async fn create_sessions(
        &self,
        task: Task,
        key: Option<SessionIdempotencyKey>,
    ) -> Result<Vec<SessionId>, ControlPlaneError> {
        if self.plane.shutdown.is_cancelled() {
            return Err(ControlPlaneError::ShuttingDown);
        }
        if let Some(key) = &key
            && let Some(sessions) = self.sessions_of_repeated_request(key).await?
        {
            return Ok(sessions);
        }
        self.plane.check_room().await?;
        let size = u32::try_from(task.agents.len()).unwrap_or(u32::MAX);
        let mut sessions = Vec::with_capacity(task.agents.len());
        let mut group = None;
        let mut base_commit = None;
        for (number, agent) in (1..).zip(task.agents.clone()) {
            let id = SessionId::generate();
            let first = *group.get_or_insert(id);
            let task = Task { agents: vec![agent], ..task.clone() };
            let mut session = Session::new_queued(id, task, Time::now());
            session.task_group = (size > 1).then_some(TaskGroup { id: first, number, size });
            let provider = self.plane.executor.choose_snapshot_provider(&session).await;
            let provider = provider.map_err(ControlPlaneError::InvalidTask)?;
            session.workspace.snapshot_provider = Some(provider);
            if number == 1 {
                let found = self.plane.executor.find_base_commit(&session).await;
                base_commit = found.map_err(ControlPlaneError::InvalidTask)?;
            }
            // All sessions of the task start from the same commit.
            session.vcs.base_commit.clone_from(&base_commit);
            sessions.push(session);
        }
        let ids: Vec<SessionId> = sessions.iter().map(|session| session.id).collect();
        let mut idempotency = key.map(|SessionIdempotencyKey { scope, key, request }| {
            let answer = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            IdempotencyRecord { scope, key, request, response: answer }
        });
        let state = |session: &Session| SessionState::new(session.keep_open);
        let new = sessions.iter().map(|session| {
            let (activity, reason, message) = (None, None, None);
            let status = EventKind::Status { status: session.status, activity, reason, message };
            NewSession {
                record: SessionRecord {
                    session: session.clone(),
                    progress: state(session).progress(),
                },
                events: vec![Event { kind: status, ts: session.created_at }],
                idempotency: idempotency.take(),
                continues_session: None,
            }
        });
        let new = new.collect();
        match self.plane.store.create_sessions(new).await? {
            CreateSessionOutcome::New => {
                self.plane.reach(CrashTestPoint::Created);
                for session in sessions {
                    let state = state(&session);
                    self.spawn(session, state, DriverStart::New);
                }
                Ok(ids)
            }
            CreateSessionOutcome::Existing { response: answer } => first_answer(&answer),
        }
    }

    /// Creates a session on the workspace of a session that was stopped or failed. A repeated
    /// request with the same key returns the session of the first request.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::NotFound`] if there is no such session. [`ControlPlaneError::SessionNotEnded`]
    /// while the session runs. [`ControlPlaneError::WorkspaceGone`] if the session's work was
    /// delivered or removed, or if another session continues it.
    pub async fn continue_session(
        &self,
        id: SessionId,
        prompt: Option<String>,
        key: Option<SessionIdempotencyKey>,
    ) -> Result<SessionId, ControlPlaneError> {
        if self.plane.shutdown.is_cancelled() {
            return Err(ControlPlaneError::ShuttingDown);
        }
        if let Some(SessionIdempotencyKey { scope, key, request }) = &key
            && let Some(answer) =
                self.plane.store.find_idempotent_response(scope, key, request).await?
        {
            return first_session(&answer);
        }
        let before = self.plane.store.session_record(id).await?.session;
        match before.status {
            status if !status.is_terminal() => {
                return Err(ControlPlaneError::SessionNotEnded(status));
            }
            status if Plane::removes_workspace(status) => {
                return Err(ControlPlaneError::WorkspaceGone(status));
            }
            status => {
                // A session that ended before its workspace was made cannot be continued.
                let SessionWorkspace { mount_path, made_by, .. } = &before.workspace;
                if mount_path.is_none() && made_by.is_none() {
                    return Err(ControlPlaneError::WorkspaceGone(status));
                }
            }
        }
        let next = before.new_continuation(SessionId::generate(), prompt, Time::now());
        let state = SessionState::new(next.keep_open);
        let log = EventKind::Log {
            level: LogLevel::Info,
            message: format!("Continues session {id} in its workspace."),
            source: LogSource::Session,
            tool_execution_id: None,
        };
        let (activity, reason, message) = (None, None, None);
        let status = EventKind::Status { status: next.status, activity, reason, message };
        let ts = next.created_at;
        let new = NewSession {
            record: SessionRecord { session: next.clone(), progress: state.progress() },
            events: [status, log].map(|kind| Event { kind, ts }).into(),
            idempotency: key.map(|SessionIdempotencyKey { scope, key, request }| {
                IdempotencyRecord { scope, key, request, response: next.id.to_string() }
            }),
            continues_session: Some(id),
        };
        match self.plane.store.create_session(new).await {
            Ok(CreateSessionOutcome::New) => {}
            Ok(CreateSessionOutcome::Existing { response: answer }) => {
                return first_session(&answer);
            }
            Err(StoreError::NoWorkspaceToContinue) => {
                return Err(ControlPlaneError::WorkspaceGone(before.status));
            }
            Err(error) => return Err(error.into()),
        }
        let id = next.id;
        self.spawn(next, state, DriverStart::New);
        Ok(id)
    }

    /// Asks the session to end and gives its agent time to finish. Has no effect if the session has
    /// ended.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::NotFound`] if there is no such session. Also fails if the store fails.
    pub async fn stop_session(&self, id: SessionId) -> Result<Session, ControlPlaneError> {
        self.command(id, SessionInput::Stop).await
    }

    /// Ends the session at once and removes its workspace. Has no effect if the session has ended.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::NotFound`] if there is no such session. Also fails if the store fails.
    pub async fn cancel_session(&self, id: SessionId) -> Result<Session, ControlPlaneError> {
        let session = self.command(id, SessionInput::Cancel).await?;
        if session.status.is_terminal() {
            self.plane.cleanup(id).await?;
        }
        Ok(session)
    }

    /// Freezes the processes of the session.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::IllegalInput`] if the status of the session does not allow a pause.
    /// [`ControlPlaneError::SessionEnded`] if the session has ended.
    pub async fn pause_session(&self, id: SessionId) -> Result<Session, ControlPlaneError> {
        self.command(id, SessionInput::Pause).await
    }

    /// Resumes a paused session.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::IllegalInput`] if the session is not paused. [`ControlPlaneError::SessionEnded`] if
    /// the session has ended.
    pub async fn resume_session(&self, id: SessionId) -> Result<Session, ControlPlaneError> {
        self.command(id, SessionInput::Resume).await
    }

    /// Delivers the result of an idle session and completes the session.
    ///
    /// # Errors
    ///
    /// [`ControlPlaneError::IllegalInput`] if the session is not idle. [`ControlPlaneError::SessionEnded`] if
    /// the session has ended.
    pub async fn finish_session(&self, id: SessionId) -> Result<Session, ControlPlaneError> {
        self.command(id, SessionInput::Finish).await
    }

    /// Decides an approval. The agent that waits for the decision receives the decision.
    ///
    /// # Errors
    ///
    /// [`StoreError::AlreadyDecided`] in [`ControlPlaneError::Store`] if the approval is no longer
    /// pending.
    pub async fn decide_approval(
        &self,
        id: ApprovalId,
        decision: ApprovalDecision,
        by: ApprovalDecider,
    ) -> Result<Approval, ControlPlaneError> {
        Ok(self.plane.store.decide_approval(id, decision, by).await?)
    }

    /// Follows the events of one session or of all sessions, starting after the cursor `after`.
    pub fn follow_events(&self, scope: EventLogScope, after: u64) -> EventLogReader {
        self.plane.store.follow_events(scope, after)
    }

    /// The store, from which callers read lists and history.
    pub fn store(&self) -> &Store {
        &self.plane.store
    }

    /// The limits on uploads.
    pub fn upload_limits(&self) -> UploadLimits {
        self.plane.settings.uploads
    }

    /// Returns the sessions that an earlier request with this key created.
    ///
    /// # Errors
    ///
    /// [`StoreError::IdempotencyKeyReused`] in [`ControlPlaneError::Store`] if the key was used with another
    /// request.
    pub async fn sessions_of_repeated_request(
        &self,
        key: &SessionIdempotencyKey,
    ) -> Result<Option<Vec<SessionId>>, ControlPlaneError> {
        let SessionIdempotencyKey { scope, key, request } = key;
        let answer = self.plane.store.find_idempotent_response(scope, key, request).await?;
        answer.as_deref().map(first_answer).transpose()
    }

    /// The executor that runs the sessions.
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.plane.executor
    }

    /// Stops all drivers and the processes of their sessions. The sessions are resumed when the
    /// server starts again.
    pub async fn shutdown(&self) {
        self.plane.shutdown.cancel();
        self.plane.tasks.close();
        self.plane.tasks.wait().await;
        self.plane.recorded.cancel();
        self.plane.recording.close();
        self.plane.recording.wait().await;
    }

    async fn command(
        &self,
        id: SessionId,
        input: SessionInput,
    ) -> Result<Session, ControlPlaneError> {
        match self.request(id, SessionRequest::Input(input)).await {
            Ok(_) => Ok(self.plane.store.get_session(id).await?),
            // Stopping or cancelling an ended session has no effect.
            Err(ControlPlaneError::SessionEnded(_))
                if matches!(input, SessionInput::Stop | SessionInput::Cancel) =>
            {
                Ok(self.plane.store.get_session(id).await?)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a request to the driver of the session and returns its answer.
    async fn request(
        &self,
        id: SessionId,
        request: SessionRequest,
    ) -> Result<Option<u32>, ControlPlaneError> {
        let driver = self.plane.drivers().get(&id).cloned();
        if let Some(driver) = driver {
            let (reply, answer) = oneshot::channel();
            if driver.send(Command { request, reply }).await.is_ok()
                && let Ok(answer) = answer.await
            {
                return answer;
            }
        }
        Err(self.refusal(id).await)
    }

    /// The error for a request to a session that has no driver.
    async fn refusal(&self, id: SessionId) -> ControlPlaneError {
        match self.plane.store.get_session(id).await {
            Ok(session) if session.status.is_terminal() => {
                ControlPlaneError::SessionEnded(session.status)
            }
            Ok(_) if !self.plane.shutdown.is_cancelled() => ControlPlaneError::Abandoned,
            Ok(_) => ControlPlaneError::ShuttingDown,
            Err(error) => error.into(),
        }
    }

    /// Resumes a session that an earlier server process ran. On a full disk, the resumption cannot
    /// be stored. The session then waits until it can be stored, and can be cancelled meanwhile. A
    /// session whose stored data is invalid fails.
    async fn take_up(&self, record: SessionRecord) -> Result<(), StoreError> {
        let (session, state, start) =
            match self.plane.begin_again(record.clone(), RESTARTED, WriteUrgency::Normal).await {
                Ok(Some((session, state))) => (session, state, DriverStart::TakenUp),
                Ok(None) => return Ok(()),
                Err(error) if error.is_disk_full() || error.is_permanent() => {
                    let SessionRecord { session, progress } = record;
                    let keep_open = session.keep_open;
                    let state = SessionState::restore(session.status, &progress, keep_open);
                    let state = state.unwrap_or_else(|| SessionState::new(keep_open));
                    (session, state, DriverStart::Unstored(error))
                }
                Err(error) => return Err(error),
            };
        self.plane.reach(CrashTestPoint::SessionResumed);
        self.spawn(session, state, start);
        Ok(())
    }

    fn spawn(&self, session: Session, state: SessionState, start: DriverStart) {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let id = session.id;
        self.plane.drivers().insert(id, sender);
        let plane = Arc::clone(&self.plane);
        let driver = Driver::new(Arc::clone(&plane), session, state, commands);
        self.plane.tasks.spawn(async move {
            let outcome = AssertUnwindSafe(driver.run(start)).catch_unwind().await;
            plane.drivers().remove(&id);
            if outcome.is_err() {
                plane.abandon_session(id, DRIVER_PANICKED).await;
            }
        });
    }
}

/// How long to wait until `time`. The wait is limited to [`MAX_EXPIRY_WAIT`], because the system
/// clock may be changed during the wait.
fn until(time: Time) -> Duration {
    let millis = time.as_millis().saturating_sub(Time::now().as_millis());
    let wait = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    // Wait one millisecond longer, so that `time` is in the past when the wait ends.
    (wait + Duration::from_millis(1)).min(MAX_EXPIRY_WAIT)
}

/// The first session that an earlier request with the same key created.
fn first_session(answer: &str) -> Result<SessionId, ControlPlaneError> {
    let ids = first_answer(answer)?;
    ids.first().copied().ok_or(ControlPlaneError::Store(StoreError::IdempotencyKeyReused))
}

/// The sessions that an earlier request with the same key created.
fn first_answer(answer: &str) -> Result<Vec<SessionId>, ControlPlaneError> {
    let ids: Result<_, ab_api::IdError> = answer.split_whitespace().map(str::parse).collect();
    ids.map_err(|_| ControlPlaneError::Store(StoreError::IdempotencyKeyReused))
}

impl Plane {
    pub(crate) fn reach(&self, point: CrashTestPoint) {
        self.settings.crash_hook.reach(point);
    }

    /// Records that no process of the session is running and that the session restarts from its
    /// stored state. Writes `cause` to the stream of the session. Returns `None` if the session has
    /// ended.
    pub(crate) async fn begin_again(
        &self,
        record: SessionRecord,
        cause: &str,
        urgency: WriteUrgency,
    ) -> Result<Option<(Session, SessionState)>, StoreError> {
        let SessionRecord { mut session, progress } = record;
        let restored = SessionState::restore(session.status, &progress, session.keep_open);
        let (state, input) = match restored {
            Some(state) => (state, SessionInput::Restarted),
            // The stored state is inconsistent, so the session ends.
            None => {
                let reason = ab_api::SessionEndReason::Interrupted;
                (SessionState::new(session.keep_open), SessionInput::Failed(reason))
            }
        };
        let Ok((next, kinds)) = session_machine::apply_session_input(&state, input) else {
            return Ok(None);
        };
        self.count_cut_turn(&mut session, &state).await?;
        let now = Time::now();
        let open_tools = self.cancelled_tools(session.id).await?;
        let mut events: Vec<_> =
            open_tools.into_iter().map(|kind| Event { kind, ts: now }).collect();
        if next != state {
            let message =
                format!("{cause} A prompt that the agent may have received is not sent again.");
            let kind = EventKind::Log {
                level: LogLevel::Warn,
                message,
                source: LogSource::Session,
                tool_execution_id: None,
            };
            events.push(Event { kind, ts: now });
        }
        events.extend(kinds.into_iter().map(|kind| Event { kind, ts: now }));
        session.status = next.status();
        session.activity = next.activity();
        session.updated_at = now;
        let record = SessionRecord { session: session.clone(), progress: next.progress() };
        self.store.restart_session(record, events, urgency).await?;
        Ok(Some((session, next)))
    }

    /// Returns events that cancel the open tool calls of a session whose processes have ended.
    /// Without these events, readers of the stream would see the calls as running.
    pub(crate) async fn cancelled_tools(
        &self,
        id: SessionId,
    ) -> Result<Vec<EventKind>, StoreError> {
        let mut open = Vec::<EventKind>::new();
        for record in self.store.last_event_records(id, Some("tool"), MAX_OPEN_TOOLS).await? {
            let kind = record.parse_event()?.kind;
            let EventKind::Tool { tool_execution_id, tool_status, .. } = &kind else { continue };
            let is_same = |known: &EventKind| {
                matches!(known, EventKind::Tool { tool_execution_id: known, .. }
                    if known == tool_execution_id)
            };
            open.retain(|known| !is_same(known));
            if matches!(tool_status, ToolExecutionStatus::Pending | ToolExecutionStatus::Running) {
                open.push(kind);
            }
        }
        for kind in &mut open {
            if let EventKind::Tool { tool_status, .. } = kind {
                *tool_status = ToolExecutionStatus::Cancelled;
            }
        }
        Ok(open)
    }

    /// Expires approvals at their expiry times, until the server shuts down.
    async fn expire_approvals(&self) {
        while !self.shutdown.is_cancelled() {
            // Subscribe before reading the next expiry time, so that an approval that is added
            // afterwards wakes this task.
            let change = self.store.wait_for_approval_change();
            let wait = match self.store.next_approval_expiry().await {
                Ok(Some(next)) => until(next),
                Ok(None) => MAX_EXPIRY_WAIT,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the expiry times of approvals");
                    EXPIRY_RETRY
                }
            };
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = change => continue,
                () = tokio::time::sleep(wait) => {}
            }
            if let Err(error) = self.store.expire_overdue_approvals(Time::now()).await {
                tracing::warn!(%error, "cannot expire approvals");
                tokio::select! {
                    () = self.shutdown.cancelled() => return,
                    () = tokio::time::sleep(EXPIRY_RETRY) => {}
                }
            }
        }
    }

    /// Removes everything that was made for a session.
    pub(crate) async fn cleanup(&self, id: SessionId) -> Result<(), StoreError> {
        for cleanup in self.store.pending_cleanups(Some(id)).await? {
            let token = CleanupToken(cleanup.token.clone());
            match self.remove_made(&token).await {
                Ok(()) => {
                    self.reach(CrashTestPoint::CleanedUp);
                    self.store.remove_pending_cleanup(cleanup.token).await?;
                }
                // The token stays in the store, so the next start of the server tries again.
                Err(error) => tracing::warn!(session = %id, %error, "cannot clean up"),
            }
        }
        Ok(())
    }

    /// Removes the resources that the token names. Repeats a failed removal, because another
    /// removal of the same directory may have caused the failure.
    pub(crate) async fn remove_made(&self, token: &CleanupToken) -> Result<(), ExecutorError> {
        let mut outcome = self.executor.clean_up_session(token).await;
        for pause in CLEANUP_RETRIES {
            if outcome.is_ok() {
                break;
            }
            tokio::time::sleep(pause).await;
            outcome = self.executor.clean_up_session(token).await;
        }
        outcome
    }

    /// Whether the workspace of a session that ended with this status is removed. Work that was not
    /// delivered is kept until the session is deleted.
    pub(crate) fn removes_workspace(status: SessionStatus) -> bool {
        matches!(status, SessionStatus::Completed | SessionStatus::Cancelled)
    }

    /// Removes what a crash between the end of a session and its cleanup left behind.
    async fn collect_leftovers(&self) {
        if let Err(error) = self.try_collect_leftovers().await {
            tracing::warn!(%error, "cannot remove leftover workspaces");
        }
    }

    async fn try_collect_leftovers(&self) -> Result<(), StoreError> {
        for cleanup in self.store.begun_workspace_removals().await? {
            self.cleanup(cleanup.session).await?;
        }
        for cleanup in self.store.pending_cleanups(None).await? {
            let is_over = match self.store.session_record(cleanup.session).await {
                Ok(record) => Self::removes_workspace(record.session.status),
                Err(StoreError::NotFound) => true,
                Err(error) => return Err(error),
            };
            if is_over {
                self.cleanup(cleanup.session).await?;
            }
        }
        Ok(())
    }

    fn drivers(&self) -> MutexGuard<'_, HashMap<SessionId, mpsc::Sender<Command>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
