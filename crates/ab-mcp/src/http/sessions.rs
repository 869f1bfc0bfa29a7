//! The sessions of clients, in protocol revisions that support them. Each session is bound to the
//! workspace or scope, and to the actor, with which it began. All running calls of a session have
//! different ids.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::{Actor, Backend};
use http::{HeaderMap, HeaderValue, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use super::disconnect_watcher::Returned;
use super::running_calls::{Caller, RunningCall, RunningCalls};
use super::{HttpResponse, SESSION, plainly, refusal};
use crate::bounds::{MAX_SESSIONS, SESSION_TIMEOUT};

#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    kept: Arc<LocalSessionManager>,
    bonds: Arc<Mutex<HashMap<String, Bond>>>,
    running_calls: RunningCalls,
}

/// What every request of a session must have in common with the request that began it.
#[derive(Clone, Debug)]
struct Bond {
    /// The absolute paths of the root of the workspace or scope with which the session began. Every
    /// scope has different paths.
    roots: Vec<String>,
    /// The actor that began the session. It is checked because session ids are not credentials.
    actor: Actor,
    returned: Returned,
}

/// A request that may use the session that it names.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// The registered call, if the request is a call.
    pub(crate) running_call: Option<RunningCall>,
    pub(crate) returned: Returned,
}

impl Sessions {
    /// Creates a table of sessions whose calls are registered in `running_calls`.
    pub(crate) fn new(running_calls: RunningCalls) -> Sessions {
        let mut kept = LocalSessionManager::default();
        kept.session_config.keep_alive = Some(SESSION_TIMEOUT);
        Sessions { kept: Arc::new(kept), bonds: Arc::default(), running_calls }
    }

    pub(crate) fn kept(&self) -> Arc<LocalSessionManager> {
        self.kept.clone()
    }

    pub(crate) async fn are_too_many(&self) -> bool {
        self.kept.sessions.read().await.len() >= MAX_SESSIONS
    }

    /// Records to which workspace or scope, and to which actor, a new session is bound.
    pub(crate) async fn begin(&self, headers: &HeaderMap, backend: &Backend) {
        let Some(id) = headers.get(SESSION).and_then(|id| id.to_str().ok()) else { return };
        let alive = self.kept.sessions.read().await;
        let mut bonds = lock(&self.bonds);
        bonds.retain(|id, _| alive.contains_key(id.as_str()));
        let bond = Bond {
            roots: backend.info().root_aliases,
            actor: backend.actor().clone(),
            returned: Returned::default(),
        };
        bonds.insert(id.to_owned(), bond);
    }

    /// Fails unless the request may use the session that it names.
    pub(crate) async fn admit(
        &self,
        named: &HeaderValue,
        backend: &Backend,
        caller: &Caller,
        message: Option<&ClientJsonRpcMessage>,
    ) -> Result<Admitted, HttpResponse> {
        let id = match message {
            Some(ClientJsonRpcMessage::Request(request)) => Some(&request.id),
            _ => None,
        };
        let own = |bond: &Bond| bond.actor == *backend.actor();
        let bond = self.bond(named).await.filter(own).ok_or_else(|| {
            plainly(StatusCode::NOT_FOUND, "Not Found: there is no such session, or it has ended")
        })?;
        if bond.roots != backend.info().root_aliases {
            let why = "this session was begun in another scope: begin one in each".to_owned();
            let code = ErrorCode::INVALID_REQUEST;
            return Err(refusal(StatusCode::BAD_REQUEST, id.cloned(), code, why));
        }
        let Bond { returned, .. } = bond;
        let Some(id) = id else { return Ok(Admitted { running_call: None, returned }) };
        let Some(running_call) = self.running_calls.begin_alone(caller, id) else {
            let why = "a call with this id is not answered yet".to_owned();
            let code = ErrorCode::INVALID_REQUEST;
            return Err(refusal(StatusCode::CONFLICT, Some(id.clone()), code, why));
        };
        Ok(Admitted { running_call: Some(running_call), returned })
    }

    async fn bond(&self, named: &HeaderValue) -> Option<Bond> {
        let id = named.to_str().ok()?;
        let alive = self.kept.sessions.read().await;
        if alive.contains_key(id) { lock(&self.bonds).get(id).cloned() } else { None }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
