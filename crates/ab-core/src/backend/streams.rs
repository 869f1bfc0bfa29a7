//! Streams of file content. They use a bounded amount of memory. Readers see either the old file or
//! the new one.

use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, Stream, StreamExt};

use super::Backend;
use crate::call::Verb;
use crate::driver::File;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{FileKind, Stat};
use crate::options::{
    ByteRange, Durability, FileAccess, FileCreationMode, LinkHandling, OpenOptions, OverwriteMode,
    RemoveOptions, RenameOptions, StatOptions, WriteMode, WriteOptions,
};
use crate::path::{PathInput, WsPath};
use crate::stream::{StreamCopyError, pieces_within, write_stream_to_file};
use crate::transfer::beside;

/// Maximum number of bytes of content that are written in a single call.
pub const SINGLE_CALL_WRITE_LIMIT_BYTES: usize = 1024 * 1024;

/// Options for reading a file as a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStreamOptions {
    /// The range to read. `None` for the whole file.
    pub range: Option<ByteRange>,
}

impl Backend {
    /// Reads a file of any size as a stream of pieces. The stream ends at the size that the file
    /// had when it was opened, even if the file grows during the read.
    ///
    /// # Errors
    /// Fails if the file cannot be opened. If reading a piece fails, the stream ends with this
    /// error.
    pub async fn read_stream<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: ReadStreamOptions,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let file = self.open(path, OpenOptions::default()).await;
        let file: Arc<dyn File> = file.map_err(|error| error.with_verb(Verb::Read))?.into();
        // Some files of the kernel, such as those in `/proc`, report the size zero although they
        // have content.
        let size = Some(file.stat().await?.size).filter(|size| *size > 0);
        let (start, end) = match options.range {
            Some(range) => {
                let end = range.start.saturating_add(range.length);
                (range.start, Some(size.map_or(end, |size| size.min(end))))
            }
            None => (0, size),
        };
        Ok(pieces_within(file, start, end).boxed())
    }

    /// Writes a file of any size from a stream. The content is written to a hidden temporary file
    /// next to the target, which replaces the target when it is complete. A failed stream therefore
    /// changes nothing. Content of at most [`SINGLE_CALL_WRITE_LIMIT_BYTES`] bytes is written in
    /// one call.
    ///
    /// To stop early, end the stream with an error. If the future is dropped instead, the temporary
    /// file remains.
    ///
    /// # Errors
    /// Fails if the stream or a write fails. `Unsupported` for larger content if the options
    /// contain an expected version or the path is a symbolic link, because a rename cannot handle
    /// these cases.
    pub async fn write_stream<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        stream: impl Stream<Item = Result<Bytes>> + Send,
        options: WriteOptions,
    ) -> Result<Stat> {
        let parsed = self.parse(Verb::Write, path)?;
        let mut stream = pin!(stream);
        let mut begun = BytesMut::new();
        while begun.len() <= SINGLE_CALL_WRITE_LIMIT_BYTES {
            match stream.next().await {
                Some(piece) => begun.extend_from_slice(&piece?),
                None => return self.driver().write(&parsed, begun.freeze(), options).await,
            }
        }
        let begun = futures_util::stream::iter([Ok(begun.freeze())]);
        self.write_large(&parsed, begun.chain(stream), options).await
    }

    async fn write_large(
        &self,
        path: &WsPath,
        stream: impl Stream<Item = Result<Bytes>> + Send,
        options: WriteOptions,
    ) -> Result<Stat> {
        let fails = |kind, message: &str| Err(Error::for_path(Verb::Write, path, kind, message));
        if options.expected_version.is_some() {
            let message = "an expected version works only for content that fits in one write";
            return fails(ErrorKind::Unsupported, message);
        }
        let found = self.driver().stat(path, StatOptions { links: LinkHandling::NoFollow }).await;
        let permissions = match (found, options.mode) {
            (Ok(stat), WriteMode::CreateIfMissing) => return Ok(stat),
            (Ok(stat), _) if stat.kind == FileKind::Symlink => {
                return fails(
                    ErrorKind::Unsupported,
                    "content of this size cannot be written through a link",
                );
            }
            (Ok(stat), _) if stat.kind.is_dir() => {
                return fails(ErrorKind::IsADirectory, "is a directory");
            }
            (Ok(_), WriteMode::CreateNew) => {
                return fails(ErrorKind::AlreadyExists, "the path already exists");
            }
            (Ok(stat), WriteMode::CreateOrReplace | WriteMode::Replace) => stat.mode,
            (Err(error), mode) if error.kind() == ErrorKind::NotFound => match mode {
                WriteMode::Replace => return Err(error.with_verb(Verb::Write)),
                _ => options.permissions,
            },
            (Err(error), _) => return Err(error.with_verb(Verb::Write)),
        };
        let hidden = beside(path);
        let written = self.place_large(path, &hidden, stream, (options, permissions)).await;
        if written.is_err() {
            let missing = RemoveOptions::default().missing_ok();
            let _ = self.driver().remove(&hidden, missing).await;
        }
        // Report the path that the caller gave, not the temporary file.
        written.map_err(|error| {
            error.map_path(|named| (named == hidden.as_str()).then(|| path.to_string()))
        })
    }

    async fn place_large(
        &self,
        path: &WsPath,
        hidden: &WsPath,
        stream: impl Stream<Item = Result<Bytes>> + Send,
        (options, permissions): (WriteOptions, Option<u32>),
    ) -> Result<Stat> {
        let open = OpenOptions {
            access: FileAccess::Write,
            create: FileCreationMode::MustBeNew,
            permissions,
            ..OpenOptions::default()
        };
        let file = self.driver().open(hidden, open).await?;
        write_stream_to_file(&*file, stream, |_| {}).await.map_err(|unfilled| match unfilled {
            StreamCopyError::Source(error) | StreamCopyError::Target(error) => error,
        })?;
        if options.durability == Durability::SurvivesPowerLoss {
            file.sync().await?;
        }
        drop(file);
        let overwrite = match options.mode {
            WriteMode::CreateOrReplace | WriteMode::Replace => OverwriteMode::Replace,
            WriteMode::CreateNew | WriteMode::CreateIfMissing => OverwriteMode::Refuse,
        };
        self.driver().rename(hidden, path, RenameOptions { overwrite }).await?;
        self.driver().stat(path, StatOptions::default()).await
    }
}
