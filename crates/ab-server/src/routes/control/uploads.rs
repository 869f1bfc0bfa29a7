//! `/api/v1/uploads`: files and archives that a caller sends before the task that uses them.
//!
//! The content is sent to a signed URL, which requires no token. It can be sent in pieces, each
//! with its offset. After a lost connection the caller asks for the current offset and continues
//! there.

use std::collections::BTreeMap;

use ab_api::{
    FieldViolations, Page, PageRequest, Task, TaskAttachment, Time, Upload, UploadId, UploadKind,
    UploadRequest, UploadStatus,
};
use ab_core::{Principal, PrincipalKind};
use ab_store::{IdempotencyRecord, Store, StoreError, UploadRecord, UploadRefusal, UploadStart};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::idempotency::request_key;
use super::problems::SessionProblems;
use super::sessions::store_failed;
use super::{ControlPlaneRoutes, violated};
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams};
use crate::problem::{Problem, ProblemDocument, ProblemKind};

/// In a request, the offset of its content. In a response, the offset of the next piece.
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");

/// Announce an upload
///
/// The response contains the URL for the content. A repeated request with the same
/// `Idempotency-Key` gets the upload of the first request.
#[utoipa::path(
    post,
    path = "/api/v1/uploads",
    tag = "uploads",
    params(("idempotency-key" = Option<String>, Header, description = "Names the request, so that it can be repeated")),
    request_body = UploadRequest,
    responses(
        (status = CREATED, description = "The upload waits for its content", body = Upload),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not declared as JSON", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The key was used for another request", body = ProblemDocument, content_type = "application/problem+json"),
        (status = INSUFFICIENT_STORAGE, description = "Too many uploads wait for their tasks", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn create(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    let limits = surface.control.upload_limits();
    let request = UploadRequest::parse(&body, limits.max_bytes);
    let request = request.map_err(|violations| violated(&violations))?;
    let key = request_key(&headers, &principal, &[b"POST /api/v1/uploads\n", &body])?;
    let key = key.map(|key| IdempotencyRecord {
        scope: key.scope,
        key: key.key,
        request: key.request,
        response: String::new(),
    });
    let store = surface.control.store();
    let owner = principal.id().to_owned();
    let made = store.create_upload(owner, request, limits, key).await.map_err(failed)?;
    let location = format!("/api/v1/uploads/{}", made.upload.id);
    let upload = signed(surface, made).await?;
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(upload)).into_response())
}

/// List the caller's uploads, newest first
#[utoipa::path(
    get,
    path = "/api/v1/uploads",
    tag = "uploads",
    params(PageRequest),
    responses((status = OK, body = Page<Upload>), SessionProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<Upload>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let (records, total) = store.list_uploads(principal.id(), page).await.map_err(store_failed)?;
    let uploads = records.into_iter().map(|record| record.upload).collect();
    Ok(Json(page.build_response_page(uploads, total)))
}

/// Show an upload, with a new signed URL for the rest of its content
#[utoipa::path(
    get,
    path = "/api/v1/uploads/{id}",
    tag = "uploads",
    params(("id" = UploadId, Path)),
    responses((status = OK, body = Upload), SessionProblems)
)]
pub(crate) async fn show(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<UploadId>,
) -> Result<Json<Upload>, Problem> {
    let surface = app.control()?;
    let record = owned(surface.control.store(), &principal, id).await?;
    Ok(Json(signed(surface, record).await?))
}

