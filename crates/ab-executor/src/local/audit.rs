//! The audit of a session: what was done through its MCP endpoint, as lines of the server's log.
//!
//! The session's events come from the agent's own updates, so that an edit is one event. The audit has the calls as
//! the workspace saw them, with the caller and the outcome.

use ab_core::journal::{JournalRecord, JournalWriter};

/// Writes records to the log, target `audit`.
#[derive(Debug)]
pub(super) struct AuditLog;

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
    }
}
