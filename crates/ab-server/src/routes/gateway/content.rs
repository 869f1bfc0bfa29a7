//! `/v1/fs/file`: the content of a file, streamed in both directions.

use std::sync::Arc;

use ab_core::options::{OpenOptions, WriteMode, WriteOptions};
use ab_core::{Error, ErrorCode, ErrorKind, File, FileVersion, Stat};
use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{Stream, try_unfold};
use futures_util::{StreamExt, TryStreamExt};
use serde::Serialize;
use utoipa::ToSchema;

use super::files::{CallerFiles, FileProblems, PathQuery, failed};
use crate::app::HttpApp;
use crate::extract::QueryParams;
use crate::problem::{Problem, ProblemKind};

/// Number of bytes read at a time.
const PIECE: usize = 256 * 1024;

/// The written file
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsWritten {
    path: String,
    bytes_written: u64,
}

/// Read a file
///
/// The response is streamed. `Range` selects a part of the file. `If-None-Match` contains the
/// version that the client already has.
#[utoipa::path(
    get,
    path = "/v1/fs/file",
    tag = "files",
    params(
        PathQuery,
        ("range" = Option<String>, Header, description = "One range of bytes, such as bytes=0-99"),
        ("if-none-match" = Option<String>, Header, description = "The ETag of the version that the client has"),
        ("if-range" = Option<String>, Header, description = "The ETag for which the range is meant")
    ),
    responses(
        (status = OK, description = "The file", body = [u8], content_type = "application/octet-stream"),
        (status = PARTIAL_CONTENT, description = "The range", body = [u8], content_type = "application/octet-stream"),
        (status = NOT_MODIFIED, description = "The client has this version"),
        (status = RANGE_NOT_SATISFIABLE, description = "The range begins after the end"),
        FileProblems
    )
)]
pub(crate) async fn read(
    QueryParams(PathQuery { path }): QueryParams<PathQuery>,
    CallerFiles(files): CallerFiles,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let path = files.inside(&path)?;
    let file = files.backend.open(&path, OpenOptions::default()).await.map_err(failed)?;
    let stat = file.stat().await.map_err(failed)?;
    let etag = etag(stat.version);
    let about = [(header::ETAG, etag.clone()), (header::ACCEPT_RANGES, "bytes".to_owned())];
    if has_tag(&headers, header::IF_NONE_MATCH, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, about).into_response());
    }
    let is_meant = !headers.contains_key(header::IF_RANGE)
        || headers.get(header::IF_RANGE).is_some_and(|value| value.as_bytes() == etag.as_bytes());
    let range = headers.get(header::RANGE).filter(|_| is_meant);
    let range = range.and_then(|value| value.to_str().ok());
    let found = match range {
        Some(range) => PartOfFile::parse(range, stat.size),
        None => PartOfFile::Whole,
    };
    let octets = (header::CONTENT_TYPE, "application/octet-stream");
    let length = |length: u64| (header::CONTENT_LENGTH, length.to_string());
    Ok(match found {
        PartOfFile::Whole => {
            let body = Body::from_stream(pieces(file.into(), 0, stat.size));
            (StatusCode::OK, about, [octets], [length(stat.size)], body).into_response()
        }
        PartOfFile::Range { start, end } => {
            let body = Body::from_stream(pieces(file.into(), start, end));
            let range = format!("bytes {start}-{}/{}", end - 1, stat.size);
            let range = [(header::CONTENT_RANGE, range)];
            let status = StatusCode::PARTIAL_CONTENT;
            (status, about, [octets], range, [length(end - start)], body).into_response()
        }
        PartOfFile::Beyond => {
            let detail = format!("the file has {} bytes: the range begins after them", stat.size);
            let problem = Problem::new(ProblemKind::RangeNotSatisfiable, detail);
            let range = [(header::CONTENT_RANGE, format!("bytes */{}", stat.size))];
            (range, problem).into_response()
        }
    })
}

/// Write a file
///
/// The body is streamed to a new file, which replaces the old one when it is complete. With
/// `If-None-Match: *`, an existing file is not replaced. With `If-Match`, the file is replaced only
/// if it has this version.
#[utoipa::path(
    put,
    path = "/v1/fs/file",
    tag = "files",
    params(
        PathQuery,
        ("if-match" = Option<String>, Header, description = "The ETag of the version that is replaced"),
        ("if-none-match" = Option<String>, Header, description = "`*` if the file must not exist")
    ),
    request_body(content = [u8], content_type = "application/octet-stream"),
    responses(
        (status = OK, body = FsWritten),
        (status = PRECONDITION_FAILED, description = "The file exists, or has another version"),
        FileProblems
    )
)]
pub(crate) async fn write(
    State(app): State<HttpApp>,
    QueryParams(PathQuery { path }): QueryParams<PathQuery>,
    CallerFiles(files): CallerFiles,
    request: Request,
) -> Result<Response, Problem> {
    if path.ends_with('/') {
        let detail = format!("{path} is the path of a directory, because it ends with a slash");
        return Err(Problem::new(ProblemKind::Invalid, detail));
    }
    let path = files.inside(&path)?;
    let shown = files.shown(&path)?;
    let options = preconditions(request.headers())?;
    let is_conditional = options != WriteOptions::default();
    let body = bounded(request.into_body(), files.max_upload);
    let write = async move { files.backend.write_stream(&path, body, options).await };
    let written = app.finish_write(write).await?;
    let stat: Stat = written.map_err(|error| match error.kind() {
        // With `If-Match: *`, a missing file does not match.
        ErrorKind::Conflict | ErrorKind::AlreadyExists | ErrorKind::NotFound if is_conditional => {
            Problem::new(ProblemKind::PreconditionFailed, error.to_string())
        }
        _ => failed(error),
    })?;
    let answer = FsWritten { path: shown, bytes_written: stat.size };
    Ok(([(header::ETAG, etag(stat.version))], Json(answer)).into_response())
}

