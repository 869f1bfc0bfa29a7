//! The spaces of a server: created, opened again after a restart, and removed. One task per space
//! performs its runs in order.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_api::{
    ApprovalDecider, ApprovalDecision, ApprovalStatus, ApproveOrDeny, PageRequest, Run, RunId,
    RunStatus, Space, SpaceBackend, SpaceId, SpaceStatus, Time,
};
use ab_core::{EnforcedControls, Error, NoApprover, Principal};
use ab_local::LocalWorkspaceConfig;
use ab_policy::PolicyDocument;
use ab_store::{
    EventLogScope, IdempotencyRecord, RUN_END_RECORD_KIND, RUN_WAITS_FOR_APPROVAL_RECORD_KIND,
    RunEventRecord, SpaceEnd, Store, StoreError,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::approver::SpaceApprover;
use crate::area::SpaceArea;
use crate::cancellation::{CANCELLED, RunCancellation};
use crate::crash::SpaceCrashTestHook;
use crate::event::{ErrorCategory, EventsMessage, MessageStatus, ProtocolEvent};
use crate::operation::OperationsMessage;
use crate::request::SpaceRequest;
use crate::run_task;
use crate::workspace::SpaceWorkspace;

/// Maximum number of queued runs of one space.
const MAX_QUEUED_RUNS: usize = 64;
/// How often to look for expired spaces.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// How spaces are made, and the timeouts of their runs and approvals.
#[derive(Clone, Debug)]
pub struct SpacesSettings {
    /// The directory of all spaces.
    pub directory: PathBuf,
    /// The configuration that every new workspace starts from, including how commands are isolated.
    pub template: LocalWorkspaceConfig,
    /// Undecided approvals expire after this time.
    pub approval_timeout: Duration,
    /// Time limit for all operations of one run together. Time spent waiting for approvals does not
    /// count.
    pub run_timeout: Duration,
    /// Called at crash points.
    pub crash_hook: SpaceCrashTestHook,
}

impl SpacesSettings {
    /// The defaults: 15 minutes for an approval, one hour for a run.
    pub fn new(directory: impl Into<PathBuf>, template: LocalWorkspaceConfig) -> Self {
        Self {
            directory: directory.into(),
            template,
            approval_timeout: Duration::from_secs(15 * 60),
            run_timeout: Duration::from_secs(60 * 60),
            crash_hook: SpaceCrashTestHook::default(),
        }
    }
}

/// Why a request about spaces failed.
#[derive(Debug)]
pub enum SpacesError {
    SpaceNotFound,
    RunNotFound,
    /// The run has ended.
    RunEnded(RunStatus),
    /// The run does not wait for an approval of this operation.
    RunNotWaitingForApproval(String),
    /// The directory to copy cannot be used.
    InvalidCopySource(String),
    /// Too many runs are queued.
    QueueFull,
    /// The server is shutting down.
    ShuttingDown,
    /// The run currently cannot be stored. It continues, or ends, once it can be stored.
    RunNotStored(StoreError),
    /// The workspace of the space failed.
    Workspace(Error),
    Store(StoreError),
}

impl From<StoreError> for SpacesError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::ShuttingDown,
            error => Self::Store(error),
        }
    }
}

/// A handle on all spaces of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Spaces {
    pub(crate) shared: Arc<SpacesState>,
}

pub(crate) struct SpacesState {
    pub(crate) store: Store,
    pub(crate) settings: SpacesSettings,
    area: SpaceArea,
    open: Mutex<HashMap<SpaceId, OpenSpace>>,
    /// The runs that have not ended.
    live: Mutex<HashMap<RunId, LiveRun>>,
    tasks: TaskTracker,
    pub(crate) shutdown: CancellationToken,
}

/// A run that has not ended.
struct LiveRun {
    cancel: RunCancellation,
    /// Whether a task has begun to perform or end the run. Only one task can claim a run.
    is_claimed: bool,
    /// The error of the latest attempt to store the run. `None` if the run can be stored.
    trouble: watch::Sender<Option<StoreError>>,
}

