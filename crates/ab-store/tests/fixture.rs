//! A store in a directory of its own, and sessions to put into it.

use std::collections::BTreeMap;

use ab_api::{
    Event, EventKind, LogLevel, LogSource, Session, SessionId, SessionStatus, Space, SpaceBackend,
    SpaceId, SpaceStatus, TaskCapabilities, TaskRequest, Time,
};
use ab_store::{DataDir, MAX_EVENT_BYTES, NewSession, SessionRecord, Store, StoredSessionProgress};
use tempfile::TempDir;

pub(crate) struct Scratch {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
}

pub(crate) async fn scratch() -> Scratch {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = open(&dir).await;
    Scratch { dir, store }
}

pub(crate) async fn open(dir: &TempDir) -> Store {
    let data = DataDir::open(dir.path().join("data")).expect("lock the data directory");
    Store::open(data).await.expect("open the store")
}

impl Scratch {
    /// The same directory in a new store, as after a restart.
    pub(crate) async fn reopen(self) -> Self {
        let Self { dir, store } = self;
        store.close().await;
        drop(store);
        let store = open(&dir).await;
        Self { dir, store }
    }
}

pub(crate) fn session(prompt: &str) -> Session {
    let body = format!(
        r#"{{"prompt":"{prompt}","projectId":"shop","repo":{{"url":"https://h/x"}},
            "agent":{{"type":"scripted"}},"labels":{{"p":"{prompt}"}}}}"#
    );
    let agents = BTreeMap::from([("scripted".to_owned(), Vec::new())]);
    let offers = TaskCapabilities { agents, ..TaskCapabilities::default() };
    let task = TaskRequest::parse(body.as_bytes(), &offers).expect("a valid task");
    Session::new_queued(SessionId::generate(), task, Time::now())
}

pub(crate) fn new_session(session: Session) -> NewSession {
    let progress = StoredSessionProgress { prompts: 1, ..StoredSessionProgress::default() };
    let events = vec![status(session.status)];
    NewSession {
        record: SessionRecord { session, progress },
        events,
        idempotency: None,
        continues_session: None,
    }
}

/// Stores a session and gives its id.
pub(crate) async fn stored(store: &Store, prompt: &str) -> SessionId {
    let session = session(prompt);
    let id = session.id;
    store.create_session(new_session(session)).await.expect("create");
    id
}

/// Stores a space.
pub(crate) async fn stored_space(store: &Store) -> Space {
    let space = Space {
        id: SpaceId::generate(),
        name: None,
        description: None,
        status: SpaceStatus::Ready,
        backend: SpaceBackend::Memory,
        policy: serde_json::Value::Null,
        env: BTreeMap::new(),
        metadata: serde_json::Map::new(),
        created_at: Time::now(),
        expires_at: None,
    };
    store.create_space(space.clone(), None).await.expect("create");
    space
}

pub(crate) fn status(status: SessionStatus) -> Event {
    let (activity, reason, message) = (None, None, None);
    Event::at_current_time(EventKind::Status { status, activity, reason, message })
}

pub(crate) fn line(text: &str) -> Event {
    Event::at_current_time(EventKind::Log {
        level: LogLevel::Info,
        message: text.to_owned(),
        source: LogSource::Agent,
        tool_execution_id: None,
    })
}

/// An event that stays too large if its texts are cut.
pub(crate) fn of_many_short_texts() -> Event {
    let passed = vec!["x".to_owned(); MAX_EVENT_BYTES / 4];
    Event::at_current_time(EventKind::Summary { passed, failed: Vec::new() })
}
