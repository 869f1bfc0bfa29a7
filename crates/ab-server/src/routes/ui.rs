//! The web page at `/ui`: pages and the acts that their forms send.

use ab_api::{
    Approval, ApprovalId, ApprovalStatus, Choice, Decision, Event, NewTask, PageRequest, Session,
    SessionId, Violations,
};
use ab_control::ControlError;
use ab_core::Principal;
use ab_store::{ApprovalFilter, SessionFilter, StoreError};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use maud::Markup;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Peer;
use super::control::{
    ControlSurface, Locality, PageProblems, decided_by, found, of_approval, of_session, of_task,
    unified_diff,
};
use crate::access::Access;
use crate::app::App;
use crate::extract::PathParams;
use crate::page::{self, CONTENT_SECURITY_POLICY, Chrome, SCRIPT, STYLE, SessionView, TaskForm};
use crate::problem::{Problem, ProblemKind};

/// How many sessions the list shows.
const SHOWN_SESSIONS: u32 = 50;
/// How many approvals the inbox shows.
const SHOWN_APPROVALS: u32 = 100;
/// How many events the page of a session shows.
const SHOWN_EVENTS: usize = 500;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default()
        .routes(Access::Public.to(routes!(home)))
        .routes(Access::Admin.to(routes!(feed)))
        .routes(Access::Admin.to(routes!(feed_with_slash)))
        .routes(Access::Admin.to(routes!(session)))
        .routes(Access::Admin.to(routes!(stop)))
        .routes(Access::Admin.to(routes!(cancel)))
        .routes(Access::Admin.to(routes!(inbox)))
        .routes(Access::Admin.to(routes!(decide)))
        .routes(Access::Admin.to(routes!(new_task, create_task)))
        .routes(Access::Public.to(routes!(style)))
        .routes(Access::Public.to(routes!(script)))
}

/// The way to the page
///
/// A browser is sent to `/ui`.
#[utoipa::path(get, path = "/", tag = "page", responses((status = SEE_OTHER, description = "At /ui"), PageProblems))]
async fn home(State(app): State<App>, headers: HeaderMap) -> Result<Redirect, Problem> {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if app.control().is_ok() && accepts.is_some_and(|accepts| accepts.contains("text/html")) {
        return Ok(Redirect::to("/ui"));
    }
    let detail = "there is nothing at this path; see /api/v1/openapi.json";
    Err(Problem::new(ProblemKind::NotFound, detail))
}

/// The list of sessions
#[utoipa::path(get, path = "/ui", tag = "page", responses((status = OK, body = String, content_type = "text/html"), PageProblems))]
async fn feed(State(app): State<App>) -> Result<Response, Problem> {
    let surface = app.control()?;
    let page = PageRequest { page: None, per_page: Some(SHOWN_SESSIONS) };
    let sessions = surface.control.store().sessions(&SessionFilter::default(), page).await;
    let (sessions, _) = sessions.map_err(store_failed)?;
    Ok(shown(StatusCode::OK, page::feed(chrome(surface).await?, &sessions)))
}

/// The list of sessions, under the address that the login link leads to
#[utoipa::path(get, path = "/ui/", tag = "page", responses((status = SEE_OTHER, description = "At /ui")))]
async fn feed_with_slash() -> Redirect {
    Redirect::to("/ui")
}

/// One session
#[utoipa::path(
    get, path = "/ui/sessions/{id}", tag = "page", params(("id" = SessionId, Path)),
    responses((status = OK, body = String, content_type = "text/html"), PageProblems)
)]
async fn session(
    State(app): State<App>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    let session = found(&surface.control, id).await?;
    let store = surface.control.store();
    let records = store.last_records(id, None, SHOWN_EVENTS).await.map_err(store_failed)?;
    let events: Result<Vec<Event>, _> = records.iter().map(|record| record.event()).collect();
    let events = events.map_err(store_failed)?;
    let (approvals, _) = pending(surface, Some(id)).await?;
    // A session without a workspace has no changes yet.
    let diff = unified_diff(&surface.control, id).await.ok().filter(|diff| !diff.is_empty());
    let view = SessionView {
        session: &session,
        events: &events,
        omitted: records.first().map_or(0, |first| first.seq - 1),
        cursor: records.last().map_or(0, |last| last.seq),
        approvals: &approvals,
        diff: diff.as_deref(),
    };
    Ok(shown(StatusCode::OK, page::session(chrome(surface).await?, &view)))
}

