//! The state of the router: one optional field for each surface, who may call, and the end.

use std::fmt;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::problem::{Problem, ProblemKind};
use crate::routes::DaemonSurface;

/// What a port serves. A surface that is absent answers 404.
#[derive(Clone)]
pub struct App {
    daemon: Option<Arc<DaemonSurface>>,
    gate: Arc<Gate>,
    shutdown: CancellationToken,
}

impl App {
    pub fn new(gate: Gate) -> App {
        App { daemon: None, gate: Arc::new(gate), shutdown: CancellationToken::new() }
    }

    /// Serves one workspace at `/health`, `/mcp` and `/ssh`.
    pub fn with_daemon(mut self, daemon: DaemonSurface) -> App {
        self.daemon = Some(Arc::new(daemon));
        self
    }

    /// The daemon's surface, or the 404 that its routes answer without one.
    pub(crate) fn daemon(&self) -> Result<&Arc<DaemonSurface>, Problem> {
        self.daemon.as_ref().ok_or_else(|| not_served("no workspace is served here"))
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Cancelled when the port begins to close. Streams end at once then.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Ends what outlives its request.
    pub(crate) async fn close(&self) {
        self.shutdown.cancel();
        if let Some(daemon) = &self.daemon {
            daemon.close().await;
        }
    }
}

fn not_served(detail: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, detail)
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("daemon", &self.daemon).finish_non_exhaustive()
    }
}
