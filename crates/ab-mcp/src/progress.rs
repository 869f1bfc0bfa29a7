//! Telling a caller who asked for it that work goes on.

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RoleServer};

/// Where the notes of one call go.
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

    /// Tells it. A caller that is gone finds out by other means, so a lost note is no failure.
    pub(crate) async fn tell(&mut self, done: f64, message: String) {
        // It has to grow from note to note.
        if done <= self.said {
            return;
        }
        self.said = done;
        let note = ProgressNotificationParam::new(self.token.clone(), done).with_message(message);
        let _ = self.peer.notify_progress(note).await;
    }
}
