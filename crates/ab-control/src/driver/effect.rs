//! Effects in progress: the actions of the state machine that the executor is performing for one
//! session.

use std::sync::Arc;
use std::time::Duration;

use ab_api::{EventKind, LogLevel, SessionEndReason};
use ab_executor::{
    AgentLaunchMode, AgentReportSender, DeliveryOutcome, ExecutorError, LaunchedAgentInfo,
    ProvisionedWorkspace, SessionAttempt,
};
use ab_store::PendingCleanup;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use super::log;
use crate::control::Plane;
use crate::crash::CrashTestPoint;
use crate::session_machine::SessionAction;
use crate::token::new_token;

/// The name under which the store keeps the final diff.
const DIFF: &str = "diff";

/// An effect that is being performed. Dropping it cancels it.
pub(super) struct Doing {
    effect: SessionAction,
    generation: u32,
    work: BoxFuture<'static, Done>,
}

/// What an effect (an action of the executor) has achieved.
pub(super) enum Done {
    Placed(OwnedSemaphorePermit),
    Provisioned(ProvisionedWorkspace),
    Launched(LaunchedAgentInfo),
    Resumed,
    Prompted,
    Paused,
    NotPaused { detail: String },
    Delivered(DeliveryOutcome),
    Closed { notes: Vec<EventKind> },
    Failed { reason: SessionEndReason, detail: String },
}

impl From<ExecutorError> for Done {
    fn from(error: ExecutorError) -> Self {
        Self::Failed { reason: error.reason, detail: error.detail }
    }
}

impl Doing {
    /// Whether `effect` of the attempt `generation` replaces the running effect. A freeze does not
    /// replace a prompt that is being sent, because the prompt would not be sent again.
    pub(super) fn yields_to(&self, effect: SessionAction, generation: u32) -> bool {
        let is_same = self.effect == effect && self.generation == generation;
        let arrives =
            matches!(self.effect, SessionAction::Prompt(_)) && effect == SessionAction::Pause;
        !is_same && !arrives
    }

    /// Waits for the result. Cancel safe: this can be called again after the future was dropped.
    pub(super) async fn done(&mut self) -> Done {
        (&mut self.work).await
    }

    pub(super) fn prompt(
        plane: Arc<Plane>,
        job: SessionAttempt,
        number: u32,
        prompt: String,
    ) -> Self {
        let generation = job.generation;
        let work = Box::pin(async move {
            plane.reach(CrashTestPoint::PromptRecorded);
            match plane.executor.send_prompt(&job, number, &prompt).await {
                Ok(()) => {
                    plane.reach(CrashTestPoint::PromptDelivered);
                    Done::Prompted
                }
                Err(error) => error.into(),
            }
        });
        Self { effect: SessionAction::Prompt(number), generation, work }
    }

    pub(super) fn launch(
        plane: Arc<Plane>,
        job: SessionAttempt,
        effect: SessionAction,
        reports: AgentReportSender,
    ) -> Self {
        let generation = job.generation;
        let work = Box::pin(async move { launch(&plane, &job, effect, reports).await });
        Self { effect, generation, work }
    }

    /// Makes an effect that is already done, because the session has got a permit to run.
    pub(super) fn placed(generation: u32, permit: OwnedSemaphorePermit) -> Self {
        let work = Box::pin(std::future::ready(Done::Placed(permit)));
        Self { effect: SessionAction::AssignExecutor, generation, work }
    }

    pub(super) fn other(plane: Arc<Plane>, job: SessionAttempt, effect: SessionAction) -> Self {
        let generation = job.generation;
        let work = Box::pin(async move { perform(&plane, &job, effect).await });
        Self { effect, generation, work }
    }
}

async fn launch(
    plane: &Plane,
    job: &SessionAttempt,
    effect: SessionAction,
    reports: AgentReportSender,
) -> Done {
    let token = match new_token() {
        Ok(token) => token,
        Err(error) => return failed(SessionEndReason::Launch, error.to_string()),
    };
    if let Err(error) = plane.store.add_session_token(job.session.id, token.as_str()).await {
        return failed(SessionEndReason::Launch, error.to_string());
    }
    plane.reach(CrashTestPoint::TokenStored);
    let is_reload = effect == SessionAction::Reload;
    let mode =
        if is_reload { AgentLaunchMode::Reload { token } } else { AgentLaunchMode::New { token } };
    match plane.executor.launch_agent(job, mode, reports).await {
        Ok(_) if is_reload => {
            plane.reach(CrashTestPoint::Reloaded);
            Done::Resumed
        }
        Ok(launched) => {
            plane.reach(CrashTestPoint::Launched);
            Done::Launched(launched)
        }
        Err(error) if is_reload => failed(SessionEndReason::Interrupted, error.detail),
        Err(error) => error.into(),
    }
}