/// Stop a session
#[utoipa::path(
    post, path = "/ui/sessions/{id}/stop", tag = "page", params(("id" = SessionId, Path)),
    responses((status = SEE_OTHER, description = "At the page of the session"), PageProblems)
)]
async fn stop(
    State(app): State<App>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Redirect, Problem> {
    let stopped = app.control()?.control.stop(id).await;
    stopped.map(|session| to_session(&session)).map_err(|error| of_session(id, error))
}

/// Cancel a session
#[utoipa::path(
    post, path = "/ui/sessions/{id}/cancel", tag = "page", params(("id" = SessionId, Path)),
    responses((status = SEE_OTHER, description = "At the page of the session"), PageProblems)
)]
async fn cancel(
    State(app): State<App>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Redirect, Problem> {
    let cancelled = app.control()?.control.cancel(id).await;
    cancelled.map(|session| to_session(&session)).map_err(|error| of_session(id, error))
}

/// The approvals that wait
#[utoipa::path(get, path = "/ui/inbox", tag = "page", responses((status = OK, body = String, content_type = "text/html"), PageProblems))]
async fn inbox(State(app): State<App>) -> Result<Response, Problem> {
    let surface = app.control()?;
    let (mut approvals, _) = pending(surface, None).await?;
    approvals.reverse();
    Ok(shown(StatusCode::OK, page::inbox(chrome(surface).await?, &approvals)))
}

/// A decision as the page sends it
#[derive(Debug, Deserialize, ToSchema)]
struct DecisionForm {
    decision: Choice,
}

/// Decide an approval
#[utoipa::path(
    post, path = "/ui/approvals/{id}", tag = "page", params(("id" = ApprovalId, Path)),
    request_body(content = DecisionForm, content_type = "application/x-www-form-urlencoded"),
    responses((status = SEE_OTHER, description = "At the page of the session"), 
        (status = CONFLICT, description = "It was decided before, or has expired", body = crate::problem::Refusal),
        (status = UNPROCESSABLE_ENTITY, description = "The form lacks a field", body = crate::problem::Refusal),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not a form", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn decide(
    State(app): State<App>,
    PathParams(id): PathParams<ApprovalId>,
    Extension(principal): Extension<Principal>,
    Form(form): Form<DecisionForm>,
) -> Result<Redirect, Problem> {
    let decision = Decision { decision: form.decision, reason: None };
    let decided = app.control()?.control.decide(id, decision, decided_by(&principal, "web")).await;
    let approval = decided.map_err(|error| of_approval(id, error))?;
    Ok(Redirect::to(&format!("/ui/sessions/{}", approval.session_id)))
}

/// The form for a new task
#[utoipa::path(get, path = "/ui/new", tag = "page", responses((status = OK, body = String, content_type = "text/html"), PageProblems))]
async fn new_task(State(app): State<App>) -> Result<Response, Problem> {
    let surface = app.control()?;
    let form = TaskForm::default();
    let markup = form_page(surface, &form, &Violations::default()).await?;
    Ok(shown(StatusCode::OK, markup))
}

/// A task as the page sends it
#[derive(Debug, Deserialize, ToSchema)]
struct NewTaskForm {
    #[serde(default)]
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
        (status = SEE_OTHER, description = "At the page of the session"),
        (status = UNPROCESSABLE_ENTITY, description = "The form, with what is wrong", body = String, content_type = "text/html"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not a form", body = crate::problem::Refusal),
        PageProblems
    )
)]
async fn create_task(
    State(app): State<App>,
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
    match NewTask::check(&body(&form), &offers) {
        Ok(task) => {
            let id = surface.control.create(task, None).await.map_err(of_task)?;
            Ok(Redirect::to(&format!("/ui/sessions/{id}")).into_response())
        }
        Err(violations) => {
            let markup = form_page(surface, &form, &violations).await?;
            Ok(shown(StatusCode::UNPROCESSABLE_ENTITY, markup))
        }
    }
}

/// The form as the body of `POST /api/v1/tasks`, so that both are checked alike.
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

async fn form_page(
    surface: &ControlSurface,
    form: &TaskForm,
    problems: &Violations,
) -> Result<Markup, Problem> {
    let agents: Vec<String> =
        surface.catalog.agents.iter().map(|agent| agent.kind.clone()).collect();
    Ok(page::task_form(chrome(surface).await?, form, &agents, problems))
}

async fn chrome(surface: &ControlSurface) -> Result<Chrome, Problem> {
    let (_, pending_approvals) = pending(surface, None).await?;
    Ok(Chrome { pending_approvals })
}

/// The newest pending approvals, and how many there are.
async fn pending(
    surface: &ControlSurface,
    session: Option<SessionId>,
) -> Result<(Vec<Approval>, u64), Problem> {
    let filter = ApprovalFilter { status: Some(ApprovalStatus::Pending), session };
    let page = PageRequest { page: None, per_page: Some(SHOWN_APPROVALS) };
    surface.control.store().approvals(filter, page).await.map_err(store_failed)
}

fn to_session(session: &Session) -> Redirect {
    Redirect::to(&format!("/ui/sessions/{}", session.id))
}

fn store_failed(error: StoreError) -> Problem {
    of_task(ControlError::from(error))
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
