//! The processes of one driver. An owned process ends when its handle is dropped. A detached
//! process does not.
//!
//! Every running process is counted, and all of them end with the driver.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{
    DriverAttachmentChannels, OutputChunk, Process, ProcessControlMessage, ProcessExit,
    ProcessExitReceiver, ProcessId, ProcessInfo,
};
use ab_core::{Verb, WsPath};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::incarnation;
use super::spool::{Read, Spool};

/// Maximum number of running detached processes in all scopes together. When a scope starts a
/// process, the processes of this scope count twice. So a single scope can run half of this number.
pub(crate) const MAX_DETACHED: usize = 512;
/// Maximum number of ended processes whose output is kept. The oldest ones are dropped first.
pub(crate) const MAX_ENDED: usize = 64;
/// Maximum number of bytes of memory for the output of ended processes. The oldest processes are
/// dropped first. The newest process is always kept.
pub(crate) const MAX_ENDED_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Table {
    /// A random number, followed by the random text of our process. This text is part of the
    /// environment variable that marks each process. It distinguishes processes of this driver from
    /// processes of an earlier driver.
    incarnation: String,
    next: AtomicU64,
    stop: watch::Sender<bool>,
    live: watch::Sender<usize>,
    entries: Mutex<BTreeMap<u64, Entry>>,
    /// The scopes of the detached processes that are being started now.
    starting: Mutex<BTreeMap<u64, WsPath>>,
}

/// An entry of the table: a detached process, running or ended.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: ProcessId,
    pub(crate) command: String,
    pub(crate) cwd: WsPath,
    pub(crate) started: SystemTime,
    pub(crate) exit: Option<ProcessExit>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) stdin: Option<mpsc::Sender<Bytes>>,
    pub(crate) control: mpsc::Sender<ProcessControlMessage>,
    pub(crate) ending: ProcessExitReceiver,
}

/// Counts as one running process of the driver while it exists. It is dropped when the process has
/// ended.
#[derive(Debug)]
pub(crate) struct Place {
    table: Arc<Table>,
    pub(crate) number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.table.starting().remove(&self.number);
        self.table.live.send_modify(|live| *live -= 1);
    }
}

impl Table {
    pub(crate) fn new() -> Arc<Self> {
        let random = std::hash::RandomState::new().build_hasher().finish();
        Arc::new(Self {
            incarnation: format!("{random:016x}{}", incarnation::mark()),
            next: AtomicU64::new(1),
            stop: watch::Sender::new(false),
            live: watch::Sender::new(0),
            entries: Mutex::new(BTreeMap::new()),
            starting: Mutex::new(BTreeMap::new()),
        })
    }

