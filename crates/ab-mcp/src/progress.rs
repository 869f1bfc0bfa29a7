//! Sends progress notifications to a client that asked for them.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};

/// Sends the progress notifications of one call.
#[derive(Debug)]
pub(crate) struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    said: f64,
}

impl Progress {
    pub(crate) fn new(peer: Peer<RoleServer>, token: ProgressToken) -> Progress {
        Progress { peer, token, said: 0.0 }
    }

    /// Sends a notification. Errors are ignored, because the transport notices the loss of a
    /// client.
    pub(crate) async fn tell(&mut self, done: f64, message: String) {
        // The protocol requires that the value increases with each notification.
        if done <= self.said {
            return;
        }
        self.said = done;
        let note = ProgressNotificationParam::new(self.token.clone(), done).with_message(message);
        let _ = self.peer.notify_progress(note).await;
    }
}
