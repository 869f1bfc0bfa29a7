//! Memory for the content of files that arrives in several packets and is then written as a whole.
//!
//! The total size is limited for all clients of a server together, and one connection may use half
//! of it. When the limit is reached, a request waits for some time until other content is written.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind};
use bytes::{Bytes, BytesMut};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::status::{FAILURE, Refusal};

/// Maximum number of bytes of content that is written as a whole.
pub const MAX_STAGED_WRITE_BYTES: u64 = 256 * 1024 * 1024;
/// Maximum number of bytes of such content for all connections of a server together.
const ROOM: usize = 512 * 1024 * 1024;
/// Maximum number of bytes for one connection. Content of the maximum length fits.
const SHARE: usize = ROOM / 2;
/// How long a request waits for free memory.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The number of bytes in one unit of the semaphores.
const UNIT: u64 = 4096;

/// Limits the memory for staged content of all connections of a server.
#[derive(Clone, Debug)]
pub(crate) struct Staging {
    room: Arc<Semaphore>,
}

impl Default for Staging {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(ROOM / UNIT as usize)) }
    }
}

/// Limits the memory for staged content of one connection.
#[derive(Clone, Debug)]
pub(super) struct StagingShare(Arc<Semaphore>);

impl Default for StagingShare {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARE / UNIT as usize)))
    }
}

/// The content of one file, of which some packets may not have arrived yet.
#[derive(Debug)]
pub(super) struct Stage {
    bytes: Mutex<BytesMut>,
    _room: [OwnedSemaphorePermit; 2],
}

impl Staging {
    pub(super) async fn stage(&self, share: &StagingShare, size: u64) -> Result<Stage, Refusal> {
        if size > MAX_STAGED_WRITE_BYTES {
            let message =
                format!("a content of {size} bytes is more than {MAX_STAGED_WRITE_BYTES}");
            let error = Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message)
                .with_hint("open the file and write it in pieces");
            return Err(error.into());
        }
        let units = u32::try_from(size.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let room = async {
            // Take the memory of this connection's limit first, because waiting for it does not
            // block other connections.
            let own = share.0.clone().acquire_many_owned(units).await?;
            Ok([own, self.room.clone().acquire_many_owned(units).await?])
        };
        let room = match timeout(TIMEOUT, room).await {
            Ok(room) => {
                room.map_err(|_: AcquireError| Refusal::new(FAILURE, "there is no room"))?
            }
            Err(_) => {
                let message = format!("no room for a content of {size} bytes; others hold it");
                let error = Error::new(ErrorCode::WriteFailed, ErrorKind::Unavailable, message)
                    .with_hint("try again, or open the file and write it in pieces");
                return Err(error.into());
            }
        };
        let bytes = BytesMut::zeroed(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(Stage { bytes: Mutex::new(bytes), _room: room })
    }
}

impl Stage {
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(data.len()));
        let place = start.zip(end).and_then(|(start, end)| bytes.get_mut(start..end));
        let place = place.ok_or_else(|| Refusal::new(FAILURE, "past the end of the content"))?;
        place.copy_from_slice(data);
        Ok(())
    }

    /// Takes the complete content out of this value.
    pub(super) fn take(&self) -> Bytes {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *bytes).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_has_all_the_room_or_waits_for_ever() {
        let staging = Staging::default();
        let [greedy, another, third] = [(); 3].map(|()| StagingShare::default());
        let first = staging.stage(&greedy, MAX_STAGED_WRITE_BYTES).await.unwrap();
        let refused = staging.stage(&greedy, 1).await.unwrap_err();
        assert_eq!(refused.error.unwrap().kind(), ErrorKind::Unavailable);
        // One connection is refused, while another connection still has room.
        let second = staging.stage(&another, MAX_STAGED_WRITE_BYTES).await.unwrap();
        let refused = staging.stage(&third, 1).await.unwrap_err();
        assert!(refused.message.contains("no room"), "{refused:?}");
        drop(first);
        let (waiting, ()) =
            tokio::join!(staging.stage(&third, 1 + MAX_STAGED_WRITE_BYTES / 2), async {
                drop(second);
            });
        waiting.unwrap();
    }
}
