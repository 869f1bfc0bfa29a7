//! Registers running calls, so that a cancel request can find its call. Over HTTP a cancel request
//! is a separate request, usually on another connection.
//!
//! Request ids are small numbers, so two clients may use the same ids at the same time. Therefore a
//! client that initializes outside of a session gets a random name. The name is in the header that
//! otherwise contains the session id, and the client repeats it in every request. The server stores
//! nothing for the name. The name only shows which calls belong to the same client. A client that
//! has not initialized is identified by its address, its credential and its scope.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ab_core::Backend;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use rmcp::model::RequestId;
use tokio_util::sync::CancellationToken;

use super::SESSION;

/// Prefix of the names of clients outside of sessions. Session ids have no such prefix, because
/// they are UUIDs.
const CLIENT: &str = "client-";

/// The address of a client. The HTTP server stores it in the extensions of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerAddress(pub IpAddr);

/// Identifies the client that made a call, because a client can cancel only its own calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    name: Name,
    credential: Option<HeaderValue>,
    /// The absolute paths of the root of the caller's workspace or scope. Every scope has different
    /// paths.
    roots: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Session(HeaderValue),
    /// A name that was made by [`Caller::new_name`].
    Client(HeaderValue),
    Address(Option<CallerAddress>),
}

impl Caller {
    /// Determines who made a request. The name of a client outside of sessions is removed from the
    /// headers, because rmcp would treat it as a session id.
    pub(crate) fn of<B>(request: &mut Request<B>, backend: &Backend) -> Caller {
        let credential = request.headers().get(AUTHORIZATION).cloned();
        let name = match request.headers().get(SESSION).cloned() {
            Some(name) if name.as_bytes().starts_with(CLIENT.as_bytes()) => {
                request.headers_mut().remove(SESSION);
                Name::Client(name)
            }
            Some(session) => Name::Session(session),
            None => Name::Address(request.extensions().get().copied()),
        };
        Caller { name, credential, roots: backend.info().root_aliases }
    }

    /// Makes a random name for a client, which other clients cannot guess.
    pub(crate) fn new_name() -> HeaderValue {
        let random = || RandomState::new().hash_one(CLIENT);
        let name = format!("{CLIENT}{:016x}{:016x}", random(), random());
        HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static(CLIENT))
    }

    /// Whether all calls of this caller certainly come from a single client.
    fn is_certain(&self) -> bool {
        match self.name {
            Name::Session(_) | Name::Client(_) => true,
            Name::Address(_) => false,
        }
    }
}

/// All running calls. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningCalls(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    calls: HashMap<Key, Vec<Entry>>,
    begun: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    caller: Caller,
    id: RequestId,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    cancelled: CancellationToken,
}

/// A running call. It is registered until the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct RunningCall(Arc<Registration>);

/// A weak reference to a running call, which may have ended.
#[derive(Clone, Debug)]
pub(crate) struct WeakRunningCall(Weak<Registration>);

#[derive(Debug)]
struct Registration {
    running_calls: RunningCalls,
    key: Key,
    number: u64,
    cancelled: CancellationToken,
}

impl RunningCalls {
    pub(crate) fn begin(&self, caller: &Caller, id: &RequestId) -> RunningCall {
        let key = Key { caller: caller.clone(), id: id.clone() };
        self.add(&mut self.lock(), key)
    }

    /// Like [`begin`](Self::begin), but returns `None` if the caller already has a running call
    /// with this id.
    pub(crate) fn begin_alone(&self, caller: &Caller, id: &RequestId) -> Option<RunningCall> {
        let key = Key { caller: caller.clone(), id: id.clone() };
        let mut table = self.lock();
        if table.calls.contains_key(&key) { None } else { Some(self.add(&mut table, key)) }
    }

    /// Cancels a call of the caller. If the caller is identified only by its address and there are
    /// several calls with this id, they may belong to different clients. In this case none of them
    /// is cancelled.
    pub(crate) fn cancel(&self, caller: &Caller, id: &RequestId) {
        let key = Key { caller: caller.clone(), id: id.clone() };
        let table = self.lock();
        let Some(entries) = table.calls.get(&key) else { return };
        if entries.len() == 1 || caller.is_certain() {
            entries.iter().for_each(|entry| entry.cancelled.cancel());
        }
    }

