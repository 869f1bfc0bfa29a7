//! Keeps the latest events of an agent server in memory, for readers that reconnect.

use std::collections::VecDeque;

use bytes::Bytes;

/// The size limits of a replay buffer. The newest event is always kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayLimits {
    pub events: usize,
    pub bytes: usize,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        ReplayLimits { events: 65_536, bytes: 32 * 1024 * 1024 }
    }
}

/// One message of the agent, with its number for readers that reconnect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayEvent {
    /// The number of the event, counted from 1 without gaps.
    pub id: u64,
    /// The message: one JSON object on one line.
    pub data: Bytes,
}

/// The next events for a reader, and whether some before them are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayBatch {
    /// The id of the oldest remaining event, if events after the reader's cursor were evicted.
    pub first_id_after_gap: Option<u64>,
    pub events: Vec<ReplayEvent>,
}

/// A buffer of events with increasing ids. If a limit is exceeded, the oldest events are evicted.
#[derive(Debug)]
pub(crate) struct ReplayBuffer {
    bounds: ReplayLimits,
    events: VecDeque<Bytes>,
    bytes: usize,
    /// The id of the last event. Zero if there was no event.
    last: u64,
}

impl ReplayBuffer {
    pub(crate) fn new(limits: ReplayLimits) -> ReplayBuffer {
        ReplayBuffer { bounds: limits, events: VecDeque::new(), bytes: 0, last: 0 }
    }

    /// Adds an event and returns its id.
    pub(crate) fn push(&mut self, data: Bytes) -> u64 {
        self.bytes += data.len();
        self.events.push_back(data);
        self.last += 1;
        while self.events.len() > 1
            && (self.events.len() > self.bounds.events || self.bytes > self.bounds.bytes)
        {
            if let Some(evicted) = self.events.pop_front() {
                self.bytes -= evicted.len();
            }
        }
        self.last
    }

    /// The id of the last event. Zero if there was no event.
    #[cfg(test)]
    pub(crate) fn last_id(&self) -> u64 {
        self.last
    }

    /// The id of the oldest event in the buffer, or the last id plus one if the buffer is empty.
    pub(crate) fn oldest_id(&self) -> u64 {
        self.last + 1 - self.events.len() as u64
    }

    /// The cursor at which a reader starts. Without `last_event_id` the reader starts at the oldest
    /// event. An id that is greater than the last id comes from an earlier run of the server. In
    /// this case the reader starts before the first event of this run, and is told that events were
    /// evicted.
    pub(crate) fn start_cursor(&self, last_event_id: Option<u64>) -> u64 {
        match last_event_id {
            Some(id) if id > self.last => 0,
            Some(id) => id,
            None => self.oldest_id() - 1,
        }
    }

    /// Returns events after the cursor: at most `events` events with at most `bytes` bytes in
    /// total. The first event is returned even if it is larger.
    pub(crate) fn events_after(&self, cursor: u64, limits: ReplayLimits) -> ReplayBatch {
        let oldest = self.oldest_id();
        let gap = (cursor + 1 < oldest).then_some(oldest);
        let first = oldest.max(cursor + 1);
        let skipped = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let mut events = Vec::new();
        for (id, data) in (first..).zip(self.events.iter().skip(skipped)) {
            bytes += data.len();
            if events.len() >= limits.events || (bytes > limits.bytes && !events.is_empty()) {
                break;
            }
            events.push(ReplayEvent { id, data: data.clone() });
        }
        ReplayBatch { first_id_after_gap: gap, events }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const ALL: ReplayLimits = ReplayLimits { events: usize::MAX, bytes: usize::MAX };

    fn filled(bounds: ReplayLimits, sizes: &[usize]) -> ReplayBuffer {
        let mut buffer = ReplayBuffer::new(bounds);
        for size in sizes {
            buffer.push(Bytes::from(vec![b'x'; *size]));
        }
        buffer
    }

    fn ids(batch: &ReplayBatch) -> Vec<u64> {
        batch.events.iter().map(|event| event.id).collect()
    }

    #[test]
    fn a_reader_starts_where_it_says() {
        let buffer = filled(ReplayLimits { events: 3, bytes: 100 }, &[1; 5]);
        assert_eq!((buffer.oldest_id(), buffer.last_id()), (3, 5));
        assert_eq!(ids(&buffer.events_after(buffer.start_cursor(None), ALL)), [3, 4, 5]);
        assert_eq!(ids(&buffer.events_after(buffer.start_cursor(Some(4)), ALL)), [5]);
        assert_eq!(buffer.events_after(buffer.start_cursor(None), ALL).first_id_after_gap, None);
        // A cursor from an earlier run of the server starts before the first event of this run.
        let batch = buffer.events_after(buffer.start_cursor(Some(500)), ALL);
        assert_eq!((batch.first_id_after_gap, ids(&batch)), (Some(3), vec![3, 4, 5]));
    }

    #[test]
    fn a_cursor_that_fell_out_is_a_gap() {
        let buffer = filled(ReplayLimits { events: 3, bytes: 100 }, &[1; 5]);
        assert_eq!(buffer.events_after(2, ALL).first_id_after_gap, None);
        let batch = buffer.events_after(1, ALL);
        assert_eq!((batch.first_id_after_gap, ids(&batch)), (Some(3), vec![3, 4, 5]));
    }

    #[test]
    fn the_newest_event_stays_whatever_its_size() {
        let buffer = filled(ReplayLimits { events: 3, bytes: 10 }, &[4, 4, 4, 50]);
        assert_eq!(ids(&buffer.events_after(0, ALL)), [4]);
        assert_eq!(buffer.events_after(0, ALL).first_id_after_gap, Some(4));
    }

    #[test]
    fn an_empty_buffer_has_nothing_and_no_gap() {
        let buffer = filled(ReplayLimits::default(), &[]);
        assert_eq!(buffer.events_after(buffer.start_cursor(None), ALL), ReplayBatch::default());
        assert_eq!(buffer.events_after(buffer.start_cursor(Some(7)), ALL), ReplayBatch::default());
    }

    proptest! {
        /// A reader with batches of any size gets every event that is kept, once and in order, and
        /// is told about evicted events.
        #[test]
        fn nothing_is_lost_silently(
            sizes in vec(0_usize..40, 0..60),
            bounds in (1_usize..20, 1_usize..200),
            most in (1_usize..10, 0_usize..100),
            cursor in 0_u64..70,
        ) {
            let buffer = filled(ReplayLimits { events: bounds.0, bytes: bounds.1 }, &sizes);
            let kept = buffer.last_id() + 1 - buffer.oldest_id();
            prop_assert!(kept as usize <= bounds.0);
            let held: usize = buffer.events.iter().map(Bytes::len).sum();
            prop_assert_eq!(held, buffer.bytes);
            prop_assert!(held <= bounds.1 || kept == 1);
            let start = buffer.start_cursor(Some(cursor));
            let mut at = start;
            let mut seen = Vec::new();
            loop {
                let batch = buffer.events_after(at, ReplayLimits { events: most.0, bytes: most.1 });
                prop_assert_eq!(batch.first_id_after_gap.is_some(), at + 1 < buffer.oldest_id());
                let Some(last) = batch.events.last() else { break };
                at = last.id;
                prop_assert!(batch.events.len() <= most.0);
                seen.extend(ids(&batch));
            }
            let expect: Vec<u64> = (buffer.oldest_id().max(start + 1)..=buffer.last_id()).collect();
            prop_assert_eq!(seen, expect);
        }
    }
}
