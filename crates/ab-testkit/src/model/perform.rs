//! Runs an operation on a backend.

use ab_core::backend::{GlobOptions, GlobResults, GrepOptions};
use ab_core::edit::EditOptions;
use ab_core::options::{AttributeChanges, RenameOptions, WriteOptions};
use ab_core::search::{
    EntryKindFilter, SearchLimits, SearchMatch, SearchOutputMode as Count, SearchResults,
};
use ab_core::{Backend, Error, File, FileVersion, Listing, Result, Stat};
use bytes::Bytes;

use super::answer::{Answer, Facts, Listed, Refusal, Reply};
use super::operation::{ExpectedVersion, MAX_OPEN_FILES, OpenFileSlot, WorkspaceOperation};

/// A version that no file ever has.
pub(super) const FOREIGN: u128 = u128::MAX;

/// A backend with its open files.
#[derive(Debug)]
pub(super) struct Subject {
    backend: Backend,
    slots: [Option<Box<dyn File>>; MAX_OPEN_FILES],
}

impl Subject {
    pub(super) fn new(backend: Backend) -> Self {
        Self { backend, slots: [const { None }; MAX_OPEN_FILES] }
    }

    /// Runs the operation. `former` is the version for [`ExpectedVersion::Stale`].
    pub(super) async fn answer(
        &mut self,
        operation: &WorkspaceOperation,
        former: FileVersion,
    ) -> Reply<FileVersion> {
        let outcome = self.outcome(operation, former).await;
        outcome.unwrap_or_else(|error| Reply::new(Answer::Failed(refusal(&error))))
    }

    async fn outcome(
        &mut self,
        operation: &WorkspaceOperation,
        former: FileVersion,
    ) -> Result<Reply<FileVersion>> {
        let backend = &self.backend;
        Ok(match operation {
            WorkspaceOperation::Stat(path) => described(&backend.stat(path).await?),
            WorkspaceOperation::Exists(path) => {
                Reply::new(Answer::Exists(backend.exists(path).await?))
            }
            WorkspaceOperation::List(path, options) => {
                Reply::new(listing(&backend.list(path, *options).await?))
            }
            WorkspaceOperation::Read(path, options) => {
                let content = backend.read_with(path, *options).await?;
                let answer = Answer::Content(content.bytes.to_vec(), facts(&content.stat));
                Reply::at(answer, state(&content.stat))
            }
            WorkspaceOperation::ReadMany(paths) => {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let one = |read: Result<Bytes>| match read {
                    Ok(bytes) => Answer::Bytes(bytes.to_vec()),
                    Err(error) => Answer::Failed(refusal(&error)),
                };
                let all = backend.read_many(&paths).await.into_iter().map(one).collect();
                Reply::new(Answer::Many(all))
            }
            WorkspaceOperation::Glob { root, pattern, limit } => {
                let options = GlobOptions {
                    root: root.clone(),
                    kinds: EntryKindFilter::All,
                    limits: SearchLimits { max_matches: *limit, ..SearchLimits::default() },
                    ..GlobOptions::default()
                };
                let GlobResults { entries, truncated, ignored_entries: _, problems } =
                    backend.glob(pattern, options).await?;
                Reply::new(listing(&Listing { entries, truncated, problems }))
            }
            WorkspaceOperation::Grep { root, text } => {
                let options = GrepOptions {
                    root: root.clone(),
                    output_mode: Count::Counts,
                    ..GrepOptions::default()
                };
                Reply::new(counted(&backend.grep(text, options).await?))
            }
            WorkspaceOperation::Write { path, bytes, mode, expect, permissions } => {
                let options = WriteOptions {
                    mode: *mode,
                    expected_version: self.expected(path, *expect, former).await,
                    permissions: *permissions,
                    ..WriteOptions::default()
                };
                described(&backend.write_with(path, bytes.as_slice(), options).await?)
            }
            WorkspaceOperation::Touch(path) => described(&backend.touch(path).await?),
            WorkspaceOperation::Edit { path, edits, expect, dry_run } => {
                let expect = self.expected(path, *expect, former).await;
                let options = EditOptions { dry_run: *dry_run, expected_version: expect };
                let edited = backend.edit(path, edits, options).await?;
                let answer = Answer::Edited { replaced: edited.replacement_count };
                Reply::at(answer, edited.stat.as_ref().and_then(state))
            }
            WorkspaceOperation::SetMode(path, mode) => {
                let attributes =
                    AttributeChanges { mode: Some(*mode), ..AttributeChanges::default() };
                described(&backend.set_attributes(path, attributes).await?)
            }
            WorkspaceOperation::Mkdir(path) => {
                backend.mkdir(path).await?;
                Reply::new(Answer::Done)
            }
            WorkspaceOperation::Remove(path, options) => {
                Reply::new(Answer::Removed(backend.rm(path, *options).await?.count))
            }
            WorkspaceOperation::Rename { from, to, overwrite } => {
                // Whether the rename was atomic is not compared.
                let options = RenameOptions { overwrite: *overwrite };
                backend.rename_with(from, to, options).await?;
                Reply::new(Answer::Done)
            }
            WorkspaceOperation::Open { slot, path, options } => {
                let file = backend.open(path, *options).await?;
                let reply = described(&file.stat().await?);
                self.slots[*slot] = Some(file);
                reply
            }
            WorkspaceOperation::ReadAt { slot, .. }
            | WorkspaceOperation::WriteAt { slot, .. }
            | WorkspaceOperation::SetLen { slot, .. }
            | WorkspaceOperation::Describe(slot) => self.on_file(*slot, operation).await?,
        })
    }

