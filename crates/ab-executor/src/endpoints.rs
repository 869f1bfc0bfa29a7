//! The workspaces of running sessions as MCP endpoints, found by session id.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_api::SessionId;
use ab_core::Backend;
use ab_mcp::{McpHttpEndpoint, McpHttpSettings};

/// The endpoints of all running sessions. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RunningSessionWorkspaces {
    open: Arc<Mutex<HashMap<SessionId, RunningSessionWorkspace>>>,
}

/// The workspace of one running session.
#[derive(Clone)]
pub struct RunningSessionWorkspace {
    /// The guarded handle: the command policy judges every command on it.
    pub backend: Backend,
    /// Answers MCP requests about `backend`, or about a handle derived from it.
    pub mcp: McpHttpEndpoint,
}

impl RunningSessionWorkspaces {
    /// The workspace of a session. `None` if the session is not running.
    pub fn find(&self, session: SessionId) -> Option<RunningSessionWorkspace> {
        self.lock().get(&session).cloned()
    }

    /// Opens the endpoint of a session. The endpoint of an earlier attempt is closed first.
    pub(crate) fn open(&self, session: SessionId, backend: Backend) {
        let mcp = McpHttpEndpoint::new(&backend, &McpHttpSettings::default());
        if let Some(old) = self.lock().insert(session, RunningSessionWorkspace { backend, mcp }) {
            old.mcp.close();
        }
    }

    /// Closes a session's endpoint and ends its streams. Later requests no longer find it.
    pub(crate) fn close(&self, session: SessionId) {
        let closed = self.lock().remove(&session);
        if let Some(endpoint) = closed {
            endpoint.mcp.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, RunningSessionWorkspace>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RunningSessionWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningSessionWorkspace").finish_non_exhaustive()
    }
}
