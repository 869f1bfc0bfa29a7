//! What a subscriber to a backend's status heard.

use std::sync::{Arc, Mutex, PoisonError};

use ab_core::{Backend, Status, Subscription};

/// Listens until it is dropped, and remembers every transition in order.
#[derive(Debug)]
pub struct Heard {
    transitions: Arc<Mutex<Vec<(Status, Status)>>>,
    listening: Option<Subscription>,
}

impl Heard {
    pub fn of(backend: &Backend) -> Self {
        let transitions = Arc::<Mutex<Vec<_>>>::default();
        let book = transitions.clone();
        let listening = backend.on_status_change(move |change| {
            book.lock().unwrap_or_else(PoisonError::into_inner).push((change.from, change.to));
        });
        Self { transitions, listening: Some(listening) }
    }

    /// Where from and where to, for each transition so far.
    pub fn transitions(&self) -> Vec<(Status, Status)> {
        self.transitions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the subscription and keeps what was heard.
    pub fn stop(&mut self) {
        self.listening = None;
    }
}
