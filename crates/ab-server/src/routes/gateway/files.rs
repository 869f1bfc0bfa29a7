//! `/v1/fs`: the files of the served root.

use std::time::SystemTime;

use ab_core::options::{
    EntryDetailLevel, LinkHandling, ListOptions, OverwriteMode, RemoveOptions, RenameOptions,
    StatOptions,
};
use ab_core::path::TEMP_FILE_PREFIX;
use ab_core::{
    Backend, DirEntry, Error, ErrorKind, FileKind, NarrowOptions, Principal, Verb, WsPath,
};
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Response as Described};
use utoipa::{IntoParams, IntoResponses, ToSchema};

use super::problems::described;
use crate::app::HttpApp;
use crate::extract::{JsonBody, QueryParams};
use crate::problem::{Problem, ProblemKind};

/// The directory whose files are served.
#[derive(Clone, Debug)]
pub struct ServedDirectory {
    pub(crate) backend: Backend,
    /// The path of the directory on the host, without a slash at the end.
    root: String,
    /// Maximum size of an uploaded file or archive, if there is a limit.
    pub(crate) max_upload: Option<u64>,
}

impl ServedDirectory {
    /// Serves the directory of the backend. `root` is the path of this directory on the host.
    pub fn new(backend: Backend, root: &str) -> ServedDirectory {
        let root = root.trim_end_matches('/').to_owned();
        ServedDirectory { backend, root, max_upload: None }
    }

    /// Limits the size of uploads, in bytes.
    pub fn with_max_upload_bytes(mut self, bytes: Option<u64>) -> ServedDirectory {
        self.max_upload = bytes;
        self
    }

    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Converts a path in a request to a path relative to the root. An absolute path must be inside
    /// the root.
    pub(crate) fn inside(&self, path: &str) -> Result<String, Problem> {
        if !path.starts_with('/') {
            return Ok(if path.is_empty() { ".".to_owned() } else { path.to_owned() });
        }
        let aliases = self.backend.info().root_aliases;
        let roots = aliases.iter().map(|alias| alias.trim_end_matches('/'));
        for root in roots.chain([self.root.as_str()]) {
            if let Some(rest) = path.strip_prefix(root)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                let rest = rest.trim_start_matches('/');
                return Ok(if rest.is_empty() { ".".to_owned() } else { rest.to_owned() });
            }
        }
        let detail = format!("{path} is not in the served directory {}/", self.root);
        Err(Problem::new(ProblemKind::Forbidden, detail))
    }

    /// Converts a relative path to the absolute path on the host that clients see.
    pub(crate) fn shown(&self, inside: &str) -> Result<String, Problem> {
        let path = self.backend.parse_path(inside).map_err(failed)?;
        Ok(match path.as_str() {
            "" | "." if self.root.is_empty() => "/".to_owned(),
            "" | "." => self.root.clone(),
            path => format!("{}/{path}", self.root),
        })
    }
}

/// The served directory for one request. The caller is the actor of its calls, so that policy and
/// journal name the caller.
#[derive(Debug)]
pub(crate) struct CallerFiles(pub(crate) ServedDirectory);

impl FromRequestParts<HttpApp> for CallerFiles {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &HttpApp) -> Result<Self, Problem> {
        let files = app.files()?;
        let principal = parts.extensions.get::<Principal>().ok_or_else(Problem::unauthorized)?;
        let narrow = NarrowOptions::for_actor(principal.clone());
        let backend = files.backend.narrow(narrow).map_err(failed)?;
        Ok(Self(ServedDirectory { backend, ..files.clone() }))
    }
}

/// Converts an error of the workspace to a problem. Clients expect 400 for a missing file.
pub(crate) fn failed(error: Error) -> Problem {
    let detail = error.to_string();
    let kind = match error.kind() {
        ErrorKind::NotFound => {
            let detail = format!("path not found: {}", error.path().unwrap_or_default());
            return Problem::new(ProblemKind::Invalid, detail);
        }
        ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidPath
        | ErrorKind::Invalid
        | ErrorKind::SpecialFile
        | ErrorKind::LinkLoop
        | ErrorKind::TextNotFound
        | ErrorKind::TextNotUnique => ProblemKind::Invalid,
        ErrorKind::Io => ProblemKind::BadGateway,
        other => other.into(),
    };
    Problem::new(kind, detail)
}

/// Describes the errors of every file route.
pub(crate) struct FileProblems;

