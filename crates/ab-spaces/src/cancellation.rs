//! The cancellation of a run: a token that also says why.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// The reason of a run that a caller cancelled.
pub(crate) const CANCELLED: &str = "the run was cancelled";

/// Cancels a run. Cheap to clone. The first reason counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunCancellation {
    token: CancellationToken,
    reason: Arc<OnceLock<&'static str>>,
}

impl RunCancellation {
    pub(crate) fn cancel(&self, reason: &'static str) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    /// Waits until the run is cancelled, and returns the reason.
    pub(crate) async fn cancelled(&self) -> &'static str {
        self.token.cancelled().await;
        self.reason.get().copied().unwrap_or(CANCELLED)
    }
}
