//! The task of a space: performs its runs one after the other.
//!
//! An operation is judged, parked if a person must decide, recorded as started, and performed. Its
//! event is stored together with the next step. A started operation without an event was
//! interrupted and is never performed again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ab_api::{Approval, DeciderKind, PendingApproval, Run, RunId, RunStatus, Time};
use ab_core::process::OutputChannel;
use ab_core::{ApprovalRequest, Error, ErrorCode, ErrorKind};
use ab_store::{RunEventRecord, RunStep, StoreError};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::approver;
use crate::crash::SpaceCrashPoint;
use crate::event::{ErrorCategory, ProtocolEvent};
use crate::gate::StartRecord;
use crate::in_process::approval_required;
use crate::operation::Operation;
use crate::perform::{self, Attempt, OperationContext};
use crate::service::{Spaces, SpacesError, is_yes};
use crate::workspace::SpaceWorkspace;

/// Maximum number of bytes of all events of one run. After that, operations whose events carry
/// content fail.
const MAX_RUN_BYTES: usize = 64 * 1024 * 1024;

/// Performs the runs of a space until it is closed.
pub(crate) async fn drive(
    spaces: Spaces,
    workspace: SpaceWorkspace,
    mut runs: mpsc::Receiver<RunId>,
    closed: CancellationToken,
) {
    loop {
        let id = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            id = runs.recv() => match id {
                Some(id) => id,
                None => return,
            },
        };
        let driving = perform_run(&spaces, &workspace, id);
        tokio::select! {
            biased;
            // Dropping the run stops its operation. The next start of the server reports the
            // interruption.
            () = closed.cancelled() => return,
            driven = driving => {
                if let Err(error) = driven {
                    tracing::error!(?error, run = %id, "a run cannot go on");
                }
            }
        }
        spaces.forget_run(id);
    }
}

/// Ends a run whose space is gone.
pub(crate) async fn end_lost(spaces: &Spaces, run: Run, why: &str) -> Result<(), SpacesError> {
    let mut driver = RunDriver::new(spaces, run);
    driver.add(None, ProtocolEvent::error(ErrorCategory::Execution, why, None));
    driver.end(RunStatus::Error).await
}

async fn perform_run(
    spaces: &Spaces,
    workspace: &SpaceWorkspace,
    id: RunId,
) -> Result<(), SpacesError> {
    let run = spaces.run(id).await?;
    if run.status.is_terminal() {
        return Ok(());
    }
    let records = spaces.store().run_operations(id).await?;
    let mut driver = RunDriver::new(spaces, run);
    let cancel = spaces.cancel_token(id);
    let mut left = spaces.shared.settings.run_timeout;
    for (number, record) in (0u32..).zip(&records) {
        if record.is_done {
            continue;
        }
        let Ok(operation) = serde_json::from_str::<Operation>(&record.json) else {
            let why = "a stored operation cannot be read";
            driver.add(Some(number), ProtocolEvent::error(ErrorCategory::System, why, None));
            continue;
        };
        if record.is_started {
            let why = "interrupted: the server stopped while the operation was performed";
            driver.add(Some(number), perform::failed(&operation, why));
            continue;
        }
        let performing = driver.perform(workspace, number, &operation, &mut left);
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Outcome::Cancelled,
            outcome = performing => outcome?,
        };
        match outcome {
            Outcome::Next => {}
            Outcome::Broken => return driver.end(RunStatus::Error).await,
            Outcome::TimedOut => {
                driver.add(Some(number), perform::failed(&operation, "the run took too long"));
                let why = "the run took longer than a run may take";
                driver.add(None, ProtocolEvent::error(ErrorCategory::Timeout, why, None));
                return driver.end(RunStatus::Error).await;
            }
            Outcome::Cancelled => {
                let why = "the run was cancelled";
                driver.add(Some(number), perform::failed(&operation, why));
                driver.add(None, ProtocolEvent::error(ErrorCategory::Execution, why, None));
                return driver.end(RunStatus::Cancelled).await;
            }
        }
    }
    spaces.shared.settings.crash_hook.reach(SpaceCrashPoint::Ending);
    driver.end(RunStatus::Completed).await
}

