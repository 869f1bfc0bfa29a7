//! Searching a directory tree by handles: one thread walks in path order, others look into files.
//!
//! The walk hands out batches in order and the answers are put together in that order, so a cut
//! answer has the first matches, whichever thread was faster. Links are named, never followed.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ab_core::metadata::{Entry, Truncated};
use ab_core::path::{MAX_PATH_BYTES, RESERVED_PREFIX};
use ab_core::search::answer::{Answering, Next};
use ab_core::search::selection::{Ground, IGNORE_FILE, MAX_IGNORE_BYTES, Selection};
use ab_core::search::text::{FileHits, TextSearch};
use ab_core::search::{Found, Query, Wanted, unsearchable};
use ab_core::{Error, FileKind, Kind, Result, WsPath};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::{Shared, describe, read};
use crate::blocking::Cancel;
use crate::failure::Act;
use crate::jail::{Fault, Final, open_plain};

/// Threads that look into files.
const MAX_LOOKERS: usize = 8;
/// Files handed to a thread at once.
const BATCH: usize = 64;
/// Batches that wait for a thread.
const QUEUE: usize = 32;
/// Directories on the way down that are kept open; deeper ones are opened from the top.
const MAX_HELD: usize = 128;

pub(super) fn search(
    shared: &Shared,
    act: Act<'_>,
    query: &Query,
    cancel: &Cancel,
) -> Result<Found> {
    let selection = Selection::compile(query)?;
    let text = match &query.wanted {
        Wanted::Names { .. } => None,
        Wanted::Text(text) => Some(TextSearch::compile(query, text)?),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let top = match (shared.jail.open(act.path, flags, Final::Follow), &text) {
        (Ok(top), _) => Arc::new(top),
        (Err(Fault::Os(Errno::NOTDIR)), Some(text)) => return one_file(shared, act, text, query),
        (Err(fault), _) => return Err(act.failed(fault)),
    };
    let ground = ground_at(shared, act.path, &selection);
    let mut walk = Walk { act, top, selection: &selection, problems: Vec::new() };
    let mut answering = Answering::new(&query.root, query.limits);
    match text {
        None => {
            let deadline = answering.deadline();
            walk.run(ground, &mut |file| {
                if cancel.is_set() {
                    return Err(Errno::CANCELED);
                }
                if Instant::now() > deadline {
                    answering.stop(Truncated::Time);
                    return Ok(Next::Stop);
                }
                Ok(answering.name(Entry { path: file.path, kind: file.kind, stat: None }))
            })
            .map_err(|errno| act.failed(errno))?;
            for (path, error) in walk.problems {
                answering.problem(path, error);
            }
        }
        Some(text) => look_in_parallel(walk, ground, &text, query, &mut answering, cancel)?,
    }
    Ok(answering.finish())
}

/// A text search whose root is a file looks into that file, whatever its name.
fn one_file(shared: &Shared, act: Act<'_>, text: &TextSearch, query: &Query) -> Result<Found> {
    let file = shared.jail.open(act.path, read::read_flags(), Final::Follow);
    let file = file.map_err(|fault| act.failed(fault))?;
    let described = describe::handle(&file).map_err(|errno| act.failed(errno))?;
    read::check_regular(act, &described)?;
    let mut answering = Answering::new(&query.root, query.limits);
    let most = query.limits.matches.saturating_add(1);
    let hits = text.look(&mut text.looker(), std::fs::File::from(file), most);
    match hits {
        Ok(hits) => {
            answering.file(act.path, hits, text.answer());
        }
        Err(error) => answering.problem(act.path.to_string(), unreadable(act.path, &error)),
    }
    Ok(answering.finish())
}

/// An entry that the search is about.
struct Picked {
    path: WsPath,
    kind: FileKind,
    dir: Arc<OwnedFd>,
}

struct Walk<'a> {
    act: Act<'a>,
    top: Arc<OwnedFd>,
    selection: &'a Selection,
    problems: Vec<(String, Error)>,
}

struct Level {
    /// From the workspace's root.
    path: WsPath,
    dir: Arc<OwnedFd>,
    identity: (u64, u64),
    ground: Ground,
    /// Sorted backwards, so that the next one is at the end.
    children: Vec<(String, FileKind)>,
}

