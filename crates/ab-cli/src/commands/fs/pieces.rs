//! Files of any size, piece by piece, with several pieces under way at once: what is on its way
//! does not wait for what has arrived.

use ab_core::{File, Result};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream, StreamExt};

/// Bytes of a piece.
pub(super) const PIECE: usize = 1024 * 1024;
/// Pieces that are under way.
pub(super) const AHEAD: usize = 8;

/// The pieces of a file in order: of its first `size` bytes, or of all that can be read where it
/// does not know its size. One that is shorter than it said ends early.
pub(super) fn of(file: &dyn File, size: Option<u64>) -> impl Stream<Item = Result<Bytes>> {
    let (ahead, end) = match size {
        Some(size) => (AHEAD, size),
        None => (1, u64::MAX),
    };
    let offsets = (0..end).step_by(PIECE);
    stream::iter(offsets)
        .map(move |offset| {
            let wanted = usize::try_from(end - offset).map_or(PIECE, |left| left.min(PIECE));
            async move { Ok((wanted, piece(file, offset, wanted).await?)) }
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

/// All of a piece, unless the file ends in it.
async fn piece(file: &dyn File, offset: u64, wanted: usize) -> Result<Bytes> {
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use ab_core::options::OpenOptions;

    use super::*;

    #[tokio::test]
    async fn a_file_is_the_sum_of_its_pieces() {
        let backend = agent_backend::memory();
        let large: Vec<u8> = (0..PIECE * 11 / 4).map(|at| (at % 251) as u8).collect();
        backend.write("large", large.clone()).await.unwrap();
        let file = backend.open("large", OpenOptions::default()).await.unwrap();
        let length = large.len() as u64;
        for (size, expect) in [
            (Some(length), &large[..]),
            (None, &large[..]),
            (Some(5), &large[..5]),
            // It was longer when its size was asked for.
            (Some(length * 5), &large[..]),
        ] {
            let mut read = Vec::new();
            let mut pieces = pin!(of(file.as_ref(), size));
            while let Some(piece) = pieces.next().await {
                read.extend_from_slice(&piece.unwrap());
            }
            assert!(read == expect, "{size:?}: {} bytes", read.len());
        }
    }
}
