//! Searches a directory tree by handles. One thread walks through the tree in path order, and other
//! threads search the files.
//!
//! The walk produces numbered batches of files, and the results are combined in the order of these
//! numbers. So a truncated result always contains the first matches, no matter which thread was
//! faster. Links are reported but never followed.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ab_core::metadata::{DirEntry, TruncationCause};
use ab_core::search::collector::{MAX_REPORTED_SEARCH_PROBLEMS, MatchCollector, SearchControlFlow};
use ab_core::search::selection::{
    IGNORE_FILE_NAME, MAX_IGNORE_FILE_BYTES, SearchFilter, WalkPosition,
};
use ab_core::search::text::{FileMatches, TextSearch};
use ab_core::search::{
    IgnoredEntryCounts, SearchOutputMode, SearchQuery, SearchResults, SearchTarget,
    search_error_from_io,
};
use ab_core::{Error, ErrorKind, FileKind, Result, WsPath};
use rustix::fd::OwnedFd;
use rustix::fs::{FsWord, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};
use rustix::io::Errno;

use super::walk::{self, Entered, Flow, Top, Trouble, Visited, Visitor};
use super::{Shared, TMPFS, describe, read};
use crate::blocking::Cancel;
use crate::failure::Act;
use crate::jail::{Fault, Final};

/// Maximum number of threads that search files.
const MAX_LOOKERS: usize = 8;
/// Number of files in a batch. The first batches are smaller, so that no thread has to wait long
/// for work.
const BATCH: usize = 256;
const FIRST_BATCH: usize = 32;
/// The clock is read only once for this number of entries, files or reads.
const TICK: u32 = 16;
/// Maximum number of batches that wait for a thread.
const QUEUE: usize = 32;

pub(super) fn search(
    shared: &Shared,
    act: Act<'_>,
    query: &SearchQuery,
    cancel: &Cancel,
) -> Result<SearchResults> {
    let selection = SearchFilter::compile(query)?;
    let text = match &query.target {
        SearchTarget::Names { .. } => None,
        SearchTarget::Text(text) => Some(TextSearch::compile(query, text)?),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let (top, place) = match (shared.jail.locate(act.path, flags, Final::Follow), &text) {
        (Ok((top, place)), _) => (Arc::new(top), place),
        (Err(Fault::Os(Errno::NOTDIR)), Some(text)) => {
            return one_file(shared, act, text, query, cancel);
        }
        (Err(fault), _) => return Err(act.failed(fault)),
    };
    let position = position_at(shared, act.path, &selection);
    let mut answering = MatchCollector::new(&query.root, query.limits);
    match text {
        None => {
            let ways = Ways { act, top, place, plain: false, selection: &selection, position };
            find_names(ways, &mut answering, cancel)?;
        }
        Some(text) => {
            let plain = is_plain(&top);
            let ways = Ways { act, top, place, plain, selection: &selection, position };
            look_in_parallel(ways, &text, query, &mut answering, cancel)?;
        }
    }
    Ok(answering.finish())
}

/// Where a search starts, the filters of the search, and their state at the start.
struct Ways<'a> {
    act: Act<'a>,
    top: Arc<OwnedFd>,
    /// The real path of the directory where the search starts, with the rules that apply there.
    place: WsPath,
    /// Whether a short read on that file system always means the end of the file.
    plain: bool,
    selection: &'a SearchFilter,
    position: WalkPosition,
}

fn find_names(ways: Ways<'_>, answering: &mut MatchCollector, cancel: &Cancel) -> Result<()> {
    let Ways { act, top, place, selection, position, .. } = ways;
    let deadline = answering.deadline();
    let mut visit = |picked: Picked| {
        if cancel.is_set() {
            return Err(Errno::CANCELED);
        }
        Ok(answering.add_entry(DirEntry { path: picked.path, kind: picked.kind, stat: None }))
    };
    let mut seeker = Seeker::new(act, selection, position, deadline, &mut visit);
    let walked = walk::walk(Top { handle: top, path: act.path, place }, &mut seeker);
    let (late, problems, left_out) = (seeker.late, seeker.problems, seeker.left_out);
    answering.set_ignored_entry_counts(left_out);
    walked.map_err(|errno| act.failed(errno))?;
    for (path, error) in problems {
        answering.add_problem(path, error);
    }
    if late {
        answering.stop_and_mark_truncated(TruncationCause::Time);
    }
    Ok(())
}

