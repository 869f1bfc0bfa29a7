//! The audit of a session. Each call on the session's MCP endpoint is written to the server's log
//! and queued as an entry for the store.
//!
//! The audit differs from the session's events. The events come from the agent's own updates, so an
//! edit is one event. The audit records each call on the workspace, with its caller and outcome.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ab_api::{AuditEntry, AuditSource, SessionId};
use ab_core::journal::{JournalRecord, JournalWriter};
use tokio::sync::mpsc;

use super::mask::Mask;
use super::request;

/// Maximum number of entries that wait in the queue.
const QUEUE: usize = 4096;
/// Maximum number of bytes of a path, a command or an error in an entry.
const MAX_TEXT: usize = 4096;

/// The sending side of the audit queue. All sessions of an executor use it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditSender {
    entries: mpsc::Sender<SessionAuditEntry>,
    dropped: Arc<Mutex<DroppedEntries>>,
}

/// The receiving side of the audit queue. The control plane takes the entries from it and stores
/// them.
#[derive(Debug)]
pub struct AuditReceiver {
    entries: mpsc::Receiver<SessionAuditEntry>,
    dropped: Arc<Mutex<DroppedEntries>>,
}

/// For each session, the number of entries that were dropped because the queue was full.
type DroppedEntries = BTreeMap<SessionId, u64>;

/// An audit entry and the session that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAuditEntry {
    pub session: SessionId,
    pub entry: AuditEntry,
}

/// Creates a bounded queue of audit entries.
pub fn audit_queue() -> (AuditSender, AuditReceiver) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let dropped = Arc::<Mutex<DroppedEntries>>::default();
    let sender = AuditSender { entries: sender, dropped: Arc::clone(&dropped) };
    (sender, AuditReceiver { entries: receiver, dropped })
}

impl AuditReceiver {
    /// Waits for the next entries and returns at most `limit` of them. Returns an empty list once
    /// all senders are dropped. Cancel safe.
    pub async fn next_entries(&mut self, limit: usize) -> Vec<SessionAuditEntry> {
        let mut entries = Vec::new();
        self.entries.recv_many(&mut entries, limit).await;
        entries
    }

    /// Takes the entries that are already in the queue, at most `limit`. Does not wait.
    pub fn try_next_entries(&mut self, limit: usize) -> Vec<SessionAuditEntry> {
        std::iter::from_fn(|| self.entries.try_recv().ok()).take(limit).collect()
    }

    /// The number of entries of each session that were lost since the last call because the queue was full.
    pub fn take_dropped_counts(&self) -> BTreeMap<SessionId, u64> {
        std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl AuditSender {
    fn send(&self, entry: SessionAuditEntry) {
        // A call must not wait for the store. An entry that does not fit into the queue is dropped
        // and counted.
        let session = entry.session;
        if self.entries.try_send(entry).is_err() {
            let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
            *dropped.entry(session).or_default() += 1;
        }
    }
}

/// Writes the audit entries of one session.
pub(super) struct AuditLog {
    pub(super) session: SessionId,
    pub(super) mask: Mask,
    pub(super) entries: Option<AuditSender>,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("session", &self.session).finish_non_exhaustive()
    }
}

impl JournalWriter for AuditLog {
    fn write(&self, record: &JournalRecord) {
        tracing::info!(
            target: "audit",
            session = record.workspace.as_deref(),
            actor = record.actor,
            verb = record.verb.as_str(),
            path = record.path,
            to = record.to,
            command = record.command,
            success = record.success,
            failure = record.failure.as_ref().map(|failure| failure.message.as_str()),
            exit_code = record.exit_code,
            bytes = record.bytes,
            "audit"
        );
        let Some(entries) = &self.entries else { return };
        let text = |text: String| cut(self.mask.text(text));
        let subject = match (&record.command, &record.path, &record.to) {
            (Some(command), _, _) => Some(command.clone()),
            (None, Some(path), Some(to)) => Some(format!("{path} -> {to}")),
            (None, Some(path), None) => Some(path.clone()),
            (None, None, _) => None,
        };
        let detail = match (&record.failure, record.exit_code) {
            (Some(failure), _) => Some(failure.message.clone()),
            (None, Some(code)) => Some(format!("exit code {code}")),
            (None, None) => None,
        };
        entries.send(SessionAuditEntry {
            session: self.session,
            entry: AuditEntry {
                at: request::time(record.at),
                source: AuditSource::Endpoint,
                actor: record.actor.clone(),
                action: record.verb.as_str().to_owned(),
                success: record.success,
                subject: subject.map(text),
                detail: detail.map(text),
            },
        });
    }
}

/// Truncates a text that is too long for an entry.
fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let end = text.floor_char_boundary(MAX_TEXT);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_beyond_the_queue_are_counted_for_their_session() {
        let (sender, mut receiver) = audit_queue();
        let (calm, busy) = (SessionId::generate(), SessionId::generate());
        let send = |session| {
            let entry = AuditEntry {
                at: ab_api::Time::from_millis(1),
                source: AuditSource::Endpoint,
                actor: "agent".to_owned(),
                action: "read".to_owned(),
                success: true,
                subject: None,
                detail: None,
            };
            sender.send(SessionAuditEntry { session, entry });
        };
        send(calm);
        (0..QUEUE + 2).for_each(|_| send(busy));
        assert_eq!(receiver.try_next_entries(QUEUE + 10).len(), QUEUE);
        assert_eq!(receiver.take_dropped_counts(), BTreeMap::from([(busy, 3)]));
        assert_eq!(receiver.take_dropped_counts(), BTreeMap::new());
    }
}