/// How the run continues after an operation.
enum Outcome {
    Next,
    Broken,
    TimedOut,
    Cancelled,
}

/// A run, and its changes that are not stored yet.
struct RunDriver<'a> {
    spaces: &'a Spaces,
    state: Arc<Mutex<Unstored>>,
    bytes: usize,
}

struct Unstored {
    run: Run,
    events: Vec<RunEventRecord>,
}

impl<'a> RunDriver<'a> {
    fn new(spaces: &'a Spaces, run: Run) -> Self {
        let state = Arc::new(Mutex::new(Unstored { run, events: Vec::new() }));
        Self { spaces, state, bytes: 0 }
    }

    fn reach(&self, point: SpaceCrashPoint) {
        self.spaces.shared.settings.crash_hook.reach(point);
    }

    /// Keeps an event until the next step stores it.
    fn add(&mut self, number: Option<u32>, event: ProtocolEvent) {
        let at = Time::now();
        let mut json = json!(event).to_string();
        let is_large = json.len() > ab_store::MAX_RUN_EVENT_BYTES;
        if is_large || self.bytes.saturating_add(json.len()) > MAX_RUN_BYTES {
            let why = "the event is too large to be kept: read less at once";
            json = json!(ProtocolEvent::error(ErrorCategory::System, why, None)).to_string();
        }
        self.bytes += json.len();
        lock(&self.state).events.push(RunEventRecord { number, at, json });
    }

    /// A step that stores all pending changes.
    fn step(state: &Mutex<Unstored>, change: impl FnOnce(&mut Run)) -> RunStep {
        let mut state = lock(state);
        state.run.updated_at = Time::now();
        change(&mut state.run);
        let events = std::mem::take(&mut state.events);
        RunStep { events, ..RunStep::new(state.run.clone()) }
    }

    async fn end(&mut self, status: RunStatus) -> Result<(), SpacesError> {
        let step = Self::step(&self.state, |run| {
            run.status = status;
            run.pending_approval = None;
            run.ended_at = Some(run.updated_at);
        });
        Ok(self.spaces.store().step_run(step).await?)
    }

    async fn perform(
        &mut self,
        workspace: &SpaceWorkspace,
        number: u32,
        operation: &Operation,
        left: &mut Duration,
    ) -> Result<Outcome, SpacesError> {
        let parked = lock(&self.state).run.pending_approval.clone();
        let mut pending = parked.filter(|pending| pending.number == number);
        loop {
            let mut granted = None;
            if let Some(pending) = pending.take() {
                let decided = self.decision(&pending).await?;
                self.reach(SpaceCrashPoint::Decided);
                if !is_yes(decided.status) {
                    self.add(Some(number), perform::rejected(operation, refused(&decided)));
                    self.unpark();
                    return Ok(Outcome::Next);
                }
                granted = Some(pending);
            }
            let context = OperationContext {
                workspace,
                name: format!("{}/{number}", self.id()),
                operation,
                granted: granted.as_ref().map(|pending| pending.digest.clone()),
                output: &|_: OutputChannel, _: &[u8]| {},
            };
            let start = self.start_record(number, operation, granted);
            // The time limit does not include waiting for a person.
            let began = Instant::now();
            let attempt = tokio::time::timeout(*left, perform::attempt(context, start)).await;
            *left = left.saturating_sub(began.elapsed());
            let Ok(attempt) = attempt else { return Ok(Outcome::TimedOut) };
            match attempt {
                Attempt::Done(event) => {
                    self.reach(SpaceCrashPoint::OperationPerformed);
                    self.unpark();
                    self.add(Some(number), event);
                    return Ok(Outcome::Next);
                }
                Attempt::Broken(event) => {
                    self.add(Some(number), event);
                    return Ok(Outcome::Broken);
                }
                Attempt::Asked(asked) => {
                    pending = Some(self.park(number, operation, &asked).await?);
                }
            }
        }
    }

