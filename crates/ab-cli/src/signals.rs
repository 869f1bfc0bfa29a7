//! Receives SIGINT and SIGTERM one after another.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Exit;

/// Receives SIGINT and SIGTERM from the creation of this value on.
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

    /// Installs no handlers, so that no signal ever arrives.
    pub(crate) fn none() -> Signals {
        Signals { interrupts: None, terminations: None }
    }

    /// Waits for the next signal, and returns the exit code for it.
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

/// Waits for the next signal. If there is no handler, this never returns, and the default action of
/// the signal applies.
async fn received(signals: &mut Option<Signal>) {
    let arrived = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if arrived.is_none() {
        std::future::pending::<()>().await;
    }
}
