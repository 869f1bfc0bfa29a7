//! `/v1/spaces/{id}/files`: the files of a space, under its policy.

use ab_api::SpaceId;
use ab_core::backend::ReadStreamOptions;
use ab_core::options::{ListOptions, RemoveOptions, WriteOptions};
use ab_core::path::PathStrictness;
use ab_core::{Backend, Error, ErrorCode, ErrorKind, NarrowOptions, Principal};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::envelope::Enveloped;
use super::problems::{SpaceProblems, of_file, of_spaces};
use crate::app::HttpApp;
use crate::extract::{PathParams, QueryParams};
use crate::log::RequestId;
use crate::problem::Problem;

/// Entries of the longest list.
const MAX_ENTRIES: usize = 10_000;

/// One entry of a directory
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpaceFile {
    path: String,
    /// `file`, `directory` or `symlink`
    kind: &'static str,
}

/// A file that was written
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WrittenFile {
    path: String,
    size: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Whether directories below are listed too.
    recursive: Option<bool>,
}

/// List the files of a space
#[utoipa::path(
    get,
    path = "/v1/spaces/{id}/files",
    tag = "spaces",
    params(("id" = SpaceId, Path), ListQuery),
    responses((status = OK, body = Enveloped<Vec<SpaceFile>>), SpaceProblems)
)]
pub(crate) async fn list_root(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SpaceId>,
    Extension(principal): Extension<Principal>,
    Extension(request_id): Extension<RequestId>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, Problem> {
    let backend = handle(&app, id, principal).await?;
    listed(&backend, ".", &query, &request_id).await
}

/// List the files of a space, by the path of its root directory
#[utoipa::path(
    get,
    path = "/v1/spaces/{id}/files/",
    tag = "spaces",
    params(("id" = SpaceId, Path), ListQuery),
    responses((status = OK, body = Enveloped<Vec<SpaceFile>>), SpaceProblems)
)]
pub(crate) async fn list_root_directory(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SpaceId>,
    Extension(principal): Extension<Principal>,
    Extension(request_id): Extension<RequestId>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, Problem> {
    let backend = handle(&app, id, principal).await?;
    listed(&backend, ".", &query, &request_id).await
}

/// Read a file, or list a directory
///
/// A path that ends with a slash is a directory.
#[utoipa::path(
    get,
    path = "/v1/spaces/{id}/files/{*path}",
    tag = "spaces",
    params(("id" = SpaceId, Path), ("path" = String, Path), ListQuery),
    responses(
        (status = OK, description = "The file, or a list", content(
            (Vec<u8> = "application/octet-stream"),
            (Enveloped<Vec<SpaceFile>> = "application/json")
        )),
        SpaceProblems
    )
)]
pub(crate) async fn read(
    State(app): State<HttpApp>,
    PathParams((id, path)): PathParams<(SpaceId, String)>,
    Extension(principal): Extension<Principal>,
    Extension(request_id): Extension<RequestId>,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, Problem> {
    let backend = handle(&app, id, principal).await?;
    if let Some(directory) = path.strip_suffix('/') {
        return listed(&backend, directory, &query, &request_id).await;
    }
    let stream = backend.read_stream(path.as_str(), ReadStreamOptions::default()).await;
    let stream = stream.map_err(|error| of_file(&error, "read_error"))?;
    let octets = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((octets, Body::from_stream(stream)).into_response())
}

/// Write a file
///
/// The body is the content. It replaces a file that is there.
#[utoipa::path(
    put,
    path = "/v1/spaces/{id}/files/{*path}",
    tag = "spaces",
    params(("id" = SpaceId, Path), ("path" = String, Path)),
    request_body(content = [u8], content_type = "application/octet-stream"),
    responses((status = OK, body = Enveloped<WrittenFile>), SpaceProblems)
)]
pub(crate) async fn write(
    State(app): State<HttpApp>,
    PathParams((id, path)): PathParams<(SpaceId, String)>,
    Extension(principal): Extension<Principal>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    let backend = handle(&app, id, principal).await?;
    let body = request.into_body().into_data_stream().map(|piece| {
        piece.map_err(|error| {
            Error::new(ErrorCode::WriteFailed, ErrorKind::Disconnected, error.to_string())
        })
    });
    let written = backend.write_stream(path.as_str(), body, WriteOptions::default()).await;
    let stat = written.map_err(|error| of_file(&error, "write_error"))?;
    let body = WrittenFile { path, size: stat.size };
    Ok(Json(Enveloped::new(body, &request_id)).into_response())
}

/// Delete a file
#[utoipa::path(
    delete,
    path = "/v1/spaces/{id}/files/{*path}",
    tag = "spaces",
    params(("id" = SpaceId, Path), ("path" = String, Path)),
    responses((status = NO_CONTENT, description = "It is deleted"), SpaceProblems)
)]
pub(crate) async fn remove(
    State(app): State<HttpApp>,
    PathParams((id, path)): PathParams<(SpaceId, String)>,
    Extension(principal): Extension<Principal>,
) -> Result<StatusCode, Problem> {
    let backend = handle(&app, id, principal).await?;
    let removed = backend.rm(path.as_str(), RemoveOptions::default()).await;
    removed.map_err(|error| of_file(&error, "delete_error"))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The handle of a caller, with the path rules of the protocol.
async fn handle(app: &HttpApp, id: SpaceId, principal: Principal) -> Result<Backend, Problem> {
    let workspace = app.spaces()?.spaces.workspace(id).await.map_err(of_spaces)?;
    let narrow =
        NarrowOptions { path_style: PathStrictness::Strict, ..NarrowOptions::for_actor(principal) };
    workspace.backend().narrow(narrow).map_err(Problem::from)
}

async fn listed(
    backend: &Backend,
    directory: &str,
    query: &ListQuery,
    request_id: &RequestId,
) -> Result<Response, Problem> {
    let depth = if query.recursive == Some(true) { usize::MAX } else { 1 };
    let options = ListOptions { depth, limit: MAX_ENTRIES, ..ListOptions::default() };
    let listing = backend.list(directory, options).await;
    let listing = listing.map_err(|error| of_file(&error, "read_error"))?;
    let files = listing
        .entries
        .iter()
        .map(|entry| SpaceFile { path: entry.path.to_string(), kind: entry.kind.as_str() });
    let files: Vec<SpaceFile> = files.collect();
    Ok(Json(Enveloped::new(files, request_id)).into_response())
}
