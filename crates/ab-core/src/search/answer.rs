//! Putting together a bounded answer, in path order.

use std::time::Instant;

use super::text::FileHits;
use super::{Found, LeftOut, LineRole, Match, SearchAnswer, SearchLimits};
use crate::error::Error;
use crate::metadata::{Entry, Truncated, WalkProblem};
use crate::path::WsPath;

/// Problems that one answer names.
pub const MAX_PROBLEMS: usize = 1000;

/// Collects matches until a limit is met.
#[derive(Debug)]
pub struct Answering {
    found: Found,
    limits: SearchLimits,
    deadline: Instant,
    /// Bytes that every path begins with, which do not count.
    above: usize,
    /// Matches so far; context lines do not count.
    matches: usize,
    bytes: usize,
}

/// Whether a search should go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    Stop,
}

impl Answering {
    pub fn new(root: &WsPath, limits: SearchLimits) -> Self {
        let above = if root.is_root() { 0 } else { root.as_str().len() + 1 };
        let now = Instant::now();
        let deadline = now.checked_add(limits.time).unwrap_or(now + super::DEFAULT_SEARCH_TIME);
        Self { found: Found::default(), limits, deadline, above, matches: 0, bytes: 0 }
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Stops when time is up.
    pub fn check_time(&mut self) -> Next {
        if Instant::now() < self.deadline {
            return Next::GoOn;
        }
        self.stop(Truncated::Time)
    }

    pub fn stop(&mut self, why: Truncated) -> Next {
        self.found.truncated.get_or_insert(why);
        Next::Stop
    }

    pub fn name(&mut self, entry: Entry) -> Next {
        let size = self.size(&entry.path);
        self.add(Match::Name(entry), size, 1)
    }

    pub fn file(&mut self, path: &WsPath, hits: FileHits, answer: SearchAnswer) -> Next {
        self.found.searched += 1;
        if hits.binary {
            self.found.skipped_binary += 1;
            return Next::GoOn;
        }
        if hits.count == 0 {
            return Next::GoOn;
        }
        let size = self.size(path);
        match answer {
            SearchAnswer::Files => self.add(Match::File { path: path.clone() }, size, 1),
            SearchAnswer::Counts => {
                self.add(Match::Count { path: path.clone(), lines: hits.count }, size, 1)
            }
            SearchAnswer::Lines => {
                for hit in hits.lines {
                    let size = size + hit.text.len();
                    let counts = usize::from(hit.role == LineRole::Match);
                    let line = Match::Line {
                        path: path.clone(),
                        line: hit.line,
                        text: hit.text,
                        cut: hit.cut,
                        role: hit.role,
                    };
                    if self.add(line, size, counts) == Next::Stop {
                        return Next::Stop;
                    }
                }
                Next::GoOn
            }
        }
    }

    /// What a path costs: its part below the root of the search, the same in every scope.
    fn size(&self, path: &WsPath) -> usize {
        path.as_str().len().saturating_sub(self.above)
    }

    pub fn problem(&mut self, path: String, error: Error) {
        if self.found.problems.len() < MAX_PROBLEMS {
            self.found.problems.push(WalkProblem { path, error });
        }
    }

    pub fn left_out(&mut self, left_out: LeftOut) {
        self.found.left_out = left_out;
    }

    pub fn finish(self) -> Found {
        self.found
    }

    fn add(&mut self, found: Match, size: usize, counts: usize) -> Next {
        if self.matches + counts > self.limits.matches {
            return self.stop(Truncated::Count);
        }
        if self.bytes + size > self.limits.bytes {
            return self.stop(Truncated::Bytes);
        }
        self.matches += counts;
        self.bytes += size;
        self.found.matches.push(found);
        Next::GoOn
    }
}