/// Limits the size of a body, and converts its errors to those of the workspace.
pub(crate) fn bounded(
    body: Body,
    most: Option<u64>,
) -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static {
    let mut taken: u64 = 0;
    let stream: BodyDataStream = body.into_data_stream();
    stream
        .map_err(|error| {
            let message = format!("the upload was cut off: {error}");
            Error::new(ErrorCode::WriteFailed, ErrorKind::Disconnected, message)
        })
        .map(move |piece| {
            let piece = piece?;
            taken = taken.saturating_add(piece.len() as u64);
            match most {
                Some(most) if taken > most => {
                    let message = format!("the upload has more than {most} bytes");
                    Err(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message))
                }
                Some(_) | None => Ok(piece),
            }
        })
}

fn preconditions(headers: &HeaderMap) -> Result<WriteOptions, Problem> {
    let mut options = WriteOptions::default();
    let text =
        |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?").trim());
    match text(header::IF_NONE_MATCH) {
        None => {}
        Some("*") => options.mode = WriteMode::CreateNew,
        Some(_) => {
            let detail = "invalid If-None-Match: must be *";
            return Err(Problem::new(ProblemKind::Invalid, detail));
        }
    }
    match text(header::IF_MATCH) {
        None => {}
        Some("*") => options.mode = WriteMode::Replace,
        Some(tag) => options.expected_version = Some(expected_version(tag)?),
    }
    Ok(options)
}

/// The version that an `If-Match` header names.
fn expected_version(tag: &str) -> Result<FileVersion, Problem> {
    let quoted = |tag: &str| Some(tag.strip_prefix('"')?.strip_suffix('"')?.to_owned());
    let is_weak = tag.starts_with("W/");
    let opaque = quoted(tag.strip_prefix("W/").unwrap_or(tag)).filter(|tag| !tag.contains('"'));
    let Some(opaque) = opaque else {
        let detail = "invalid If-Match: must be * or one ETag in quotes";
        return Err(Problem::new(ProblemKind::Invalid, detail));
    };
    // RFC 9110 compares strongly here: a weak tag, and a tag that is of no file, match nothing.
    FileVersion::parse(&opaque).filter(|_| !is_weak).ok_or_else(|| {
        let detail = format!("the file does not have the version {tag}");
        Problem::new(ProblemKind::PreconditionFailed, detail)
    })
}

fn etag(version: FileVersion) -> String {
    format!("\"{version}\"")
}

/// Whether the header contains the tag, or `*`.
fn has_tag(headers: &HeaderMap, name: HeaderName, etag: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// The bytes from `start` to `end`. Fails if the file becomes shorter while it is read, so that the
/// client does not treat the content as complete.
fn pieces(
    file: Arc<dyn File>,
    start: u64,
    end: u64,
) -> impl Stream<Item = Result<Bytes, Error>> + Send + 'static {
    try_unfold((file, start), move |(file, at)| async move {
        if at >= end {
            return Ok(None);
        }
        let wanted = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        let piece = file.read_at(at, wanted).await?;
        if piece.is_empty() {
            let message = "the file became shorter while it was read";
            return Err(Error::new(ErrorCode::ReadFailed, ErrorKind::Conflict, message));
        }
        let next = at + piece.len() as u64;
        Ok(Some((piece, (file, next))))
    })
}

/// The part of the file that a Range header selects.
#[derive(Debug, PartialEq, Eq)]
enum PartOfFile {
    Whole,
    /// A range of bytes. `end` is exclusive.
    Range {
        start: u64,
        end: u64,
    },
    Beyond,
}

impl PartOfFile {
    /// Parses a Range header. Ignores a malformed header and a header with several ranges, as RFC
    /// 9110 allows.
    fn parse(header: &str, size: u64) -> PartOfFile {
        let Some((start, last)) = header.strip_prefix("bytes=").and_then(|it| it.split_once('-'))
        else {
            return PartOfFile::Whole;
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(start) || !digits(last) {
            return PartOfFile::Whole;
        }
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        match (start, last) {
            ("", "") => PartOfFile::Whole,
            ("", suffix) => match number(suffix).min(size) {
                0 => PartOfFile::Beyond,
                length => PartOfFile::Range { start: size - length, end: size },
            },
            (start, _) if number(start) >= size => PartOfFile::Beyond,
            (start, "") => PartOfFile::Range { start: number(start), end: size },
            (start, last) if number(last) < number(start) => PartOfFile::Whole,
            (start, last) => PartOfFile::Range {
                start: number(start),
                end: number(last).saturating_add(1).min(size),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_end() {
        let range = |start, end| PartOfFile::Range { start, end };
        for (header, size, expect) in [
            ("bytes=0-3", 10, range(0, 4)),
            ("bytes=4-", 10, range(4, 10)),
            ("bytes=-3", 10, range(7, 10)),
            ("bytes=-30", 10, range(0, 10)),
            ("bytes=9-99999999999999999999999", 10, range(9, 10)),
            ("bytes=10-", 10, PartOfFile::Beyond),
            ("bytes=-0", 10, PartOfFile::Beyond),
            ("bytes=0-", 0, PartOfFile::Beyond),
            ("bytes=3-1", 10, PartOfFile::Whole),
            ("bytes=0-1,3-4", 10, PartOfFile::Whole),
            ("bytes=-", 10, PartOfFile::Whole),
            ("bytes=a-b", 10, PartOfFile::Whole),
            ("lines=0-1", 10, PartOfFile::Whole),
        ] {
            assert_eq!(PartOfFile::parse(header, size), expect, "{header}");
        }
    }
}
