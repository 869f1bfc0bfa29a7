//! `/v1/spaces/{id}/files`: the files of a space, under its policy.

use ab_api::SpaceId;
use ab_core::backend::ReadStreamOptions;
use ab_core::options::{ListOptions, RemoveOptions, WriteOptions};
use ab_core::path::PathStrictness;
use ab_core::{Backend, Error, ErrorCode, ErrorKind, NarrowOptions, Principal};
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::OnSpaces;
use super::envelope::Enveloped;
use super::problems::{SpaceProblems, of_file, of_spaces};
use crate::app::HttpApp;
use crate::extract::QueryParams;
use crate::log::RequestId;
use crate::problem::{Problem, ProblemKind};

/// Maximum number of entries in a list.
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
    /// Whether subdirectories are listed too.
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
    files: SpaceFiles,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, Problem> {
    files.listed(".", &query).await
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
    files: SpaceFiles,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, Problem> {
    files.listed(".", &query).await
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
    files: SpaceFiles,
    QueryParams(query): QueryParams<ListQuery>,
) -> Result<Response, Problem> {
    let SpaceFiles { backend, path, .. } = &files;
    if let Some(directory) = path.strip_suffix('/') {
        return files.listed(directory, &query).await;
    }
    let stream = backend.read_stream(path.as_str(), ReadStreamOptions::default()).await;
    let stream = stream.map_err(|error| of_file(&error, "read_error"))?;
    let octets = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((octets, Body::from_stream(stream)).into_response())
}

/// Write a file
///
/// The body is the content. An existing file is replaced.
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
    SpaceFiles { backend, path, request_id }: SpaceFiles,
    request: Request,
) -> Result<Response, Problem> {
    if path.ends_with('/') {
        let detail = format!("{path} is the path of a directory, because it ends with a slash");
        return Err(Problem::new(ProblemKind::Invalid, detail).coded("path_invalid"));
    }
    let body = request.into_body().into_data_stream().map(|piece| {
        piece.map_err(|error| {
            Error::new(ErrorCode::WriteFailed, ErrorKind::Disconnected, error.to_string())
        })
    });
    let target = path.clone();
    let write =
        async move { backend.write_stream(target.as_str(), body, WriteOptions::default()).await };
    let written = app.finish_write(write).await?;
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
    SpaceFiles { backend, path, .. }: SpaceFiles,
) -> Result<StatusCode, Problem> {
    let removed = backend.rm(path.as_str(), RemoveOptions::default()).await;
    removed.map_err(|error| of_file(&error, "delete_error"))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The path of a file request. Absent for the root directory.
#[derive(Debug, Deserialize)]
struct FilePath {
    id: SpaceId,
    #[serde(default)]
    path: String,
}

/// The files of a space, with the rights of the caller and the path rules of the protocol. Also
/// contains the path in the request.
pub(crate) struct SpaceFiles {
    backend: Backend,
    path: String,
    request_id: RequestId,
}

impl FromRequestParts<HttpApp> for SpaceFiles {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &HttpApp) -> Result<Self, Problem> {
        let OnSpaces { spaces, id: FilePath { id, path }, request_id } =
            OnSpaces::from_request_parts(parts, app).await?;
        let workspace = spaces.space_workspace(id).await.map_err(of_spaces)?;
        let narrow = match parts.extensions.get::<Principal>().cloned() {
            Some(principal) => NarrowOptions::for_actor(principal),
            None => NarrowOptions::default(),
        };
        let narrow = NarrowOptions { path_strictness: PathStrictness::Strict, ..narrow };
        Ok(Self { backend: workspace.backend().narrow(narrow)?, path, request_id })
    }
}

impl SpaceFiles {
    async fn listed(&self, directory: &str, query: &ListQuery) -> Result<Response, Problem> {
        let depth = if query.recursive == Some(true) { usize::MAX } else { 1 };
        let options =
            ListOptions { max_depth: depth, max_entries: MAX_ENTRIES, ..ListOptions::default() };
        let listing = self.backend.list(directory, options).await;
        let listing = listing.map_err(|error| of_file(&error, "read_error"))?;
        let files: Vec<SpaceFile> = listing
            .entries
            .iter()
            .map(|entry| SpaceFile { path: entry.path.to_string(), kind: entry.kind.as_str() })
            .collect();
        Ok(Json(Enveloped::listing(files, &listing, &self.request_id)).into_response())
    }
}
