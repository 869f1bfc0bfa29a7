//! Journal writers: one for a console that people read, one for JSON lines that programs read.
//!
//! ```
//! use std::sync::Arc;
//! use agent_backend::journal::{ConsoleJournalWriter, JournalGuard, JournalVerbosity};
//! use agent_backend::{BackendOptions, Guards, MemoryDriverOptions};
//!
//! let journal = JournalGuard::new(Arc::new(ConsoleJournalWriter::stderr()), JournalVerbosity::Standard);
//! let guards = Guards { journal: Some(Arc::new(journal)), ..Guards::default() };
//! let assembly = BackendOptions { guards, ..BackendOptions::default() };
//! let backend = agent_backend::memory_with(MemoryDriverOptions::default(), assembly)?;
//! # Ok::<(), agent_backend::Error>(())
//! ```

mod console;
mod json_lines;
mod sink;

pub use ab_core::journal::{
    JournalGuard, JournalRecord, JournalVerbosity, JournalWriter, MAX_MEMORY_JOURNAL_RECORDS,
    MemoryJournalWriter, RecordedCallFailure,
};
pub use console::ConsoleJournalWriter;
pub use json_lines::JsonLinesJournalWriter;
