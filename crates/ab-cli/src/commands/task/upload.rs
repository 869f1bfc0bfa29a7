//! Uploads files and directories to the server before the task that uses them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ab_api::{
    TaskAttachment, TaskRequest, Upload, UploadId, UploadKind, UploadRequest, UploadStatus,
};
use ab_core::{Error, ErrorCode, ErrorKind};
use agent_backend::ServeClient;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::pack::PackedDirectory;
use crate::count::counted;
use crate::failure::Failure;
use crate::progress::{Progress, Wanted};
use crate::terminal::Terminal;

/// Number of bytes of one request. A slow connection must be able to send it within the time limit
/// of a request.
const PIECE: usize = 2 * 1024 * 1024;
/// Maximum number of attempts to send a piece, and the pause after the first failed attempt. Each
/// further pause is twice as long. All pauses together are longer than the time that the server
/// waits for a silent sender.
const ATTEMPTS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(250);

/// Uploads the directory and the attachments of a task, and adds their ids to the request.
///
/// # Errors
///
/// Fails if a file cannot be read or the server refuses it. After a failure the uploads are removed
/// from the server.
pub(super) async fn add_uploads(
    client: &ServeClient,
    request: &mut TaskRequest,
    directory: Option<&Path>,
    files: &[std::path::PathBuf],
    terminal: &mut Terminal,
) -> Result<Vec<UploadId>, Failure> {
    let mut sent = Vec::new();
    let outcome = add(client, request, directory, files, &mut sent, terminal).await;
    if outcome.is_err() {
        remove(client, &sent).await;
    }
    outcome.map(|()| sent)
}

/// Removes uploads that no task will use. Uploads that cannot be removed expire later.
pub(super) async fn remove(client: &ServeClient, uploads: &[UploadId]) {
    for id in uploads {
        if let Err(error) = client.remove_upload(*id).await {
            tracing::debug!(%error, "cannot remove an upload");
        }
    }
}

async fn add(
    client: &ServeClient,
    request: &mut TaskRequest,
    directory: Option<&Path>,
    files: &[std::path::PathBuf],
    sent: &mut Vec<UploadId>,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let wanted = Wanted::by(false, terminal);
    if let Some(directory) = directory {
        let mut packed = PackedDirectory::list(directory).await?;
        if packed.left_out > 0 {
            terminal.note(&format!(
                "{} of {} not sent: links that lead out of it, nested repositories, special files",
                counted(packed.left_out, "entry", "entries"),
                directory.display()
            ));
        }
        let name = format!("{}.tar", name(directory)?);
        let size = packed.size;
        let about = UploadRequest { kind: UploadKind::Tar, name, size, digest: None };
        let id = send(client, &about, sent, wanted, |most| packed.piece(most)).await?;
        request.repo.upload_id = Some(id);
    }
    for path in files {
        let about = described(path)?;
        let mut file = opened(path)?;
        let piece = |most: usize| {
            let mut piece = Vec::new();
            let read = file.by_ref().take(most as u64).read_to_end(&mut piece);
            read.map(|_| piece).map_err(|error| unreadable(path, error))
        };
        let upload_id = send(client, &about, sent, wanted, piece).await?;
        request.attachments.push(TaskAttachment { upload_id, name: String::new(), size: 0 });
    }
    Ok(())
}

/// Sends all pieces of one upload.
async fn send(
    client: &ServeClient,
    about: &UploadRequest,
    sent: &mut Vec<UploadId>,
    wanted: Wanted,
    mut next: impl FnMut(usize) -> Result<Vec<u8>, Failure>,
) -> Result<UploadId, Failure> {
    let mut upload = client.create_upload(about).await?;
    sent.push(upload.id);
    let mut progress = Progress::new(wanted, Some(about.size));
    loop {
        let piece = Bytes::from(next(PIECE)?);
        if piece.is_empty() && about.size > 0 {
            break;
        }
        let length = piece.len() as u64;
        upload = send_piece(client, upload, piece).await?;
        progress.advance(length);
        if about.size == 0 {
            break;
        }
    }
    if upload.status == UploadStatus::Complete {
        return Ok(upload.id);
    }
    let Upload { offset, .. } = upload;
    let message = format!("the server has {offset} of {} bytes of {}", about.size, about.name);
    Err(Error::new(ErrorCode::WriteFailed, ErrorKind::Conflict, message).into())
}

/// Sends one piece. After a lost connection, continues at the offset that the server reports.
async fn send_piece(
    client: &ServeClient,
    mut upload: Upload,
    piece: Bytes,
) -> Result<Upload, Failure> {
    let begin = upload.offset;
    let mut attempt = 0;
    loop {
        let arrived = usize::try_from(upload.offset.saturating_sub(begin)).unwrap_or(usize::MAX);
        let rest = piece.slice(arrived.min(piece.len())..);
        let error = match client.send_upload_piece(&upload, rest).await {
            Ok(upload) => return Ok(upload),
            Err(error) => error,
        };
        let is_passing = matches!(
            error.kind(),
            ErrorKind::Disconnected | ErrorKind::Timeout | ErrorKind::Conflict
        );
        attempt += 1;
        if !is_passing || attempt >= ATTEMPTS {
            return Err(error.into());
        }
        tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
        // A part of the earlier request may have arrived, and its signed URL may have expired.
        match client.upload(upload.id).await {
            Ok(found) if found.status == UploadStatus::Complete => return Ok(found),
            Ok(found) if found.offset >= begin => upload = found,
            Ok(_) => return Err(error.into()),
            Err(unreached) if unreached.kind() == ErrorKind::Disconnected => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes the upload request for a file, with the file's digest.
fn described(path: &Path) -> Result<UploadRequest, Failure> {
    let mut file = opened(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut size = 0;
    loop {
        let read = file.read(&mut piece).map_err(|error| unreadable(path, error))?;
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        size += read as u64;
    }
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = Some(format!("sha256:{digest}"));
    Ok(UploadRequest { kind: UploadKind::File, name: name(path)?, size, digest })
}

fn opened(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let is_file = file.metadata().map_err(|error| unreadable(path, error))?.is_file();
    if is_file {
        return Ok(file);
    }
    let message = format!("{} is not a file", path.display());
    Err(Failure::usage(message).with_hint("--upload takes a directory"))
}

/// The last part of a path.
fn name(path: &Path) -> Result<String, Failure> {
    let real = path.canonicalize().map_err(|error| unreadable(path, error))?;
    let name = path.file_name().or_else(|| real.file_name()).and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!("the name of {} cannot be sent: it is not UTF-8", path.display()))
    })
}

fn unreadable(path: &Path, error: std::io::Error) -> Failure {
    Failure::input(format!("read {}", path.display()), error)
}
