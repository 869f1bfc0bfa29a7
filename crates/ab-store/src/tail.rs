//! Keeps the latest records of the log in memory for all readers (the *tail* of the log), and wakes
//! readers that wait for new records.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use crate::record::{EventRecord, EventStreamId, Records};

/// Maximum number of records in one tail.
const MAX_RECORDS: usize = 256;
/// Maximum number of bytes of the records in one tail.
const MAX_BYTES: usize = 1024 * 1024;

/// The tail of the whole log, and a tail for every stream that has readers.
#[derive(Debug)]
pub(crate) struct Tails {
    all: Arc<Tail>,
    /// Tails of single streams. A tail is dropped with its last reader.
    streams: Mutex<HashMap<EventStreamId, Weak<Tail>>>,
}

/// The latest records of one stream, in order and without gaps.
#[derive(Debug)]
pub(crate) struct Tail {
    ring: Mutex<Ring>,
    /// The cursor of the newest record.
    newest: watch::Sender<u64>,
    /// Returns the cursor of a record in this stream.
    cursor: fn(&EventRecord) -> u64,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Arc<EventRecord>>,
    bytes: usize,
}

/// The result of looking for the records after a cursor in a tail.
pub(crate) enum Known {
    /// The next records. Empty if there are no newer records.
    Next(Records),
    /// The tail no longer contains the next record. It must be read from the database.
    Older,
}

impl Tails {
    pub(crate) fn new() -> Self {
        let all = Arc::new(Tail::new(|record| record.position));
        Self { all, streams: Mutex::default() }
    }

    /// The tail of the whole log.
    pub(crate) fn all(&self) -> Arc<Tail> {
        Arc::clone(&self.all)
    }

    /// The tail of one stream.
    pub(crate) fn stream(&self, id: EventStreamId) -> Arc<Tail> {
        let mut streams = lock(&self.streams);
        if let Some(tail) = streams.get(&id).and_then(Weak::upgrade) {
            return tail;
        }
        streams.retain(|_, tail| tail.strong_count() > 0);
        let tail = Arc::new(Tail::new(|record| record.seq));
        streams.insert(id, Arc::downgrade(&tail));
        tail
    }

    /// Adds committed records and wakes their readers.
    pub(crate) fn publish(&self, records: &[Arc<EventRecord>]) {
        for record in records {
            self.all.push(record);
            let tail = lock(&self.streams).get(&record.stream).and_then(Weak::upgrade);
            if let Some(tail) = tail {
                tail.push(record);
            }
        }
    }
}

impl Tail {
    fn new(cursor: fn(&EventRecord) -> u64) -> Self {
        Self { ring: Mutex::default(), newest: watch::Sender::new(0), cursor }
    }

    /// Returns a receiver that is notified of every new record.
    pub(crate) fn wake_up(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The cursor of `record` in this stream.
    pub(crate) fn cursor(&self, record: &EventRecord) -> u64 {
        (self.cursor)(record)
    }

    /// At most `limit` records after `cursor`.
    pub(crate) fn after(&self, cursor: u64, limit: usize) -> Known {
        let ring = lock(&self.ring);
        let Some(first) = ring.records.front().map(|record| self.cursor(record)) else {
            return Known::Older;
        };
        let next = cursor.saturating_add(1);
        if next < first {
            return Known::Older;
        }
        let skip = usize::try_from(next - first).unwrap_or(usize::MAX);
        Known::Next(ring.records.iter().skip(skip).take(limit).cloned().collect())
    }

    fn push(&self, record: &Arc<EventRecord>) {
        let mut ring = lock(&self.ring);
        ring.bytes += record.bytes();
        ring.records.push_back(Arc::clone(record));
        while ring.records.len() > MAX_RECORDS || (ring.bytes > MAX_BYTES && ring.records.len() > 1)
        {
            let dropped = ring.records.pop_front().map_or(0, |record| record.bytes());
            ring.bytes = ring.bytes.saturating_sub(dropped);
        }
        drop(ring);
        self.newest.send_replace(self.cursor(record));
    }
}

/// Locks the mutex. A poisoned lock can be used, because every critical section leaves the value
/// consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use ab_api::{SessionId, Time};

    use super::*;

    #[test]
    fn cursor_of_any_size_is_compared_with_the_ring() {
        let tail = Tail::new(|record| record.seq);
        let stream = EventStreamId::Session(SessionId::generate());
        for seq in 5..8 {
            let (kind, json) = ("log".to_owned(), "{}".to_owned());
            let at = Time::from_millis(1);
            tail.push(&Arc::new(EventRecord { position: seq, stream, seq, at, kind, json }));
        }
        let after = |cursor| match tail.after(cursor, 10) {
            Known::Next(records) => Some(records.iter().map(|it| it.seq).collect::<Vec<_>>()),
            Known::Older => None,
        };
        assert_eq!(after(3), None);
        assert_eq!(after(4), Some(vec![5, 6, 7]));
        assert_eq!(after(7), Some(vec![]));
        assert_eq!(after(u64::MAX), Some(vec![]));
    }
}