    /// Cancels all calls of a caller.
    pub(crate) fn cancel_all(&self, caller: &Caller) {
        let table = self.lock();
        let own = table.calls.iter().filter(|(key, _)| key.caller == *caller);
        own.flat_map(|(_, entries)| entries).for_each(|entry| entry.cancelled.cancel());
    }

    fn add(&self, table: &mut Table, key: Key) -> RunningCall {
        table.begun += 1;
        let (number, cancelled) = (table.begun, CancellationToken::new());
        let entry = Entry { number, cancelled: cancelled.clone() };
        table.calls.entry(key.clone()).or_default().push(entry);
        RunningCall(Arc::new(Registration { running_calls: self.clone(), key, number, cancelled }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCall {
    pub(crate) async fn cancelled(&self) {
        self.0.cancelled.cancelled().await;
    }

    pub(crate) fn weak_call(&self) -> WeakRunningCall {
        WeakRunningCall(Arc::downgrade(&self.0))
    }
}

impl WeakRunningCall {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }

    pub(crate) fn cancel(&self) {
        if let Some(registration) = self.0.upgrade() {
            registration.cancelled.cancel();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut table = self.running_calls.lock();
        if let Some(entries) = table.calls.get_mut(&self.key) {
            entries.retain(|entry| entry.number != self.number);
            if entries.is_empty() {
                table.calls.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ab_core::{Backend, MemoryDriver};

    use super::*;

    fn caller(headers: &[(&'static str, &str)], address: [u8; 4]) -> Caller {
        let mut request = Request::new(());
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        request.extensions_mut().insert(CallerAddress(address.into()));
        Caller::of(&mut request, &Backend::new(MemoryDriver::new()))
    }

    fn is_cancelled(running_call: &RunningCall) -> bool {
        running_call.0.cancelled.is_cancelled()
    }

    #[test]
    fn a_cancellation_finds_the_calls_of_its_caller_only() {
        let (running_calls, id) = (RunningCalls::default(), RequestId::Number(1));
        let name = Caller::new_name();
        let (here, there) = ([127, 0, 0, 1], [10, 0, 0, 2]);
        let first = caller(&[("mcp-session-id", name.to_str().unwrap())], here);
        let second = caller(&[("mcp-session-id", Caller::new_name().to_str().unwrap())], here);
        let nameless = caller(&[], here);
        let callers = [
            &second,
            &nameless,
            &caller(&[], there),
            &caller(&[("authorization", "Bearer other")], here),
            &caller(&[("mcp-session-id", "a-session")], here),
        ];
        let others: Vec<RunningCall> =
            callers.map(|caller| running_calls.begin(caller, &id)).into();
        let own = running_calls.begin(&first, &id);
        running_calls.cancel(&first, &RequestId::String("1".into()));
        assert!(!is_cancelled(&own));
        running_calls.cancel(&first, &id);
        assert!(is_cancelled(&own));
        assert!(!others.iter().any(is_cancelled));
        running_calls.cancel(&nameless, &id);
        let cancelled: Vec<bool> = others.iter().map(is_cancelled).collect();
        assert_eq!(cancelled, [false, true, false, false, false]);
    }

    #[test]
    fn an_id_of_several_callers_at_one_address_cancels_none_of_them() {
        let (running_calls, id) = (RunningCalls::default(), RequestId::Number(1));
        let nameless = caller(&[], [127, 0, 0, 1]);
        let (one, other) =
            (running_calls.begin(&nameless, &id), running_calls.begin(&nameless, &id));
        running_calls.cancel(&nameless, &id);
        assert!(!is_cancelled(&one) && !is_cancelled(&other));
        drop(other);
        running_calls.cancel(&nameless, &id);
        assert!(is_cancelled(&one));
    }

    #[test]
    fn calls_that_landed_are_forgotten() {
        let (running_calls, id) = (RunningCalls::default(), RequestId::Number(1));
        let session = caller(&[("mcp-session-id", "a-session")], [127, 0, 0, 1]);
        let running_call = running_calls.begin_alone(&session, &id).unwrap();
        assert!(running_calls.begin_alone(&session, &id).is_none());
        let weak_call = running_call.weak_call();
        drop(running_call);
        assert!(weak_call.has_ended() && running_calls.lock().calls.is_empty());
        let running_call = running_calls.begin_alone(&session, &id).unwrap();
        running_calls.cancel_all(&session);
        assert!(is_cancelled(&running_call));
    }
}
