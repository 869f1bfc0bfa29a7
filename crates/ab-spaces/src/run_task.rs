//! The task of a space: performs its runs one after the other.
//!
//! The policy judges an operation. If a person must decide, the run stores the question and waits
//! (it is *parked*). Then the task stores the start of the operation and performs the operation.
//! The event of the operation is stored together with the next step. A started operation without an
//! event was interrupted and is never performed again.

use std::time::{Duration, Instant};

use ab_api::{
    Approval, ApprovalSubject, DeciderKind, PendingApproval, Run, RunId, RunStatus, Time,
};
use ab_core::process::OutputChannel;
use ab_core::{ApprovalRequest, Error, ErrorCode, ErrorKind};
use ab_store::StoreError;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::approver;
use crate::cancellation::RunCancellation;
use crate::crash::SpaceCrashTestPoint;
use crate::event::{ErrorCategory, ProtocolEvent};
use crate::gate::StartRecord;
use crate::in_process::approval_required;
use crate::live::LiveOutput;
use crate::operation::Operation;
use crate::perform::{self, Attempt, OperationContext};
use crate::run_log::{RunLog, StepExtras};
use crate::service::{Spaces, SpacesError, is_yes};
use crate::workspace::SpaceWorkspace;

/// The error of an operation that an earlier process had started.
const INTERRUPTED: &str = "interrupted: the server stopped while the operation was performed";
/// How long to wait before a failed read of the store is repeated.
const PAUSE: Duration = Duration::from_secs(1);

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
        // A run that was cancelled in the queue has already ended and cannot be claimed.
        let Some(cancel) = spaces.claim(id) else { continue };
        tokio::select! {
            biased;
            // Dropping the future stops the current operation. The server reports the interruption
            // after its next start.
            () = closed.cancelled() => return,
            () = perform_to_the_end(&spaces, &workspace, id, &cancel) => {}
        }
        spaces.forget_run(id);
    }
}

/// Performs a run. Starts again if the store could not be read.
async fn perform_to_the_end(
    spaces: &Spaces,
    workspace: &SpaceWorkspace,
    id: RunId,
    cancel: &RunCancellation,
) {
    loop {
        let error = match perform_run(spaces, workspace, id, cancel).await {
            Err(SpacesError::Store(error @ StoreError::Database(_))) => error,
            Err(error) => return tracing::error!(?error, run = %id, "a run cannot continue"),
            Ok(()) => return,
        };
        tracing::warn!(%error, run = %id, "a run cannot continue yet");
        spaces.set_trouble(id, Some(error));
        tokio::time::sleep(PAUSE).await;
        spaces.set_trouble(id, None);
    }
}

/// Ends a run whose space no longer exists. `why` becomes its error event.
pub(crate) async fn end_lost(spaces: &Spaces, run: Run, why: &str) -> Result<(), SpacesError> {
    end_unclaimed(spaces, run, RunStatus::Error, why).await
}

/// Ends a run that was cancelled while it was queued. An earlier process may have begun the run.
pub(crate) async fn end_cancelled(
    spaces: &Spaces,
    run: Run,
    reason: &str,
) -> Result<(), SpacesError> {
    end_unclaimed(spaces, run, RunStatus::Cancelled, reason).await
}

/// Ends a run that no task performs. An operation that was started, or that waits for an approval,
/// gets its event.
async fn end_unclaimed(
    spaces: &Spaces,
    run: Run,
    status: RunStatus,
    reason: &str,
) -> Result<(), SpacesError> {
    let parked = run.pending_approval.as_ref().map(|pending| pending.number);
    let records = spaces.store().run_operations(run.id).await?;
    let log = RunLog::new(spaces, run);
    for (number, record) in (0u32..).zip(&records) {
        let why = match record {
            record if record.is_done => continue,
            record if record.is_started => INTERRUPTED,
            _ if parked == Some(number) => reason,
            _ => continue,
        };
        if let Ok(operation) = serde_json::from_str::<Operation>(&record.json) {
            log.add(Some(number), perform::failed(&operation, why));
        }
    }
    log.add(None, ProtocolEvent::error(ErrorCategory::Execution, reason, None));
    Ok(log.end_because(status, reason).await?)
}

