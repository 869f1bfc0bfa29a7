//! Copies a file from one driver to another, with its content, mode and times. The copy is complete
//! or is not made at all.
//!
//! A small file is copied with one read and one write. A larger file is copied in pieces to a
//! hidden temporary file next to the target. The temporary file is then renamed, so that readers
//! never see an incomplete file.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;

use crate::driver::{Driver, File};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{FileVersion, Stat};
use crate::options::{
    AttributeChanges, FileAccess, FileCreationMode, OpenOptions, OverwriteMode, ReadOptions,
    RemoveOptions, RenameOptions, WriteMode, WriteOptions,
};
use crate::path::{TEMP_FILE_PREFIX, WsPath};
use crate::stream::{self, StreamCopyError};

/// Maximum number of bytes of a small file. Also the size of one read in a comparison.
pub(crate) const PIECE: usize = 256 * 1024;

/// The source or the target of a copy.
#[derive(Clone, Copy)]
pub(crate) struct TransferEnd<'a> {
    pub(crate) driver: &'a dyn Driver,
    pub(crate) path: &'a WsPath,
}

/// What may exist at the target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Onto {
    /// An existing target is an error.
    Nothing,
    /// An existing file is replaced.
    File,
}

/// Whether reading the source or writing the target failed. The caller must know this, because each
/// driver has its own paths.
pub(crate) enum TransferFailure {
    Source(Error),
    Target(Error),
}

impl TransferFailure {
    /// The error of either end. It is used if both ends have the same paths.
    pub(crate) fn into_error(self) -> Error {
        match self {
            TransferFailure::Source(error) | TransferFailure::Target(error) => error,
        }
    }
}

/// Copies the file whose attributes are `stat`. Returns the version that was copied.
pub(crate) async fn copy_file(
    source: TransferEnd<'_>,
    target: TransferEnd<'_>,
    stat: &Stat,
    onto: Onto,
) -> Result<FileVersion, TransferFailure> {
    if stat.size <= PIECE as u64 {
        let options = ReadOptions { range: None, max_bytes: PIECE as u64 };
        match source.driver.read(source.path, options).await {
            Ok(content) => {
                let version = content.stat.version;
                let put = put_small(target, content.bytes, &content.stat, onto).await;
                return put.map(|()| version).map_err(TransferFailure::Target);
            }
            // The file has grown since its size was read.
            Err(error) if error.kind() == ErrorKind::TooLarge => {}
            Err(error) => return Err(TransferFailure::Source(error)),
        }
    }
    copy_large(source, target, onto).await
}

/// Whether two files have the same bytes.
pub(crate) async fn same_bytes(one: TransferEnd<'_>, other: TransferEnd<'_>) -> Result<bool> {
    let one = one.driver.open(one.path, OpenOptions::default()).await?;
    let other = other.driver.open(other.path, OpenOptions::default()).await?;
    if one.stat().await?.size != other.stat().await?.size {
        return Ok(false);
    }
    let mut offset = 0;
    loop {
        let piece = full_piece(&*one, offset).await?;
        if piece != full_piece(&*other, offset).await? {
            return Ok(false);
        }
        if piece.len() < PIECE {
            return Ok(true);
        }
        offset += piece.len() as u64;
    }
}

/// Reads a full piece. A driver may return fewer bytes than requested. It returns no bytes only at
/// the end.
async fn full_piece(file: &dyn File, offset: u64) -> Result<Bytes> {
    let first = file.read_at(offset, PIECE).await?;
    if first.is_empty() || first.len() == PIECE {
        return Ok(first);
    }
    let mut piece = first.to_vec();
    loop {
        let more = file.read_at(offset + piece.len() as u64, PIECE - piece.len()).await?;
        if more.is_empty() {
            return Ok(piece.into());
        }
        piece.extend_from_slice(&more);
    }
}

