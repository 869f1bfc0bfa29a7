//! Connection status, the same for every kind of backend.
//!
//! Every transition reaches every subscriber, in order. Listeners run outside the lock and may call
//! back; whoever starts a transition while another is being told leaves it in the queue.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Connected,
    Connecting,
    Disconnected,
    Reconnecting,
    /// Final: no operation is allowed any more.
    Destroyed,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Connected => "connected",
            Status::Connecting => "connecting",
            Status::Disconnected => "disconnected",
            Status::Reconnecting => "reconnecting",
            Status::Destroyed => "destroyed",
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            Status::Connected => 0,
            Status::Connecting => 1,
            Status::Disconnected => 2,
            Status::Reconnecting => 3,
            Status::Destroyed => 4,
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Status::Connected,
            1 => Status::Connecting,
            2 => Status::Disconnected,
            3 => Status::Reconnecting,
            _ => Status::Destroyed,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug)]
pub struct StatusChange {
    pub from: Status,
    pub to: Status,
    pub at: SystemTime,
    /// Why, when something went wrong.
    pub error: Option<Error>,
}

type Listener = Arc<dyn Fn(&StatusChange) + Send + Sync>;

/// Holds a status and tells of its transitions. Clones share it.
#[derive(Clone)]
pub struct StatusHub(Arc<Shared>);

struct Shared {
    /// Written under the lock, read without it: every call asks.
    current: AtomicU8,
    telling: Mutex<Telling>,
}

struct Telling {
    listeners: Vec<(u64, Listener)>,
    next_listener: u64,
    queue: VecDeque<StatusChange>,
    busy: bool,
}

impl StatusHub {
    pub fn new(initial: Status) -> Self {
        let telling = Telling {
            listeners: Vec::new(),
            next_listener: 0,
            queue: VecDeque::new(),
            busy: false,
        };
        Self(Arc::new(Shared {
            current: AtomicU8::new(initial.to_byte()),
            telling: Mutex::new(telling),
        }))
    }

    pub fn current(&self) -> Status {
        Status::from_byte(self.0.current.load(Ordering::Acquire))
    }

    /// Moves on. Nothing happens when `to` is where we are, or after `Destroyed`.
    pub fn set(&self, to: Status, error: Option<Error>) {
        let mut telling = self.0.lock();
        let from = self.current();
        if from == to || from == Status::Destroyed {
            return;
        }
        self.0.current.store(to.to_byte(), Ordering::Release);
        telling.queue.push_back(StatusChange { from, to, at: SystemTime::now(), error });
        if telling.busy {
            return;
        }
        telling.busy = true;
        while let Some(change) = telling.queue.pop_front() {
            let listeners: Vec<Listener> =
                telling.listeners.iter().map(|(_, listener)| listener.clone()).collect();
            drop(telling);
            for listener in listeners {
                // A listener that panics must not keep the news from the others.
                let _ = catch_unwind(AssertUnwindSafe(|| listener(&change)));
            }
            telling = self.0.lock();
        }
        telling.busy = false;
        if self.current() == Status::Destroyed {
            telling.listeners.clear();
        }
    }

    /// Calls `listener` on every transition from now on, until the subscription is dropped.
    pub fn subscribe(
        &self,
        listener: impl Fn(&StatusChange) + Send + Sync + 'static,
    ) -> Subscription {
        let mut telling = self.0.lock();
        let id = telling.next_listener;
        telling.next_listener += 1;
        telling.listeners.push((id, Arc::new(listener)));
        Subscription { hub: Arc::downgrade(&self.0), id }
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        self.0.lock().listeners.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Telling> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StatusHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatusHub").field(&self.current()).finish()
    }
}

/// Listening ends when this is dropped.
#[must_use = "dropping the subscription ends it"]
pub struct Subscription {
    hub: Weak<Shared>,
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.lock().listeners.retain(|(id, _)| *id != self.id);
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Arc<Mutex<Vec<(Status, Status)>>>;

    fn recorder(hub: &StatusHub) -> (Seen, Subscription) {
        let seen = Seen::default();
        let log = seen.clone();
        let subscription =
            hub.subscribe(move |change| log.lock().unwrap().push((change.from, change.to)));
        (seen, subscription)
    }

    #[test]
    fn every_transition_reaches_every_subscriber_in_order() {
        use Status::*;
        let hub = StatusHub::new(Disconnected);
        let (first, _keep_first) = recorder(&hub);
        let (second, _keep_second) = recorder(&hub);
        for status in [Connecting, Connected, Connected, Disconnected, Reconnecting, Connected] {
            hub.set(status, None);
        }
        let expect = vec![
            (Disconnected, Connecting),
            (Connecting, Connected),
            (Connected, Disconnected),
            (Disconnected, Reconnecting),
            (Reconnecting, Connected),
        ];
        assert_eq!(*first.lock().unwrap(), expect);
        assert_eq!(*second.lock().unwrap(), expect);
    }

    #[test]
    fn a_listener_may_cause_the_next_transition() {
        let hub = StatusHub::new(Status::Disconnected);
        let inner = hub.clone();
        let _nudge = hub.subscribe(move |change| {
            if change.to == Status::Connecting {
                inner.set(Status::Connected, None);
            }
        });
        let (seen, _keep) = recorder(&hub);
        hub.set(Status::Connecting, None);
        assert_eq!(
            *seen.lock().unwrap(),
            [(Status::Disconnected, Status::Connecting), (Status::Connecting, Status::Connected)]
        );
    }

    #[test]
    fn panics_and_drops_do_not_disturb_the_others() {
        let hub = StatusHub::new(Status::Connected);
        let _bad = hub.subscribe(|_| panic!("listener fails on purpose"));
        let (gone, dropped) = recorder(&hub);
        drop(dropped);
        let (seen, _keep) = recorder(&hub);
        hub.set(Status::Destroyed, None);
        hub.set(Status::Connected, None);
        assert_eq!(*seen.lock().unwrap(), [(Status::Connected, Status::Destroyed)]);
        assert!(gone.lock().unwrap().is_empty());
        assert_eq!((hub.current(), hub.listeners()), (Status::Destroyed, 0));
    }
}
