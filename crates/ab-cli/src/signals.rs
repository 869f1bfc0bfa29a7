//! Requests to stop, one after another.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Interrupts and requests to terminate, from when this is made.
pub(crate) struct Signals {
    interrupts: Option<Signal>,
    terminations: Option<Signal>,
}

impl Signals {
    pub(crate) fn watch() -> Signals {
        Signals {
            interrupts: signal(SignalKind::interrupt()).ok(),
            terminations: signal(SignalKind::terminate()).ok(),
        }
    }

    /// None ever.
    pub(crate) fn none() -> Signals {
        Signals { interrupts: None, terminations: None }
    }

    /// Waits for the next, and says how a process ends that minds it.
    pub(crate) async fn next(&mut self) -> Exit {
        tokio::select! {
            () = received(&mut self.interrupts) => Exit::Interrupted,
            () = received(&mut self.terminations) => Exit::Terminated,
        }
    }

    pub(crate) async fn first(&mut self) {
        self.next().await;
    }
}

/// Where a signal cannot be watched, its default holds and nothing ever arrives here.
async fn received(signals: &mut Option<Signal>) {
    let arrived = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if arrived.is_none() {
        std::future::pending::<()>().await;
    }
}