    /// Counts one more running process. Fails if the driver has ended.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Place> {
        self.live.send_modify(|live| *live += 1);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let place = Place { table: self.clone(), number };
        if *self.stop.borrow() { Err(Error::for_destroyed_backend(Verb::Exec)) } else { Ok(place) }
    }

    pub(crate) fn id(&self, place: &Place) -> ProcessId {
        ProcessId::new(format!("{}-{}", place.number, &self.incarnation[..8]))
    }

    /// Returns the unique value of the environment variable that marks a process and all processes
    /// that it starts.
    pub(crate) fn cookie(&self, place: &Place) -> String {
        format!("{}-{}", self.incarnation, place.number)
    }

    pub(crate) fn stop(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Counts one more detached process for its scope. Fails if the scope has too many of them.
    pub(crate) fn reserve(&self, place: &Place, cwd: &WsPath) -> Result<()> {
        let scope = cwd.innermost_scope_root();
        let mut starting = self.starting();
        let entries = self.lock();
        let running = entries.values().filter(|entry| entry.exit.is_none());
        let scopes =
            running.map(|entry| entry.cwd.innermost_scope_root()).chain(starting.values().cloned());
        let (all, own) = scopes.fold((0, 0), |(all, own), other| {
            (all + 1, own + usize::from(other.as_str() == scope.as_str()))
        });
        if all + own < MAX_DETACHED {
            drop(entries);
            starting.insert(place.number, scope);
            return Ok(());
        }
        let message = if all == own {
            format!("{own} processes were started and still run")
        } else {
            format!("{own} processes of this handle still run, and {all} in total")
        };
        Err(Error::new(ErrorCode::ExecError, ErrorKind::TooLarge, message)
            .with_verb(Verb::Exec)
            .with_hint("end some of them first"))
    }

    pub(crate) fn add(&self, place: &Place, entry: Entry) {
        let mut starting = self.starting();
        self.lock().insert(place.number, entry);
        starting.remove(&place.number);
    }

    /// Returns whether a detached process is in the table and its end has not been recorded.
    pub(crate) fn runs(&self, number: u64) -> bool {
        self.lock().get(&number).is_some_and(|entry| entry.exit.is_none())
    }

    /// Records the end of a detached process.
    pub(crate) fn ended(&self, number: u64, exit: &ProcessExit) {
        let mut entries = self.lock();
        if let Some(entry) = entries.get_mut(&number) {
            entry.exit = Some(exit.clone());
            entry.stdin = None;
        }
        let mut held = 0;
        let newest_first = entries.iter().rev().filter(|(_, entry)| entry.exit.is_some());
        let stale: Vec<u64> = newest_first
            .enumerate()
            .filter(|(index, (_, entry))| {
                held += entry.spool.held();
                *index >= MAX_ENDED || (*index > 0 && held > MAX_ENDED_BYTES)
            })
            .map(|(_, (number, _))| *number)
            .collect();
        for number in stale {
            entries.remove(&number);
        }
    }

    pub(crate) fn list(&self) -> Vec<ProcessInfo> {
        self.lock()
            .values()
            .map(|entry| ProcessInfo {
                id: entry.id.clone(),
                command: entry.command.clone(),
                cwd: entry.cwd.clone(),
                started: entry.started,
                exit: entry.exit.clone(),
            })
            .collect()
    }

    /// Attaches to a detached process. Its output is read from the byte `from` on.
    pub(crate) fn attach(self: &Arc<Self>, id: &ProcessId, from: u64) -> Result<Process> {
        let entry = self.lock().values().find(|entry| entry.id == *id).cloned();
        let Some(entry) = entry else {
            let message = format!("no process {id} in this workspace");
            return Err(Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message)
                .with_verb(Verb::Attach));
        };
        let Entry { id, spool, stdin, control, ending, .. } = entry;
        let (process, follower) = Process::new_attached(id, stdin, control, ending);
        tokio::spawn(follow(spool, from, follower));
        Ok(process)
    }

    /// Ends all processes without waiting for their end.
    pub(crate) fn abandon(&self) {
        self.stop.send_replace(true);
    }

    /// Ends all processes and waits until they have ended.
    pub(crate) async fn close(&self) {
        self.abandon();
        let mut live = self.live.subscribe();
        // This cannot fail, because we own the sender.
        let _ = live.wait_for(|live| *live == 0).await;
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the starting processes. Lock order: this lock is taken before the lock on the entries.
    fn starting(&self) -> MutexGuard<'_, BTreeMap<u64, WsPath>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the kept output and then new output to one reader. Ends when the reader is gone.
async fn follow(spool: Arc<Spool>, mut from: u64, follower: DriverAttachmentChannels) {
    let DriverAttachmentChannels { output, process_dropped: mut handle_dropped } = follower;
    loop {
        let read = tokio::select! {
            read = spool.read(from) => read,
            _ = &mut handle_dropped => return,
        };
        match read {
            Read::Piece(piece) => {
                from = OutputChunk::next_offset(&piece);
                tokio::select! {
                    sent = output.send(piece) => {
                        if sent.is_err() {
                            return;
                        }
                    }
                    _ = &mut handle_dropped => return,
                }
            }
            Read::Nothing => tokio::select! {
                () = spool.changed(from) => {}
                _ = &mut handle_dropped => return,
            },
            Read::End => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use ab_core::path::PathParser;

    use super::*;

    /// Reserves detached processes for a scope until its limit is reached. Returns their number.
    fn fill(table: &Arc<Table>, scope: &str, held: &mut Vec<Place>) -> usize {
        let cwd = PathParser::lenient().parse(scope).unwrap().into_scope_root();
        for count in 0.. {
            let place = table.enter().unwrap();
            match table.reserve(&place, &cwd) {
                Ok(()) => held.push(place),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TooLarge);
                    return count;
                }
            }
        }
        unreachable!()
    }

    #[test]
    fn no_scope_takes_what_others_need() {
        let (table, mut held) = (Table::new(), Vec::new());
        let counts = [".", "a", "b", "c"].map(|scope| fill(&table, scope, &mut held));
        assert_eq!(counts, [256, 128, 64, 32]);
        let rest: usize = ('d'..='z').map(|c| fill(&table, &c.to_string(), &mut held)).sum();
        assert_eq!(256 + 128 + 64 + 32 + rest, MAX_DETACHED);
        held.clear();
        assert_eq!(fill(&table, "late", &mut held), 256);
    }
}
