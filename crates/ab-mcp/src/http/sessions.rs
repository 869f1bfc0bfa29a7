//! Sessions of the revisions that have them: each keeps to the part of the workspace that it was
//! begun in, and no two of its calls share an id.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::Backend;
use http::{HeaderMap, HeaderValue, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, RequestId};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use super::{Answer, SESSION, plainly, refusal};
use crate::bounds::{MAX_SESSIONS, SESSION_PATIENCE};

#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    kept: Arc<LocalSessionManager>,
    bonds: Arc<Mutex<HashMap<String, Bond>>>,
}

/// What a session is bound to.
#[derive(Clone, Debug)]
struct Bond {
    /// The names of the root that it was begun with, which no other part of the workspace has.
    roots: Vec<String>,
    calls: Arc<Mutex<HashSet<RequestId>>>,
}

/// A call in flight. It travels with the request, and is dropped with it.
#[derive(Clone, Debug)]
pub(crate) struct Flight(#[allow(dead_code, reason = "it is held")] Arc<Landing>);

#[derive(Debug)]
struct Landing {
    calls: Arc<Mutex<HashSet<RequestId>>>,
    id: RequestId,
}

impl Drop for Landing {
    fn drop(&mut self) {
        lock(&self.calls).remove(&self.id);
    }
}

impl Sessions {
    pub(crate) fn new() -> Sessions {
        let mut kept = LocalSessionManager::default();
        kept.session_config.keep_alive = Some(SESSION_PATIENCE);
        Sessions { kept: Arc::new(kept), bonds: Arc::default() }
    }

    pub(crate) fn kept(&self) -> Arc<LocalSessionManager> {
        self.kept.clone()
    }

    pub(crate) async fn are_too_many(&self) -> bool {
        self.kept.sessions.read().await.len() >= MAX_SESSIONS
    }

    /// Notes which part of the workspace a session that has just begun is about.
    pub(crate) async fn begin(&self, headers: &HeaderMap, backend: &Backend) {
        let Some(id) = headers.get(SESSION).and_then(|id| id.to_str().ok()) else { return };
        let alive = self.kept.sessions.read().await;
        let mut bonds = lock(&self.bonds);
        bonds.retain(|id, _| alive.contains_key(id.as_str()));
        let bond = Bond { roots: backend.info().root_aliases, calls: Arc::default() };
        bonds.insert(id.to_owned(), bond);
    }

    /// Whether a request may speak in the session it names.
    pub(crate) async fn admit(
        &self,
        named: &HeaderValue,
        backend: &Backend,
        message: Option<&ClientJsonRpcMessage>,
    ) -> Result<Option<Flight>, Answer> {
        let id = match message {
            Some(ClientJsonRpcMessage::Request(request)) => Some(&request.id),
            _ => None,
        };
        let bond = self.bond(named).await.ok_or_else(|| {
            plainly(StatusCode::NOT_FOUND, "Not Found: there is no such session, or it has ended")
        })?;
        if bond.roots != backend.info().root_aliases {
            let why = "this session was begun in another scope: begin one in each".to_owned();
            let code = ErrorCode::INVALID_REQUEST;
            return Err(refusal(StatusCode::BAD_REQUEST, id.cloned(), code, why));
        }
        let Some(id) = id else { return Ok(None) };
        if !lock(&bond.calls).insert(id.clone()) {
            let why = "a call with this id is not answered yet".to_owned();
            let code = ErrorCode::INVALID_REQUEST;
            return Err(refusal(StatusCode::CONFLICT, Some(id.clone()), code, why));
        }
        Ok(Some(Flight(Arc::new(Landing { calls: bond.calls, id: id.clone() }))))
    }

    async fn bond(&self, named: &HeaderValue) -> Option<Bond> {
        let id = named.to_str().ok()?;
        let alive = self.kept.sessions.read().await;
        match alive.contains_key(id) {
            true => lock(&self.bonds).get(id).cloned(),
            false => None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
