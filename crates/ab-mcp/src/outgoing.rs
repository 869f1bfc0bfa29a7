//! Limits the resources of large answers, so that other calls do not have to wait. Limits the
//! memory that large answers use until clients have received them, and the threads that encode
//! large answers.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::bounds::{HANDS, LARGE_ANSWER, MAX_QUEUED_ANSWER_BYTES, ROOM_TIMEOUT};

const KIB: usize = 1024;

/// The limits for large answers. All clients of a server share them.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    room: Arc<Semaphore>,
    hands: Arc<Semaphore>,
}

/// A memory reservation for one answer. It is released when the value is dropped.
#[derive(Debug)]
pub(crate) struct Held(#[allow(dead_code, reason = "it is held")] OwnedSemaphorePermit);

/// The error if large answers that clients have not received yet use all the available memory.
#[derive(Debug)]
pub(crate) struct Crowded;

impl Outgoing {
    pub(crate) fn new() -> Outgoing {
        Outgoing::with(MAX_QUEUED_ANSWER_BYTES)
    }

    fn with(bytes: usize) -> Outgoing {
        let room = Arc::new(Semaphore::new(bytes / KIB));
        Outgoing { room, hands: Arc::new(Semaphore::new(HANDS)) }
    }

    /// Reserves memory for an answer, or fails after a timeout. Small answers need no reservation,
    /// because their number is limited by the number of calls.
    pub(crate) async fn hold(&self, bytes: usize) -> Result<Option<Held>, Crowded> {
        if bytes <= LARGE_ANSWER {
            return Ok(None);
        }
        match timeout(ROOM_TIMEOUT, self.room.clone().acquire_many_owned(kibs(bytes))).await {
            Ok(Ok(permit)) => Ok(Some(Held(permit))),
            Ok(Err(_)) | Err(_) => Err(Crowded),
        }
    }

    /// Runs `work`. If it has to handle many bytes, runs it on a thread that may block. Otherwise
    /// runs it directly.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes <= LARGE_ANSWER {
            return work();
        }
        // The semaphore is never closed, so this eventually succeeds.
        let hand = self.hands.clone().acquire_owned().await;
        let working = spawn_blocking(move || {
            let done = work();
            drop(hand);
            done
        });
        match working.await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, which also ends this task.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

fn kibs(bytes: usize) -> u32 {
    u32::try_from(bytes.min(MAX_QUEUED_ANSWER_BYTES).div_ceil(KIB)).unwrap_or(u32::MAX)
}

/// Bytes that release their memory reservation when the last reference is dropped.
pub(crate) fn held(bytes: impl AsRef<[u8]> + Send + 'static, room: Option<Held>) -> Bytes {
    struct Owner<T>(T, #[allow(dead_code, reason = "it is held")] Held);
    impl<T: AsRef<[u8]>> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            self.0.as_ref()
        }
    }
    match room {
        Some(room) => Bytes::from_owner(Owner(bytes, room)),
        None => Bytes::from_owner(bytes),
    }
}

/// A body that reserves memory for each large piece before the piece is sent.
pub(crate) struct Metered<B> {
    body: B,
    outgoing: Outgoing,
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Bytes> + Send + Sync>>;

impl<B> Metered<B> {
    pub(crate) fn new(body: B, outgoing: Outgoing) -> Metered<B> {
        Metered { body, outgoing, waiting: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Metered<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(waiting) = &mut this.waiting {
                let bytes = ready!(waiting.as_mut().poll(context));
                this.waiting = None;
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            let bytes = match frame.into_data() {
                Ok(bytes) if bytes.len() > LARGE_ANSWER => bytes,
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            };
            let room = this.outgoing.room.clone();
            this.waiting = Some(Box::pin(async move {
                // This wait ends, because the HTTP server closes the connection of a client that
                // reads nothing.
                let permit = room.acquire_many_owned(kibs(bytes.len())).await.ok();
                held(bytes, permit.map(Held))
            }));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.waiting {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 1024 * 1024;

    /// Time is paused in this test, so timeouts elapse at once.
    #[tokio::test(start_paused = true)]
    async fn room_is_given_back_when_the_bytes_were_taken() {
        let outgoing = Outgoing::with(2 * LARGE);
        let hold = async || outgoing.hold(LARGE).await;
        let one = held(vec![1; LARGE], hold().await.unwrap());
        let two = held(vec![2; LARGE], hold().await.unwrap());
        assert!(hold().await.is_err());
        assert!(outgoing.hold(LARGE_ANSWER).await.unwrap().is_none());
        let rest = one.slice(10..);
        drop(one);
        assert!(hold().await.is_err());
        drop(rest);
        let three = hold().await.unwrap();
        drop((two, three));
        // An answer that is larger than the limit uses the whole limit.
        assert!(outgoing.hold(usize::MAX).await.is_err());
        assert!(Outgoing::new().hold(usize::MAX).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_of_a_stream_wait_for_room() {
        use http_body_util::{BodyExt, Full};
        let outgoing = Outgoing::with(LARGE);
        let full = || Metered::new(Full::new(Bytes::from(vec![7; LARGE])), outgoing.clone());
        let (mut one, mut two) = (full(), full());
        let first = one.frame().await.unwrap().unwrap();
        let time_limit = ROOM_TIMEOUT * 10;
        assert!(timeout(time_limit, two.frame()).await.is_err());
        assert!(!two.is_end_stream());
        drop(first);
        let second = timeout(time_limit, two.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(second.into_data().unwrap().len(), LARGE);
        assert!(two.frame().await.is_none());
    }

    #[tokio::test]
    async fn large_work_is_done_beside_the_runtime() {
        let outgoing = Outgoing::new();
        let here = std::thread::current().id();
        let place = || std::thread::current().id();
        assert_eq!(outgoing.aside(10, place).await, here);
        assert_ne!(outgoing.aside(LARGE, place).await, here);
    }
}
