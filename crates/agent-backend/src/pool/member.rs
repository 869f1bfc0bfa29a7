//! A backend of a pool, from the moment a place is taken for it until it is gone.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ab_core::{Backend, ConnectionStatus, Result, StatusSubscription};
use tokio::time::Instant;

use super::keeper::Keeper;

/// The factory at work.
pub(super) type Making = Pin<Box<dyn Future<Output = Result<Backend>> + Send>>;

/// Sets the factory to work, with the configuration of whoever asked first.
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
    /// The factory works for these.
    Creating { asked: BTreeSet<TicketId> },
    Live {
        held: Held,
        users: usize,
        /// When the last user let go.
        idle_since: Instant,
    },
    /// Being destroyed by a task that has the backend.
    Ending,
}

/// A backend that the pool owns.
pub(super) struct Held {
    pub(super) backend: Backend,
    /// Whether it has ever been connected.
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
            // Its place may be what somebody waits for.
            ConnectionStatus::Disconnected | ConnectionStatus::Destroyed => {
                if let Some(keeper) = keeper.upgrade() {
                    keeper.settle();
                }
            }
        });
        // After subscribing, so that no connection falls in between.
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

    /// Ends the making of it, and says who it was made for.
    pub(super) fn take_asked(&mut self) -> Option<BTreeSet<TicketId>> {
        match std::mem::replace(&mut self.phase, Phase::Ending) {
            Phase::Creating { asked } => Some(asked),
            other @ (Phase::Live { .. } | Phase::Ending) => {
                self.phase = other;
                None
            }
        }
    }

    /// Ends its life, and gives the backend to whoever will destroy it.
    pub(super) fn take_held(&mut self) -> Option<Held> {
        match std::mem::replace(&mut self.phase, Phase::Ending) {
            Phase::Live { held, .. } => Some(held),
            other @ (Phase::Creating { .. } | Phase::Ending) => {
                self.phase = other;
                None
            }
        }
    }

    /// Since when nobody uses it; nothing while somebody does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Live { users: 0, idle_since, .. } => Some(*idle_since),
            Phase::Live { .. } | Phase::Creating { .. } | Phase::Ending => None,
        }
    }
}