/// Searches one file. If the root of a text search is a file, this file is searched, no matter what
/// its name is.
fn one_file(
    shared: &Shared,
    act: Act<'_>,
    text: &TextSearch,
    query: &SearchQuery,
    cancel: &Cancel,
) -> Result<SearchResults> {
    let file = shared.jail.open(act.path, read::read_flags(), Final::Follow);
    let file = file.map_err(|fault| act.failed(fault))?;
    let described = describe::handle(&file).map_err(|errno| act.failed(errno))?;
    read::check_regular(act, &described)?;
    let mut answering = MatchCollector::new(&query.root, query.limits);
    let deadline = answering.deadline();
    let stopped = || cancel.is_set() || Instant::now() > deadline;
    let watched = Watched::new(file.into(), false, &stopped);
    match text.search_file(
        &mut text.new_buffers(),
        watched,
        query.limits.max_matches.saturating_add(1),
    ) {
        // The rest of the file may contain a match.
        Ok(_) if text.output_mode() == SearchOutputMode::FilesWithoutMatch && stopped() => {}
        Ok(hits) => {
            answering.add_file_matches(act.path, hits, text.output_mode());
        }
        Err(error) => answering.add_problem(act.path.to_string(), unreadable(act.path, &error)),
    }
    answering.check_deadline();
    Ok(answering.finish())
}

/// An entry that the walk has found and that has passed the filters of the search.
struct Picked {
    path: WsPath,
    kind: FileKind,
    dir: Arc<OwnedFd>,
    near: bool,
}

/// Applies the filters of the query during a walk, and passes on the entries that match.
struct Seeker<'a> {
    act: Act<'a>,
    selection: &'a SearchFilter,
    /// The filter state for each directory that the walk is in.
    positions: Vec<WalkPosition>,
    /// The filter state for the directory that will be entered next.
    next: Option<WalkPosition>,
    deadline: Instant,
    late: bool,
    visits: u32,
    visit: &'a mut dyn FnMut(Picked) -> Result<SearchControlFlow, Errno>,
    problems: Vec<(String, Error)>,
    left_out: IgnoredEntryCounts,
}

impl<'a> Seeker<'a> {
    fn new(
        act: Act<'a>,
        selection: &'a SearchFilter,
        position: WalkPosition,
        deadline: Instant,
        visit: &'a mut dyn FnMut(Picked) -> Result<SearchControlFlow, Errno>,
    ) -> Self {
        let (positions, problems) = (Vec::new(), Vec::new());
        Self {
            act,
            selection,
            positions,
            next: Some(position),
            deadline,
            late: false,
            visits: 0,
            visit,
            problems,
            left_out: IgnoredEntryCounts::default(),
        }
    }
}

impl Visitor for Seeker<'_> {
    fn visit(&mut self, entry: &Visited<'_>) -> Result<Flow, Errno> {
        if self.visits.is_multiple_of(TICK) && Instant::now() > self.deadline {
            self.late = true;
            return Ok(Flow::Stop);
        }
        self.visits = self.visits.wrapping_add(1);
        let Some(position) = self.positions.last() else { return Ok(Flow::Pass) };
        self.next = match entry.kind {
            FileKind::Dir => self.selection.enter_directory(position, entry.name),
            FileKind::File | FileKind::Symlink | FileKind::Other => None,
        };
        let picked = self.selection.accepts(position, entry.name, entry.kind);
        if !picked
            && self.next.is_none()
            && self.selection.is_ignored(position, entry.name, entry.kind)
        {
            self.left_out.count_entry(entry.kind);
        }
        if picked && let Some(path) = entry.path() {
            let dir = entry.directory.clone();
            let picked = Picked { path, kind: entry.kind, dir, near: entry.near };
            if (self.visit)(picked)? == SearchControlFlow::Stop {
                return Ok(Flow::Stop);
            }
        }
        match self.next {
            Some(_) => Ok(Flow::Enter),
            None => Ok(Flow::Pass),
        }
    }

    fn entered(&mut self, Entered { path, directory, place }: Entered<'_>) {
        let Some(mut position) = self.next.take() else { return };
        // The initial state already contains the ignore file of the search's root.
        if self.selection.honours_ignore_files()
            && path != self.act.path
            && let Some(text) = read_ignore_file(directory, place)
        {
            position = self.selection.add_ignore_rules(position, &text);
        }
        self.positions.push(position);
    }

    fn left(&mut self) {
        self.positions.pop();
    }

    fn trouble(&mut self, path: String, trouble: Trouble) {
        if self.problems.len() < MAX_REPORTED_SEARCH_PROBLEMS {
            let error = self.act.troubled(&path, trouble);
            self.problems.push((path, error));
        }
    }
}

