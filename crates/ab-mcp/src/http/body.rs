//! Reads the bodies of HTTP requests, with limits on the size of each body, on the total size of
//! all bodies, and on the time.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::Body;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::bounds::{BODIES_AT_ONCE, BODY_TIMEOUT, ROOM_TIMEOUT, SLOWEST_BODY, SMALL_BODY};

const KIB: usize = 1024;

/// The limit on the memory for the bodies of all requests.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    bound: usize,
    room: Arc<Semaphore>,
}

/// The complete body of a request, with its memory reservation.
pub(crate) struct Whole {
    bytes: Bytes,
    room: Option<OwnedSemaphorePermit>,
}

impl Whole {
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the bytes and releases the memory reservation. Used by callers that parse the bytes
    /// at once.
    pub(crate) fn into_bytes(self) -> Bytes {
        drop(self.room);
        self.bytes
    }
}

pub(crate) enum Unread {
    /// The body is too large. Contains the maximum size.
    TooLarge(usize),
    TooSlow,
    /// Other bodies use all the available memory.
    Crowded,
    Broken(String),
}

impl Bodies {
    pub(crate) fn new(bound: usize) -> Bodies {
        let room = bound.div_ceil(KIB).saturating_mul(BODIES_AT_ONCE);
        let room = room.clamp(1, u32::MAX as usize >> 4);
        Bodies { bound, room: Arc::new(Semaphore::new(room)) }
    }

    pub(crate) async fn read<B>(&self, headers: &HeaderMap, mut body: B) -> Result<Whole, Unread>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let announced = announced.and_then(|length| length.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.bound as u64) {
            return Err(Unread::TooLarge(self.bound));
        }
        // Small bodies need no reservation, because their number is limited by the number of
        // connections.
        let mut room = None;
        if announced.is_some_and(|length| length > SMALL_BODY as u64) {
            room = Some(self.room(announced).await?);
        }
        let begun = Instant::now();
        let mut first = None;
        let mut whole = BytesMut::new();
        loop {
            let frame = timeout(BODY_TIMEOUT, body.frame()).await.map_err(|_| Unread::TooSlow)?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| Unread::Broken(error.to_string()))?;
            let Ok(piece) = frame.into_data() else { continue };
            let held = whole.len() + first.as_ref().map_or(0, Bytes::len);
            if held + piece.len() > self.bound {
                return Err(Unread::TooLarge(self.bound));
            }
            if room.is_none() && held + piece.len() > SMALL_BODY {
                room = Some(self.room(None).await?);
            }
            let waited = begun.elapsed();
            if waited > BODY_TIMEOUT && (held as u64) < waited.as_secs() * SLOWEST_BODY {
                return Err(Unread::TooSlow);
            }
            match first.take() {
                // Most bodies arrive in one piece.
                None if whole.is_empty() => first = Some(piece),
                None => whole.extend_from_slice(&piece),
                Some(start) => {
                    let length = announced.and_then(|length| usize::try_from(length).ok());
                    whole.reserve(length.unwrap_or(start.len() + piece.len()));
                    whole.extend_from_slice(&start);
                    whole.extend_from_slice(&piece);
                }
            }
        }
        Ok(Whole { bytes: first.unwrap_or_else(|| whole.freeze()), room })
    }

    /// Reserves memory for the announced length. If no length was announced, for the maximum size.
    async fn room(&self, announced: Option<u64>) -> Result<OwnedSemaphorePermit, Unread> {
        let bytes = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(self.bound);
        let wanted = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX >> 4);
        match timeout(ROOM_TIMEOUT, self.room.clone().acquire_many_owned(wanted)).await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(_)) | Err(_) => Err(Unread::Crowded),
        }
    }
}