async fn perform_run(
    spaces: &Spaces,
    workspace: &SpaceWorkspace,
    id: RunId,
    cancel: &RunCancellation,
) -> Result<(), SpacesError> {
    let run = spaces.get_run(id).await?;
    if run.status.is_terminal() {
        return Ok(());
    }
    let records = spaces.store().run_operations(id).await?;
    let log = RunLog::new(spaces, run);
    let driver = RunDriver { spaces, log: log.clone() };
    let mut left = spaces.shared.settings.run_timeout;
    for (number, record) in (0u32..).zip(&records) {
        if record.is_done {
            continue;
        }
        let Ok(operation) = serde_json::from_str::<Operation>(&record.json) else {
            let why = "a stored operation cannot be read";
            let error = ProtocolEvent::error(ErrorCategory::System, why, stored_id(&record.json));
            log.add(Some(number), error);
            continue;
        };
        if record.is_started {
            log.add(Some(number), perform::failed(&operation, INTERRUPTED));
            continue;
        }
        let performing = driver.perform(workspace, number, &operation, &mut left);
        let outcome = tokio::select! {
            biased;
            reason = cancel.cancelled() => Outcome::Cancelled(reason),
            outcome = performing => outcome?,
        };
        match outcome {
            Outcome::Next => {}
            Outcome::Broken => return Ok(log.end(RunStatus::Error).await?),
            Outcome::TimedOut => {
                log.add(Some(number), perform::failed(&operation, "the run took too long"));
                let why = "the run took longer than a run may take";
                log.add(None, ProtocolEvent::error(ErrorCategory::Timeout, why, None));
                return Ok(log.end(RunStatus::Error).await?);
            }
            Outcome::Cancelled(reason) => {
                log.add(Some(number), perform::failed(&operation, reason));
                log.add(None, ProtocolEvent::error(ErrorCategory::Execution, reason, None));
                return Ok(log.end_because(RunStatus::Cancelled, reason).await?);
            }
        }
    }
    spaces.shared.settings.crash_hook.reach(SpaceCrashTestPoint::OperationsEnded);
    Ok(log.end(RunStatus::Completed).await?)
}

/// The id in the JSON of a stored operation that cannot be parsed as an [`Operation`].
fn stored_id(json: &str) -> Option<String> {
    let operation: Value = serde_json::from_str(json).ok()?;
    operation["id"].as_str().map(str::to_owned)
}

/// How the run continues after an operation.
enum Outcome {
    Next,
    Broken,
    TimedOut,
    /// The run was cancelled for this reason.
    Cancelled(&'static str),
}

/// Performs the operations of one run.
struct RunDriver<'a> {
    spaces: &'a Spaces,
    log: RunLog,
}

