//! Collects the results of a search within its limits, in path order.

use std::time::Instant;

use super::text::FileMatches;
use super::{
    IgnoredEntryCounts, SearchLimits, SearchLineRole, SearchMatch, SearchOutputMode, SearchResults,
};
use crate::error::Error;
use crate::metadata::{DirEntry, TruncationCause, WalkProblem};
use crate::path::WsPath;

/// Maximum number of problems that a result lists.
pub const MAX_REPORTED_SEARCH_PROBLEMS: usize = 1000;

/// Collects matches until a limit is reached.
#[derive(Debug)]
pub struct MatchCollector {
    found: SearchResults,
    limits: SearchLimits,
    deadline: Instant,
    /// The length in bytes of the prefix that all paths have in common. It does not count towards
    /// the limit.
    above: usize,
    /// The number of matches so far. Context lines are not counted.
    matches: usize,
    bytes: usize,
}

/// Whether a search continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchControlFlow {
    Continue,
    Stop,
}

impl MatchCollector {
    pub fn new(root: &WsPath, limits: SearchLimits) -> Self {
        let above = if root.is_root() { 0 } else { root.as_str().len() + 1 };
        let now = Instant::now();
        let deadline =
            now.checked_add(limits.max_duration).unwrap_or(now + super::DEFAULT_SEARCH_TIMEOUT);
        Self { found: SearchResults::default(), limits, deadline, above, matches: 0, bytes: 0 }
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Stops the search if its time limit is exceeded.
    pub fn check_deadline(&mut self) -> SearchControlFlow {
        if Instant::now() < self.deadline {
            return SearchControlFlow::Continue;
        }
        self.stop_and_mark_truncated(TruncationCause::Time)
    }

    pub fn stop_and_mark_truncated(&mut self, cause: TruncationCause) -> SearchControlFlow {
        self.found.truncated.get_or_insert(cause);
        SearchControlFlow::Stop
    }

    pub fn add_entry(&mut self, entry: DirEntry) -> SearchControlFlow {
        let size = self.size(&entry.path);
        self.add(SearchMatch::Name(entry), size, 1)
    }

    pub fn add_file_matches(
        &mut self,
        path: &WsPath,
        matches: FileMatches,
        mode: SearchOutputMode,
    ) -> SearchControlFlow {
        self.found.files_searched += 1;
        if matches.binary {
            self.found.binary_files_skipped += 1;
            return SearchControlFlow::Continue;
        }
        let is_wanted = (matches.count == 0) == (mode == SearchOutputMode::FilesWithoutMatch);
        if !is_wanted {
            return SearchControlFlow::Continue;
        }
        let size = self.size(path);
        match mode {
            SearchOutputMode::Files | SearchOutputMode::FilesWithoutMatch => {
                self.add(SearchMatch::File { path: path.clone() }, size, 1)
            }
            SearchOutputMode::Counts => self.add(
                SearchMatch::Count { path: path.clone(), matching_lines: matches.count },
                size,
                1,
            ),
            SearchOutputMode::Lines | SearchOutputMode::MatchedParts => {
                for hit in matches.lines {
                    let size = size + hit.text.len();
                    let counts = usize::from(hit.role == SearchLineRole::Match);
                    let line = SearchMatch::Line {
                        path: path.clone(),
                        line_number: hit.line_number,
                        text: hit.text,
                        full_line_bytes: hit.full_line_bytes,
                        role: hit.role,
                    };
                    if self.add(line, size, counts) == SearchControlFlow::Stop {
                        return SearchControlFlow::Stop;
                    }
                }
                SearchControlFlow::Continue
            }
        }
    }

    /// The size of a path that counts towards the limit. Only the part below the search root
    /// counts, so that the size is the same in every scope.
    fn size(&self, path: &WsPath) -> usize {
        path.as_str().len().saturating_sub(self.above)
    }

    pub fn add_problem(&mut self, path: String, error: Error) {
        if self.found.problems.len() < MAX_REPORTED_SEARCH_PROBLEMS {
            self.found.problems.push(WalkProblem { path, error });
        }
    }

    pub fn set_ignored_entry_counts(&mut self, counts: IgnoredEntryCounts) {
        self.found.ignored_entries = counts;
    }

    pub fn finish(self) -> SearchResults {
        self.found
    }

    fn add(&mut self, found: SearchMatch, size: usize, counts: usize) -> SearchControlFlow {
        if self.matches + counts > self.limits.max_matches {
            return self.stop_and_mark_truncated(TruncationCause::Count);
        }
        if self.bytes + size > self.limits.max_bytes {
            return self.stop_and_mark_truncated(TruncationCause::Bytes);
        }
        self.matches += counts;
        self.bytes += size;
        self.found.matches.push(found);
        SearchControlFlow::Continue
    }
}
