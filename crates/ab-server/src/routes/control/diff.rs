//! `/api/v1/sessions/{id}/diff`: the changes of a session, also while the session ends.

use std::time::Duration;

use ab_api::SessionId;
use ab_control::ControlPlane;
use ab_executor::SessionAttempt;
use ab_store::{EventLogScope, EventStreamId, SessionRecord, StoreError};
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

use super::of_session;
use super::problems::SessionProblems;
use super::sessions::store_failed;
use crate::app::HttpApp;
use crate::extract::PathParams;
use crate::problem::{Problem, ProblemDocument, ProblemKind};

/// The name under which the store keeps the diff of an ended session.
const ARTIFACT: &str = "diff";
/// How long a request waits for the end of a session that is ending.
const END_WAIT: Duration = Duration::from_secs(20);

/// Show the changes of a session as a unified diff
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/diff",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses(
        (status = OK, description = "The diff, empty if nothing changed", body = String, content_type = "text/plain"),
        (status = CONFLICT, description = "The session has no workspace yet", body = ProblemDocument, content_type = "application/problem+json"),
        (status = BAD_GATEWAY, description = "The executor cannot make the diff", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn diff(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Response, Problem> {
    let diff = unified_diff(&app.control()?.control, id).await?;
    // The agent controls the text, so a browser must not guess a different content type.
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    Ok((headers, diff).into_response())
}

/// The changes of a session. If it has ended, the stored diff, otherwise the current diff of its
/// workspace. A session that is ending is waited for, because its diff is then being stored.
pub(crate) async fn unified_diff(control: &ControlPlane, id: SessionId) -> Result<String, Problem> {
    let mut failed = None;
    loop {
        // Read the position of the log before the session, so that the end of the session comes
        // after it.
        let stream = EventStreamId::Session(id);
        let last = control.store().last_stream_seq(stream).await.map_err(store_failed)?;
        let record = control.store().session_record(id).await;
        let record = record.map_err(|error| of_session(id, error.into()))?;
        if record.session.status.is_terminal() {
            return diff_of_ended(control, record).await;
        }
        if record.progress.ending.is_some() {
            wait_for_end(control, id, last).await?;
            continue;
        }
        if record.session.workspace.mount_path.is_none() {
            let detail = "the session has no workspace yet";
            return Err(Problem::new(ProblemKind::Conflict, detail).coded("not_provisioned"));
        }
        let generation = record.progress.generation;
        match failed {
            Some((before, detail)) if before == generation => {
                return Err(Problem::new(ProblemKind::BadGateway, detail));
            }
            _ => {}
        }
        let job = SessionAttempt { session: record.session, generation };
        match control.executor().session_diff(&job).await {
            Ok(diff) => return Ok(diff),
            // The session may have ended during the comparison, and its sandbox with it: look
            // again.
            Err(error) => failed = Some((generation, error.detail)),
        }
    }
}

/// The stored diff. On a full disk it may not have been stored: it is then made from the workspace,
/// if the session still has it.
async fn diff_of_ended(control: &ControlPlane, record: SessionRecord) -> Result<String, Problem> {
    let id = record.session.id;
    match control.store().get_session_artifact(id, ARTIFACT).await {
        Err(StoreError::NotFound) => {}
        stored => return stored.map_err(store_failed),
    }
    let kept = control.store().pending_cleanups(Some(id)).await.map_err(store_failed)?;
    let had_workspace = record.session.workspace.mount_path.is_some();
    if had_workspace && !kept.is_empty() {
        let generation = record.progress.generation;
        let job = SessionAttempt { session: record.session, generation };
        match control.executor().session_diff(&job).await {
            Ok(diff) => return Ok(diff),
            Err(error) => tracing::warn!(session = %id, %error, "cannot compare a kept workspace"),
        }
    }
    let detail = if had_workspace {
        "the diff of the session could not be stored when it ended"
    } else {
        "the session ended before there was anything to compare"
    };
    Err(Problem::new(ProblemKind::NotFound, detail).coded("diff_not_found"))
}

/// Waits until a session that is ending has ended.
async fn wait_for_end(control: &ControlPlane, id: SessionId, after: u64) -> Result<(), Problem> {
    let mut events = control.follow_events(EventLogScope::Session(id), after);
    let end = async {
        while !events.next().await.map_err(store_failed)?.is_last_of_stream() {}
        Ok(())
    };
    tokio::time::timeout(END_WAIT, end).await.unwrap_or_else(|_| {
        let detail = "the session is ending and its diff is not stored yet: repeat the request";
        Err(Problem::new(ProblemKind::Unavailable, detail))
    })
}
