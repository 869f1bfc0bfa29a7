//! Transfers files of any size in pieces, several of them concurrently. Uses at most
//! [`STREAM_CHUNK_BYTES`] times [`MAX_STREAM_CHUNKS_IN_FLIGHT`] bytes of memory.

use std::ops::Deref;
use std::pin::pin;

use bytes::{Bytes, BytesMut};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt};

use crate::driver::File;
use crate::error::{Error, Result};

/// Size of a piece in bytes.
pub const STREAM_CHUNK_BYTES: usize = 1024 * 1024;
/// Maximum number of pieces that are transferred at the same time.
pub const MAX_STREAM_CHUNKS_IN_FLIGHT: usize = 8;

/// Reads a file in pieces, in order: its first `size` bytes, or its whole content if `size` is
/// `None`. If the file is shorter than `size`, the stream ends early.
pub fn read_file_chunks<F>(file: F, size: Option<u64>) -> impl Stream<Item = Result<Bytes>>
where
    F: Deref<Target: File> + Clone,
{
    pieces_within(file, 0, size)
}

/// Like [`read_file_chunks`], for the bytes from offset `start` up to `end`.
pub(crate) fn pieces_within<F>(
    file: F,
    start: u64,
    end: Option<u64>,
) -> impl Stream<Item = Result<Bytes>>
where
    F: Deref<Target: File> + Clone,
{
    let (ahead, end) = match end {
        Some(end) => (MAX_STREAM_CHUNKS_IN_FLIGHT, end),
        None => (1, u64::MAX),
    };
    let offsets = (start..end).step_by(STREAM_CHUNK_BYTES);
    stream::iter(offsets)
        .map(move |offset| {
            let wanted = usize::try_from(end - offset)
                .map_or(STREAM_CHUNK_BYTES, |left| left.min(STREAM_CHUNK_BYTES));
            let file = file.clone();
            async move { Ok((wanted, piece(&*file, offset, wanted).await?)) }
        })
        .buffered(ahead)
        .scan(false, |over, read: Result<(usize, Bytes)>| {
            let passed = match read {
                _ if *over => None,
                Ok((_, bytes)) if bytes.is_empty() => None,
                Ok((wanted, bytes)) => {
                    *over = bytes.len() < wanted;
                    Some(Ok(bytes))
                }
                Err(error) => {
                    *over = true;
                    Some(Err(error))
                }
            };
            std::future::ready(passed)
        })
}

/// Reads `wanted` bytes, or fewer if the file ends before.
async fn piece<F: File + ?Sized>(file: &F, offset: u64, wanted: usize) -> Result<Bytes> {
    let first = file.read_at(offset, wanted).await?;
    if first.is_empty() || first.len() == wanted {
        return Ok(first);
    }
    let mut bytes = BytesMut::from(first);
    while bytes.len() < wanted {
        let more = file.read_at(offset + bytes.len() as u64, wanted - bytes.len()).await?;
        if more.is_empty() {
            break;
        }
        bytes.extend_from_slice(&more);
    }
    Ok(bytes.freeze())
}

/// Why a stream could not be copied to a file.
#[derive(Debug)]
pub enum StreamCopyError<E> {
    /// The stream failed.
    Source(E),
    /// The file could not be written.
    Target(Error),
}

/// Writes a stream to an empty file, starting at offset 0. Calls `written` with the length of each
/// written piece. Returns the total number of bytes.
///
/// # Errors
/// Returns the first error of the stream or of the file. Bytes that were already written remain.
pub async fn write_stream_to_file<E>(
    file: &dyn File,
    stream: impl Stream<Item = Result<Bytes, E>>,
    mut on_progress: impl FnMut(u64),
) -> Result<u64, StreamCopyError<E>> {
    let mut stream = pin!(stream);
    let mut under_way: FuturesUnordered<BoxFuture<'_, Result<u64>>> = FuturesUnordered::new();
    let mut block = Bytes::new();
    let mut offset = 0;
    loop {
        while block.is_empty() {
            // Running writes continue while the stream has no data.
            tokio::select! {
                next = stream.next() => match next {
                    Some(next) => block = next.map_err(StreamCopyError::Source)?,
                    None => {
                        while let Some(done) = under_way.next().await {
                            on_progress(done.map_err(StreamCopyError::Target)?);
                        }
                        return Ok(offset);
                    }
                },
                Some(done) = under_way.next(), if !under_way.is_empty() => {
                    on_progress(done.map_err(StreamCopyError::Target)?);
                }
            }
        }
        let piece = block.split_to(block.len().min(STREAM_CHUNK_BYTES));
        let (at, length) = (offset, piece.len() as u64);
        under_way.push(async move { file.write_at(at, piece).await.map(|()| length) }.boxed());
        offset += length;
        if under_way.len() >= MAX_STREAM_CHUNKS_IN_FLIGHT
            && let Some(done) = under_way.next().await
        {
            on_progress(done.map_err(StreamCopyError::Target)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OpenOptions;
    use crate::{Backend, MemoryDriver};

    #[tokio::test]
    async fn a_file_is_the_sum_of_its_pieces() {
        let backend = Backend::new(MemoryDriver::new());
        let large: Vec<u8> = (0..STREAM_CHUNK_BYTES * 11 / 4).map(|at| (at % 251) as u8).collect();
        backend.write("large", large.clone()).await.unwrap();
        let file = backend.open("large", OpenOptions::default()).await.unwrap();
        let length = large.len() as u64;
        for (size, expect) in [
            (Some(length), &large[..]),
            (None, &large[..]),
            (Some(5), &large[..5]),
            // The file has become shorter since its size was read.
            (Some(length * 5), &large[..]),
        ] {
            let mut read = Vec::new();
            let mut pieces = pin!(read_file_chunks(file.as_ref(), size));
            while let Some(piece) = pieces.next().await {
                read.extend_from_slice(&piece.unwrap());
            }
            assert!(read == expect, "{size:?}: {} bytes", read.len());
        }
    }
}
