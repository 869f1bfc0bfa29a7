//! Derives the phases of a session and their times from its status events. Does no I/O.

use ab_api::{EventKind, SessionActivity, SessionEndReason, SessionId, SessionStatus, Time};

/// A phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionSpanKind {
    /// The session waits in the queue for a place on an executor.
    Queue,
    /// The workspace is made and the agent is started.
    Provision,
    /// The agent works or waits.
    Run,
    /// The result is delivered.
    Delivery,
    /// The whole session, from its creation to its end.
    Session,
}

impl SessionSpanKind {
    pub const ALL: [Self; 5] =
        [Self::Queue, Self::Provision, Self::Run, Self::Delivery, Self::Session];

    /// The name of the phase in metrics and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Provision => "provision",
            Self::Run => "run",
            Self::Delivery => "delivery",
            Self::Session => "session",
        }
    }
}

/// A phase with its start and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSpan {
    pub kind: SessionSpanKind,
    pub start: Time,
    pub end: Time,
}

/// The trace of a session that has ended: the phases of the session in order. The last phase covers
/// the whole session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTrace {
    pub session: SessionId,
    pub status: SessionStatus,
    pub reason: Option<SessionEndReason>,
    pub spans: Vec<SessionSpan>,
}

/// Maximum number of recorded phases of one session. A session that is paused and resumed often has
/// many.
const MAX_SPANS: usize = 200;

/// The phases so far of a session that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Timeline {
    session: SessionId,
    created: Time,
    current: Option<(SessionSpanKind, Time)>,
    spans: Vec<SessionSpan>,
}

impl Timeline {
    pub(crate) fn new(session: SessionId, created: Time) -> Self {
        let current = Some((SessionSpanKind::Queue, created));
        Self { session, created, current, spans: Vec::new() }
    }

    /// Applies an event. Returns the trace if the event ends the session.
    pub(crate) fn apply(&mut self, at: Time, kind: &EventKind) -> Option<SessionTrace> {
        let EventKind::Status { status, activity, reason, .. } = *kind else { return None };
        let next = match status {
            SessionStatus::Queued => Some(SessionSpanKind::Queue),
            SessionStatus::Provisioning => Some(SessionSpanKind::Provision),
            SessionStatus::Running if activity == Some(SessionActivity::Delivering) => {
                Some(SessionSpanKind::Delivery)
            }
            SessionStatus::Running
            | SessionStatus::Pausing
            | SessionStatus::Paused
            | SessionStatus::Resuming => Some(SessionSpanKind::Run),
            // While a session stops, the phase that it was in continues.
            SessionStatus::Stopping => self.current.map(|(kind, _)| kind),
            SessionStatus::Stopped
            | SessionStatus::Completed
            | SessionStatus::Failed
            | SessionStatus::Cancelled => None,
        };
        if self.current.map(|(kind, _)| kind) != next {
            if let Some((kind, start)) = self.current
                && self.spans.len() < MAX_SPANS
            {
                self.spans.push(SessionSpan { kind, start, end: at.max(start) });
            }
            self.current = next.map(|kind| (kind, at));
        }
        if !status.is_terminal() {
            return None;
        }
        let mut spans = std::mem::take(&mut self.spans);
        let (kind, start) = (SessionSpanKind::Session, self.created);
        spans.push(SessionSpan { kind, start, end: at.max(start) });
        Some(SessionTrace { session: self.session, status, reason, spans })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: SessionStatus, activity: Option<SessionActivity>) -> EventKind {
        EventKind::Status { status, activity, reason: None, message: None }
    }

    /// Checks the phases of a session with these statuses. The session takes one of them every 10
    /// ms. Phases are written as `kind start-end`.
    fn check(events: &[(SessionStatus, Option<SessionActivity>)], expect: &[&str]) {
        let time = |number: usize| Time::from_millis(i64::try_from(number * 10).unwrap_or(0));
        let mut timeline = Timeline::new(SessionId::generate(), time(0));
        let mut trace = None;
        for (number, (to, activity)) in events.iter().enumerate() {
            assert_eq!(trace, None, "the session has ended");
            trace = timeline.apply(time(number), &status(*to, *activity));
        }
        let spans = trace.map(|trace| trace.spans).unwrap_or_default();
        let shown: Vec<String> = spans
            .iter()
            .map(|span| {
                let (start, end) = (span.start.as_millis(), span.end.as_millis());
                format!("{} {start}-{end}", span.kind.as_str())
            })
            .collect();
        assert_eq!(shown, expect);
    }

    #[test]
    fn phases_follow_the_statuses() {
        use SessionStatus::{
            Cancelled, Completed, Failed, Paused, Pausing, Provisioning, Queued, Resuming, Running,
            Stopped, Stopping,
        };
        let (working, delivering) =
            (Some(SessionActivity::Working), Some(SessionActivity::Delivering));
        check(
            &[
                (Queued, None),
                (Provisioning, None),
                (Running, working),
                (Running, delivering),
                (Completed, None),
            ],
            &["queue 0-10", "provision 10-20", "run 20-30", "delivery 30-40", "session 0-40"],
        );
        check(
            &[
                (Queued, None),
                (Provisioning, None),
                (Running, working),
                (Pausing, None),
                (Paused, None),
                (Resuming, None),
                (Stopping, None),
                (Stopped, None),
            ],
            &["queue 0-10", "provision 10-20", "run 20-70", "session 0-70"],
        );
        check(&[(Queued, None), (Cancelled, None)], &["queue 0-10", "session 0-10"]);
        check(
            &[(Queued, None), (Provisioning, None), (Failed, None)],
            &["queue 0-10", "provision 10-20", "session 0-20"],
        );
        check(&[(Queued, None), (Running, working)], &[]);
    }
}
