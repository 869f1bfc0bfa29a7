//! The journal: one record for each relevant call, written when the call has ended.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::call::{Call, CallOutcome, CallResult, Verb};
use crate::effective_policy::EffectivePolicyControl;
use crate::error::{ErrorCode, ErrorKind, Result};
use crate::guard::{Guard, GuardDecision, RefusedPath};
use crate::path::MAX_PATH_BYTES;

/// Maximum number of records that a [`MemoryJournalWriter`] keeps. When the number is exceeded, the
/// oldest records are dropped.
pub const MAX_MEMORY_JOURNAL_RECORDS: usize = 10_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalVerbosity {
    /// Records calls that change the workspace or run something.
    #[default]
    Standard,
    /// Also records reads.
    Verbose,
}

/// The record of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    pub at: SystemTime,
    pub verb: Verb,
    pub actor: String,
    /// The name of the workspace, if the journal has one.
    pub workspace: Option<String>,
    pub path: Option<String>,
    /// The new path. Only for `rename`.
    pub to: Option<String>,
    pub command: Option<String>,
    pub success: bool,
    pub failure: Option<RecordedCallFailure>,
    pub exit_code: Option<i32>,
    /// The last part of a command's output on each channel.
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    /// The number of bytes that were read or written.
    pub bytes: u64,
    pub duration: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCallFailure {
    /// `None` if the caller dropped the call.
    pub code: Option<ErrorCode>,
    pub message: String,
}

/// Receives records. It is called during the call, so it must not block for a long time.
pub trait JournalWriter: fmt::Debug + Send + Sync {
    fn write(&self, record: &JournalRecord);
}

/// The guard that writes the journal.
#[derive(Debug)]
pub struct JournalGuard {
    writer: Arc<dyn JournalWriter>,
    mode: JournalVerbosity,
    workspace: Option<String>,
}

impl JournalGuard {
    pub fn new(writer: Arc<dyn JournalWriter>, verbosity: JournalVerbosity) -> Self {
        Self { writer, mode: verbosity, workspace: None }
    }

    /// Sets the name of the workspace in every record.
    pub fn with_workspace_name(mut self, name: impl Into<String>) -> Self {
        self.workspace = Some(name.into());
        self
    }

    fn wants(&self, call: &Call<'_>, outcome: &CallOutcome<'_>) -> bool {
        match (self.mode, outcome.result) {
            (JournalVerbosity::Verbose, _) => true,
            // A link that leads outside is an attempt to leave the workspace, even for a read.
            (JournalVerbosity::Standard, CallResult::Failed(error))
                if error.kind() == ErrorKind::PathEscape =>
            {
                true
            }
            (JournalVerbosity::Standard, _) => call.modifies_workspace,
        }
    }
}

impl Guard for JournalGuard {
    fn before_call<'a>(&'a self, _: &'a Call<'a>) -> GuardDecision<'a> {
        GuardDecision::ALLOW
    }

    fn check_file_size(&self, _: &Call<'_>, _: u64) -> Result<()> {
        Ok(())
    }

    /// Attempts to leave the workspace are always recorded, for every verbosity and verb.
    fn on_refused_path(&self, refusal: &RefusedPath<'_>) {
        let RefusedPath { actor, verb, error, .. } = refusal;
        self.writer.write(&JournalRecord {
            at: SystemTime::now(),
            verb: *verb,
            actor: actor.to_string(),
            workspace: self.workspace.clone(),
            path: error.path().map(|path| path.chars().take(MAX_PATH_BYTES).collect()),
            to: None,
            command: None,
            success: false,
            failure: Some(RecordedCallFailure {
                code: Some(error.code()),
                message: error.message().to_owned(),
            }),
            exit_code: None,
            stdout: None,
            stderr: None,
            bytes: 0,
            duration: Duration::ZERO,
        });
    }

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, call: &Call<'_>, outcome: &CallOutcome<'_>) {
        if !self.wants(call, outcome) {
            return;
        }
        let failure = match outcome.result {
            CallResult::Succeeded => None,
            CallResult::Failed(error) => {
                Some(RecordedCallFailure { code: Some(error.code()), message: error.to_string() })
            }
            CallResult::Cancelled => {
                Some(RecordedCallFailure { code: None, message: "cancelled".to_owned() })
            }
        };
        self.writer.write(&JournalRecord {
            at: SystemTime::now() - outcome.duration,
            verb: call.verb,
            actor: call.actor.to_string(),
            workspace: self.workspace.clone(),
            path: call.path.map(ToString::to_string),
            to: call.to.map(ToString::to_string),
            command: call.command.map(str::to_owned),
            success: outcome.succeeded(),
            failure,
            exit_code: outcome.exit.and_then(|exit| exit.code),
            stdout: said(outcome.exit.map(|exit| &exit.stdout_tail)),
            stderr: said(outcome.exit.map(|exit| &exit.stderr_tail)),
            bytes: outcome.bytes,
            duration: outcome.duration,
        });
    }
}

fn said(tail: Option<&String>) -> Option<String> {
    tail.filter(|tail| !tail.is_empty()).cloned()
}

/// Keeps the last [`MAX_MEMORY_JOURNAL_RECORDS`] records, for tests and for display.
#[derive(Debug, Default)]
pub struct MemoryJournalWriter {
    records: Mutex<std::collections::VecDeque<JournalRecord>>,
}

impl MemoryJournalWriter {
    pub fn records(&self) -> Vec<JournalRecord> {
        self.lock().iter().cloned().collect()
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, std::collections::VecDeque<JournalRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalWriter for MemoryJournalWriter {
    fn write(&self, record: &JournalRecord) {
        let mut records = self.lock();
        if records.len() == MAX_MEMORY_JOURNAL_RECORDS {
            records.pop_front();
        }
        records.push_back(record.clone());
    }
}
