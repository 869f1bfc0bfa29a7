//! Lists what the server has used: projects, repositories, branches of repositories, and
//! workspaces.

use std::time::Duration;

use ab_api::{
    FieldViolations, Page, PageRequest, ProjectSummary, RepoBranch, RepoImportRequest, RepoRefs,
    RepoSummary, SessionId, Time, WorkspaceDetail, WorkspaceState, WorkspaceSummary, WorkspaceTask,
    check_repo_url,
};
use ab_executor::{CleanupToken, SessionAttempt};
use ab_store::{RepoListFilter, StoreError};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::problems::SessionProblems;
use super::sessions::store_failed;
use super::{ControlPlaneRoutes, Locality, violated};
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams};
use crate::problem::{Problem, ProblemDocument, ProblemKind};
use crate::routes::Peer;

/// How long stored branches are used before the server asks the repository again.
const REFS_LIFETIME: Duration = Duration::from_secs(60);

/// Filters of the lists of projects and repositories
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct InventoryQuery {
    tenant_id: Option<String>,
    project_id: Option<String>,
}

impl InventoryQuery {
    fn filter(self) -> RepoListFilter {
        RepoListFilter { tenant: self.tenant_id, project: self.project_id }
    }
}

/// List the projects that sessions belong to
#[utoipa::path(
    get,
    path = "/api/v1/projects",
    tag = "catalogues",
    params(InventoryQuery, PageRequest),
    responses((status = OK, body = Page<ProjectSummary>), SessionProblems)
)]
pub(crate) async fn projects(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<InventoryQuery>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<ProjectSummary>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let (items, total) = store.list_projects(&query.filter(), page).await.map_err(store_failed)?;
    Ok(Json(page.build_response_page(items, total)))
}

/// List the repositories that sessions worked on or that were imported
#[utoipa::path(
    get,
    path = "/api/v1/repos",
    tag = "catalogues",
    params(InventoryQuery, PageRequest),
    responses((status = OK, body = Page<RepoSummary>), SessionProblems)
)]
pub(crate) async fn repos(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<InventoryQuery>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<RepoSummary>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let (items, total) = store.list_repos(&query.filter(), page).await.map_err(store_failed)?;
    Ok(Json(page.build_response_page(items, total)))
}

