//! Stores the audit entries of the executor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ab_api::{AuditEntry, AuditSource, SessionId, Time};
use ab_executor::{AuditReceiver, SessionAuditEntry};

use crate::control::{ControlPlane, Plane};

/// Maximum number of entries that are stored together.
const BATCH: usize = 256;
/// How long to wait before another attempt to store entries when the disk is full.
const STORE_RETRY: Duration = Duration::from_secs(1);

impl ControlPlane {
    /// Stores the entries of `receiver` until the server shuts down and the last session's processes have ended.
    pub fn start_recording_audit(&self, receiver: AuditReceiver) {
        let plane = Arc::clone(&self.plane);
        self.plane.recording.spawn(async move { record(&plane, receiver).await });
    }
}

async fn record(plane: &Plane, mut receiver: AuditReceiver) {
    loop {
        let entries = tokio::select! {
            biased;
            entries = receiver.next_entries(BATCH) => entries,
            () = plane.recorded.cancelled() => receiver.try_next_entries(BATCH),
        };
        if entries.is_empty() {
            return;
        }
        let mut by_session = BTreeMap::<SessionId, Vec<AuditEntry>>::new();
        for SessionAuditEntry { session, entry } in entries {
            by_session.entry(session).or_default().push(entry);
        }
        for (session, dropped) in receiver.take_dropped_counts() {
            tracing::warn!(%session, dropped, "audit entries were lost: there were more than can be stored");
            by_session.entry(session).or_default().push(lost(dropped));
        }
        for (session, entries) in by_session {
            store(plane, session, entries).await;
        }
    }
}

/// Stores entries. If the disk is full, waits until there is room. During this wait the bounded
/// queue of the executor keeps new entries.
async fn store(plane: &Plane, session: SessionId, entries: Vec<AuditEntry>) {
    let mut is_first_attempt = true;
    loop {
        let is_last_attempt = plane.recorded.is_cancelled();
        let Err(error) = plane.store.append_audit_entries(session, entries.clone()).await else {
            return;
        };
        if is_last_attempt || !error.is_disk_full() {
            let lost = entries.len();
            tracing::error!(%session, %error, lost, "cannot store the audit");
            return;
        }
        if std::mem::take(&mut is_first_attempt) {
            tracing::warn!(%session, %error, "cannot store the audit yet");
        }
        tokio::select! {
            () = tokio::time::sleep(STORE_RETRY) => {}
            () = plane.recorded.cancelled() => {}
        }
    }
}

/// An entry that reports how many entries were lost.
fn lost(count: u64) -> AuditEntry {
    AuditEntry {
        at: Time::now(),
        source: AuditSource::Server,
        actor: "server".to_owned(),
        action: "lost-entries".to_owned(),
        success: false,
        subject: None,
        detail: Some(format!(
            "{count} calls before this entry were not recorded: there were more than can be stored"
        )),
    }
}
