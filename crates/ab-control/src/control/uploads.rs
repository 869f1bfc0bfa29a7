//! Removes uploads that have expired or are no longer needed.

use ab_api::Time;
use ab_store::StoreError;

use super::{EXPIRY_RETRY, MAX_EXPIRY_WAIT, until};
use crate::control::Plane;

impl Plane {
    /// Removes expired and unneeded uploads until the server shuts down. Runs at the start,
    /// whenever an upload expires, and whenever a session no longer needs its uploads.
    pub(super) async fn sweep_uploads(&self) {
        while !self.shutdown.is_cancelled() {
            let wait = match self.store.remove_expired_uploads(Time::now()).await {
                Ok(Some(next)) => until(next),
                Ok(None) => MAX_EXPIRY_WAIT,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot remove uploads");
                    EXPIRY_RETRY
                }
            };
            tokio::select! {
                () = self.shutdown.cancelled() => return,
                () = self.store.wait_until_uploads_released() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}