impl LiveRun {
    fn queued() -> Self {
        let (cancel, trouble) = (RunCancellation::default(), watch::Sender::new(None));
        Self { cancel, is_claimed: false, trouble }
    }
}

#[derive(Clone)]
struct OpenSpace {
    workspace: SpaceWorkspace,
    queue: mpsc::Sender<RunId>,
    closed: CancellationToken,
}

impl fmt::Debug for SpacesState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpacesState").finish_non_exhaustive()
    }
}

/// A new run, or the run that an earlier request with the same key created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateRunResult {
    pub id: RunId,
}

impl Spaces {
    /// Starts the service and resumes the spaces and runs of an earlier process.
    ///
    /// # Errors
    ///
    /// Fails if the database or the directory of the spaces cannot be used.
    pub async fn start(store: Store, settings: SpacesSettings) -> Result<Self, SpacesError> {
        let area = SpaceArea::new(settings.directory.clone());
        let shared = Arc::new(SpacesState {
            store,
            settings,
            area,
            open: Mutex::default(),
            live: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        });
        let spaces = Self { shared };
        spaces.remove_leftovers().await?;
        for run in spaces.store().unfinished_runs(None).await? {
            spaces.take_up(run).await?;
        }
        let sweeping = spaces.clone();
        spaces.shared.tasks.spawn(async move { sweeping.sweep().await });
        Ok(spaces)
    }

    /// The store of the spaces.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Ends all tasks. Operations in progress are interrupted. After the next start of the server,
    /// the runs of these operations report the interruption.
    pub async fn shutdown(&self) {
        self.shared.shutdown.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        let open: Vec<OpenSpace> = self.open_spaces().drain().map(|(_, space)| space).collect();
        for space in open {
            let _ = space.workspace.backend().destroy().await;
        }
    }

    /// Creates a space.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be made or the space cannot be stored.
    /// [`StoreError::IdempotencyKeyReused`] if the key was used for another request.
    pub async fn create_space(
        &self,
        request: SpaceRequest,
        key: Option<IdempotencyRecord>,
    ) -> Result<Space, SpacesError> {
        let now = Time::now();
        let space = Space {
            id: SpaceId::generate(),
            name: request.name,
            description: request.description,
            status: SpaceStatus::Ready,
            backend: request.backend,
            policy: json!(request.policy),
            env: request.env,
            metadata: request.metadata,
            created_at: now,
            expires_at: request.lifetime.map(|lifetime| now.saturating_add(lifetime)),
        };
        let key = key.map(|key| IdempotencyRecord { response: space.id.to_string(), ..key });
        if let Some(from) = &request.copy_from
            && let Err(why) = self.shared.area.copy(space.id, from).await
        {
            self.forget(space.id).await;
            return Err(SpacesError::InvalidCopySource(why));
        }
        // Make the directory first, so that every stored space has one. If the server crashes
        // before the space is stored, the next start removes the directory.
        self.workspace_of(&space)?;
        let stored = self.store().create_space(space.clone(), key).await;
        match stored {
            Ok(None) => Ok(space),
            Ok(Some(before)) => {
                self.forget(space.id).await;
                let id = before.parse().map_err(|_| SpacesError::SpaceNotFound)?;
                self.get_space(id).await
            }
            Err(error) => {
                self.forget(space.id).await;
                Err(error.into())
            }
        }
    }

    /// Returns a space. Its status is derived from its runs.
    ///
    /// # Errors
    ///
    /// [`SpacesError::SpaceNotFound`] if there is no such space, or it has expired.
    pub async fn get_space(&self, id: SpaceId) -> Result<Space, SpacesError> {
        let mut space = match self.store().get_space(id).await {
            Err(StoreError::NotFound) => return Err(SpacesError::SpaceNotFound),
            space => space?,
        };
        if space.expires_at.is_some_and(|time| time <= Time::now()) {
            return Err(SpacesError::SpaceNotFound);
        }
        self.set_status(&mut space).await?;
        Ok(space)
    }

