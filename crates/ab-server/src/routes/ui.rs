//! The web page at `/ui`: its pages, and the actions of their forms.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ab_api::{
    Approval, ApprovalDecision, ApprovalId, ApprovalStatus, ApproveOrDeny, ContinueRequest,
    DecisionChannel, Event, EventKind, FieldViolations, PageRequest, PromptEdit, PromptRequest,
    PromptStatus, SessionId, TaskRequest,
};
use ab_control::ControlPlaneError;
use ab_core::Principal;
use ab_store::{ApprovalFilter, EventLogScope, SessionFilter, SessionGroup, Store, StoreError};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use maud::Markup;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Peer;
use super::control::{
    ControlPlaneRoutes, Locality, PageProblems, decided_by, found, of_approval, of_session,
    of_task, unified_diff, violated,
};
use crate::access::Access;
use crate::app::HttpApp;
use crate::extract::{PathParams, QueryParams};
use crate::page::{
    self, Asked, Asker, CONTENT_SECURITY_POLICY, Changes, Chrome, FeedGroup, FeedView, FormOffers,
    ICON, SCRIPT, STYLE, SessionView, TaskForm,
};
use crate::problem::Problem;

/// Number of sessions on one page of the list.
const SHOWN_SESSIONS: u32 = 50;
/// Maximum number of approvals in the inbox.
const SHOWN_APPROVALS: u32 = 100;
/// Maximum number of events on the page of a session, and in an update of an open page.
const SHOWN_EVENTS: usize = 500;
/// Maximum number of repositories that the form suggests.
const SUGGESTED_REPOSITORIES: usize = 20;

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default()
        .routes(Access::Admin.to(routes!(feed)))
        .routes(Access::Admin.to(routes!(feed_with_slash)))
        .routes(Access::Admin.to(routes!(session)))
        .routes(Access::Admin.to(routes!(stop)))
        .routes(Access::Admin.to(routes!(cancel)))
        .routes(Access::Admin.to(routes!(prompt)))
        .routes(Access::Admin.to(routes!(edit_prompt)))
        .routes(Access::Admin.to(routes!(withdraw_prompt)))
        .routes(Access::Admin.to(routes!(finish)))
        .routes(Access::Admin.to(routes!(continue_work)))
        .routes(Access::Admin.to(routes!(inbox)))
        .routes(Access::Admin.to(routes!(decide)))
        .routes(Access::Admin.to(routes!(new_task, create_task)))
        .routes(Access::Public.to(routes!(style)))
        .routes(Access::Public.to(routes!(script)))
        .routes(Access::Public.to(routes!(page_icon)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FeedQuery {
    /// The number of the page, from 1
    page: Option<u32>,
}

/// The list of sessions
#[utoipa::path(get, path = "/ui", tag = "page", params(FeedQuery), responses((status = OK, body = String, content_type = "text/html"), PageProblems))]
async fn feed(
    State(app): State<HttpApp>,
    QueryParams(FeedQuery { page }): QueryParams<FeedQuery>,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    let page = page.unwrap_or(1).max(1);
    let view = FeedView {
        waiting: group(surface, SessionGroup::Waiting, page).await?,
        at_work: group(surface, SessionGroup::AtWork, page).await?,
        ended: group(surface, SessionGroup::Ended, page).await?,
        page,
    };
    Ok(shown(StatusCode::OK, page::feed(chrome(surface).await?, &view)))
}

/// The list of sessions, at the address of the login link
#[utoipa::path(get, path = "/ui/", tag = "page", responses((status = SEE_OTHER, description = "At /ui")))]
async fn feed_with_slash() -> Redirect {
    Redirect::to("/ui")
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SessionQuery {
    /// The id of the last event that the reader has. The response then contains only the rows of
    /// later events, and no changes
    after: Option<u64>,
    /// Whether to include the changes even if `after` is given
    changes: Option<bool>,
}

/// One session
#[utoipa::path(
    get, path = "/ui/sessions/{id}", tag = "page", params(("id" = SessionId, Path), SessionQuery),
    responses((status = OK, body = String, content_type = "text/html"), PageProblems)
)]
async fn session(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    QueryParams(query): QueryParams<SessionQuery>,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    // Read the session after its events. A reader who sees the last event then also sees how the
    // session ended.
    let Activity { events, omitted, cursor, has_more } = activity(surface, id, query.after).await?;
    let session = found(&surface.control, id).await?;
    let (approvals, _) = pending(surface, Some(id)).await?;
    let plan = match last(surface, id, "plan").await? {
        Some(EventKind::Plan { entries }) => entries,
        _ => Vec::new(),
    };
    let delivered = match last(surface, id, "delivery").await? {
        Some(EventKind::Delivery { result, .. }) => Some(result),
        _ => None,
    };
    let queued = Some(PromptStatus::Queued);
    let whole = PageRequest { page: None, per_page: Some(PageRequest::MAX_PER_PAGE) };
    let queue = surface.control.store().session_prompts(id, queued, whole).await;
    let (queue, _) = queue.map_err(store_failed)?;
    let diff = if query.after.is_none() || query.changes == Some(true) {
        let diff = unified_diff(&surface.control, id).await;
        // A session without a workspace has no diff. An open page keeps the one that it shows.
        diff.ok().or_else(|| query.after.is_none().then(String::new))
    } else {
        None
    };
    let view = SessionView {
        session: &session,
        events: &events,
        omitted,
        cursor,
        has_more,
        plan: &plan,
        delivered: delivered.as_ref(),
        approvals: &approvals,
        queue: &queue,
        changes: diff.as_deref().map_or(Changes::NotAsked, Changes::Diff),
    };
    Ok(shown(StatusCode::OK, page::session(chrome(surface).await?, &view)))
}

/// The events that a response shows, and what it leaves out.
struct Activity {
    events: Vec<Event>,
    /// The number of older events that are omitted.
    omitted: u64,
    /// The sequence number of the last event.
    cursor: u64,
    has_more: bool,
}

/// The newest events, or the events after the reader's cursor.
async fn activity(
    surface: &ControlPlaneRoutes,
    id: SessionId,
    after: Option<u64>,
) -> Result<Activity, Problem> {
    let store = surface.control.store();
    let Some(after) = after else {
        let records =
            store.last_event_records(id, None, SHOWN_EVENTS).await.map_err(store_failed)?;
        let events: Result<_, _> = records.iter().map(|record| record.parse_event()).collect();
        return Ok(Activity {
            events: events.map_err(store_failed)?,
            omitted: records.first().map_or(0, |first| first.seq - 1),
            cursor: records.last().map_or(0, |last| last.seq),
            has_more: false,
        });
    };
    let scope = EventLogScope::Session(id);
    let after = store.resume_cursor(scope, after).await.map_err(store_failed)?;
    let records = store.event_records(scope, after, SHOWN_EVENTS).await;
    let records = records.map_err(store_failed)?;
    let events: Result<_, _> = records.iter().map(|record| record.parse_event()).collect();
    Ok(Activity {
        events: events.map_err(store_failed)?,
        omitted: 0,
        cursor: records.last().map_or(after, |last| last.seq),
        has_more: records.len() == SHOWN_EVENTS,
    })
}

/// Returns the newest event of one type, if the session has one.
async fn last(
    surface: &ControlPlaneRoutes,
    id: SessionId,
    kind: &str,
) -> Result<Option<EventKind>, Problem> {
    let records = surface.control.store().last_event_records(id, Some(kind), 1).await;
    let records = records.map_err(store_failed)?;
    let event = records.first().map(|record| record.parse_event()).transpose();
    Ok(event.map_err(store_failed)?.map(|event| event.kind))
}

/// Stop a session
#[utoipa::path(
    post, path = "/ui/sessions/{id}/stop", tag = "page", params(("id" = SessionId, Path)),
    responses((status = SEE_OTHER, description = "Redirects to the page of the session or to the inbox"),PageProblems)
)]
async fn stop(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Redirect, Problem> {
    let stopped = app.control()?.control.stop_session(id).await;
    stopped.map(|session| to_session(session.id)).map_err(|error| of_session(id, error))
}

/// Cancel a session
#[utoipa::path(
    post, path = "/ui/sessions/{id}/cancel", tag = "page", params(("id" = SessionId, Path)),
    responses((status = SEE_OTHER, description = "Redirects to the page of the session"), PageProblems)
)]
async fn cancel(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Redirect, Problem> {
    let cancelled = app.control()?.control.cancel_session(id).await;
    cancelled.map(|session| to_session(session.id)).map_err(|error| of_session(id, error))
}

/// Reads a text field. Browsers send each line end as CR and LF. It becomes a line feed, as in a
/// text from any other client.
fn with_line_feeds<'de, D: Deserializer<'de>>(field: D) -> Result<String, D::Error> {
    String::deserialize(field).map(|text| text.replace("\r\n", "\n"))
}

/// A prompt as the page sends it
#[derive(Debug, Deserialize, ToSchema)]
struct PromptForm {
    #[serde(default, deserialize_with = "with_line_feeds")]
    prompt: String,
    /// Whether the agent's turn is cancelled
    #[serde(default)]
    now: bool,
}

/// Give the agent of a session a further prompt
#[utoipa::path(
    post, path = "/ui/sessions/{id}/prompt", tag = "page", params(("id" = SessionId, Path)),
    request_body(content = PromptForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = SEE_OTHER, description = "Redirects to the page of the session"),
        (status = CONFLICT, description = "The result is being delivered, or the session is stopping", body = crate::problem::Refusal),
        (status = GONE, description = "The session has ended", body = crate::problem::Refusal),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not a form", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn prompt(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    Form(PromptForm { prompt, now }): Form<PromptForm>,
) -> Result<Redirect, Problem> {
    // Check the form with the same parser as the body of the API request.
    let body = json!({ "prompt": prompt, "now": now }).to_string();
    let request =
        PromptRequest::parse(body.as_bytes()).map_err(|violations| violated(&violations))?;
    let prompted = app.control()?.control.queue_prompt(id, request, None).await;
    prompted.map(|_| to_session(id)).map_err(|error| of_session(id, error))
}

