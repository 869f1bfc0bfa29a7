//! `/v1/fs/upload-batch`: uploads many files in one tar archive.

use ab_core::backend::ReadStreamOptions;
use ab_core::options::{
    LinkHandling, OverwriteMode, RemoveOptions, RenameOptions, StatOptions, WriteOptions,
};
use ab_core::tar::{TarDecoder, TarEntry, TarEntryKind, TarError, TarEvent};
use ab_core::{Backend, Error, ErrorKind, FileKind};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::header;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use serde::Serialize;
use utoipa::ToSchema;

use super::content::bounded;
use super::files::{
    CallerFiles, DirectoryQuery, FileProblems, ServedDirectory, failed, temporary_beside,
};
use crate::app::HttpApp;
use crate::extract::QueryParams;
use crate::problem::{Problem, ProblemKind};

/// Maximum number of paths that a response lists.
const MAX_PATHS: usize = 1024;
/// Maximum total number of bytes that hard links of an archive may copy. The limit is needed
/// because an entry without content may copy a large file.
const MAX_COPIED_BYTES: u64 = 1024 * 1024 * 1024;

/// The uploaded files
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FsUploaded {
    /// Files and directories, in the order of the archive
    paths: Vec<String>,
    /// Whether more paths were uploaded than the response lists
    truncated: bool,
}

/// Upload many files
///
/// The body is an uncompressed tar archive. It is read as a stream, and each file replaces an
/// existing one when it is complete, as a symbolic link replaces a file or another link. Links must stay inside the archive. Devices are refused. If an
/// entry is refused, the entries before it stay uploaded.
#[utoipa::path(
    post,
    path = "/v1/fs/upload-batch",
    tag = "files",
    params(DirectoryQuery),
    request_body(content = [u8], content_type = "application/x-tar"),
    responses((status = OK, body = FsUploaded), FileProblems)
)]
pub(crate) async fn upload(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<DirectoryQuery>,
    CallerFiles(files): CallerFiles,
    request: Request,
) -> Result<Json<FsUploaded>, Problem> {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.to_ascii_lowercase().starts_with("application/x-tar") {
        let detail =
            "the body must be a tar archive, with the header Content-Type: application/x-tar";
        return Err(Problem::new(ProblemKind::Invalid, detail));
    }
    let target = files.inside(query.path())?;
    let body = bounded(request.into_body(), files.max_upload);
    let unpacking = async move {
        let archive = ArchiveReader {
            body: Box::pin(body),
            decoder: TarDecoder::default(),
            copyable_bytes: files.max_upload.unwrap_or(u64::MAX).min(MAX_COPIED_BYTES),
        };
        unpack(&files, &target, archive).await
    };
    app.finish_write(unpacking).await?.map(Json)
}

async fn unpack(
    files: &ServedDirectory,
    target: &str,
    mut archive: ArchiveReader<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin>,
) -> Result<FsUploaded, Problem> {
    let backend = &files.backend;
    // Read the first entry before the directory is created, so that a body that is not an archive
    // creates nothing.
    let mut next = archive.entry().await?;
    backend.mkdir(target).await.map_err(failed)?;
    let mut uploaded = FsUploaded { paths: Vec::new(), truncated: false };
    while let Some(entry) = next {
        if !entry.path.is_empty() {
            let path = format!("{target}/{}", entry.path);
            place(backend, target, &path, &entry, &mut archive).await?;
            if uploaded.paths.len() < MAX_PATHS {
                uploaded.paths.push(files.shown(&path)?);
            } else {
                uploaded.truncated = true;
            }
        }
        next = archive.entry().await?;
    }
    Ok(uploaded)
}

async fn place(
    backend: &Backend,
    target: &str,
    path: &str,
    entry: &TarEntry,
    archive: &mut ArchiveReader<impl Stream<Item = Result<Bytes, Error>> + Send + Unpin>,
) -> Result<(), Problem> {
    let placed = match &entry.kind {
        TarEntryKind::Directory => backend.mkdir(path).await,
        TarEntryKind::File { .. } => {
            // Make sure that the owner can read and change uploaded files.
            let permissions = Some(entry.mode | 0o600);
            let options = WriteOptions { permissions, ..WriteOptions::default() };
            backend.write_stream(path, archive.content(), options).await.map(drop)
        }
        TarEntryKind::Symlink { target } => link(backend, path, target).await,
        TarEntryKind::HardLink { path: earlier } => {
            let earlier = format!("{target}/{earlier}");
            copy(backend, &earlier, path, &mut archive.copyable_bytes).await
        }
    };
    placed.map_err(failed)
}