/// Remove an upload that no task has used
#[utoipa::path(
    delete,
    path = "/api/v1/uploads/{id}",
    tag = "uploads",
    params(("id" = UploadId, Path)),
    responses(
        (status = NO_CONTENT, description = "The upload is removed"),
        (status = INSUFFICIENT_STORAGE, description = "The disk is full", body = ProblemDocument, content_type = "application/problem+json"),
        (status = CONFLICT, description = "A task has used it", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn remove(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<UploadId>,
) -> Result<StatusCode, Problem> {
    let store = app.control()?.control.store();
    owned(store, &principal, id).await?;
    store.remove_upload(id).await.map_err(|error| of_upload(id, error))?;
    Ok(StatusCode::NO_CONTENT)
}

/// The query parameters of a signed URL.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadSignature {
    /// When the URL expires, in seconds since 1970
    expires: Option<i64>,
    signature: Option<String>,
}

/// Show how much of the content has arrived
///
/// Requires the signed URL or a token of the owner.
#[utoipa::path(
    get,
    path = "/api/v1/uploads/{id}/content",
    tag = "uploads",
    params(("id" = UploadId, Path), UploadSignature),
    responses(
        (status = OK, body = Upload, headers(("upload-offset" = u64, description = "Where the next piece begins"))),
        (status = UNAUTHORIZED, description = "There is neither a signature nor a token", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn offset(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<UploadId>,
    QueryParams(signature): QueryParams<UploadSignature>,
    principal: Option<Extension<Principal>>,
) -> Result<Response, Problem> {
    let record = admitted(app.control()?, principal, id, &signature).await?;
    Ok(shown(record))
}

/// Send the whole content
///
/// Content that arrived earlier is replaced. Requires the signed URL or a token of the owner.
#[utoipa::path(
    put,
    path = "/api/v1/uploads/{id}/content",
    tag = "uploads",
    params(("id" = UploadId, Path), UploadSignature),
    request_body(content = [u8], content_type = "application/octet-stream"),
    responses(
        (status = OK, description = "The content has arrived, in whole or in part", body = Upload, headers(("upload-offset" = u64, description = "Where the next piece begins"))),
        (status = UNAUTHORIZED, description = "There is neither a signature nor a token", body = ProblemDocument, content_type = "application/problem+json"),
        (status = CONFLICT, description = "The upload is complete, was used, or another request is sending content", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The content has more bytes than the upload", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The content has another digest, or is not an archive that is accepted. It was dropped", body = ProblemDocument, content_type = "application/problem+json"),
        (status = REQUEST_TIMEOUT, description = "No content arrived for a while; what arrived before is kept", body = ProblemDocument, content_type = "application/problem+json"),
        (status = INSUFFICIENT_STORAGE, description = "The disk is full", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn replace(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<UploadId>,
    QueryParams(signature): QueryParams<UploadSignature>,
    principal: Option<Extension<Principal>>,
    request: Request,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    admitted(surface, principal, id, &signature).await?;
    receive(surface, id, UploadStart::FromBeginning, request).await
}

/// Send the next piece of the content
///
/// The header `Upload-Offset` contains the offset of the piece. It must be the number of bytes that
/// have arrived. If all content has arrived, an empty piece at the end starts the check of the
/// content. Requires the signed URL or a token of the owner.
#[utoipa::path(
    patch,
    path = "/api/v1/uploads/{id}/content",
    tag = "uploads",
    params(
        ("id" = UploadId, Path),
        UploadSignature,
        ("upload-offset" = u64, Header, description = "Where the piece begins")
    ),
    request_body(content = [u8], content_type = "application/octet-stream"),
    responses(
        (status = OK, description = "The piece has arrived, in whole or in part", body = Upload, headers(("upload-offset" = u64, description = "Where the next piece begins"))),
        (status = UNAUTHORIZED, description = "There is neither a signature nor a token", body = ProblemDocument, content_type = "application/problem+json"),
        (status = CONFLICT, description = "The content continues at another offset, or another request is sending content", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The content has more bytes than the upload", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The content has another digest, or is not an archive that is accepted. It was dropped", body = ProblemDocument, content_type = "application/problem+json"),
        (status = REQUEST_TIMEOUT, description = "No content arrived for a while; what arrived before is kept", body = ProblemDocument, content_type = "application/problem+json"),
        (status = INSUFFICIENT_STORAGE, description = "The disk is full", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn append(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<UploadId>,
    QueryParams(signature): QueryParams<UploadSignature>,
    principal: Option<Extension<Principal>>,
    request: Request,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    admitted(surface, principal, id, &signature).await?;
    let offset = request.headers().get(OFFSET).and_then(|value| value.to_str().ok());
    let Some(offset) = offset.and_then(|text| text.parse().ok()) else {
        let detail = "invalid Upload-Offset: must be the number of bytes before this piece";
        let problem = Problem::new(ProblemKind::Invalid, detail);
        return Err(named(problem, "upload-offset", detail));
    };
    receive(surface, id, UploadStart::At(offset), request).await
}

/// Checks the uploads of a task, and fills in the names and sizes of its attachments.
///
/// # Errors
///
/// Returns the fields that do not name a complete upload of `owner`.
pub(super) async fn resolve(
    store: &Store,
    owner: &str,
    task: &mut Task,
) -> Result<Result<(), FieldViolations>, Problem> {
    let mut found = FieldViolations::default();
    if let Some(id) = task.repo.upload_id {
        usable(store, owner, (id, UploadKind::Tar), "repo.uploadId", &mut found).await?;
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for (index, attachment) in task.attachments.iter_mut().enumerate() {
        let field = format!("attachments.{index}.uploadId");
        let id = attachment.upload_id;
        let Some(upload) = usable(store, owner, (id, UploadKind::File), &field, &mut found).await?
        else {
            continue;
        };
        let UploadRequest { name, size, .. } = upload.request;
        if let Some(first) = names.insert(name.clone(), index) {
            let why = format!("has the name {name:?} of attachment {first}: upload it by another");
            found.add_invalid(field, why);
        }
        *attachment = TaskAttachment { upload_id: id, name, size };
    }
    Ok(found.into_result(()))
}

/// The violations for a task whose upload has just been used by another request.
pub(super) fn taken(task: &Task, id: UploadId) -> FieldViolations {
    let mut found = FieldViolations::default();
    let attached = task.attachments.iter().position(|attachment| attachment.upload_id == id);
    let field = match attached {
        Some(index) => format!("attachments.{index}.uploadId"),
        None => "repo.uploadId".to_owned(),
    };
    found.add_unavailable(field, "was used by another task, or has expired");
    found
}

async fn usable(
    store: &Store,
    owner: &str,
    (id, kind): (UploadId, UploadKind),
    field: &str,
    found: &mut FieldViolations,
) -> Result<Option<Upload>, Problem> {
    let upload = match store.get_upload(id).await {
        Ok(record) if record.owner == owner => record.upload,
        Ok(_) | Err(StoreError::NotFound) => {
            found.add_unavailable(field, "is not an upload of yours, or has expired");
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    let problem = match (upload.status, kind) {
        (UploadStatus::Used, _) => Some("was used by another task".to_owned()),
        (UploadStatus::Open, _) => Some(format!(
            "is incomplete: {} of {} bytes have arrived and were checked",
            upload.offset, upload.request.size
        )),
        (UploadStatus::Complete, wanted) if wanted == upload.request.kind => None,
        (UploadStatus::Complete, UploadKind::Tar) => {
            Some("has the kind \"file\", and must be a tar archive".to_owned())
        }
        (UploadStatus::Complete, UploadKind::File) => {
            Some("has the kind \"tar\", and must have the kind \"file\"".to_owned())
        }
    };
    match problem {
        Some(problem) => {
            found.add_unavailable(field, problem);
            Ok(None)
        }
        None => Ok(Some(upload)),
    }
}

async fn owned(
    store: &Store,
    principal: &Principal,
    id: UploadId,
) -> Result<UploadRecord, Problem> {
    match store.get_upload(id).await {
        Ok(record) if record.owner == principal.id() => Ok(record),
        Ok(_) => Err(of_upload(id, StoreError::NotFound)),
        Err(error) => Err(of_upload(id, error)),
    }
}

/// Admits the owner of the upload, and callers with a signed URL.
async fn admitted(
    surface: &ControlPlaneRoutes,
    principal: Option<Extension<Principal>>,
    id: UploadId,
    signature: &UploadSignature,
) -> Result<UploadRecord, Problem> {
    let store = surface.control.store();
    if let UploadSignature { expires: Some(expires), signature: Some(shown) } = signature {
        let is_right =
            store.is_valid_upload_signature(id, *expires, shown).await.map_err(failed)?;
        if !is_right {
            let detail = "the signature of the address is wrong";
            return Err(Problem::new(ProblemKind::Forbidden, detail).coded("wrong_signature"));
        }
        if expires.saturating_mul(1000) <= Time::now().as_millis() {
            let detail = "the signed address has expired: GET of the upload gives another";
            return Err(Problem::new(ProblemKind::Forbidden, detail).coded("expired_signature"));
        }
        return store.get_upload(id).await.map_err(|error| of_upload(id, error));
    }
    let Some(Extension(principal)) = principal else {
        let detail = "sending content takes the signed address of the upload, or a token";
        return Err(Problem::new(ProblemKind::Unauthorized, detail));
    };
    match principal.kind() {
        PrincipalKind::Process | PrincipalKind::Person | PrincipalKind::ApiKey => {
            owned(store, &principal, id).await
        }
        PrincipalKind::Agent | PrincipalKind::SpaceAgent | PrincipalKind::Executor => {
            let detail = "the token of an agent opens no uploads";
            Err(Problem::new(ProblemKind::Forbidden, detail))
        }
    }
}

/// Writes the body of a request to the upload. If the connection is lost, the bytes that have
/// arrived are kept.
async fn receive(
    surface: &ControlPlaneRoutes,
    id: UploadId,
    start: UploadStart,
    request: Request,
) -> Result<Response, Problem> {
    let limits = surface.control.upload_limits();
    let store = surface.control.store();
    let of_this = |error| of_upload(id, error);
    let mut writer = store.write_upload(id, start, limits).await.map_err(of_this)?;
    let mut body = request.into_body().into_data_stream();
    let lost = loop {
        let silent = || {
            let silence = limits.idle_timeout.as_secs();
            (ProblemKind::RequestTimeout, format!("no content arrived for {silence} s"))
        };
        match timeout(limits.idle_timeout, body.next()).await {
            Ok(Some(Ok(piece))) => writer.write(&piece).await.map_err(of_this)?,
            Ok(Some(Err(error))) => {
                break Some((ProblemKind::Invalid, format!("the content ended early: {error}")));
            }
            Ok(None) => break None,
            Err(_) => break Some(silent()),
        }
    };
    let record = writer.finish().await.map_err(of_this)?;
    match lost {
        Some((kind, detail)) => {
            Err(Problem::new(kind, detail).with_member("offset", record.upload.offset))
        }
        None => Ok(shown(record)),
    }
}

fn shown(record: UploadRecord) -> Response {
    let offset = [(OFFSET, record.upload.offset.to_string())];
    (offset, Json(record.upload)).into_response()
}

/// Adds a signed URL to an upload, if the upload still accepts content.
async fn signed(surface: &ControlPlaneRoutes, record: UploadRecord) -> Result<Upload, Problem> {
    let mut upload = record.upload;
    if upload.status == UploadStatus::Open {
        let lifetime = surface.control.upload_limits().url_lifetime;
        let expires = Time::now().saturating_add(lifetime).as_millis() / 1000;
        let signature = surface.control.store().sign_upload(upload.id, expires).await;
        let signature = signature.map_err(failed)?;
        let id = upload.id;
        upload.upload_url =
            Some(format!("/api/v1/uploads/{id}/content?expires={expires}&signature={signature}"));
        upload.upload_url_expires_at = Some(Time::from_millis(expires * 1000));
    }
    Ok(upload)
}

fn of_upload(id: UploadId, error: StoreError) -> Problem {
    match error {
        StoreError::NotFound => {
            let detail = format!("you have no upload {id}, or it has expired");
            Problem::new(ProblemKind::NotFound, detail).coded("upload_not_found")
        }
        error => failed(error),
    }
}

fn failed(error: StoreError) -> Problem {
    let StoreError::UploadRefused(refusal) = &error else { return store_failed(error) };
    let detail = refusal.to_string();
    let problem = |kind, code| Problem::new(kind, detail.clone()).coded(code);
    match refusal {
        UploadRefusal::TooManyUploads { .. } => problem(ProblemKind::NoSpace, "uploads_full"),
        UploadRefusal::TotalTooLarge { .. } => {
            named(problem(ProblemKind::NoSpace, "uploads_full"), "size", &detail)
        }
        UploadRefusal::BeingWritten => problem(ProblemKind::Conflict, "upload_busy"),
        UploadRefusal::Complete => problem(ProblemKind::Conflict, "upload_complete"),
        UploadRefusal::Used | UploadRefusal::NotUsable(_) => {
            problem(ProblemKind::Conflict, "upload_used")
        }
        UploadRefusal::WrongOffset { expected } => {
            let refused = problem(ProblemKind::Conflict, "upload_offset");
            named(refused, "upload-offset", &detail).with_member("offset", *expected)
        }
        UploadRefusal::TooLong { .. } => {
            named(problem(ProblemKind::TooLarge, "upload_too_long"), "size", &detail)
        }
        UploadRefusal::DigestMismatch { .. } => {
            named(problem(ProblemKind::Unprocessable, "digest_mismatch"), "digest", &detail)
        }
        UploadRefusal::InvalidArchive { .. } => {
            named(problem(ProblemKind::Unprocessable, "invalid_archive"), "content", &detail)
        }
        UploadRefusal::NoSpace => problem(ProblemKind::NoSpace, "no_space"),
        UploadRefusal::FileError { .. } => {
            tracing::error!(%error, "the file of an upload failed");
            let detail = "the file of the upload failed; the log of the server says why";
            Problem::new(ProblemKind::Internal, detail)
        }
    }
}

/// Adds an error message about one field to a problem.
fn named(problem: Problem, field: &str, detail: &str) -> Problem {
    problem.with_errors(BTreeMap::from([(field.to_owned(), vec![detail.to_owned()])]))
}
