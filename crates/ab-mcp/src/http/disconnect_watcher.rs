//! Cancels a call in a session when its client has disconnected and does not return.
//!
//! A session keeps an answer if the connection is lost. The client reconnects and names the last
//! event that it received. If the client does not reconnect in time, its call is cancelled.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::running_calls::WeakRunningCall;
use crate::bounds::RETURN_TIMEOUT;

/// The number of open streams of a session that clients have opened after a reconnect.
pub(crate) type Returned = watch::Sender<usize>;

/// Watches calls whose connections were lost, until the endpoint closes.
#[derive(Clone, Debug)]
pub(crate) struct DisconnectWatcher {
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl DisconnectWatcher {
    pub(crate) fn new(closing: CancellationToken) -> DisconnectWatcher {
        DisconnectWatcher { tasks: TaskTracker::new(), closing }
    }

    /// Wraps the body of the answer to a call. If the HTTP server drops the body before the body
    /// was sent completely, and the client does not reconnect in time, the call is cancelled.
    pub(crate) fn of_call<B>(
        &self,
        body: B,
        call: WeakRunningCall,
        returned: &Returned,
    ) -> DropNotifyingBody<B> {
        let (disconnect_watcher, returned) = (self.clone(), returned.subscribe());
        let runtime = Handle::current();
        let left = move || {
            if call.has_ended() {
                return;
            }
            let closing = disconnect_watcher.closing.clone();
            let task = async move {
                tokio::select! {
                    () = client_stayed_away(returned) => call.cancel(),
                    () = closing.cancelled() => {}
                }
            };
            disconnect_watcher.tasks.spawn_on(task, &runtime);
        };
        DropNotifyingBody { body, left: Some(Box::new(left)) }
    }

    /// Wraps the body of a stream that a client has opened after a reconnect.
    pub(crate) fn of_return<B>(body: B, returned: &Returned) -> DropNotifyingBody<B> {
        returned.send_modify(|count| *count += 1);
        let returned = returned.clone();
        let left = move || returned.send_modify(|count| *count -= 1);
        DropNotifyingBody { body, left: Some(Box::new(left)) }
    }
}

/// Waits until no client was connected to the session for [`RETURN_TIMEOUT`], or until the session
/// has ended.
async fn client_stayed_away(mut returned: watch::Receiver<usize>) {
    while returned.wait_for(|count| *count == 0).await.is_ok() {
        tokio::select! {
            () = sleep(RETURN_TIMEOUT) => return,
            _ = returned.wait_for(|count| *count > 0) => {}
        }
    }
}

/// A body that calls a function when it is dropped.
pub(crate) struct DropNotifyingBody<B> {
    body: B,
    left: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl<B> Drop for DropNotifyingBody<B> {
    fn drop(&mut self) {
        if let Some(left) = self.left.take() {
            left();
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for DropNotifyingBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(context)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
