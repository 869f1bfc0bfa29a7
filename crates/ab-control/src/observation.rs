//! Follows the event log, counts the sessions that end, and sends their traces.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ab_api::{SessionId, SessionStatus};
use ab_store::{EventLogReader, EventLogScope, EventRecord, EventStreamId, Store, StoreError};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::control::ControlPlane;
use crate::timeline::{SessionSpanKind, SessionTrace, Timeline};

/// Upper bounds of the buckets of durations, in seconds.
pub const DURATION_BUCKETS: [f64; 11] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// Maximum number of status events that are read for each session that has not ended when the
/// server starts.
const MAX_STATUS_EVENTS: usize = 1000;
/// The kind of the events that this task reads.
const STATUS: &str = "status";
/// How long the task waits after an error of the store.
const RETRY: Duration = Duration::from_secs(1);

/// Counts how many durations fall into each bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DurationHistogram {
    /// For each bound of [`DURATION_BUCKETS`], the number of durations that are at most this bound
    /// and greater than the one before it.
    pub buckets: [u64; DURATION_BUCKETS.len()],
    /// The number of all durations.
    pub count: u64,
    /// The sum of all durations in seconds.
    pub sum: f64,
}

impl DurationHistogram {
    fn observe(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        if let Some(index) = DURATION_BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[index] += 1;
        }
    }
}

/// What happened to sessions since this server process started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionMetrics {
    /// The number of sessions that ended with each final status.
    pub ended: BTreeMap<SessionStatus, u64>,
    /// For each phase, the durations that it had in these sessions.
    pub durations: BTreeMap<SessionSpanKind, DurationHistogram>,
    /// The number of traces that were dropped because the queue was full.
    pub dropped_traces: u64,
}

impl SessionMetrics {
    fn add(&mut self, trace: &SessionTrace) {
        *self.ended.entry(trace.status).or_default() += 1;
        for span in &trace.spans {
            let millis = span.end.as_millis().saturating_sub(span.start.as_millis());
            let seconds = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
            self.durations.entry(span.kind).or_default().observe(seconds.as_secs_f64());
        }
    }
}

/// Receives the traces of sessions that end. If the queue is full, traces are dropped.
pub type EndedSessionTraceSender = mpsc::Sender<SessionTrace>;

impl ControlPlane {
    /// What happened to sessions since this server process started.
    pub fn session_metrics(&self) -> SessionMetrics {
        self.plane.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The state of the task that follows the event log.
pub(crate) struct Observer {
    store: Store,
    reader: EventLogReader,
    /// Sessions that have not ended.
    live: HashMap<SessionId, Timeline>,
    metrics: Arc<Mutex<SessionMetrics>>,
    traces: Option<EndedSessionTraceSender>,
}

impl Observer {
    /// Starts at the end of the log, with the sessions that have not ended.
    pub(crate) async fn new(
        store: Store,
        metrics: Arc<Mutex<SessionMetrics>>,
        traces: Option<EndedSessionTraceSender>,
    ) -> Result<Self, StoreError> {
        let start = store.last_event_position().await?;
        let mut live = HashMap::new();
        for record in store.unfinished_sessions().await? {
            let session = record.session;
            let mut timeline = Timeline::new(session.id, session.created_at);
            let events =
                store.last_event_records(session.id, Some(STATUS), MAX_STATUS_EVENTS).await?;
            for event in events.iter().filter(|event| event.position <= start) {
                timeline.apply(event.at, &event.parse_event()?.kind);
            }
            live.insert(session.id, timeline);
        }
        let reader = store.follow_events(EventLogScope::All, start);
        Ok(Self { store, reader, live, metrics, traces })
    }

    /// Follows the log until the store is closed or the task is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            match self.reader.next().await {
                Ok(record) => self.observe(&record).await,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot follow the event log for metrics");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn observe(&mut self, record: &EventRecord) {
        let EventStreamId::Session(id) = record.stream else { return };
        if record.kind != STATUS {
            return;
        }
        let Ok(event) = record.parse_event() else { return };
        if !self.live.contains_key(&id) {
            // This is either the first event of a new session, or the last event of a session that
            // has been removed since.
            let created = match self.store.session_record(id).await {
                Ok(record) => record.session.created_at,
                Err(_) => record.at,
            };
            self.live.insert(id, Timeline::new(id, created));
        }
        let Some(timeline) = self.live.get_mut(&id) else { return };
        let Some(trace) = timeline.apply(event.ts, &event.kind) else { return };
        self.live.remove(&id);
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.add(&trace);
        if let Some(traces) = &self.traces
            && let Err(TrySendError::Full(_)) = traces.try_send(trace)
        {
            metrics.dropped_traces += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_in_their_ranges() {
        let mut histogram = DurationHistogram::default();
        for seconds in [0.0, 0.1, 0.2, 86_400.0, 100_000.0] {
            histogram.observe(seconds);
        }
        assert_eq!(histogram.buckets[..3], [2, 1, 0]);
        assert_eq!((histogram.buckets[10], histogram.count), (1, 5));
    }
}