    fn id(&self) -> RunId {
        lock(&self.state).run.id
    }

    fn unpark(&self) {
        let mut state = lock(&self.state);
        state.run.pending_approval = None;
        state.run.status = RunStatus::Running;
    }

    /// Stores the start of an operation together with the events before it, and marks the approval
    /// as used.
    fn start_record(
        &self,
        number: u32,
        operation: &Operation,
        granted: Option<PendingApproval>,
    ) -> StartRecord {
        let told = json!({
            "operationId": perform::id(operation),
            "operationType": operation.operation_type(),
            "number": number,
        });
        let (state, spaces) = (self.state.clone(), self.spaces.clone());
        Box::new(move || {
            Box::pin(async move {
                let mut step = Self::step(&state, |run| {
                    run.status = RunStatus::Running;
                    run.pending_approval = None;
                });
                step.started = Some((number, told.to_string()));
                step.used = granted.map(|granted| granted.approval_id);
                spaces.store().step_run(step).await.map_err(unstored)?;
                spaces.shared.settings.crash_hook.reach(SpaceCrashPoint::OperationStarted);
                Ok(())
            })
        })
    }

    /// Stores the question together with the state of the run.
    async fn park(
        &mut self,
        number: u32,
        operation: &Operation,
        asked: &ApprovalRequest,
    ) -> Result<PendingApproval, SpacesError> {
        let (id, space) = {
            let state = lock(&self.state);
            (state.run.id, state.run.space_id)
        };
        let now = Time::now();
        let operation_id = perform::id(operation);
        let timeout = self.spaces.shared.settings.approval_timeout;
        let approval = Approval {
            space_id: Some(space),
            run_id: Some(id),
            expires_at: Some(now.saturating_add(timeout)),
            ..Approval::pending(approver::subject(asked, Some(&operation_id)), now)
        };
        let pending = PendingApproval {
            approval_id: approval.id,
            operation_id,
            operation_type: operation.operation_type().as_str().to_owned(),
            reason: asked.rule.reason.clone(),
            number,
            digest: asked.digest.to_string(),
        };
        let mut event = approval_required(operation, asked);
        if let ProtocolEvent::ApprovalRequired { approval_id, .. } = &mut event {
            *approval_id = Some(approval.id);
        }
        self.add(None, event);
        let mut step = Self::step(&self.state, |run| {
            run.status = RunStatus::AwaitingApproval;
            run.pending_approval = Some(pending.clone());
        });
        step.asked = Some(approval);
        self.spaces.store().step_run(step).await?;
        self.reach(SpaceCrashPoint::Parked);
        Ok(pending)
    }

    /// Waits for the decision. An approval that is not decided in time expires, which counts as a
    /// refusal.
    async fn decision(&self, pending: &PendingApproval) -> Result<Approval, SpacesError> {
        let store = self.spaces.store();
        let approval = store.approval(pending.approval_id).await?;
        let now = Time::now().as_millis();
        let left = approval.expires_at.map_or(0, |time| time.as_millis().saturating_sub(now));
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        match tokio::time::timeout(left, store.wait_for_decision(pending.approval_id)).await {
            Ok(decided) => Ok(decided?),
            Err(_) => {
                store.expire_overdue_approvals(Time::now()).await?;
                Ok(store.wait_for_decision(pending.approval_id).await?)
            }
        }
    }
}

fn refused(approval: &Approval) -> String {
    let person = approval.decided_by.as_ref().filter(|by| by.kind != DeciderKind::Timeout);
    let by = person.map_or("nobody in time", |by| by.name.as_str());
    match &approval.reason {
        Some(reason) => format!("not approved by {by}: {reason}"),
        None => format!("not approved by {by}"),
    }
}

/// The error if the start of an operation cannot be stored; the operation is then not performed.
fn unstored(error: StoreError) -> Error {
    let message = format!("the start of the operation cannot be stored: {error}");
    Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message).with_source(error)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
