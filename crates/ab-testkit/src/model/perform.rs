//! What a backend answers to an operation.

use ab_core::backend::{GlobOptions, GlobResults, GrepOptions};
use ab_core::edit::EditOptions;
use ab_core::options::{Attributes, RenameOptions, WriteOptions};
use ab_core::search::{EntryKinds, Match, SearchLimits, SearchOutputMode as Count, SearchResults};
use ab_core::{Backend, Error, File, Listing, Result, Stat, Version};
use bytes::Bytes;

use super::answer::{Answer, Facts, Listed, Refusal, Reply};
use super::operation::{Expect, ModelOperation, SLOTS, Slot};

/// A version that no file ever has.
pub(super) const FOREIGN: u128 = u128::MAX;

/// A backend with its open files.
#[derive(Debug)]
pub(super) struct Subject {
    backend: Backend,
    slots: [Option<Box<dyn File>>; SLOTS],
}

impl Subject {
    pub(super) fn new(backend: Backend) -> Self {
        Self { backend, slots: [const { None }; SLOTS] }
    }

    /// Does it. `former` is the version to take for [`Expect::Former`].
    pub(super) async fn answer(
        &mut self,
        operation: &ModelOperation,
        former: Version,
    ) -> Reply<Version> {
        let outcome = self.outcome(operation, former).await;
        outcome.unwrap_or_else(|error| Reply::new(Answer::Failed(refusal(&error))))
    }

    async fn outcome(
        &mut self,
        operation: &ModelOperation,
        former: Version,
    ) -> Result<Reply<Version>> {
        let backend = &self.backend;
        Ok(match operation {
            ModelOperation::Stat(path) => described(&backend.stat(path).await?),
            ModelOperation::Exists(path) => Reply::new(Answer::Exists(backend.exists(path).await?)),
            ModelOperation::List(path, options) => {
                Reply::new(listing(&backend.list(path, *options).await?))
            }
            ModelOperation::Read(path, options) => {
                let content = backend.read_with(path, *options).await?;
                let answer = Answer::Content(content.bytes.to_vec(), facts(&content.stat));
                Reply::at(answer, state(&content.stat))
            }
            ModelOperation::ReadMany(paths) => {
                let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                let one = |read: Result<Bytes>| match read {
                    Ok(bytes) => Answer::Bytes(bytes.to_vec()),
                    Err(error) => Answer::Failed(refusal(&error)),
                };
                let all = backend.read_many(&paths).await.into_iter().map(one).collect();
                Reply::new(Answer::Many(all))
            }
            ModelOperation::Glob { root, pattern, limit } => {
                let options = GlobOptions {
                    root: root.clone(),
                    kinds: EntryKinds::All,
                    limits: SearchLimits { matches: *limit, ..SearchLimits::default() },
                    ..GlobOptions::default()
                };
                let GlobResults { entries, truncated, left_out: _, problems } =
                    backend.glob(pattern, options).await?;
                Reply::new(listing(&Listing { entries, truncated, problems }))
            }
            ModelOperation::Grep { root, text } => {
                let options = GrepOptions {
                    root: root.clone(),
                    answer: Count::Counts,
                    ..GrepOptions::default()
                };
                Reply::new(counted(&backend.grep(text, options).await?))
            }
            ModelOperation::Write { path, bytes, mode, expect, permissions } => {
                let options = WriteOptions {
                    mode: *mode,
                    expect: self.expected(path, *expect, former).await,
                    permissions: *permissions,
                    ..WriteOptions::default()
                };
                described(&backend.write_with(path, bytes.as_slice(), options).await?)
            }
            ModelOperation::Touch(path) => described(&backend.touch(path).await?),
            ModelOperation::Edit { path, edits, expect, dry_run } => {
                let expect = self.expected(path, *expect, former).await;
                let options = EditOptions { dry_run: *dry_run, expect };
                let edited = backend.edit(path, edits, options).await?;
                let answer = Answer::Edited { replaced: edited.replaced };
                Reply::at(answer, edited.stat.as_ref().and_then(state))
            }
            ModelOperation::SetMode(path, mode) => {
                let attributes = Attributes { mode: Some(*mode), ..Attributes::default() };
                described(&backend.set_attributes(path, attributes).await?)
            }
            ModelOperation::Mkdir(path) => {
                backend.mkdir(path).await?;
                Reply::new(Answer::Done)
            }
            ModelOperation::Remove(path, options) => {
                Reply::new(Answer::Removed(backend.rm(path, *options).await?.count))
            }
            ModelOperation::Rename { from, to, overwrite } => {
                // Whether it was atomic is the backend's own affair.
                let options = RenameOptions { overwrite: *overwrite };
                backend.rename_with(from, to, options).await?;
                Reply::new(Answer::Done)
            }
            ModelOperation::Open { slot, path, options } => {
                let file = backend.open(path, *options).await?;
                let reply = described(&file.stat().await?);
                self.slots[*slot] = Some(file);
                reply
            }
            ModelOperation::ReadAt { slot, .. }
            | ModelOperation::WriteAt { slot, .. }
            | ModelOperation::SetLen { slot, .. }
            | ModelOperation::Describe(slot) => self.on_file(*slot, operation).await?,
        })
    }

    async fn on_file(&self, slot: Slot, operation: &ModelOperation) -> Result<Reply<Version>> {
        let Some(file) = &self.slots[slot] else { return Ok(Reply::new(Answer::NoFile)) };
        match operation {
            ModelOperation::ReadAt { offset, length, .. } => {
                let bytes = file.read_at(*offset, *length).await?;
                return Ok(Reply::new(Answer::Bytes(bytes.to_vec())));
            }
            ModelOperation::WriteAt { offset, bytes, .. } => {
                file.write_at(*offset, Bytes::copy_from_slice(bytes)).await?;
            }
            ModelOperation::SetLen { length, .. } => file.set_len(*length).await?,
            _ => {}
        }
        Ok(described(&file.stat().await?))
    }

    async fn expected(&self, path: &str, expect: Expect, former: Version) -> Option<Version> {
        match expect {
            Expect::Nothing => None,
            Expect::Former => Some(former),
            Expect::Foreign => Some(Version::new(FOREIGN)),
            Expect::Current => {
                let current = self.backend.stat(path).await.ok().as_ref().and_then(state);
                Some(current.unwrap_or(Version::new(FOREIGN)))
            }
        }
    }
}

fn described(stat: &Stat) -> Reply<Version> {
    Reply::at(Answer::Facts(facts(stat)), state(stat))
}

fn facts(stat: &Stat) -> Facts {
    let mode = if stat.kind.is_dir() { None } else { stat.mode };
    Facts { kind: stat.kind, size: stat.size, mode }
}

fn state(stat: &Stat) -> Option<Version> {
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
    let count = |found: &Match| match found {
        Match::Count { path, lines } => (path.to_string(), *lines),
        other => panic!("asked for counts, got {other:?}"),
    };
    Answer::Lines {
        counts: found.matches.iter().map(count).collect(),
        searched: found.searched,
        binary: found.skipped_binary,
        problems: found.problems.len(),
    }
}

fn refusal(error: &Error) -> Refusal {
    Refusal { kind: error.kind(), path: error.path().map(str::to_owned) }
}
