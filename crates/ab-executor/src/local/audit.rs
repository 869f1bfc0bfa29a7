//! The audit log of a session: the calls on its MCP endpoint, as lines of the server's log.
//!
//! The session's events come from the agent's own updates, so that an edit is one event. The audit
//! log records the calls on the workspace, with caller and outcome.

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