impl IntoResponses for FileProblems {
    fn responses() -> std::collections::BTreeMap<String, RefOr<Described>> {
        described(&[
            (StatusCode::NOT_FOUND, "This server serves no files"),
            (StatusCode::CONFLICT, "The directory is not empty, or the file was changed meanwhile"),
            (StatusCode::GONE, "The server is closing"),
            (StatusCode::PAYLOAD_TOO_LARGE, "The request is too large"),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The Content-Type is not JSON"),
            (StatusCode::UNPROCESSABLE_ENTITY, "This cannot be done with such a file"),
            (StatusCode::BAD_GATEWAY, "The file system failed"),
            (StatusCode::SERVICE_UNAVAILABLE, "The file system is not available"),
            (StatusCode::GATEWAY_TIMEOUT, "The file system took too long"),
            (StatusCode::INSUFFICIENT_STORAGE, "There is no space left"),
        ])
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathQuery {
    /// The path, relative to the served root or absolute inside it
    pub(crate) path: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DirectoryQuery {
    /// The path, relative to the served root or absolute inside it. Default: the root
    pub(crate) path: Option<String>,
}

impl DirectoryQuery {
    pub(crate) fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }
}

/// A file or directory
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsEntry {
    name: String,
    path: String,
    entry_type: &'static str,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

/// The attributes of a file or directory
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsStat {
    path: String,
    entry_type: &'static str,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

/// The changed path
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FsChanged {
    pub(crate) path: String,
}

/// The source and target of a move
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct FsMove {
    from: String,
    to: String,
    /// Whether to replace an existing `to`. A directory is replaced with everything in it
    #[serde(default)]
    overwrite: Option<bool>,
}

/// The moved path
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FsMoved {
    from: String,
    to: String,
}

/// List a directory
#[utoipa::path(
    get,
    path = "/v1/fs/entries",
    tag = "files",
    params(DirectoryQuery),
    responses((status = OK, body = Vec<FsEntry>), FileProblems)
)]
pub(crate) async fn entries(
    QueryParams(query): QueryParams<DirectoryQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<Vec<FsEntry>>, Problem> {
    let path = files.inside(query.path())?;
    let options = ListOptions { detail: EntryDetailLevel::Stat, ..ListOptions::default() };
    let listing = files.backend.list(&path, options).await.map_err(failed)?;
    if listing.truncated.is_some() {
        let detail = format!("more than {} entries", listing.entries.len());
        return Err(Problem::new(ProblemKind::TooLarge, detail));
    }
    let entry = |entry: DirEntry| {
        let path = files.shown(entry.path.as_str())?;
        let name = entry.path.name().unwrap_or_default().to_owned();
        let (size, modified) = match entry.stat {
            Some(stat) => (stat.size, time(stat.modified)),
            None => (0, None),
        };
        Ok(FsEntry { name, path, entry_type: entry_type(entry.kind), size, modified })
    };
    listing.entries.into_iter().map(entry).collect::<Result<_, _>>().map(Json)
}

/// Describe a file or directory
#[utoipa::path(
    get,
    path = "/v1/fs/stat",
    tag = "files",
    params(PathQuery),
    responses((status = OK, body = FsStat), FileProblems)
)]
pub(crate) async fn stat(
    QueryParams(PathQuery { path }): QueryParams<PathQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<FsStat>, Problem> {
    let path = files.inside(&path)?;
    let stat = files.backend.stat(&path).await.map_err(failed)?;
    Ok(Json(FsStat {
        path: files.shown(&path)?,
        entry_type: entry_type(stat.kind),
        size: stat.size,
        modified: time(stat.modified),
    }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemovalQuery {
    /// The path, relative to the served root or absolute inside it
    path: String,
    /// Whether to remove a directory together with everything in it
    recursive: Option<bool>,
}

/// Remove a file or directory
#[utoipa::path(
    delete,
    path = "/v1/fs/entry",
    tag = "files",
    params(RemovalQuery),
    responses((status = OK, body = FsChanged), FileProblems)
)]
pub(crate) async fn remove(
    QueryParams(RemovalQuery { path, recursive }): QueryParams<RemovalQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<FsChanged>, Problem> {
    let path = files.inside(&path)?;
    let options = if recursive.unwrap_or_default() {
        RemoveOptions::recursive()
    } else {
        RemoveOptions::default()
    };
    files.backend.rm(&path, options).await.map_err(failed)?;
    Ok(Json(FsChanged { path: files.shown(&path)? }))
}

/// Make a directory and its parents
#[utoipa::path(
    post,
    path = "/v1/fs/mkdir",
    tag = "files",
    params(PathQuery),
    responses((status = OK, body = FsChanged), FileProblems)
)]
pub(crate) async fn mkdir(
    QueryParams(PathQuery { path }): QueryParams<PathQuery>,
    CallerFiles(files): CallerFiles,
) -> Result<Json<FsChanged>, Problem> {
    let path = files.inside(&path)?;
    files.backend.mkdir(&path).await.map_err(failed)?;
    Ok(Json(FsChanged { path: files.shown(&path)? }))
}

/// Move a file or directory
#[utoipa::path(
    post,
    path = "/v1/fs/move",
    tag = "files",
    request_body = FsMove,
    responses((status = OK, body = FsMoved), FileProblems)
)]
pub(crate) async fn rename(
    CallerFiles(files): CallerFiles,
    JsonBody(FsMove { from, to, overwrite }): JsonBody<FsMove>,
) -> Result<Json<FsMoved>, Problem> {
    let backend = &files.backend;
    let (from, to) = (files.inside(&from)?, files.inside(&to)?);
    let moved = FsMoved { from: files.shown(&from)?, to: files.shown(&to)? };
    let keep = StatOptions { links: LinkHandling::NoFollow };
    let source = backend.stat_with(&from, keep).await.map_err(failed)?;
    let overwrite = overwrite.unwrap_or_default();
    if moved.from == moved.to {
        return Ok(Json(moved));
    }
    let target = match backend.stat_with(&to, keep).await {
        Ok(stat) => Some(stat.kind),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            None
        }
        Err(error) => return Err(failed(error)),
    };
    if target.is_some() && !overwrite {
        let detail = format!("{} already exists: set overwrite to replace it", moved.to);
        return Err(Problem::new(ProblemKind::Invalid, detail));
    }
    let invalid = |detail| Err(Problem::new(ProblemKind::Invalid, detail));
    let (from, to) = (parsed(backend, &from)?, parsed(backend, &to)?);
    if from.starts_with(&to) {
        return invalid(format!("{} is in {}, which it would replace", moved.from, moved.to));
    }
    if to.starts_with(&from) {
        return invalid(format!(
            "{} is in {}, which cannot move into itself",
            moved.to, moved.from
        ));
    }
    if let Some(parent) = to.parent().filter(|parent| !parent.is_root()) {
        backend.mkdir(&parent).await.map_err(failed)?;
    }
    // A rename can replace a file by a file, but not a directory with entries.
    if target.is_some_and(|kind| kind.is_dir() || source.kind.is_dir()) {
        replace(backend, &from, &to).await.map_err(failed)?;
    } else {
        let overwrite = if overwrite { OverwriteMode::Replace } else { OverwriteMode::Refuse };
        backend.rename_with(&from, &to, RenameOptions { overwrite }).await.map_err(failed)?;
    }
    Ok(Json(moved))
}