/// Makes a symbolic link. It replaces another link or a file in one step, as uploaded files do.
async fn link(backend: &Backend, path: &str, target: &str) -> Result<(), Error> {
    let exists = match backend.symlink(path, target).await {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => error,
        made => return made,
    };
    let keep = StatOptions { links: LinkHandling::NoFollow };
    match backend.stat_with(path, keep).await?.kind {
        FileKind::Symlink if backend.read_link(path).await? == target => return Ok(()),
        FileKind::Symlink | FileKind::File => {}
        FileKind::Dir | FileKind::Other => return Err(exists),
    }
    let path = backend.parse_path(path)?;
    let unlisted = backend.with_reserved_names_allowed();
    let temporary = temporary_beside(&path)?;
    unlisted.symlink(&temporary, target).await?;
    let options = RenameOptions { overwrite: OverwriteMode::Replace };
    let placed = unlisted.rename_with(&temporary, &path, options).await;
    if placed.is_err() {
        let _ = unlisted.rm(&temporary, RemoveOptions::default()).await;
    }
    placed.map(drop)
}

/// Copies a file if it has at most `left` bytes, and subtracts its size from `left`.
async fn copy(backend: &Backend, from: &str, to: &str, left: &mut u64) -> Result<(), Error> {
    let content = backend.read_stream(from, ReadStreamOptions::default()).await?;
    let counted = content.map(|piece| {
        let piece = piece?;
        *left = left.checked_sub(piece.len() as u64).ok_or_else(|| {
            let message = "the hard links of the archive copy too many bytes";
            Error::new(ab_core::ErrorCode::TooLarge, ab_core::ErrorKind::TooLarge, message)
        })?;
        Ok(piece)
    });
    backend.write_stream(to, counted, WriteOptions::default()).await.map(drop)
}

/// Reads an archive while it is being received.
struct ArchiveReader<S> {
    body: S,
    decoder: TarDecoder,
    /// How many bytes hard links of the archive may still copy.
    copyable_bytes: u64,
}

impl<S: Stream<Item = Result<Bytes, Error>> + Send + Unpin> ArchiveReader<S> {
    /// Reads the next entry. Unread content of the previous entry is skipped.
    async fn entry(&mut self) -> Result<Option<TarEntry>, Problem> {
        loop {
            match self.decoder.next().map_err(refused)? {
                Some(TarEvent::Entry(entry)) => return Ok(Some(entry)),
                Some(TarEvent::Data(_)) => {}
                None => match self.body.next().await {
                    Some(piece) => self.decoder.feed(&piece.map_err(failed)?),
                    None => {
                        self.decoder.finish().map_err(refused)?;
                        return Ok(None);
                    }
                },
            }
        }
    }

    /// Reads the content of the current entry.
    fn content(&mut self) -> impl Stream<Item = Result<Bytes, Error>> + Send + '_ {
        futures_util::stream::try_unfold(self, |archive| async move {
            loop {
                if archive.decoder.is_between_entries() {
                    return Ok(None);
                }
                match archive.decoder.next().map_err(invalid)? {
                    Some(TarEvent::Data(data)) => return Ok(Some((data, archive))),
                    // The content of this entry has ended.
                    Some(TarEvent::Entry(_)) => return Ok(None),
                    None => match archive.body.next().await {
                        Some(piece) => archive.decoder.feed(&piece?),
                        None => {
                            archive.decoder.finish().map_err(invalid)?;
                            return Ok(None);
                        }
                    },
                }
            }
        })
    }
}

fn refused(error: TarError) -> Problem {
    failed(invalid(error))
}

fn invalid(error: TarError) -> Error {
    let message = format!("invalid tar archive: {error}");
    Error::new(ab_core::ErrorCode::InvalidConfiguration, ab_core::ErrorKind::Invalid, message)
}
