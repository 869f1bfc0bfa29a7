//! Records the status transitions of a backend.

use std::sync::{Arc, Mutex, PoisonError};

use ab_core::{Backend, ConnectionStatus, StatusSubscription};

/// Listens until it is dropped, and remembers every transition in order.
#[derive(Debug)]
pub struct ConnectionStatusRecorder {
    transitions: Arc<Mutex<Vec<(ConnectionStatus, ConnectionStatus)>>>,
    listening: Option<StatusSubscription>,
}

impl ConnectionStatusRecorder {
    pub fn subscribe(backend: &Backend) -> Self {
        let transitions = Arc::<Mutex<Vec<_>>>::default();
        let book = transitions.clone();
        let listening = backend.on_status_change(move |change| {
            book.lock().unwrap_or_else(PoisonError::into_inner).push((change.from, change.to));
        });
        Self { transitions, listening: Some(listening) }
    }

    /// The old and the new status of each transition so far.
    pub fn transitions(&self) -> Vec<(ConnectionStatus, ConnectionStatus)> {
        self.transitions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the subscription and keeps what was recorded.
    pub fn unsubscribe(&mut self) {
        self.listening = None;
    }
}