fn parsed(backend: &Backend, path: &str) -> Result<WsPath, Problem> {
    backend.parse_path(path).map_err(failed)
}

/// Renames `from` to `to` if `to` exists. The existing entry is renamed to a temporary name first.
/// It is removed only after `from` has been renamed, because renaming `from` can still fail. For
/// example, a link in one of the paths may lead into the other path.
async fn replace(backend: &Backend, from: &WsPath, to: &WsPath) -> Result<(), Error> {
    let unlisted = backend.with_reserved_names_allowed();
    let aside = temporary_beside(to)?;
    unlisted.rename(to, &aside).await?;
    if let Err(error) = unlisted.rename(from, to).await {
        unlisted.rename(&aside, to).await?;
        return Err(error);
    }
    unlisted.rm(&aside, RemoveOptions::recursive()).await.map(drop)
}

/// An unused temporary name in the directory of `path`.
pub(super) fn temporary_beside(path: &WsPath) -> Result<WsPath, Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| Error::for_path(Verb::Rename, path, ErrorKind::Io, error.to_string()))?;
    let name = format!("{TEMP_FILE_PREFIX}{:016x}", u64::from_ne_bytes(random));
    Ok(path.parent().unwrap_or_default().join_unchecked(&name))
}

/// The type of an entry. Clients know only files and directories, so a link counts as a file.
fn entry_type(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Dir => "directory",
        FileKind::File | FileKind::Symlink | FileKind::Other => "file",
    }
}

fn time(time: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(time).ok().map(|time| time.to_string())
}
