//! The changes of a run that are not stored yet, and the steps that store them.
//!
//! A failed step loses nothing. Its events stay here, and the next step stores them. A queued step
//! is committed even if its caller is cancelled. The next step waits for the queued step, so that
//! no event is stored twice.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ab_api::{Approval, ApprovalId, PendingApproval, Run, RunId, RunStatus, Time};
use ab_store::{QueuedRunUpdate, RunEventRecord, RunUpdate, StoreError};
use serde_json::json;

use crate::event::{ErrorCategory, ProtocolEvent};
use crate::service::Spaces;

/// Maximum number of bytes of all events of one run. An event beyond this limit is replaced by an
/// error event.
const MAX_RUN_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of bytes of live output that one run stores before the events with the whole
/// output.
const MAX_LIVE_BYTES: usize = 8 * 1024 * 1024;
/// How long to wait before a failed step is repeated. The pause doubles each time, up to
/// `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A run and its changes that are not stored yet. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunLog {
    spaces: Spaces,
    id: RunId,
    state: Arc<Mutex<Unstored>>,
}

struct Unstored {
    run: Run,
    /// The run as it is stored in the database.
    row: Run,
    events: Vec<RunEventRecord>,
    /// Total number of bytes of all events so far.
    bytes: usize,
    /// Total number of bytes of all live output so far.
    live_bytes: usize,
    /// The step that is being committed.
    queued: Option<QueuedStep>,
}

/// A step that was given to the store, and whose outcome is not known yet.
struct QueuedStep {
    outcome: QueuedRunUpdate,
    /// The run as it is after the step.
    run: Run,
    /// The number of events that the step stores.
    events: usize,
}

/// What a step stores in addition to the run and its events.
#[derive(Clone, Default)]
pub(crate) struct StepExtras {
    /// The number of the operation that is performed next, and the JSON record of its start.
    pub(crate) started: Option<(u32, String)>,
    /// The question that the run waits for.
    pub(crate) asked: Option<Approval>,
    /// The granted approval that the operation uses.
    pub(crate) used: Option<ApprovalId>,
    /// Why the run ends, for its pending approvals.
    pub(crate) end_reason: Option<String>,
}

impl RunLog {
    pub(crate) fn new(spaces: &Spaces, run: Run) -> Self {
        let id = run.id;
        let unstored = Unstored {
            row: run.clone(),
            run,
            events: Vec::new(),
            bytes: 0,
            live_bytes: 0,
            queued: None,
        };
        Self { spaces: spaces.clone(), id, state: Arc::new(Mutex::new(unstored)) }
    }

    pub(crate) fn id(&self) -> RunId {
        self.id
    }

    /// The current state of the run, including changes that are not stored yet.
    pub(crate) fn run(&self) -> Run {
        self.lock().run.clone()
    }

    /// The approval that the run waits for, or `None` if it waits for none.
    pub(crate) fn pending(&self) -> Option<PendingApproval> {
        self.lock().run.pending_approval.clone()
    }

    /// Adds an event. The next step stores it.
    pub(crate) fn add(&self, number: Option<u32>, event: ProtocolEvent) {
        let at = Time::now();
        let mut json = json!(event).to_string();
        let mut state = self.lock();
        let is_large = json.len() > ab_store::MAX_RUN_EVENT_BYTES;
        if is_large || state.bytes.saturating_add(json.len()) > MAX_RUN_BYTES {
            let why = "the event is too large to be kept: read less at once";
            let operation = event.operation_id().map(str::to_owned);
            json = json!(ProtocolEvent::error(ErrorCategory::System, why, operation)).to_string();
        }
        state.bytes += json.len();
        state.events.push(RunEventRecord { number, at, json });
    }

    /// Stores output of a running command. Returns `false` if the caller must not add more output.
    pub(crate) async fn add_output(&self, json: String) -> bool {
        {
            let mut state = self.lock();
            state.live_bytes += json.len();
            if state.live_bytes > MAX_LIVE_BYTES {
                return false;
            }
        }
        let stored = self.spaces.store().add_run_output(self.id, Time::now(), json).await;
        if let Err(error) = &stored {
            tracing::debug!(%error, run = %self.id, "live output is not stored");
        }
        stored.is_ok()
    }