impl RunDriver<'_> {
    fn reach(&self, point: SpaceCrashTestPoint) {
        self.spaces.shared.settings.crash_hook.reach(point);
    }

    async fn perform(
        &self,
        workspace: &SpaceWorkspace,
        number: u32,
        operation: &Operation,
        left: &mut Duration,
    ) -> Result<Outcome, SpacesError> {
        let mut pending = self.log.pending().filter(|pending| pending.number == number);
        loop {
            let mut granted = None;
            if let Some(pending) = pending.take() {
                let decided = self.decision(&pending).await?;
                self.reach(SpaceCrashTestPoint::DecisionStored);
                if !is_yes(decided.status) {
                    self.log.add(Some(number), perform::rejected(operation, refused(&decided)));
                    self.log.unpark();
                    return Ok(Outcome::Next);
                }
                granted = Some(pending);
            }
            let live = LiveOutput::default();
            let context = OperationContext {
                workspace,
                name: format!("{}/{number}", self.log.id()),
                operation,
                granted: granted.as_ref().map(|pending| pending.digest.clone()),
                output: &|channel: OutputChannel, bytes: &[u8]| live.add(channel, bytes),
            };
            let start = self.start_record(number, operation, granted);
            let operation_id = perform::id(operation);
            // The time limit does not include waiting for a person.
            let began = Instant::now();
            let attempt = tokio::select! {
                biased;
                attempt = tokio::time::timeout(*left, perform::attempt(context, start)) => attempt,
                never = live.publish(&self.log, &operation_id) => match never {},
            };
            *left = left.saturating_sub(began.elapsed());
            let Ok(attempt) = attempt else { return Ok(Outcome::TimedOut) };
            match attempt {
                Attempt::Done(event) => {
                    self.reach(SpaceCrashTestPoint::OperationPerformed);
                    self.log.unpark();
                    self.log.add(Some(number), event);
                    return Ok(Outcome::Next);
                }
                Attempt::Broken(event) => {
                    self.log.add(Some(number), event);
                    return Ok(Outcome::Broken);
                }
                Attempt::Asked(asked) => {
                    pending = Some(self.park(number, operation, &asked).await?);
                }
            }
        }
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
        let (log, crash_hook) = (self.log.clone(), self.spaces.shared.settings.crash_hook.clone());
        Box::new(move || {
            Box::pin(async move {
                let extras = StepExtras {
                    started: Some((number, told.to_string())),
                    used: granted.map(|granted| granted.approval_id),
                    ..StepExtras::default()
                };
                let change = |run: &mut Run| {
                    run.status = RunStatus::Running;
                    run.pending_approval = None;
                };
                log.store(change, extras).await.map_err(unstored)?;
                crash_hook.reach(SpaceCrashTestPoint::OperationStarted);
                Ok(())
            })
        })
    }

    /// Stores the question, and that the run waits for its decision.
    async fn park(
        &self,
        number: u32,
        operation: &Operation,
        asked: &ApprovalRequest,
    ) -> Result<PendingApproval, SpacesError> {
        let run = self.log.run();
        let now = Time::now();
        let operation_id = perform::id(operation);
        let timeout = self.spaces.shared.settings.approval_timeout;
        // The operation acts under a name of its own. The caller that asks is that of the run.
        let subject = ApprovalSubject {
            asked_by: Some(run.created_by.clone()),
            ..approver::subject(asked, Some(&operation_id))
        };
        let approval = Approval {
            space_id: Some(run.space_id),
            run_id: Some(run.id),
            expires_at: Some(now.saturating_add(timeout)),
            ..Approval::new_pending(subject, now)
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
        self.log.add(None, event);
        let change = |run: &mut Run| {
            run.status = RunStatus::AwaitingApproval;
            run.pending_approval = Some(pending.clone());
        };
        let extras = StepExtras { asked: Some(approval), ..StepExtras::default() };
        self.log.store_eventually(change, extras).await?;
        self.reach(SpaceCrashTestPoint::ApprovalStored);
        Ok(pending)
    }

    /// Waits for the decision. An approval that is not decided in time expires. This counts as a
    /// refusal.
    async fn decision(&self, pending: &PendingApproval) -> Result<Approval, SpacesError> {
        let store = self.spaces.store();
        let approval = store.get_approval(pending.approval_id).await?;
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

/// The reason of a refused operation.
fn refused(approval: &Approval) -> String {
    let by = match &approval.decided_by {
        Some(by) if by.kind != DeciderKind::Timeout => format!("by {}", by.name),
        Some(_) | None => return "the approval expired before a person decided".to_owned(),
    };
    match &approval.reason {
        Some(reason) => format!("not approved {by}: {reason}"),
        None => format!("not approved {by}"),
    }
}

/// The error that is returned if the start of an operation cannot be stored. The operation is then
/// not performed.
fn unstored(error: StoreError) -> Error {
    let message = format!("the start of the operation cannot be stored: {error}");
    Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message).with_source(error)
}