async fn put_small(target: TransferEnd<'_>, bytes: Bytes, stat: &Stat, onto: Onto) -> Result<()> {
    let mode = match onto {
        Onto::Nothing => WriteMode::CreateNew,
        Onto::File => WriteMode::CreateOrReplace,
    };
    let options = WriteOptions { mode, permissions: stat.mode, ..WriteOptions::default() };
    target.driver.write(target.path, bytes, options).await?;
    let dressed = dress(target, stat).await;
    if dressed.is_err() && onto == Onto::Nothing {
        let _ = target.driver.remove(target.path, RemoveOptions::default()).await;
    }
    dressed
}

async fn copy_large(
    source: TransferEnd<'_>,
    target: TransferEnd<'_>,
    onto: Onto,
) -> Result<FileVersion, TransferFailure> {
    let from = source.driver.open(source.path, OpenOptions::default()).await;
    let from = from.map_err(TransferFailure::Source)?;
    let before = from.stat().await.map_err(TransferFailure::Source)?;
    let hidden = beside(target.path);
    let temporary = TransferEnd { path: &hidden, ..target };
    let filled = fill(source.path, &*from, temporary, &before).await;
    let placed = match filled {
        Ok(()) => {
            let overwrite = match onto {
                Onto::Nothing => OverwriteMode::Refuse,
                Onto::File => OverwriteMode::Replace,
            };
            let options = RenameOptions { overwrite };
            let renamed = target.driver.rename(&hidden, target.path, options).await;
            renamed.map(drop).map_err(TransferFailure::Target)
        }
        Err(failure) => Err(failure),
    };
    if placed.is_err() {
        let options = RemoveOptions::default().missing_ok();
        let _ = target.driver.remove(&hidden, options).await;
    }
    placed.map(|()| before.version).map_err(|failure| match failure {
        TransferFailure::Source(error) => TransferFailure::Source(error),
        TransferFailure::Target(error) => TransferFailure::Target(
            error.map_path(|path| (path == hidden.as_str()).then(|| target.path.to_string())),
        ),
    })
}

async fn fill(
    name: &WsPath,
    from: &dyn File,
    temporary: TransferEnd<'_>,
    before: &Stat,
) -> Result<(), TransferFailure> {
    let options = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::MustBeNew,
        permissions: before.mode,
        ..OpenOptions::default()
    };
    let to =
        temporary.driver.open(temporary.path, options).await.map_err(TransferFailure::Target)?;
    // A file that reports the size zero may nevertheless have content.
    let size = Some(before.size).filter(|size| *size > 0);
    stream::write_stream_to_file(&*to, stream::read_file_chunks(from, size), |_| {})
        .await
        .map_err(|unfilled| match unfilled {
            StreamCopyError::Source(error) => TransferFailure::Source(error),
            StreamCopyError::Target(error) => TransferFailure::Target(error),
        })?;
    drop(to);
    if from.stat().await.map_err(TransferFailure::Source)?.version != before.version {
        return Err(TransferFailure::Source(changed(name)));
    }
    dress(temporary, before).await.map_err(TransferFailure::Target)
}

/// The error for a source that changed during the copy.
pub(crate) fn changed(path: &WsPath) -> Error {
    let message = "the source changed while it was copied";
    Error::for_path(crate::call::Verb::Rename, path, ErrorKind::Conflict, message)
}

/// Gives a copy the mode and the times of the original, as far as the driver supports this.
pub(crate) async fn dress(end: TransferEnd<'_>, stat: &Stat) -> Result<()> {
    let mode = stat.mode.filter(|_| end.driver.info().capabilities.file_modes);
    let attributes =
        AttributeChanges { mode, modified: Some(stat.modified), accessed: stat.accessed };
    match end.driver.set_attributes(end.path, attributes).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(error) => Err(error),
    }
}

/// A path for a temporary file in the same directory.
pub(crate) fn beside(path: &WsPath) -> WsPath {
    let random = RandomState::new().build_hasher().finish();
    let name = WsPath::from_key(&format!("{TEMP_FILE_PREFIX}{random:016x}"));
    match path.parent() {
        Some(parent) => parent.join(&name),
        None => name,
    }
}
