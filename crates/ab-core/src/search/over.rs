//! Searches any driver by listing directories and reading files. Used by memory workspaces, mounts
//! and overlays.

use std::future::poll_fn;
use std::task::Poll;

use super::collector::{MatchCollector, SearchControlFlow};
use super::selection::{IGNORE_FILE_NAME, MAX_IGNORE_FILE_BYTES, SearchFilter, WalkPosition};
use super::text::{FileSearchBuffers, TextSearch};
use super::{IgnoredEntryCounts, SearchQuery, SearchResults, SearchTarget};
use crate::call::Verb;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{DirEntry, FileKind};
use crate::options::{ByteRange, ListOptions, ReadOptions, StatOptions};
use crate::path::WsPath;

/// Searches by listing directories and reading files one after the other.
pub async fn search_by_listing(driver: &dyn Driver, query: &SearchQuery) -> Result<SearchResults> {
    let selection = SearchFilter::compile(query)?;
    let text = match &query.target {
        SearchTarget::Names { .. } => None,
        SearchTarget::Text(text) => Some(TextSearch::compile(query, text)?),
    };
    let looker = text.as_ref().map(TextSearch::new_buffers);
    let answering = MatchCollector::new(&query.root, query.limits);
    let (selection, text) = (&selection, text.as_ref());
    let left_out = IgnoredEntryCounts::default();
    let mut walk = Walk { driver, selection, text, looker, answering, left_out };
    let position = walk.position_at(&query.root).await;
    match walk.list(&query.root).await {
        Ok(first) => walk.run(first, position, query.limits.matches).await,
        // If the root of a text search is a file, this file is searched, whatever its name is.
        Err(error) if error.kind() == ErrorKind::NotADirectory && walk.text.is_some() => {
            let stat = driver.stat(&query.root, StatOptions::default()).await;
            let stat = stat.map_err(|error| error.with_verb(Verb::Search))?;
            let entry = DirEntry { path: query.root.clone(), kind: stat.kind, stat: None };
            walk.look(&entry, query.limits.matches).await;
        }
        Err(error) => return Err(error.with_verb(Verb::Search)),
    }
    walk.answering.set_ignored_entry_counts(walk.left_out);
    Ok(walk.answering.finish())
}

struct Walk<'a> {
    driver: &'a dyn Driver,
    selection: &'a SearchFilter,
    text: Option<&'a TextSearch>,
    looker: Option<FileSearchBuffers>,
    answering: MatchCollector,
    left_out: IgnoredEntryCounts,
}

/// A directory whose entries are being searched.
struct Level {
    position: WalkPosition,
    /// The remaining entries in reverse order, so that the next one is the last.
    entries: Vec<DirEntry>,
}

impl Walk<'_> {
    async fn run(&mut self, first: Vec<DirEntry>, position: WalkPosition, most: usize) {
        let mut levels = vec![Level { position, entries: first }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.pop() else {
                levels.pop();
                continue;
            };
            if self.answering.check_deadline() == SearchControlFlow::Stop {
                return;
            }
            let Some(name) = entry.path.name() else { continue };
            let inside = match entry.kind {
                FileKind::Dir => self.selection.enter_directory(&level.position, name),
                FileKind::File | FileKind::Symlink | FileKind::Other => None,
            };
            let picked = self.selection.accepts(&level.position, name, entry.kind);
            if !picked
                && inside.is_none()
                && self.selection.is_ignored(&level.position, name, entry.kind)
            {
                self.left_out.count_entry(entry.kind);
            }
            if picked && self.look(&entry, most).await == SearchControlFlow::Stop {
                return;
            }
            let Some(mut position) = inside else { continue };
            if self.selection.honours_ignore_files() {
                position = self.with_ignore_file(&entry.path, position).await;
            }
            match self.list(&entry.path).await {
                Ok(entries) => levels.push(Level { position, entries }),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => self.answering.add_problem(entry.path.to_string(), error),
            }
        }
    }

    async fn look(&mut self, entry: &DirEntry, most: usize) -> SearchControlFlow {
        let (Some(text), Some(looker)) = (self.text, &mut self.looker) else {
            return self.answering.add_entry(entry.clone());
        };
        let content = match self.driver.read(&entry.path, ReadOptions::default()).await {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return SearchControlFlow::Continue;
            }
            Err(error) => {
                self.answering.add_problem(entry.path.to_string(), error);
                return SearchControlFlow::Continue;
            }
        };
        // Reading from memory never waits, so other tasks would not run. Yield to them here.
        pause().await;
        match text.search_file(looker, &content.bytes[..], most.saturating_add(1)) {
            Ok(hits) => self.answering.add_file_matches(&entry.path, hits, text.output_mode()),
            Err(error) => {
                let error = search_error_from_io(&entry.path, &error);
                self.answering.add_problem(entry.path.to_string(), error);
                SearchControlFlow::Continue
            }
        }
    }

    async fn list(&mut self, path: &WsPath) -> Result<Vec<DirEntry>> {
        let mut entries = self.driver.list(path, ListOptions::default()).await?.entries;
        entries.reverse();
        // Keep the access rules of the directory for the following reads.
        let below = |entry: DirEntry| match entry.path.name() {
            Some(name) if path.has_access_rules() => {
                DirEntry { path: path.with_name(name), ..entry }
            }
            Some(_) | None => entry,
        };
        Ok(entries.into_iter().map(below).collect())
    }

    /// The position at the root of the search, including the ignore files from the root of the
    /// workspace downwards.
    async fn position_at(&mut self, root: &WsPath) -> WalkPosition {
        let mut position = self.selection.start_position();
        if !self.selection.honours_ignore_files() {
            return position;
        }
        let mut path = root.innermost_scope_root();
        position = self.with_ignore_file(&path, position).await;
        for name in root.part_below_scope_root().split('/').filter(|name| !name.is_empty()) {
            let Ok(next) = path.child(name) else { break };
            path = next;
            position = self.selection.descend_to_search_root(position, name);
            position = self.with_ignore_file(&path, position).await;
        }
        position
    }

    async fn with_ignore_file(
        &mut self,
        directory: &WsPath,
        position: WalkPosition,
    ) -> WalkPosition {
        let Ok(path) = directory.child(IGNORE_FILE_NAME) else { return position };
        let range = ByteRange { start: 0, length: MAX_IGNORE_FILE_BYTES };
        let options = ReadOptions { range: Some(range), ..ReadOptions::default() };
        match self.driver.read(&path, options).await {
            Ok(content) => {
                let text = String::from_utf8_lossy(&content.bytes);
                self.selection.add_ignore_rules(position, &text)
            }
            Err(_) => position,
        }
    }
}

/// The error for a file that was opened but could not be searched.
pub fn search_error_from_io(path: &WsPath, error: &std::io::Error) -> Error {
    let message = match error.kind() {
        std::io::ErrorKind::Other => "a line is too long to search".to_owned(),
        _ => error.to_string(),
    };
    Error::for_path(Verb::Search, path, ErrorKind::TooLarge, message)
}

/// Yields to other tasks once.
async fn pause() {
    let mut paused = false;
    poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