impl Walk<'_> {
    /// Visits what the selection picks, in path order, until `visit` says stop.
    fn run(
        &mut self,
        ground: Ground,
        visit: &mut dyn FnMut(Picked) -> Result<Next, Errno>,
    ) -> Result<(), Errno> {
        let top = self.top.clone();
        let mut levels = vec![self.level(self.act.path.clone(), top, ground)?];
        while let Some(level) = levels.last_mut() {
            let Some((name, kind)) = level.children.pop() else {
                levels.pop();
                continue;
            };
            let Ok(path) = level.path.child(&name) else { continue };
            if path.as_str().len() > MAX_PATH_BYTES {
                self.problem(&path, Errno::NAMETOOLONG);
                continue;
            }
            let inside = match kind {
                FileKind::Dir => self.selection.enter(&level.ground, &name),
                FileKind::File | FileKind::Symlink | FileKind::Other => None,
            };
            if self.selection.picks(&level.ground, &name, kind) {
                let picked = Picked { path: path.clone(), kind, dir: level.dir.clone() };
                if visit(picked)? == Next::Stop {
                    return Ok(());
                }
            }
            let Some(ground) = inside else { continue };
            let next = self
                .open_dir(&levels, &path, &name)
                .and_then(|dir| self.level(path.clone(), Arc::new(dir), ground));
            match next {
                Ok(next) if levels.iter().any(|level| level.identity == next.identity) => {
                    self.problem(&path, Errno::LOOP);
                }
                Ok(next) => levels.push(next),
                Err(Errno::NOENT) => {}
                Err(errno) => self.problem(&path, errno),
            }
        }
        Ok(())
    }

    fn open_dir(&self, levels: &[Level], path: &WsPath, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match levels.last() {
            Some(level) if levels.len() < MAX_HELD => {
                openat(&level.dir, name, flags, Mode::empty())
            }
            _ => {
                let below = path.strip_prefix(self.act.path).unwrap_or_else(WsPath::root);
                open_plain(self.top.as_fd(), &below, flags)
            }
        }
    }

    fn level(
        &mut self,
        path: WsPath,
        dir: Arc<OwnedFd>,
        mut ground: Ground,
    ) -> Result<Level, Errno> {
        if self.selection.honours_ignore_files()
            && path != *self.act.path
            && let Some(text) = read_ignore_file(&dir)
        {
            ground = self.selection.with_ignore_file(ground, &text);
        }
        let stat = fstat(&dir)?;
        let mut children = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let bytes = name.to_bytes();
            if matches!(bytes, b"." | b"..") || bytes.starts_with(RESERVED_PREFIX.as_bytes()) {
                continue;
            }
            let Ok(text) = name.to_str() else {
                let shown = format!("{}/{}", path, name.to_string_lossy());
                let error = self.act.error(Kind::InvalidPath, "the name is not valid UTF-8");
                self.problems.push((shown.trim_start_matches("./").to_owned(), error));
                continue;
            };
            let kind = match entry.file_type() {
                FileType::Unknown => match describe::name(&dir, text) {
                    Ok(described) => described.stat.kind,
                    Err(_) => continue,
                },
                known => describe::kind(known),
            };
            children.push((text.to_owned(), kind));
        }
        children.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        Ok(Level { path, dir, identity: (stat.st_dev, stat.st_ino), ground, children })
    }

    fn problem(&mut self, path: &WsPath, errno: Errno) {
        if self.problems.len() < ab_core::search::answer::MAX_PROBLEMS {
            let error = Act::new(self.act.verb, path).failed(errno);
            self.problems.push((path.to_string(), error));
        }
    }
}