async fn perform(plane: &Plane, job: &SessionAttempt, effect: SessionAction) -> Done {
    let outcome = match effect {
        SessionAction::AssignExecutor => match Arc::clone(&plane.room).acquire_owned().await {
            Ok(permit) => Ok(Done::Placed(permit)),
            Err(error) => Ok(failed(SessionEndReason::ExecutorLost, error.to_string())),
        },
        SessionAction::Provision => provision(plane, job).await,
        SessionAction::Deliver => deliver(plane, job).await,
        SessionAction::Pause => Ok(match plane.executor.pause_session(job).await {
            Ok(()) => Done::Paused,
            Err(error) => Done::NotPaused { detail: error.detail },
        }),
        SessionAction::Resume => plane.executor.resume_session(job).await.map(|()| Done::Resumed),
        SessionAction::Stop => {
            Ok(Done::Closed { notes: close_session(plane, job, plane.settings.stop_grace).await })
        }
        SessionAction::Kill => {
            Ok(Done::Closed { notes: close_session(plane, job, Duration::ZERO).await })
        }
        // Unreachable: these effects have their own constructors.
        SessionAction::Launch | SessionAction::Reload | SessionAction::Prompt(_) => {
            Ok(Done::Prompted)
        }
    };
    outcome.unwrap_or_else(Done::from)
}

/// Makes the workspace. The cleanup token is stored before the executor creates anything.
async fn provision(plane: &Plane, job: &SessionAttempt) -> Result<Done, ExecutorError> {
    let cleanup = PendingCleanup {
        token: plane.executor.cleanup_token(job).0,
        session: job.session.id,
        executor: plane.executor.describe_executor().id,
    };
    if let Err(error) = plane.store.add_pending_cleanup(cleanup).await {
        return Ok(failed(SessionEndReason::Provision, error.to_string()));
    }
    plane.reach(CrashTestPoint::CleanupStored);
    let made = plane.executor.provision_workspace(job).await?;
    plane.reach(CrashTestPoint::WorkspaceMade);
    // From here on the workspace can be found again without its uploads.
    if let Err(error) = plane.store.release_uploads(job.session.id).await {
        tracing::warn!(session = %job.session.id, %error, "cannot release the uploads of a session");
    }
    Ok(Done::Provisioned(made))
}

async fn deliver(plane: &Plane, job: &SessionAttempt) -> Result<Done, ExecutorError> {
    plane.reach(CrashTestPoint::DeliveryBegun);
    let delivered = plane.executor.deliver_result(job).await?;
    plane.reach(CrashTestPoint::Delivered);
    Ok(Done::Delivered(delivered))
}

/// Ends the processes and stores the diff. The session ends even if this fails. Returns the errors
/// as notes for its stream.
pub(crate) async fn close_session(
    plane: &Plane,
    job: &SessionAttempt,
    grace: Duration,
) -> Vec<EventKind> {
    let mut notes = Vec::new();
    plane.reach(CrashTestPoint::ClosingBegun);
    if let Err(error) = plane.executor.terminate_session(job.session.id, grace).await {
        notes.push(log(
            LogLevel::Error,
            format!("Some processes of the session may still run: {error}"),
        ));
    }
    plane.reach(CrashTestPoint::ProcessesEnded);
    // Remove the token only now: an agent that is finishing may still use its endpoint.
    if let Err(error) = plane.store.remove_session_tokens(job.session.id).await {
        notes.push(log(LogLevel::Warn, format!("The agent's token could not be removed: {error}")));
    }
    // Without a workspace there is nothing to compare.
    if job.session.workspace.mount_path.is_some() {
        let kept = match plane.executor.session_diff(job).await {
            Ok(diff) => match plane.store.put_session_artifact(job.session.id, DIFF, diff).await {
                Ok(()) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            Err(error) => Err(error.detail),
        };
        if let Err(problem) = kept {
            notes.push(log(LogLevel::Warn, format!("The diff could not be stored: {problem}")));
        }
    }
    plane.reach(CrashTestPoint::DiffStored);
    notes
}

fn failed(reason: SessionEndReason, detail: String) -> Done {
    Done::Failed { reason, detail }
}
