//! Stores the audit entries of the executor.

use std::collections::BTreeMap;

use ab_api::{AuditEntry, SessionId};
use ab_executor::{AuditReceiver, SessionAuditEntry};
use std::sync::Arc;

use crate::control::{ControlPlane, Plane};

/// Maximum number of entries that are stored together.
const BATCH: usize = 256;

impl ControlPlane {
    /// Stores the entries of `receiver` until the server shuts down and the last session's processes have ended.
    pub fn record_audit(&self, receiver: AuditReceiver) {
        let plane = Arc::clone(&self.plane);
        self.plane.recording.spawn(async move { record(&plane, receiver).await });
    }
}

async fn record(plane: &Plane, mut receiver: AuditReceiver) {
    loop {
        let entries = tokio::select! {
            biased;
            entries = receiver.next(BATCH) => entries,
            () = plane.recorded.cancelled() => receiver.waiting(BATCH),
        };
        if entries.is_empty() {
            return;
        }
        let dropped = receiver.take_dropped();
        if dropped > 0 {
            tracing::warn!(dropped, "audit entries were lost: there were more than can be stored");
        }
        let mut by_session = BTreeMap::<SessionId, Vec<AuditEntry>>::new();
        for SessionAuditEntry { session, entry } in entries {
            by_session.entry(session).or_default().push(entry);
        }
        for (session, entries) in by_session {
            if let Err(error) = plane.store.append_audit(session, entries).await {
                tracing::error!(%session, %error, "cannot store the audit");
            }
        }
    }
}