    async fn on_file(
        &self,
        slot: OpenFileSlot,
        operation: &WorkspaceOperation,
    ) -> Result<Reply<FileVersion>> {
        let Some(file) = &self.slots[slot] else { return Ok(Reply::new(Answer::NoFile)) };
        match operation {
            WorkspaceOperation::ReadAt { offset, length, .. } => {
                let bytes = file.read_at(*offset, *length).await?;
                return Ok(Reply::new(Answer::Bytes(bytes.to_vec())));
            }
            WorkspaceOperation::WriteAt { offset, bytes, .. } => {
                file.write_at(*offset, Bytes::copy_from_slice(bytes)).await?;
            }
            WorkspaceOperation::SetLen { length, .. } => file.set_len(*length).await?,
            _ => {}
        }
        Ok(described(&file.stat().await?))
    }

    async fn expected(
        &self,
        path: &str,
        expect: ExpectedVersion,
        former: FileVersion,
    ) -> Option<FileVersion> {
        match expect {
            ExpectedVersion::Any => None,
            ExpectedVersion::Stale => Some(former),
            ExpectedVersion::NeverExisted => Some(FileVersion::new(FOREIGN)),
            ExpectedVersion::Current => {
                let current = self.backend.stat(path).await.ok().as_ref().and_then(state);
                Some(current.unwrap_or(FileVersion::new(FOREIGN)))
            }
        }
    }
}

fn described(stat: &Stat) -> Reply<FileVersion> {
    Reply::at(Answer::Facts(facts(stat)), state(stat))
}

fn facts(stat: &Stat) -> Facts {
    let mode = if stat.kind.is_dir() { None } else { stat.mode };
    Facts { kind: stat.kind, size: stat.size, mode }
}

fn state(stat: &Stat) -> Option<FileVersion> {
    stat.kind.is_file().then_some(stat.version)
}

fn listing(listing: &Listing) -> Answer {
    let entries = listing.entries.iter().map(|entry| Listed {
        path: entry.path.to_string(),
        kind: entry.kind,
        facts: entry.stat.as_ref().map(facts),
    });
    Answer::Listing {
        entries: entries.collect(),
        cut: listing.truncated.is_some(),
        problems: listing.problems.len(),
    }
}

fn counted(found: &SearchResults) -> Answer {
    let count = |found: &SearchMatch| match found {
        SearchMatch::Count { path, matching_lines: lines } => (path.to_string(), *lines),
        other => panic!("asked for counts, got {other:?}"),
    };
    Answer::Lines {
        counts: found.matches.iter().map(count).collect(),
        searched: found.files_searched,
        binary: found.binary_files_skipped,
        problems: found.problems.len(),
    }
}

fn refusal(error: &Error) -> Refusal {
    Refusal { kind: error.kind(), path: error.path().map(str::to_owned) }
}