/// Import a repository into the list
///
/// The server asks the repository for its branches, to check that it can be read. Importing it
/// again has no effect.
#[utoipa::path(
    post,
    path = "/api/v1/repos",
    tag = "catalogues",
    request_body = RepoImportRequest,
    responses(
        (status = CREATED, description = "The repository is in the list", body = RepoSummary),
        (status = BAD_GATEWAY, description = "The repository cannot be read", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "Only callers on this machine can name a local path", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The Content-Type is not JSON", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn import(
    State(app): State<HttpApp>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<(StatusCode, Json<RepoSummary>), Problem> {
    let surface = app.control()?;
    let offers = surface.offers(Locality::of(peer.0, &headers));
    let request = RepoImportRequest::parse(&body, &offers);
    let request = request.map_err(|violations| violated(&violations))?;
    let refs = asked(surface, &request.url).await?;
    let imported = surface.control.store().import_repo(request, refs).await;
    Ok((StatusCode::CREATED, Json(imported.map_err(store_failed)?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RefsQuery {
    /// The URL of the repository, as in `repo.url` of a task.
    url: String,
}

/// List the branches of a repository
///
/// The server asks the repository at most once a minute. If the repository cannot be read, the
/// response contains the stored branches. `fetchedAt` says when they were read.
#[utoipa::path(
    get,
    path = "/api/v1/git/refs",
    tag = "catalogues",
    params(RefsQuery),
    responses(
        (status = OK, body = RepoRefs),
        (status = BAD_GATEWAY, description = "The repository cannot be read, and nothing is stored about it", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "Only callers on this machine can name a local path, or there is no repository at the path", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn refs(
    State(app): State<HttpApp>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    QueryParams(RefsQuery { url }): QueryParams<RefsQuery>,
) -> Result<Json<RepoRefs>, Problem> {
    let surface = app.control()?;
    let offers = surface.offers(Locality::of(peer.0, &headers));
    check_repo_url(&url, "url", &offers).map_err(|violations| violated(&violations))?;
    let store = surface.control.store();
    let stored = store.get_repo_refs(&url).await.map_err(store_failed)?;
    if let Some(refs) = &stored
        && Time::now() < refs.fetched_at.saturating_add(REFS_LIFETIME)
    {
        return Ok(Json(refs.clone()));
    }
    match (asked(surface, &url).await, stored) {
        (Ok(refs), _) => {
            store.put_repo_refs(refs.clone()).await.map_err(store_failed)?;
            Ok(Json(refs))
        }
        (Err(_), Some(stored)) => Ok(Json(stored)),
        (Err(problem), None) => Err(problem),
    }
}

async fn asked(surface: &ControlPlaneRoutes, url: &str) -> Result<RepoRefs, Problem> {
    let branches = surface.control.executor().list_repo_branches(url).await;
    // A path on the server's machine is part of the request. Another host is not.
    let is_local = url.starts_with('/');
    let kind = if is_local { ProblemKind::Unprocessable } else { ProblemKind::BadGateway };
    let branches =
        branches.map_err(|error| Problem::new(kind, error.detail).coded("repository"))?;
    let items = branches.branches.into_iter();
    Ok(RepoRefs {
        url: url.to_owned(),
        default_branch: branches.default,
        items: items.map(|(name, commit)| RepoBranch { name, commit }).collect(),
        truncated: branches.truncated,
        fetched_at: Time::now(),
    })
}

/// Filters of the list of workspaces
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkspaceQuery {
    /// `active` (a session uses the workspace) or `kept` (its session has ended).
    status: Option<String>,
}

/// List the workspaces that exist, newest first
#[utoipa::path(
    get,
    path = "/api/v1/workspaces",
    tag = "catalogues",
    params(WorkspaceQuery, PageRequest),
    responses((status = OK, body = Page<WorkspaceSummary>), SessionProblems)
)]
pub(crate) async fn workspaces(
    State(app): State<HttpApp>,
    QueryParams(WorkspaceQuery { status }): QueryParams<WorkspaceQuery>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<WorkspaceSummary>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let status = status.as_deref().map(str::parse::<WorkspaceState>).transpose();
    let status = status.map_err(|message| {
        let mut violations = FieldViolations::default();
        violations.add_invalid("status", message);
        violated(&violations)
    })?;
    let (items, total) = store.list_workspaces(status, page).await.map_err(store_failed)?;
    Ok(Json(page.build_response_page(items, total)))
}

/// Show a workspace with its storage use and the sessions that worked in it
///
/// The id is that of the session that made the workspace, or of a session that continued in it.
#[utoipa::path(
    get,
    path = "/api/v1/workspaces/{id}",
    tag = "catalogues",
    params(("id" = SessionId, Path)),
    responses(
        (status = OK, body = WorkspaceDetail),
        (status = BAD_GATEWAY, description = "The executor cannot count its files", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn workspace(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Json<WorkspaceDetail>, Problem> {
    let control = &app.control()?.control;
    let missing = |error| match error {
        StoreError::NotFound => {
            let detail = format!("there is no workspace {id}: it was removed, or never existed");
            Problem::new(ProblemKind::NotFound, detail).coded("workspace_not_found")
        }
        error => store_failed(error),
    };
    let record = control.store().session_record(id).await.map_err(missing)?;
    let job = SessionAttempt { session: record.session, generation: record.progress.generation };
    let CleanupToken(token) = control.executor().cleanup_token(&job);
    let (summary, history) = control.store().get_workspace(&token).await.map_err(missing)?;
    let storage = control.executor().workspace_storage(&CleanupToken(token)).await;
    let storage = storage.map_err(|error| Problem::new(ProblemKind::BadGateway, error.detail))?;
    let history = history.into_iter().map(|session| WorkspaceTask {
        session_id: session.id,
        status: session.status,
        prompt: session.prompt,
        created_at: session.created_at,
        ended_at: session.ended_at,
    });
    Ok(Json(WorkspaceDetail { summary, storage, history: history.collect() }))
}
