//! A backend of a pool, from the moment when a slot is reserved for it until it is destroyed.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ab_core::{Backend, ConnectionStatus, Result, StatusSubscription};
use tokio::time::Instant;

use super::keeper::Keeper;

/// The future that the factory returns.
pub(super) type Making = Pin<Box<dyn Future<Output = Result<Backend>> + Send>>;

/// Calls the factory with the configuration of the first caller.
pub(super) type Make = Box<dyn FnOnce() -> Making + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId(pub(super) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TicketId(pub(super) u64);

pub(super) struct Member {
    pub(super) key: Option<Arc<str>>,
    pub(super) phase: Phase,
}

pub(super) enum Phase {
    /// The factory is running, and these callers wait for its backend.
    Creating { asked: BTreeSet<TicketId> },
    Live {
        held: Held,
        users: usize,
        /// When the last user released the backend.
        idle_since: Instant,
    },
    /// A task is destroying the backend.
    Ending,
}

/// A backend of the pool, and what the pool knows about its connection.
pub(super) struct Held {
    pub(super) backend: Backend,
    /// Whether the backend has ever been connected.
    connected: Arc<AtomicBool>,
    _listening: StatusSubscription,
}

impl Held {
    pub(super) fn new(backend: Backend, keeper: Weak<Keeper>) -> Self {
        let connected = Arc::new(AtomicBool::new(false));
        let seen = connected.clone();
        let listening = backend.on_status_change(move |change| match change.to {
            ConnectionStatus::Connected => seen.store(true, Ordering::Release),
            ConnectionStatus::Connecting | ConnectionStatus::Reconnecting => {}
            // A caller may be waiting for the slot of this backend.
            ConnectionStatus::Disconnected | ConnectionStatus::Destroyed => {
                if let Some(keeper) = keeper.upgrade() {
                    keeper.settle();
                }
            }
        });
        // Check after subscribing, so that no transition is missed in between.
        if backend.status() == ConnectionStatus::Connected {
            connected.store(true, Ordering::Release);
        }
        Self { backend, connected, _listening: listening }
    }

    pub(super) fn is_dead(&self) -> bool {
        match self.backend.status() {
            ConnectionStatus::Destroyed => true,
            ConnectionStatus::Disconnected => self.connected.load(Ordering::Acquire),
            ConnectionStatus::Connected
            | ConnectionStatus::Connecting
            | ConnectionStatus::Reconnecting => false,
        }
    }
}

impl Member {
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending)
    }

    pub(super) fn is_dead(&self) -> bool {
        matches!(&self.phase, Phase::Live { held, .. } if held.is_dead())
    }

    /// If the backend is being created, marks the member as ending and takes the callers that wait.
    pub(super) fn take_asked(&mut self) -> Option<BTreeSet<TicketId>> {
        match std::mem::replace(&mut self.phase, Phase::Ending) {
            Phase::Creating { asked } => Some(asked),
            other @ (Phase::Live { .. } | Phase::Ending) => {
                self.phase = other;
                None
            }
        }
    }

    /// Marks the member as ending and takes its backend, which the caller must destroy.
    pub(super) fn take_held(&mut self) -> Option<Held> {
        match std::mem::replace(&mut self.phase, Phase::Ending) {
            Phase::Live { held, .. } => Some(held),
            other @ (Phase::Creating { .. } | Phase::Ending) => {
                self.phase = other;
                None
            }
        }
    }

    /// Since when the backend is idle. `None` while it is in use.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Live { users: 0, idle_since, .. } => Some(*idle_since),
            Phase::Live { .. } | Phase::Creating { .. } | Phase::Ending => None,
        }
    }
}
