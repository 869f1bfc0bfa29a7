//! What a subscriber to a backend's status heard.

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

    /// Where from and where to, for each transition so far.
    pub fn transitions(&self) -> Vec<(ConnectionStatus, ConnectionStatus)> {
        self.transitions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the subscription and keeps what was heard.
    pub fn unsubscribe(&mut self) {
        self.listening = None;
    }
}
