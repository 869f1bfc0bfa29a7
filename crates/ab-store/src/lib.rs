//! The only crate that uses SQL. Stores sessions, the event log, approvals, idempotency keys and
//! cleanup tokens.
//!
//! A single task writes, and commits the changes of several callers together ([`Store`]). A state
//! and the events that describe it are always stored in one transaction. Readers follow the log by
//! a cursor ([`EventLogReader`]). Recent events come from memory, so that many readers of one
//! stream do not query the database.

mod api_keys;
mod approvals;
mod artifacts;
mod audit;
mod backup;
mod cleanups;
mod data_dir;
mod deferred;
mod digest;
mod drafts;
mod error;
mod follow;
mod gauges;
mod inventory;
mod log;
mod progress;
mod prompts;
mod record;
mod reserve;
mod retention;
mod schema;
mod session_list;
mod sessions;
mod shorten;
mod space_tokens;
mod spaces;
mod store;
mod tail;
mod tokens;
mod uploads;
mod writer;

pub use api_keys::AccessTokenOwner;
pub use approvals::{
    ApprovalChange, ApprovalChangeReader, ApprovalFilter, ApprovalOwner, RequestedApproval,
    UnansweredApproval,
};
pub use audit::MAX_AUDIT_ENTRIES;
pub use backup::{BackupCheck, check_backup, copy_database};
pub use cleanups::PendingCleanup;
pub use data_dir::DataDir;
pub use error::{StoreError, UseDecisionError};
pub use follow::{EventLogReader, EventLogScope};
pub use gauges::StoreGauges;
pub use inventory::RepoListFilter;
pub use progress::{StoredSessionEnd, StoredSessionProgress, StoredSessionStage};
pub use prompts::{
    PromptQueuePosition, QueuedPrompt, SessionPromptChange, SessionPromptChangeOutcome,
};
pub use record::{
    EventRecord, EventStreamId, MAX_EVENT_BYTES, MAX_PROMPT_EVENT_BYTES, MAX_RUN_EVENT_BYTES,
    RUN_END_RECORD_KIND,
};
pub use retention::{DatabaseSize, EndedRecord, EndedRecordId, EndedWorkspace};
pub use session_list::{SessionFilter, SessionGroup};
pub use sessions::{CreateSessionOutcome, IdempotencyRecord, NewSession, SessionRecord};
pub use spaces::{
    QueuedRunUpdate, RUN_WAITS_FOR_APPROVAL_RECORD_KIND, RunEventRecord, RunUpdate, SpaceEnd,
    StoredOperation,
};
pub use store::{Store, WriteUrgency};
pub use uploads::{UploadLimits, UploadRecord, UploadRefusal, UploadStart, UploadWriter};
