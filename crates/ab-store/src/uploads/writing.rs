//! Receives the content of an upload.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};

use ab_api::{Time, UploadId, UploadStatus};
use tokio::task::spawn_blocking;

use super::files::{self, UploadFile, UploadFiles};
use super::refusal::UploadRefusal;
use super::{UploadLimits, UploadRecord, file_failed, finish};
use crate::error::StoreError;
use crate::store::Store;
use crate::tail::lock;

/// Number of bytes that are buffered before they are written.
const BUFFER: usize = 256 * 1024;

/// The offset at which the content of a request begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadStart {
    /// The content begins at offset 0. Content that arrived earlier is removed.
    FromBeginning,
    /// The content continues an upload of which exactly this many bytes have arrived.
    At(u64),
}

/// Writes the content of one request. Dropping the writer keeps what was written so far.
#[derive(Debug)]
pub struct UploadWriter {
    store: Store,
    record: UploadRecord,
    limits: UploadLimits,
    /// Number of bytes that have arrived, including buffered ones.
    offset: u64,
    collected: Vec<u8>,
    /// `None` after an error, and if the upload is complete.
    open: Option<OpenUpload>,
}

/// An open file together with the lease that allows to write it.
#[derive(Debug)]
struct OpenUpload {
    file: UploadFile,
    _lease: UploadLease,
}

/// The uploads that are being written.
pub(crate) type BusyUploads = Arc<Mutex<HashSet<UploadId>>>;

/// Reserves an upload for one writer until the lease is dropped.
#[derive(Debug)]
struct UploadLease {
    id: UploadId,
    busy: BusyUploads,
}

impl Drop for UploadLease {
    fn drop(&mut self) {
        lock(&self.busy).remove(&self.id);
    }
}

impl UploadWriter {
    pub(super) async fn begin(
        store: Store,
        record: UploadRecord,
        start: UploadStart,
        limits: UploadLimits,
    ) -> Result<Self, StoreError> {
        let id = record.upload.id;
        let busy = &store.uploads_state().busy;
        if !lock(busy).insert(id) {
            return Err(UploadRefusal::BeingWritten.into());
        }
        let lease = UploadLease { id, busy: Arc::clone(busy) };
        // Read the record again, because another writer may have changed it before the lease was
        // taken.
        let record = store.get_upload(id).await?;
        let expected = record.upload.offset;
        let offset = match (record.upload.status, start) {
            (UploadStatus::Used, _) => return Err(UploadRefusal::Used.into()),
            (_, UploadStart::At(offset)) if offset != expected => {
                return Err(UploadRefusal::WrongOffset { expected }.into());
            }
            (UploadStatus::Complete, UploadStart::FromBeginning) => {
                return Err(UploadRefusal::Complete.into());
            }
            (_, UploadStart::At(offset)) => offset,
            (_, UploadStart::FromBeginning) => 0,
        };
        let is_complete = record.upload.status == UploadStatus::Complete;
        let open = if is_complete {
            None
        } else {
            let files = store.uploads_state().files.clone();
            let file = blocking(move || UploadFiles::open(&files, id, offset)).await?;
            Some(OpenUpload { file: file.map_err(file_failed)?, _lease: lease })
        };
        Ok(Self { store, record, limits, offset, collected: Vec::new(), open })
    }

    /// Adds a piece of the content.
    ///
    /// # Errors
    ///
    /// [`UploadRefusal::TooLong`] if the content exceeds the declared size,
    /// [`UploadRefusal::NoSpace`] if the disk is full. Also fails if the file cannot be written.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        let size = self.record.upload.request.size;
        let offset = self.offset.saturating_add(piece.len() as u64);
        if offset > size {
            return Err(UploadRefusal::TooLong { size }.into());
        }
        self.offset = offset;
        self.collected.extend_from_slice(piece);
        if self.collected.len() >= BUFFER { self.flush().await } else { Ok(()) }
    }

    /// Writes the buffered rest. If all bytes of the upload have arrived, checks them and completes
    /// the upload.
    ///
    /// # Errors
    ///
    /// [`UploadRefusal::DigestMismatch`] or [`UploadRefusal::InvalidArchive`] if the content is wrong. The content
    /// is then removed. [`StoreError::NotFound`] if the upload was removed. Also fails with the
    /// errors of [`write`](UploadWriter::write).
    pub async fn finish(mut self) -> Result<UploadRecord, StoreError> {
        self.flush().await?;
        let id = self.record.upload.id;
        let mut is_complete = self.record.upload.status == UploadStatus::Complete;
        let lease = if let Some(OpenUpload { mut file, _lease }) = self.open.take() {
            if self.offset == self.record.upload.request.size {
                let request = self.record.upload.request.clone();
                blocking(move || files::check(&mut file, &request)).await??;
                is_complete = true;
            }
            Some(_lease)
        } else {
            None
        };
        let expires = Time::now().saturating_add(self.limits.lifetime);
        finish(&self.store, id, is_complete, expires).await?;
        drop(lease);
        self.store.get_upload(id).await
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        if self.collected.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.collected);
        let before = self.offset - piece.len() as u64;
        let Some(mut open) = self.open.take() else { return Err(UploadRefusal::Complete.into()) };
        // The file and its lease move into the closure. If this future is dropped, the lease still
        // keeps other writers away until the piece is written.
        let (open, piece, written) = blocking(move || {
            let written = files::append(&mut open.file, before, &piece);
            (open, piece, written)
        })
        .await?;
        written?;
        self.open = Some(open);
        self.collected = piece;
        self.collected.clear();
        Ok(())
    }
}

/// Runs blocking file operations on another thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    spawn_blocking(work).await.map_err(|error| file_failed(io::Error::other(error)))
}