/// Returns the filter state at the root of the search. It includes the ignore files of all
/// directories from the workspace's root down to the root of the search.
fn position_at(shared: &Shared, root: &WsPath, selection: &SearchFilter) -> WalkPosition {
    let mut position = selection.start_position();
    if !selection.honours_ignore_files() {
        return position;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let with_file = |path: &WsPath, position: WalkPosition| {
        let located = shared.jail.locate(path, flags, Final::Follow).ok();
        match located.and_then(|(dir, place)| read_ignore_file(&dir, &place)) {
            Some(text) => selection.add_ignore_rules(position, &text),
            None => position,
        }
    };
    let mut path = root.innermost_scope_root();
    position = with_file(&path, position);
    for name in root.part_below_scope_root().split('/').filter(|name| !name.is_empty()) {
        let Ok(next) = path.child(name) else { break };
        path = next;
        position = with_file(&path, selection.descend_to_search_root(position, name));
    }
    position
}

fn read_ignore_file(dir: &OwnedFd, place: &WsPath) -> Option<String> {
    if place.hides_child_ignoring_filters(IGNORE_FILE_NAME) {
        return None;
    }
    let flags = read::read_flags() | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, IGNORE_FILE_NAME, flags, Mode::empty()).ok()?;
    if !describe::handle(&file).ok()?.stat.kind.is_file() {
        return None;
    }
    let bytes = read::read_fully(&file, 0, MAX_IGNORE_FILE_BYTES as usize).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

struct Batch {
    number: u64,
    files: Vec<Picked>,
}

type Looked = (u64, Vec<(WsPath, std::io::Result<FileMatches>)>);

/// Searches the files that passed the filters, on several threads.
fn look_in_parallel(
    ways: Ways<'_>,
    text: &TextSearch,
    query: &SearchQuery,
    answering: &mut MatchCollector,
    cancel: &Cancel,
) -> Result<()> {
    let (act, plain) = (ways.act, ways.plain);
    let lookers = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_LOOKERS));
    let most = query.limits.max_matches.saturating_add(1);
    let enough = AtomicBool::new(false);
    let deadline = answering.deadline();
    let late = AtomicBool::new(false);
    let told = || enough.load(Ordering::Relaxed) || cancel.is_set() || late.load(Ordering::Relaxed);
    let stopped = || {
        if Instant::now() > deadline {
            late.store(true, Ordering::Relaxed);
        }
        told()
    };
    let (work_in, work_out) = sync_channel::<Batch>(QUEUE);
    let (done_in, done_out) = sync_channel::<Looked>(QUEUE);
    let work_out = Mutex::new(work_out);
    let walked = std::thread::scope(|scope| {
        for _ in 0..lookers {
            let (work_out, stopped, done_in) = (&work_out, &stopped, done_in.clone());
            scope.spawn(move || look(work_out, &done_in, text, most, plain, stopped));
        }
        drop(done_in);
        let walker = scope.spawn(|| {
            let mut batcher = Batcher { number: 0, files: Vec::new(), work: work_in };
            let mut visit = |picked: Picked| {
                if told() { Ok(SearchControlFlow::Stop) } else { Ok(batcher.add(picked)) }
            };
            let Ways { act, top, place, selection, position, .. } = ways;
            let mut seeker = Seeker::new(act, selection, position, deadline, &mut visit);
            let result = walk::walk(Top { handle: top, path: act.path, place }, &mut seeker);
            let (problems, left_out) = (seeker.problems, seeker.left_out);
            late.fetch_or(seeker.late, Ordering::Relaxed);
            batcher.send();
            (result, problems, left_out)
        });
        collect(&done_out, text, answering, &enough);
        // Drop this receiver, so that the search threads do not block on sending results.
        drop(done_out);
        walker.join()
    });
    let walked = walked.map_err(|_| act.error(ErrorKind::Io, "a search thread failed"))?;
    let (result, problems, left_out) = walked;
    answering.set_ignored_entry_counts(left_out);
    result.map_err(|errno| act.failed(errno))?;
    if cancel.is_set() {
        return Err(act.failed(Errno::CANCELED));
    }
    for (path, error) in problems {
        answering.add_problem(path, error);
    }
    if late.load(Ordering::Relaxed) {
        answering.stop_and_mark_truncated(TruncationCause::Time);
    }
    Ok(())
}

struct Batcher {
    number: u64,
    files: Vec<Picked>,
    work: SyncSender<Batch>,
}

impl Batcher {
    fn add(&mut self, file: Picked) -> SearchControlFlow {
        self.files.push(file);
        if self.files.len() < BATCH.min(FIRST_BATCH * (self.number as usize + 1)) {
            return SearchControlFlow::Continue;
        }
        self.send()
    }