/// Change the text of a queued prompt
#[utoipa::path(
    post, path = "/ui/sessions/{id}/prompts/{number}/edit", tag = "page", params(("id" = SessionId, Path), ("number" = u32, Path)),
    request_body(content = PromptForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = SEE_OTHER, description = "Redirects to the page of the session"),
        (status = CONFLICT, description = "The prompt is not in the queue", body = crate::problem::Refusal),
        (status = GONE, description = "The session has ended", body = crate::problem::Refusal),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not a form", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn edit_prompt(
    State(app): State<HttpApp>,
    PathParams((id, number)): PathParams<(SessionId, u32)>,
    Form(PromptForm { prompt, .. }): Form<PromptForm>,
) -> Result<Redirect, Problem> {
    let body = json!({ "prompt": prompt }).to_string();
    let PromptEdit { prompt } =
        PromptEdit::parse(body.as_bytes()).map_err(|violations| violated(&violations))?;
    let changed = app.control()?.control.replace_queued_prompt(id, number, prompt).await;
    changed.map(|_| to_session(id)).map_err(|error| of_session(id, error))
}

/// Withdraw a queued prompt
#[utoipa::path(
    post, path = "/ui/sessions/{id}/prompts/{number}/withdraw", tag = "page", params(("id" = SessionId, Path), ("number" = u32, Path)),
    responses(
        (status = SEE_OTHER, description = "Redirects to the page of the session"),
        (status = CONFLICT, description = "The prompt is not in the queue", body = crate::problem::Refusal),
        (status = GONE, description = "The session has ended", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn withdraw_prompt(
    State(app): State<HttpApp>,
    PathParams((id, number)): PathParams<(SessionId, u32)>,
) -> Result<Redirect, Problem> {
    let withdrawn = app.control()?.control.withdraw_queued_prompt(id, number).await;
    withdrawn.map(|_| to_session(id)).map_err(|error| of_session(id, error))
}

/// Deliver the result of a session that waits for a prompt
#[utoipa::path(
    post, path = "/ui/sessions/{id}/finish", tag = "page", params(("id" = SessionId, Path)),
    responses(
        (status = SEE_OTHER, description = "Redirects to the page of the session"),
        (status = CONFLICT, description = "The session does not wait for a prompt", body = crate::problem::Refusal),
        (status = GONE, description = "The session has ended", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn finish(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Redirect, Problem> {
    let finished = app.control()?.control.finish_session(id).await;
    finished.map(|session| to_session(session.id)).map_err(|error| of_session(id, error))
}

/// Continue a session that was stopped or failed
#[utoipa::path(
    post, path = "/ui/sessions/{id}/continue", tag = "page", params(("id" = SessionId, Path)),
    request_body(content = PromptForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = SEE_OTHER, description = "Redirects to the page of the new session"),
        (status = CONFLICT, description = "The session has not ended", body = crate::problem::Refusal),
        (status = GONE, description = "Its workspace was removed, or another session continues it", body = crate::problem::Refusal),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not a form", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn continue_work(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<SessionId>,
    Form(PromptForm { prompt, .. }): Form<PromptForm>,
) -> Result<Redirect, Problem> {
    // Check the form with the same parser as the body of the API request. If the field is empty,
    // the task's prompt is repeated.
    let body = if prompt.trim().is_empty() { json!({}) } else { json!({ "prompt": prompt }) };
    let ContinueRequest { prompt } = ContinueRequest::parse(body.to_string().as_bytes())
        .map_err(|violations| violated(&violations))?;
    let surface = app.control()?;
    let project = found(&surface.control, id).await?.project_id;
    surface.count_task(&principal, project.as_deref(), None).await?;
    let next = surface.control.continue_session(id, prompt, None).await;
    let next = next.map_err(|error| of_session(id, error))?;
    Ok(Redirect::to(&format!("/ui/sessions/{next}")))
}

/// The approvals that wait
#[utoipa::path(get, path = "/ui/inbox", tag = "page", responses((status = OK, body = String, content_type = "text/html"), PageProblems))]
async fn inbox(State(app): State<HttpApp>) -> Result<Response, Problem> {
    let surface = app.control()?;
    // Read the revision before the list. The page's event stream then reports every change that the
    // list does not contain.
    let revision = surface.control.store().last_approval_revision();
    let (approvals, _) = pending(surface, None).await?;
    let mut askers = BTreeMap::new();
    for approval in &approvals {
        if let Entry::Vacant(place) = askers.entry((approval.session_id, approval.space_id)) {
            place.insert(asker(surface.control.store(), approval).await.map_err(store_failed)?);
        }
    }
    let asked = approvals.into_iter().rev().map(|approval| {
        let asker = askers.get(&(approval.session_id, approval.space_id)).cloned().flatten();
        Asked { approval, asker }
    });
    let asked: Vec<Asked> = asked.collect();
    Ok(shown(StatusCode::OK, page::inbox(chrome(surface).await?, &asked, revision)))
}

/// The session or space that an approval belongs to.
async fn asker(store: &Store, approval: &Approval) -> Result<Option<Asker>, StoreError> {
    if let Some(id) = approval.session_id {
        return store.get_session(id).await.map(|session| Some(Asker::Session(Box::new(session))));
    }
    let Some(id) = approval.space_id else { return Ok(None) };
    match store.get_space(id).await {
        Ok(space) => Ok(space.name.map(Asker::Space)),
        Err(StoreError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A decision as the page sends it
#[derive(Debug, Deserialize, ToSchema)]
struct DecisionForm {
    decision: ApproveOrDeny,
    /// The reason, which is stored and sent to the agent
    #[serde(default, deserialize_with = "with_line_feeds")]
    reason: String,
}

/// Decide an approval
#[utoipa::path(
    post, path = "/ui/approvals/{id}", tag = "page", params(("id" = ApprovalId, Path)),
    request_body(content = DecisionForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = SEE_OTHER, description = "Redirects to the page of the session"), 
        (status = CONFLICT, description = "It was decided before, or has expired", body = crate::problem::Refusal),
        (status = UNPROCESSABLE_ENTITY, description = "The form lacks a field", body = crate::problem::Refusal),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not a form", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn decide(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<ApprovalId>,
    Extension(principal): Extension<Principal>,
    Form(form): Form<DecisionForm>,
) -> Result<Redirect, Problem> {
    let reason = Some(form.reason).filter(|reason| !reason.is_empty());
    let decision = ApprovalDecision { reason, ..form.decision.into() };
    let by = decided_by(&principal, &decision, DecisionChannel::Web)?;
    let decided = app.control()?.control.decide_approval(id, decision, by).await;
    let approval = decided.map_err(|error| of_approval(id, error))?;
    Ok(match approval.session_id {
        Some(session) => Redirect::to(&format!("/ui/sessions/{session}")),
        None => Redirect::to("/ui/inbox"),
    })
}

/// The form for a new task
#[utoipa::path(get, path = "/ui/new", tag = "page", responses((status = OK, body = String, content_type = "text/html"), PageProblems))]
async fn new_task(State(app): State<HttpApp>) -> Result<Response, Problem> {
    let surface = app.control()?;
    let form = TaskForm::default();
    let markup = form_page(surface, &form, &FieldViolations::default()).await?;
    Ok(shown(StatusCode::OK, markup))
}

/// A task as the page sends it
#[derive(Debug, Deserialize, ToSchema)]
struct NewTaskForm {
    #[serde(default, deserialize_with = "with_line_feeds")]
    prompt: String,
    #[serde(default)]
    repo: String,
    #[serde(default)]
    branch: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    delivery: String,
    #[serde(default)]
    keep_open: Option<String>,
}

/// Create a session from the form
#[utoipa::path(
    post, path = "/ui/new", tag = "page",
    request_body(content = NewTaskForm, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = SEE_OTHER, description = "Redirects to the page of the session"),
        (status = UNPROCESSABLE_ENTITY, description = "The form, with what is wrong", body = String, content_type = "text/html"),
        (status = INSUFFICIENT_STORAGE, description = "The disk of the server is full, or its limit on disk space is reached", body = crate::problem::Refusal),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not a form", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn create_task(
    State(app): State<HttpApp>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(sent): Form<NewTaskForm>,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    let form = TaskForm {
        prompt: sent.prompt,
        repo: sent.repo.trim().to_owned(),
        branch: sent.branch.trim().to_owned(),
        agent: sent.agent,
        delivery: sent.delivery,
        keep_open: sent.keep_open.is_some(),
    };
    let offers = surface.offers(Locality::of(peer.0, &headers));
    let created = match TaskRequest::parse(&body(&form), &offers) {
        Ok(task) => surface.control.create_session(task, None).await,
        Err(violations) => Err(ControlPlaneError::InvalidTask(violations)),
    };
    match created {
        Ok(id) => Ok(Redirect::to(&format!("/ui/sessions/{id}")).into_response()),
        Err(ControlPlaneError::InvalidTask(violations)) => {
            let markup = form_page(surface, &form, &violations).await?;
            Ok(shown(StatusCode::UNPROCESSABLE_ENTITY, markup))
        }
        Err(error) => Err(of_task(error)),
    }
}

/// Converts the form to the body of `POST /api/v1/tasks`, so that the same parser checks both.
fn body(form: &TaskForm) -> Vec<u8> {
    let mut repo = json!({ "mode": "git", "url": form.repo });
    if !form.branch.is_empty() {
        repo["branch"] = json!(form.branch);
    }
    let mut task = json!({ "prompt": form.prompt, "repo": repo, "agent": { "type": form.agent } });
    if !form.delivery.is_empty() {
        task["delivery"] = json!({ "mode": form.delivery });
    }
    if form.keep_open {
        task["keepOpen"] = json!(true);
    }
    task.to_string().into_bytes()
}

/// The style sheet of the page
#[utoipa::path(get, path = "/ui/page.css", tag = "page", responses((status = OK, body = String, content_type = "text/css")))]
async fn style() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")],
        STYLE,
    )
}

/// The script of the page
#[utoipa::path(get, path = "/ui/page.js", tag = "page", responses((status = OK, body = String, content_type = "text/javascript")))]
async fn script() -> impl IntoResponse {
    let kind = (header::CONTENT_TYPE, "text/javascript; charset=utf-8");
    ([kind, (header::CACHE_CONTROL, "no-cache")], SCRIPT)
}

/// The icon of the page
#[utoipa::path(get, path = "/ui/icon.svg", tag = "page", responses((status = OK, body = String, content_type = "image/svg+xml")))]
async fn page_icon() -> impl IntoResponse {
    let kind = (header::CONTENT_TYPE, "image/svg+xml");
    ([kind, (header::CACHE_CONTROL, "max-age=86400")], ICON)
}

async fn form_page(
    surface: &ControlPlaneRoutes,
    form: &TaskForm,
    problems: &FieldViolations,
) -> Result<Markup, Problem> {
    let FeedGroup { sessions, .. } = list(surface, &SessionFilter::default(), 1).await?;
    let mut repositories: Vec<String> = Vec::new();
    for session in sessions {
        let url = session.repo.url;
        let is_new = !url.is_empty() && !repositories.contains(&url);
        if is_new && repositories.len() < SUGGESTED_REPOSITORIES {
            repositories.push(url);
        }
    }
    let agents = surface.catalog.agents.iter().map(|agent| agent.kind.clone()).collect();
    let offers = FormOffers { agents, repositories };
    Ok(page::task_form(chrome(surface).await?, form, &offers, problems))
}

/// A page of the sessions in a group.
async fn group(
    surface: &ControlPlaneRoutes,
    group: SessionGroup,
    page: u32,
) -> Result<FeedGroup, Problem> {
    list(surface, &SessionFilter { group: Some(group), ..SessionFilter::default() }, page).await
}

/// A page of the sessions that match the filter, newest first.
async fn list(
    surface: &ControlPlaneRoutes,
    filter: &SessionFilter,
    page: u32,
) -> Result<FeedGroup, Problem> {
    let request = PageRequest { page: Some(page), per_page: Some(SHOWN_SESSIONS) };
    let listed = surface.control.store().list_sessions(filter, request).await;
    let (sessions, total) = listed.map_err(store_failed)?;
    let has_older = u64::from(page) * u64::from(SHOWN_SESSIONS) < total;
    Ok(FeedGroup { sessions, total, has_older })
}

async fn chrome(surface: &ControlPlaneRoutes) -> Result<Chrome, Problem> {
    let (_, pending_approvals) = pending(surface, None).await?;
    Ok(Chrome { pending_approvals })
}

/// The newest pending approvals, and the total number.
async fn pending(
    surface: &ControlPlaneRoutes,
    session: Option<SessionId>,
) -> Result<(Vec<Approval>, u64), Problem> {
    let filter = ApprovalFilter { status: Some(ApprovalStatus::Pending), session };
    let page = PageRequest { page: None, per_page: Some(SHOWN_APPROVALS) };
    surface.control.store().list_approvals(filter, page).await.map_err(store_failed)
}

fn to_session(id: SessionId) -> Redirect {
    Redirect::to(&format!("/ui/sessions/{}", id))
}

fn store_failed(error: StoreError) -> Problem {
    of_task(ControlPlaneError::from(error))
}

fn shown(status: StatusCode, markup: Markup) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    (status, headers, markup.into_string()).into_response()
}