    /// Marks the run as running and no longer waiting for an approval. Does not store this change,
    /// because the run's next step stores it.
    pub(crate) fn unpark(&self) {
        let mut state = self.lock();
        state.run.pending_approval = None;
        state.run.status = RunStatus::Running;
    }

    /// Stores a change of the run together with every event so far.
    ///
    /// # Errors
    ///
    /// If storing fails, nothing is stored, and the next step stores the events.
    pub(crate) async fn store(
        &self,
        change: impl FnOnce(&mut Run),
        extras: StepExtras,
    ) -> Result<(), StoreError> {
        // Wait for a step whose caller was cancelled before its outcome was known. Ignore the
        // error. The events of a failed step are still here, and this step stores them.
        let _ = self.outcome().await;
        let (step, queued) = {
            let state = self.lock();
            let mut run = state.run.clone();
            run.updated_at = Time::now();
            change(&mut run);
            let row = Run { updated_at: run.updated_at, ..state.row.clone() };
            let is_run_changed = run != row;
            let StepExtras { started, asked, used, end_reason } = extras;
            let events = state.events.clone();
            (
                RunUpdate {
                    run,
                    is_run_changed,
                    events,
                    started_operation: started,
                    requested_approval: asked,
                    used_approval: used,
                    end_reason,
                },
                state.events.len(),
            )
        };
        let run = step.run.clone();
        let outcome = self.spaces.store().queue_run_update(step).await?;
        self.lock().queued = Some(QueuedStep { outcome, run, events: queued });
        self.outcome().await
    }

    /// Waits for the outcome of the step that is being committed, if there is one.
    async fn outcome(&self) -> Result<(), StoreError> {
        poll_fn(|context| self.poll_outcome(context)).await
    }

    fn poll_outcome(&self, context: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let mut state = self.lock();
        let Some(queued) = &mut state.queued else { return Poll::Ready(Ok(())) };
        let outcome = ready!(Pin::new(&mut queued.outcome).poll(context));
        if let (Some(QueuedStep { run, events, .. }), Ok(())) = (state.queued.take(), &outcome) {
            state.events.drain(..events);
            state.row = run.clone();
            state.run = run;
        }
        Poll::Ready(outcome)
    }

    /// Like [`RunLog::store`], but repeats the step while the database fails, for example on a full
    /// disk. While the database fails, callers that wait for the run receive the error.
    ///
    /// # Errors
    ///
    /// Fails if the store is closed or refuses the step.
    pub(crate) async fn store_eventually(
        &self,
        change: impl Fn(&mut Run),
        extras: StepExtras,
    ) -> Result<(), StoreError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.store(&change, extras.clone()).await {
                Err(error @ StoreError::Database(_)) => {
                    tracing::warn!(%error, run = %self.id, "a step of a run cannot be stored yet");
                    self.spaces.set_trouble(self.id, Some(error));
                }
                stored => {
                    self.spaces.set_trouble(self.id, None);
                    return stored;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Ends the run with this status.
    ///
    /// # Errors
    ///
    /// Fails if the store is closed or refuses the step.
    pub(crate) async fn end(&self, status: RunStatus) -> Result<(), StoreError> {
        self.end_with(status, StepExtras::default()).await
    }

    /// Ends the run like [`end`](Self::end). Its pending approvals expire with the reason.
    pub(crate) async fn end_because(
        &self,
        status: RunStatus,
        reason: &str,
    ) -> Result<(), StoreError> {
        let extras = StepExtras { end_reason: Some(reason.to_owned()), ..StepExtras::default() };
        self.end_with(status, extras).await
    }

    async fn end_with(&self, status: RunStatus, extras: StepExtras) -> Result<(), StoreError> {
        let change = |run: &mut Run| {
            run.status = status;
            run.pending_approval = None;
            run.ended_at = Some(run.updated_at);
        };
        self.store_eventually(change, extras).await
    }

    fn lock(&self) -> MutexGuard<'_, Unstored> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