    fn send(&mut self) -> SearchControlFlow {
        let batch = Batch { number: self.number, files: std::mem::take(&mut self.files) };
        self.number += 1;
        match self.work.send(batch) {
            Ok(()) => SearchControlFlow::Continue,
            Err(_) => SearchControlFlow::Stop,
        }
    }
}

/// The loop of one search thread. It receives batches and sends results.
fn look(
    work: &Mutex<Receiver<Batch>>,
    done: &SyncSender<Looked>,
    text: &TextSearch,
    most: usize,
    plain: bool,
    stopped: &dyn Fn() -> bool,
) {
    let mut looker = text.new_buffers();
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(batch) = next else { return };
        let mut answers = Vec::new();
        for (number, file) in (0..).zip(batch.files) {
            if u32::is_multiple_of(number, TICK) && stopped() {
                break;
            }
            let hits = open_file(&file, plain).and_then(|(opened, plain)| {
                text.search_file(&mut looker, Watched::new(opened, plain, stopped), most)
            });
            if text.output_mode() == SearchOutputMode::FilesWithoutMatch && stopped() {
                // The rest of the file may contain a match.
                break;
            }
            answers.push((file.path, hits));
        }
        if done.send((batch.number, answers)).is_err() {
            // No more results are needed. Continue to empty the queue, so that the walk can end.
            continue;
        }
    }
}

/// Opens a file. The flag is true if `plain` is true and the file is on the file system of the
/// search's root.
fn open_file(file: &Picked, plain: bool) -> std::io::Result<(std::fs::File, bool)> {
    let name = file.path.name().unwrap_or_default();
    let flags = read::read_flags() | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if plain && file.near {
        // A single file can be a mount point too, so the file may be on another file system than
        // its directory.
        match openat2(&file.dir, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            Err(Errno::XDEV | Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok((opened?.into(), true)),
        }
    }
    Ok((openat(&file.dir, name, flags, Mode::empty())?.into(), false))
}

/// Returns whether a short read always means the end of a file on this file system. This is true
/// for the kernel's own file systems on a disk or in memory.
fn is_plain(dir: &OwnedFd) -> bool {
    const EXT: FsWord = 0xef53;
    const XFS: FsWord = 0x5846_5342;
    const BTRFS: FsWord = 0x9123_683e;
    fstatfs(dir).is_ok_and(|system| matches!(system.f_type, EXT | XFS | BTRFS | TMPFS))
}

/// A file for the search thread. Its reads report the end of the file when the search is stopped.
struct Watched<'a> {
    file: std::fs::File,
    /// Whether a short read means the end of the file.
    plain: bool,
    ended: bool,
    reads: u32,
    stopped: &'a dyn Fn() -> bool,
}

impl<'a> Watched<'a> {
    fn new(file: std::fs::File, plain: bool, stopped: &'a dyn Fn() -> bool) -> Self {
        Self { file, plain, ended: false, reads: 0, stopped }
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        /// The size of a disk sector. A read that fails in the middle returns whole sectors. So if
        /// the length of a short read is a multiple of this size, the read may have failed before
        /// the end of the file.
        const PIECE: usize = 512;
        self.reads = self.reads.wrapping_add(1);
        if self.ended || self.reads.is_multiple_of(TICK) && (self.stopped)() {
            return Ok(0);
        }
        let read = self.file.read(buffer)?;
        self.ended = self.plain && read < buffer.len() && !read.is_multiple_of(PIECE);
        Ok(read)
    }
}

/// Combines the results in order until there are enough.
fn collect(
    done: &Receiver<Looked>,
    text: &TextSearch,
    answering: &mut MatchCollector,
    enough: &AtomicBool,
) {
    let mut waiting: BTreeMap<u64, Vec<(WsPath, std::io::Result<FileMatches>)>> = BTreeMap::new();
    let mut next = 0;
    for (number, answers) in done {
        waiting.insert(number, answers);
        while let Some(answers) = waiting.remove(&next) {
            next += 1;
            for (path, hits) in answers {
                let step = match hits {
                    Ok(hits) => answering.add_file_matches(&path, hits, text.output_mode()),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                        SearchControlFlow::Continue
                    }
                    Err(error) => {
                        answering.add_problem(path.to_string(), unreadable(&path, &error));
                        SearchControlFlow::Continue
                    }
                };
                if step == SearchControlFlow::Stop {
                    enough.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
    }
}

fn unreadable(path: &WsPath, error: &std::io::Error) -> Error {
    match Errno::from_io_error(error) {
        Some(errno) => Act::new(ab_core::Verb::Search, path).failed(errno),
        None => search_error_from_io(path, error),
    }
}
