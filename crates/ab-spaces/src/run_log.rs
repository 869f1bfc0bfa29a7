//! The changes of a run that are not stored yet, and the steps that store them.
//!
//! A step that fails loses nothing: its events stay here for the next one. A step is written to its
//! end although its caller is cancelled, so that no event is stored twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_api::{Approval, ApprovalId, PendingApproval, Run, RunId, RunStatus, Time};
use ab_store::{RunEventRecord, RunUpdate, StoreError};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::event::{ErrorCategory, ProtocolEvent};
use crate::service::Spaces;

/// Maximum number of bytes of all events of one run. After that, operations whose events carry
/// content fail.
const MAX_RUN_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of bytes of output that one run stores before its events.
const MAX_LIVE_BYTES: usize = 8 * 1024 * 1024;
/// Time before a failed step is repeated; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A run, and what is not stored of it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunLog {
    spaces: Spaces,
    id: RunId,
    state: Arc<Mutex<Unstored>>,
}

struct Unstored {
    run: Run,
    events: Vec<RunEventRecord>,
    /// Bytes of all events so far.
    bytes: usize,
    /// Bytes of all output so far.
    live_bytes: usize,
    /// The step that is being written.
    writing: Option<JoinHandle<()>>,
}

/// What a step stores beside the run and its events.
#[derive(Clone, Default)]
pub(crate) struct StepExtras {
    /// The operation that is performed next, and what is told about it.
    pub(crate) started: Option<(u32, String)>,
    /// The question that the run waits for.
    pub(crate) asked: Option<Approval>,
    /// The yes that the operation uses.
    pub(crate) used: Option<ApprovalId>,
}

impl RunLog {
    pub(crate) fn new(spaces: &Spaces, run: Run) -> Self {
        let id = run.id;
        let unstored = Unstored { run, events: Vec::new(), bytes: 0, live_bytes: 0, writing: None };
        Self { spaces: spaces.clone(), id, state: Arc::new(Mutex::new(unstored)) }
    }

    pub(crate) fn id(&self) -> RunId {
        self.id
    }

    /// The run as it is after everything that is known here.
    pub(crate) fn run(&self) -> Run {
        self.lock().run.clone()
    }

    /// The approval that the run waits for.
    pub(crate) fn pending(&self) -> Option<PendingApproval> {
        self.lock().run.pending_approval.clone()
    }

    /// Keeps an event until the next step stores it.
    pub(crate) fn add(&self, number: Option<u32>, event: ProtocolEvent) {
        let at = Time::now();
        let mut json = json!(event).to_string();
        let mut state = self.lock();
        let is_large = json.len() > ab_store::MAX_RUN_EVENT_BYTES;
        if is_large || state.bytes.saturating_add(json.len()) > MAX_RUN_BYTES {
            let why = "the event is too large to be kept: read less at once";
            json = json!(ProtocolEvent::error(ErrorCategory::System, why, None)).to_string();
        }
        state.bytes += json.len();
        state.events.push(RunEventRecord { number, at, json });
    }

    /// Stores output of a command that runs. Returns whether more may follow.
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

    /// The run goes on. The next step stores it.
    pub(crate) fn unpark(&self) {
        let mut state = self.lock();
        state.run.pending_approval = None;
        state.run.status = RunStatus::Running;
    }

    /// Stores a change of the run together with every event so far.
    ///
    /// # Errors
    ///
    /// Nothing is stored then, and nothing is lost.
    pub(crate) async fn store(
        &self,
        change: impl FnOnce(&mut Run),
        extras: StepExtras,
    ) -> Result<(), StoreError> {
        let before = self.lock().writing.take();
        if let Some(before) = before {
            // The caller of the step before was cancelled. A task that panicked stored nothing.
            let _ = before.await;
        }
        let (step, count) = {
            let state = self.lock();
            let mut run = state.run.clone();
            run.updated_at = Time::now();
            change(&mut run);
            let StepExtras { started, asked, used } = extras;
            let step = RunUpdate { run, events: state.events.clone(), started, asked, used };
            (step, state.events.len())
        };
        let (told, outcome) = oneshot::channel();
        let log = self.clone();
        let writing = self.spaces.spawn(async move {
            let run = step.run.clone();
            let stored = log.spaces.store().update_run(step).await;
            if stored.is_ok() {
                let mut state = log.lock();
                state.events.drain(..count);
                state.run = run;
            }
            // The caller may be cancelled.
            let _ = told.send(stored);
        });
        self.lock().writing = Some(writing);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Like [`RunLog::store`], but repeats the step while the database fails, for example on a full
    /// disk. Callers that wait for the run are told meanwhile.
    ///
    /// # Errors
    ///
    /// The store is closed, or refuses the step.
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

    /// Ends the run.
    ///
    /// # Errors
    ///
    /// The store is closed.
    pub(crate) async fn end(&self, status: RunStatus) -> Result<(), StoreError> {
        let change = |run: &mut Run| {
            run.status = status;
            run.pending_approval = None;
            run.ended_at = Some(run.updated_at);
        };
        self.store_eventually(change, StepExtras::default()).await
    }

    fn lock(&self) -> MutexGuard<'_, Unstored> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