    /// Returns a page of the spaces, newest first, and the total number of spaces.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub async fn list_spaces(&self, page: PageRequest) -> Result<(Vec<Space>, u64), SpacesError> {
        let (mut spaces, total) = self.store().list_spaces(page).await?;
        for space in &mut spaces {
            self.set_status(space).await?;
        }
        Ok((spaces, total))
    }

    async fn set_status(&self, space: &mut Space) -> Result<(), SpacesError> {
        let live = self.store().unfinished_runs(Some(space.id)).await?;
        if live.iter().any(|run| run.status == RunStatus::AwaitingApproval) {
            space.status = SpaceStatus::Paused;
        } else if !live.is_empty() {
            space.status = SpaceStatus::Running;
        }
        Ok(())
    }

    /// Returns the workspace of a space, and opens it if necessary.
    ///
    /// # Errors
    ///
    /// [`SpacesError::SpaceNotFound`] if there is no such space. Also fails if the workspace cannot
    /// be opened.
    pub async fn space_workspace(&self, id: SpaceId) -> Result<SpaceWorkspace, SpacesError> {
        let space = self.get_space(id).await?;
        Ok(self.workspace_of(&space)?.workspace)
    }

    /// Returns a token that is cancelled when the space is removed or expires, or when the server
    /// shuts down. For an unknown space the token is already cancelled.
    pub fn space_closed_token(&self, id: SpaceId) -> CancellationToken {
        let open = self.open_spaces().get(&id).map(|open| open.closed.child_token());
        open.unwrap_or_else(|| {
            let closed = CancellationToken::new();
            closed.cancel();
            closed
        })
    }

    /// Ends the runs and the pending approvals of a space, and removes its files.
    ///
    /// # Errors
    ///
    /// [`SpacesError::SpaceNotFound`] if there is no such space. Also fails if the removal cannot be
    /// stored. Nothing is removed then.
    pub async fn destroy_space(&self, id: SpaceId) -> Result<(), SpacesError> {
        self.end_space(id, "the space was removed").await
    }

    async fn end_space(&self, id: SpaceId, reason: &'static str) -> Result<(), SpacesError> {
        let space = match self.store().get_space(id).await {
            Err(StoreError::NotFound) => return Err(SpacesError::SpaceNotFound),
            space => space?,
        };
        self.stop_runs(id, reason).await?;
        let event = ProtocolEvent::error(ErrorCategory::Execution, reason, None);
        let event =
            RunEventRecord { number: None, at: Time::now(), json: json!(event).to_string() };
        let end = SpaceEnd { reason: reason.to_owned(), event };
        let cancelled = match self.store().destroy_space(space, end).await {
            Err(StoreError::NotFound) => return Err(SpacesError::SpaceNotFound),
            cancelled => cancelled?,
        };
        // Ends the task that performs the runs.
        self.forget(id).await;
        for run in cancelled {
            self.forget_run(run);
        }
        Ok(())
    }

    /// Cancels the runs of a space, so that their operations get their events, and waits for their
    /// ends. Does not wait for runs that currently cannot be stored.
    async fn stop_runs(&self, space: SpaceId, reason: &'static str) -> Result<(), SpacesError> {
        let mut stopped = Vec::new();
        // Cancel all before the first has ended, so that no queued run begins.
        for run in self.store().unfinished_runs(Some(space)).await? {
            if let Some(live) = self.live_runs().get_mut(&run.id) {
                live.cancel.cancel(reason);
                let was_claimed = std::mem::replace(&mut live.is_claimed, true);
                stopped.push((run, was_claimed, live.trouble.subscribe()));
            }
        }
        for (run, was_claimed, trouble) in stopped {
            let (id, mut trouble) = (run.id, Some(trouble));
            let ending = async {
                if !was_claimed {
                    return run_task::end_cancelled(self, run, reason).await;
                }
                let mut reader = self.store().follow_events(EventLogScope::Run(id), 0);
                while reader.next().await?.kind != RUN_END_RECORD_KIND {}
                Ok(())
            };
            tokio::select! {
                ended = ending => ended?,
                _ = in_trouble(&mut trouble) => {}
                () = self.shared.shutdown.cancelled() => return Err(SpacesError::ShuttingDown),
            }
            self.forget_run(id);
        }
        Ok(())
    }

    /// Stores a run and puts it into the queue of its space.
    ///
    /// # Errors
    ///
    /// [`SpacesError::SpaceNotFound`] if there is no such space, [`SpacesError::QueueFull`] if too
    /// many runs wait. Also fails if the workspace cannot be opened or the run cannot be stored.
    pub async fn create_run(
        &self,
        space: SpaceId,
        message: OperationsMessage,
        by: &Principal,
        key: Option<IdempotencyRecord>,
    ) -> Result<CreateRunResult, SpacesError> {
        let space = self.get_space(space).await?;
        let open = self.workspace_of(&space)?;
        let permit = open.queue.try_reserve().map_err(|_| SpacesError::QueueFull)?;
        let now = Time::now();
        let run = Run {
            id: RunId::generate(),
            space_id: space.id,
            status: RunStatus::Queued,
            operation_count: u32::try_from(message.operations.len()).unwrap_or(u32::MAX),
            pending_approval: None,
            created_by: by.to_string(),
            created_at: now,
            updated_at: now,
            ended_at: None,
        };
        let id = run.id;
        let key = key.map(|key| IdempotencyRecord { response: id.to_string(), ..key });
        let operations = message.operations.iter().map(|it| json!(it).to_string()).collect();
        match self.store().create_run(run, operations, key).await {
            Ok(None) => {
                self.shared.settings.crash_hook.reach(crate::SpaceCrashTestPoint::RunStored);
                self.live_runs().insert(id, LiveRun::queued());
                permit.send(id);
                Ok(CreateRunResult { id })
            }
            Ok(Some(before)) => {
                let id = before.parse().map_err(|_| SpacesError::RunNotFound)?;
                Ok(CreateRunResult { id })
            }
            Err(StoreError::NotFound) => Err(SpacesError::SpaceNotFound),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns a run.
    ///
    /// # Errors
    ///
    /// [`SpacesError::RunNotFound`] if there is no such run. Also fails if the database cannot be
    /// read.
    pub async fn get_run(&self, id: RunId) -> Result<Run, SpacesError> {
        match self.store().get_run(id).await {
            Err(StoreError::NotFound) => Err(SpacesError::RunNotFound),
            run => Ok(run?),
        }
    }

    /// Returns all events of a run so far.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub async fn run_events(&self, id: RunId) -> Result<Vec<Value>, SpacesError> {
        let events = self.store().run_events(id).await?;
        Ok(events.iter().filter_map(|json| serde_json::from_str(json).ok()).collect())
    }

    /// Returns the operations of a run, in order, with the ids that the server assigned.
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read.
    pub async fn run_operations(&self, id: RunId) -> Result<Vec<Value>, SpacesError> {
        let records = self.store().run_operations(id).await?;
        Ok(records.iter().filter_map(|it| serde_json::from_str(&it.json).ok()).collect())
    }

    /// Waits until the run has ended or waits for an approval. Returns the events that follow the
    /// first `after` records of the run's stream.
    ///
    /// # Errors
    ///
    /// [`SpacesError::ShuttingDown`] if the server shuts down first. [`SpacesError::RunNotStored`] if
    /// the run currently cannot be stored. The run continues once it can be stored again.
    pub async fn wait_for_run_events(
        &self,
        id: RunId,
        after: u64,
    ) -> Result<EventsMessage, SpacesError> {
        let mut trouble = self.live_runs().get(&id).map(|live| live.trouble.subscribe());
        let mut reader = self.store().follow_events(EventLogScope::Run(id), after);
        let mut events: Vec<ProtocolEvent> = Vec::new();
        loop {
            let record = tokio::select! {
                biased;
                record = reader.next() => record?,
                error = in_trouble(&mut trouble) => return Err(SpacesError::RunNotStored(error)),
                () = self.shared.shutdown.cancelled() => return Err(SpacesError::ShuttingDown),
            };
            match record.kind.as_str() {
                "event" => events.extend(serde_json::from_str::<ProtocolEvent>(&record.json).ok()),
                // If the request is a repetition, the run may have continued after this record.
                RUN_WAITS_FOR_APPROVAL_RECORD_KIND
                    if self.get_run(id).await?.status == RunStatus::AwaitingApproval =>
                {
                    return Ok(EventsMessage::new(id, MessageStatus::AwaitingApproval, events));
                }
                RUN_END_RECORD_KIND => {
                    let run: Option<Run> = serde_json::from_str(&record.json).ok();
                    let status = run.map_or(MessageStatus::Error, |run| run.status.into());
                    return Ok(EventsMessage::new(id, status, events));
                }
                _ => {}
            }
        }
    }

    /// Decides the approval that a run waits for, and waits for the events that follow.
    ///
    /// # Errors
    ///
    /// [`SpacesError::RunEnded`] if the run has ended. [`SpacesError::RunNotWaitingForApproval`] if the run waits
    /// for no approval or for the approval of another operation, or if another caller has already
    /// decided. [`StoreError::SubjectNotFullyShown`] for a yes to an operation that the approval does not show
    /// completely.
    pub async fn resume_run(
        &self,
        id: RunId,
        operation_id: &str,
        decision: ApproveOrDeny,
        reason: Option<String>,
        by: ApprovalDecider,
    ) -> Result<EventsMessage, SpacesError> {
        let run = self.get_run(id).await?;
        if run.status.is_terminal() {
            return Err(SpacesError::RunEnded(run.status));
        }
        let Some(pending) = run.pending_approval.filter(|it| it.operation_id == operation_id)
        else {
            let why = format!("the run does not wait for an approval of {operation_id:?}");
            return Err(SpacesError::RunNotWaitingForApproval(why));
        };
        let records = self.store().last_stream_seq(ab_store::EventStreamId::Run(id)).await?;
        let decision = ApprovalDecision { reason, ..decision.into() };
        match self.store().decide_approval(pending.approval_id, decision, by).await {
            Ok(_) => self.wait_for_run_events(id, records).await,
            Err(StoreError::AlreadyDecided(approval)) => {
                let status = approval.status.as_str();
                Err(SpacesError::RunNotWaitingForApproval(format!(
                    "the approval is already {status}"
                )))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Cancels a run. The current operation is stopped, and the remaining operations are not
    /// performed.
    ///
    /// # Errors
    ///
    /// [`SpacesError::RunNotFound`] if there is no such run, [`SpacesError::RunEnded`] if it has
    /// already ended. [`SpacesError::RunNotStored`] if its end currently cannot be stored. It is
    /// cancelled once that is possible.
    pub async fn cancel_run(&self, id: RunId) -> Result<Run, SpacesError> {
        let run = self.get_run(id).await?;
        if run.status.is_terminal() {
            return Err(SpacesError::RunEnded(run.status));
        }
        // End a queued run here. Its own task would end it only when its turn comes.
        let (is_mine, mut trouble) = match self.live_runs().get_mut(&id) {
            Some(live) => {
                live.cancel.cancel(CANCELLED);
                let is_mine = !std::mem::replace(&mut live.is_claimed, true);
                (is_mine, Some(live.trouble.subscribe()))
            }
            None => (false, None),
        };
        if is_mine {
            // The task goes on if the caller stops waiting.
            let spaces = self.clone();
            self.shared.tasks.spawn(async move { spaces.end_queued(run).await });
        }
        let mut reader = self.store().follow_events(EventLogScope::Run(id), 0);
        loop {
            let record = tokio::select! {
                biased;
                record = reader.next() => record?,
                error = in_trouble(&mut trouble) => return Err(SpacesError::RunNotStored(error)),
                () = self.shared.shutdown.cancelled() => return Err(SpacesError::ShuttingDown),
            };
            if record.kind == RUN_END_RECORD_KIND {
                return self.get_run(id).await;
            }
        }
    }

    /// Ends a queued run that was cancelled. If the server shuts down first, the run is queued again
    /// after its next start.
    async fn end_queued(&self, run: Run) {
        let id = run.id;
        tokio::select! {
            ended = run_task::end_cancelled(self, run, CANCELLED) => {
                if let Err(error) = ended {
                    tracing::warn!(?error, run = %id, "cannot end a cancelled run");
                }
                self.forget_run(id);
            }
            () = self.shared.shutdown.cancelled() => {}
        }
    }

    /// Returns what the sandbox of this server enforces for the commands of a space with this
    /// policy.
    ///
    /// # Errors
    ///
    /// Fails if the isolation of commands could not be examined.
    pub async fn enforced_controls(
        &self,
        document: &PolicyDocument,
    ) -> Result<EnforcedControls, SpacesError> {
        // The check needs a directory like the directory of a space. This directory is empty and is
        // removed after the check.
        let id = SpaceId::generate();
        let root = self.shared.area.make(id).map_err(made)?;
        let (document, env) = (document.clone(), BTreeMap::new());
        let (template, approver) = (&self.shared.settings.template, Arc::new(NoApprover));
        let policy = match SpaceWorkspace::open_directory(root, template, document, env, approver) {
            Ok(workspace) => {
                let policy = workspace.backend().effective_policy().await;
                let _ = workspace.backend().destroy().await;
                policy
            }
            Err(error) => Err(error),
        };
        self.shared.area.remove(id).await.map_err(SpacesError::Workspace)?;
        Ok(EnforcedControls::from_policy(&policy.map_err(SpacesError::Workspace)?))
    }

    /// Returns the open space. Opens the space if it is not open.
    fn workspace_of(&self, space: &Space) -> Result<OpenSpace, SpacesError> {
        if let Some(open) = self.open_spaces().get(&space.id) {
            return Ok(open.clone());
        }
        let document: PolicyDocument =
            serde_json::from_value(space.policy.clone()).map_err(|error| {
                SpacesError::Store(StoreError::Corrupt {
                    what: "policy",
                    problem: error.to_string(),
                })
            })?;
        let approver = Arc::new(SpaceApprover::new(
            self.store().clone(),
            space.id,
            self.shared.settings.approval_timeout,
        ));
        let env = space.env.clone();
        let workspace = match space.backend {
            SpaceBackend::Memory => SpaceWorkspace::open_memory(document, env, approver),
            SpaceBackend::Directory => {
                let root = self.shared.area.make(space.id).map_err(made)?;
                let template = &self.shared.settings.template;
                SpaceWorkspace::open_directory(root, template, document, env, approver)
            }
        };
        let workspace = workspace.map_err(SpacesError::Workspace)?;
        let mut all = self.open_spaces();
        if let Some(open) = all.get(&space.id) {
            return Ok(open.clone());
        }
        let (queue, runs) = mpsc::channel(MAX_QUEUED_RUNS);
        let closed = self.shared.shutdown.child_token();
        let open = OpenSpace { workspace: workspace.clone(), queue, closed: closed.clone() };
        all.insert(space.id, open.clone());
        drop(all);
        let driving = run_task::drive(self.clone(), workspace, runs, closed);
        self.shared.tasks.spawn(driving);
        Ok(open)
    }

    /// Closes a space, which ends its task, and removes its files.
    async fn forget(&self, id: SpaceId) {
        let open = self.open_spaces().remove(&id);
        if let Some(open) = open {
            open.closed.cancel();
            let _ = open.workspace.backend().destroy().await;
        }
        if let Err(error) = self.shared.area.remove(id).await {
            tracing::warn!(%error, space = %id, "cannot remove the files of a space");
        }
    }

    async fn take_up(&self, run: Run) -> Result<(), SpacesError> {
        let space = self.store().get_space(run.space_id).await;
        let lost = match &space {
            Ok(space) if space.backend == SpaceBackend::Memory => {
                Some("the space was in memory and is lost with the restart of the server")
            }
            Ok(_) => None,
            Err(_) => Some("the space was removed"),
        };
        if let Some(lost) = lost {
            return run_task::end_lost(self, run, lost).await;
        }
        let open = self.workspace_of(&space?)?;
        self.live_runs().insert(run.id, LiveRun::queued());
        open.queue.try_send(run.id).map_err(|_| SpacesError::QueueFull)
    }

    async fn remove_leftovers(&self) -> Result<(), SpacesError> {
        let mut known = std::collections::HashSet::new();
        for number in 1.. {
            let page = PageRequest { page: Some(number), ..PageRequest::default() };
            let (spaces, _) = self.store().list_spaces(page).await?;
            if spaces.is_empty() {
                break;
            }
            known.extend(spaces.iter().map(|space| space.id.to_string()));
        }
        if let Err(error) = self.shared.area.remove_unknown(|name| known.contains(name)) {
            tracing::warn!(%error, "cannot remove the directories of unknown spaces");
        }
        Ok(())
    }

    /// Removes expired spaces until the server shuts down.
    async fn sweep(&self) {
        loop {
            match self.store().expired_spaces(Time::now()).await {
                Ok(spaces) => {
                    for space in spaces {
                        // A failed removal is retried later.
                        let _ = self.end_space(space.id, "the space has expired").await;
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot look for expired spaces"),
            }
            tokio::select! {
                () = tokio::time::sleep(SWEEP_INTERVAL) => {}
                () = self.shared.shutdown.cancelled() => return,
            }
        }
    }

    /// Claims a queued run and returns its cancellation. `None` if another task has
    /// already claimed the run.
    pub(crate) fn claim(&self, run: RunId) -> Option<RunCancellation> {
        let mut live = self.live_runs();
        let live = live.get_mut(&run)?;
        let was_claimed = std::mem::replace(&mut live.is_claimed, true);
        (!was_claimed).then(|| live.cancel.clone())
    }

    pub(crate) fn forget_run(&self, run: RunId) {
        self.live_runs().remove(&run);
    }

    /// Sets or clears the storage error of a run, for the callers that wait for the run.
    pub(crate) fn set_trouble(&self, run: RunId, trouble: Option<StoreError>) {
        if let Some(live) = self.live_runs().get(&run) {
            live.trouble.send_replace(trouble);
        }
    }

    fn live_runs(&self) -> MutexGuard<'_, HashMap<RunId, LiveRun>> {
        lock(&self.shared.live)
    }

    fn open_spaces(&self) -> MutexGuard<'_, HashMap<SpaceId, OpenSpace>> {
        lock(&self.shared.open)
    }
}

/// Waits until a run cannot be stored, and returns the error. Waits forever if the run can be
/// stored.
async fn in_trouble(trouble: &mut Option<watch::Receiver<Option<StoreError>>>) -> StoreError {
    if let Some(receiver) = trouble {
        // The sender is dropped when the run has ended.
        if let Ok(error) = receiver.wait_for(Option::is_some).await
            && let Some(error) = error.clone()
        {
            return error;
        }
    }
    std::future::pending().await
}

/// Whether an approval with this status was granted.
pub(crate) fn is_yes(status: ApprovalStatus) -> bool {
    status == ApprovalStatus::Approved
}

fn made(error: std::io::Error) -> SpacesError {
    let message = format!("cannot make the directory of the space: {error}");
    let (code, kind) = (ab_core::ErrorCode::WriteFailed, ab_core::ErrorKind::Io);
    SpacesError::Workspace(Error::new(code, kind, message).with_source(error))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
