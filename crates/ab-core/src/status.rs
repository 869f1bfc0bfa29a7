//! The connection status, which is the same for every kind of backend.
//!
//! Every change of the status is reported to every subscriber, in order. Listeners are called
//! without holding the lock, so they may call this module again. A change that starts while another
//! change is being reported waits in a queue.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use crate::error::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionStatus {
    Connected,
    Connecting,
    Disconnected,
    Reconnecting,
    /// The backend was destroyed, and all operations fail. This status is final.
    Destroyed,
}

impl ConnectionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectionStatus::Connected => "connected",
            ConnectionStatus::Connecting => "connecting",
            ConnectionStatus::Disconnected => "disconnected",
            ConnectionStatus::Reconnecting => "reconnecting",
            ConnectionStatus::Destroyed => "destroyed",
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            ConnectionStatus::Connected => 0,
            ConnectionStatus::Connecting => 1,
            ConnectionStatus::Disconnected => 2,
            ConnectionStatus::Reconnecting => 3,
            ConnectionStatus::Destroyed => 4,
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => ConnectionStatus::Connected,
            1 => ConnectionStatus::Connecting,
            2 => ConnectionStatus::Disconnected,
            3 => ConnectionStatus::Reconnecting,
            _ => ConnectionStatus::Destroyed,
        }
    }
}

impl fmt::Display for ConnectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug)]
pub struct ConnectionStatusChange {
    pub from: ConnectionStatus,
    pub to: ConnectionStatus,
    pub at: SystemTime,
    /// The error that caused the change, if there is one.
    pub error: Option<Error>,
}

type Listener = Arc<dyn Fn(&ConnectionStatusChange) + Send + Sync>;

/// Stores a status and reports its changes. Clones share the status.
#[derive(Clone)]
pub struct StatusPublisher(Arc<Shared>);

struct Shared {
    /// The status. It is written while the lock is held. It is read without the lock, because every
    /// call reads it.
    current: AtomicU8,
    telling: Mutex<Telling>,
}

struct Telling {
    listeners: Vec<(u64, Listener)>,
    next_listener: u64,
    queue: VecDeque<ConnectionStatusChange>,
    busy: bool,
}

impl StatusPublisher {
    pub fn new(initial: ConnectionStatus) -> Self {
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

    pub fn current(&self) -> ConnectionStatus {
        ConnectionStatus::from_byte(self.0.current.load(Ordering::Acquire))
    }

    /// Sets the status. Does nothing if the status is the same, or if it is `Destroyed`.
    pub fn set(&self, to: ConnectionStatus, error: Option<Error>) {
        let mut telling = self.0.lock();
        let from = self.current();
        if from == to || from == ConnectionStatus::Destroyed {
            return;
        }
        self.0.current.store(to.to_byte(), Ordering::Release);
        telling.queue.push_back(ConnectionStatusChange { from, to, at: SystemTime::now(), error });
        if telling.busy {
            return;
        }
        telling.busy = true;
        while let Some(change) = telling.queue.pop_front() {
            let listeners: Vec<Listener> =
                telling.listeners.iter().map(|(_, listener)| listener.clone()).collect();
            drop(telling);
            for listener in listeners {
                // If one listener panics, the other listeners must still be called.
                let _ = catch_unwind(AssertUnwindSafe(|| listener(&change)));
            }
            telling = self.0.lock();
        }
        telling.busy = false;
        if self.current() == ConnectionStatus::Destroyed {
            telling.listeners.clear();
        }
    }

    /// Calls `listener` for every later change, until the subscription is dropped.
    pub fn subscribe(
        &self,
        listener: impl Fn(&ConnectionStatusChange) + Send + Sync + 'static,
    ) -> StatusSubscription {
        let mut telling = self.0.lock();
        let id = telling.next_listener;
        telling.next_listener += 1;
        telling.listeners.push((id, Arc::new(listener)));
        StatusSubscription { hub: Arc::downgrade(&self.0), id }
    }

    /// The number of listeners.
    pub fn listener_count(&self) -> usize {
        self.0.lock().listeners.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Telling> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StatusPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatusHub").field(&self.current()).finish()
    }
}

/// A subscription. Dropping it removes the listener.
#[must_use = "dropping the subscription ends it"]
pub struct StatusSubscription {
    hub: Weak<Shared>,
    id: u64,
}

impl Drop for StatusSubscription {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.lock().listeners.retain(|(id, _)| *id != self.id);
        }
    }
}

impl fmt::Debug for StatusSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Arc<Mutex<Vec<(ConnectionStatus, ConnectionStatus)>>>;

    fn recorder(hub: &StatusPublisher) -> (Seen, StatusSubscription) {
        let seen = Seen::default();
        let log = seen.clone();
        let subscription =
            hub.subscribe(move |change| log.lock().unwrap().push((change.from, change.to)));
        (seen, subscription)
    }

    #[test]
    fn every_transition_reaches_every_subscriber_in_order() {
        use ConnectionStatus::*;
        let hub = StatusPublisher::new(Disconnected);
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
        let hub = StatusPublisher::new(ConnectionStatus::Disconnected);
        let inner = hub.clone();
        let _nudge = hub.subscribe(move |change| {
            if change.to == ConnectionStatus::Connecting {
                inner.set(ConnectionStatus::Connected, None);
            }
        });
        let (seen, _keep) = recorder(&hub);
        hub.set(ConnectionStatus::Connecting, None);
        assert_eq!(
            *seen.lock().unwrap(),
            [
                (ConnectionStatus::Disconnected, ConnectionStatus::Connecting),
                (ConnectionStatus::Connecting, ConnectionStatus::Connected)
            ]
        );
    }

    #[test]
    fn panics_and_drops_do_not_disturb_the_others() {
        let hub = StatusPublisher::new(ConnectionStatus::Connected);
        let _bad = hub.subscribe(|_| panic!("listener fails on purpose"));
        let (gone, dropped) = recorder(&hub);
        drop(dropped);
        let (seen, _keep) = recorder(&hub);
        hub.set(ConnectionStatus::Destroyed, None);
        hub.set(ConnectionStatus::Connected, None);
        assert_eq!(
            *seen.lock().unwrap(),
            [(ConnectionStatus::Connected, ConnectionStatus::Destroyed)]
        );
        assert!(gone.lock().unwrap().is_empty());
        assert_eq!((hub.current(), hub.listener_count()), (ConnectionStatus::Destroyed, 0));
    }
}