/// The ground at the search's root, with the ignore files from the workspace's root down.
fn ground_at(shared: &Shared, root: &WsPath, selection: &Selection) -> Ground {
    let mut ground = selection.start();
    if !selection.honours_ignore_files() {
        return ground;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let with_file = |path: &WsPath, ground: Ground| {
        let dir = shared.jail.open(path, flags, Final::Follow).ok();
        match dir.and_then(|dir| read_ignore_file(&dir)) {
            Some(text) => selection.with_ignore_file(ground, &text),
            None => ground,
        }
    };
    let mut path = root.fence();
    ground = with_file(&path, ground);
    for name in root.below_fence().split('/').filter(|name| !name.is_empty()) {
        let Ok(next) = path.child(name) else { break };
        path = next;
        ground = with_file(&path, selection.descend_to_root(ground, name));
    }
    ground
}

fn read_ignore_file(dir: &OwnedFd) -> Option<String> {
    let flags = read::read_flags() | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, IGNORE_FILE, flags, Mode::empty()).ok()?;
    if !describe::handle(&file).ok()?.stat.kind.is_file() {
        return None;
    }
    let bytes = read::read_fully(&file, 0, MAX_IGNORE_BYTES as usize).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

struct Batch {
    number: u64,
    files: Vec<Picked>,
}

type Looked = (u64, Vec<(WsPath, std::io::Result<FileHits>)>);

/// Lets several threads look into the files that the walk picks.
fn look_in_parallel(
    mut walk: Walk<'_>,
    ground: Ground,
    text: &TextSearch,
    query: &Query,
    answering: &mut Answering,
    cancel: &Cancel,
) -> Result<()> {
    let act = walk.act;
    let lookers = std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_LOOKERS));
    let most = query.limits.matches.saturating_add(1);
    let enough = AtomicBool::new(false);
    let deadline = answering.deadline();
    let late = AtomicBool::new(false);
    let stopped = || {
        if Instant::now() > deadline {
            late.store(true, Ordering::Relaxed);
        }
        enough.load(Ordering::Relaxed) || cancel.is_set() || late.load(Ordering::Relaxed)
    };
    let (work_in, work_out) = sync_channel::<Batch>(QUEUE);
    let (done_in, done_out) = sync_channel::<Looked>(QUEUE);
    let work_out = Mutex::new(work_out);
    let walked = std::thread::scope(|scope| {
        for _ in 0..lookers {
            let (work_out, stopped, done_in) = (&work_out, &stopped, done_in.clone());
            scope.spawn(move || look(work_out, &done_in, text, most, stopped));
        }
        drop(done_in);
        let walker = scope.spawn(|| {
            let mut batcher = Batcher { number: 0, files: Vec::new(), work: work_in };
            let result = walk.run(ground, &mut |file| {
                if stopped() {
                    return Ok(Next::Stop);
                }
                Ok(batcher.add(file))
            });
            batcher.send();
            (result, walk.problems)
        });
        collect(&done_out, text, answering, &enough);
        // The lookers must not wait for someone to take their answers.
        drop(done_out);
        walker.join()
    });
    let (result, problems) = walked.map_err(|_| act.error(Kind::Io, "a search thread failed"))?;
    result.map_err(|errno| act.failed(errno))?;
    if cancel.is_set() {
        return Err(act.failed(Errno::CANCELED));
    }
    for (path, error) in problems {
        answering.problem(path, error);
    }
    if late.load(Ordering::Relaxed) {
        answering.stop(Truncated::Time);
    }
    Ok(())
}

struct Batcher {
    number: u64,
    files: Vec<Picked>,
    work: SyncSender<Batch>,
}

impl Batcher {
    fn add(&mut self, file: Picked) -> Next {
        self.files.push(file);
        if self.files.len() < BATCH {
            return Next::GoOn;
        }
        self.send()
    }

    fn send(&mut self) -> Next {
        let batch = Batch { number: self.number, files: std::mem::take(&mut self.files) };
        self.number += 1;
        match self.work.send(batch) {
            Ok(()) => Next::GoOn,
            Err(_) => Next::Stop,
        }
    }
}

/// One thread's work: batches in, answers out.
fn look(
    work: &Mutex<Receiver<Batch>>,
    done: &SyncSender<Looked>,
    text: &TextSearch,
    most: usize,
    stopped: &dyn Fn() -> bool,
) {
    let mut looker = text.looker();
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(batch) = next else { return };
        let mut answers = Vec::new();
        for file in batch.files {
            if stopped() {
                break;
            }
            let hits = open_file(&file)
                .and_then(|opened| text.look(&mut looker, Watched { file: opened, stopped }, most));
            answers.push((file.path, hits));
        }
        if done.send((batch.number, answers)).is_err() {
            // Nobody wants more answers: drain the work so that the walk can end.
            continue;
        }
    }
}

fn open_file(file: &Picked) -> std::io::Result<std::fs::File> {
    let name = file.path.name().unwrap_or_default();
    let flags = read::read_flags() | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(&file.dir, name, flags, Mode::empty())?.into())
}

/// A file that seems to end when the search is over.
struct Watched<'a> {
    file: std::fs::File,
    stopped: &'a dyn Fn() -> bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if (self.stopped)() {
            return Ok(0);
        }
        self.file.read(buffer)
    }
}

/// Puts answers in order until there are enough.
fn collect(
    done: &Receiver<Looked>,
    text: &TextSearch,
    answering: &mut Answering,
    enough: &AtomicBool,
) {
    let mut waiting: BTreeMap<u64, Vec<(WsPath, std::io::Result<FileHits>)>> = BTreeMap::new();
    let mut next = 0;
    for (number, answers) in done {
        waiting.insert(number, answers);
        while let Some(answers) = waiting.remove(&next) {
            next += 1;
            for (path, hits) in answers {
                let step = match hits {
                    Ok(hits) => answering.file(&path, hits, text.answer()),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Next::GoOn,
                    Err(error) => {
                        answering.problem(path.to_string(), unreadable(&path, &error));
                        Next::GoOn
                    }
                };
                if step == Next::Stop {
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
        None => unsearchable(path, error),
    }
}
