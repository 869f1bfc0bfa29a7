//! The driver of a remote workspace.
//!
//! The driver starts disconnected and connects with its first call. If the connection is lost,
//! calls in flight fail at once. Their errors say what is known about their effect. The server
//! applies guards and isolation, because the files are there.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ab_core::driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
use ab_core::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use ab_core::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteOptions,
};
use ab_core::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use ab_core::search::{SearchQuery, SearchResults};
use ab_core::status::StatusPublisher;
use ab_core::{
    ConnectionStatus, EffectivePolicy, Error, ErrorCode, ErrorKind, LostCallEffect, LostCallId,
    Result, Verb, WsPath,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::context::{CallContext, Changes, Deadline, LastProgress};
use super::keeper::Keeper;
use super::ours;
use super::process::Processes;
use super::session::{Session, Speech};
use super::settings::RemoteClientSettings;
use crate::wire::call::RemoteCallId;

/// A remote workspace. Dropping it ends its connection and everything on it.
pub struct RemoteDriver {
    shared: Arc<Shared>,
}

/// State shared by the driver and its processes.
pub(crate) struct Shared {
    pub(crate) settings: Arc<RemoteClientSettings>,
    hub: StatusPublisher,
    keeper: OnceLock<Keeper>,
    /// Limits the number of concurrent calls.
    turns: Semaphore,
    last_progress: LastProgress,
    /// The capabilities of the server on the last connection.
    met: Mutex<Option<Capabilities>>,
    pub(crate) processes: Processes,
}

impl RemoteDriver {
    /// Creates the driver. It does not connect yet.
    pub fn new(settings: RemoteClientSettings) -> Result<Self> {
        settings.check()?;
        let turns = Semaphore::new(settings.max_operations);
        let shared = Shared {
            settings: Arc::new(settings),
            hub: StatusPublisher::new(ConnectionStatus::Disconnected),
            keeper: OnceLock::new(),
            turns,
            last_progress: LastProgress::default(),
            met: Mutex::default(),
            processes: Processes::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub fn settings(&self) -> &RemoteClientSettings {
        &self.shared.settings
    }

    /// The deadline of a call that begins now.
    fn deadline(&self) -> Deadline {
        Deadline::new(self.shared.settings.operation_timeout, &self.shared.last_progress)
    }

    /// Waits for a permit and for a connection.
    async fn turn(&self, context: CallContext<'_>, verb: Verb) -> Result<Turn<'_>> {
        let RemoteClientSettings { operation_timeout, max_operations, .. } = *self.shared.settings;
        let permit = context.turn(operation_timeout, self.shared.turns.acquire()).await;
        let Some(permit) = permit else {
            let message = format!(
                "the call waited {operation_timeout:?} for one of {max_operations} running calls to end"
            );
            return Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message).with_verb(verb));
        };
        // This fails only if the backend was destroyed.
        let Ok(permit) = permit else { return Err(Error::for_destroyed_backend(verb)) };
        let session = self.shared.session(context, verb).await?;
        Ok(Turn { session, _permit: permit })
    }
}

struct Turn<'a> {
    session: Arc<Session>,
    _permit: SemaphorePermit<'a>,
}

impl Shared {
    /// Returns the connection. If there is none, waits for it until the deadline of the call.
    pub(crate) async fn session(
        &self,
        context: CallContext<'_>,
        verb: Verb,
    ) -> Result<Arc<Session>> {
        if let Some(session) = self.current(verb)? {
            return Ok(session);
        }
        let time_limit = self.settings.operation_timeout;
        let wanted = context.within(time_limit, self.keeper().wanted(verb)).await;
        self.met_by(wanted.unwrap_or_else(|| Err(unconnected(verb, time_limit))))
    }

    /// The connection, if there is one.
    fn current(&self, verb: Verb) -> Result<Option<Arc<Session>>> {
        match self.hub.current() {
            ConnectionStatus::Destroyed => Err(Error::for_destroyed_backend(verb)),
            _ => Ok(self.keeper().current()),
        }
    }

    fn met_by(&self, made: Result<Arc<Session>>) -> Result<Arc<Session>> {
        let session = made?;
        *self.met() = Some(capabilities(&session));
        Ok(session)
    }

    /// Waits for a connection other than `last`. If no further attempt to connect is made, fails
    /// with the reason.
    pub(crate) async fn next_session(&self, last: &Arc<Session>) -> Result<Arc<Session>> {
        let mut watch = self.keeper().watch();
        let given_up = self.keeper().given_up();
        let other = watch.wait_for(|current| {
            let fresh = |session: &Arc<Session>| !Arc::ptr_eq(session, last);
            current.as_ref().is_some_and(fresh)
        });
        tokio::select! {
            biased;
            other = other => match other {
                Ok(session) => session.clone().ok_or_else(|| last.lost(Verb::Connect)),
                Err(_) => Err(last.lost(Verb::Connect)),
            },
            why = given_up => Err(why),
        }
    }

    fn keeper(&self) -> &Keeper {
        self.keeper.get_or_init(|| Keeper::start(self.settings.clone(), self.hub.clone()))
    }

    fn met(&self) -> MutexGuard<'_, Option<Capabilities>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// If a call got no answer, adds the path to its error, unless the error already has one.
fn lost_at<T>(path: &WsPath, result: Result<T>) -> Result<T> {
    result.map_err(|error| match (error.kind(), error.path()) {
        (ErrorKind::Disconnected | ErrorKind::Timeout, None) => error.with_path(path.to_string()),
        _ => error,
    })
}

fn unconnected(verb: Verb, time_limit: Duration) -> Error {
    let message = format!("there was no connection within {time_limit:?}");
    Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message).with_verb(verb)
}

/// The capabilities of the connected server.
fn capabilities(session: &Session) -> Capabilities {
    match &session.speech {
        Speech::Ours(ours) => ours.info.capabilities,
        Speech::Plain(plain) => plain.capabilities(),
    }
}

/// The capabilities that are assumed before the first connection. They are the capabilities of an
/// agent-backend server.
const EXPECTED: Capabilities = Capabilities {
    exec: true,
    detached_processes: true,
    search: true,
    symlinks: true,
    file_modes: true,
    empty_dirs: true,
    jail: true,
    atomic_write: true,
    exact_error_kinds: true,
};

impl fmt::Debug for RemoteDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteDriver")
            .field("settings", &self.shared.settings)
            .field("status", &self.shared.hub.current())
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for RemoteDriver {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let turn = lost_at(path, self.turn(context, Verb::Stat).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::stat(&turn.session, context, ours, path, options).await,
            Speech::Plain(plain) => plain.stat(&turn.session, context, path, options).await,
        };
        lost_at(path, done)
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let turn = lost_at(path, self.turn(context, Verb::List).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::list(&turn.session, context, ours, path, options).await,
            Speech::Plain(plain) => plain.list(&turn.session, context, path, options).await,
        };
        lost_at(path, done)
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let turn = lost_at(&query.root, self.turn(context, Verb::Search).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::search(&turn.session, context, ours, query).await,
            Speech::Plain(_) => {
                drop(turn);
                ab_core::search::search_by_listing(self, query).await
            }
        };
        lost_at(&query.root, done)
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let turn = lost_at(path, self.turn(context, Verb::Read).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::read(&turn.session, context, ours, path, options).await,
            Speech::Plain(plain) => plain.read(&turn.session, context, path, options).await,
        };
        lost_at(path, done)
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        let deadline = self.deadline();
        let changes = Changes::default();
        let context = CallContext::new(&deadline).with_changes(&changes);
        let turn = lost_at(path, self.turn(context, Verb::Write).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => {
                ours::write(&turn.session, context, ours, path, content, options).await
            }
            Speech::Plain(plain) => {
                context.judged(plain.write(&turn.session, context, path, content, options).await)
            }
        };
        lost_at(path, done)
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        let deadline = self.deadline();
        let changes = Changes::default();
        let context = CallContext::new(&deadline).with_changes(&changes);
        let turn = lost_at(path, self.turn(context, Verb::Open).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::open(&turn.session, context, ours, path, options).await,
            Speech::Plain(plain) => {
                context.judged(plain.open(&turn.session, context, path, options).await)
            }
        };
        lost_at(path, done)
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        let deadline = self.deadline();
        let changes = Changes::default();
        let context = CallContext::new(&deadline).with_changes(&changes);
        let turn = lost_at(path, self.turn(context, Verb::SetAttributes).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => {
                ours::set_attributes(&turn.session, context, ours, path, attributes).await
            }
            Speech::Plain(plain) => {
                context.judged(plain.set_attributes(&turn.session, context, path, attributes).await)
            }
        };
        lost_at(path, done)
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let turn = lost_at(path, self.turn(context, Verb::ReadLink).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::read_link(&turn.session, context, ours, path).await,
            Speech::Plain(plain) => plain.read_link(&turn.session, context, path).await,
        };
        lost_at(path, done)
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        let deadline = self.deadline();
        let changes = Changes::default();
        let context = CallContext::new(&deadline).with_changes(&changes);
        let turn = lost_at(path, self.turn(context, Verb::Symlink).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::symlink(&turn.session, context, ours, path, target).await,
            Speech::Plain(plain) => {
                context.judged(plain.symlink(&turn.session, context, path, target).await)
            }
        };
        lost_at(path, done)
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        let deadline = self.deadline();
        let changes = Changes::default();
        let context = CallContext::new(&deadline).with_changes(&changes);
        let turn = lost_at(path, self.turn(context, Verb::Mkdir).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::create_dir(&turn.session, context, ours, path).await,
            Speech::Plain(plain) => {
                context.judged(plain.create_dir(&turn.session, context, path).await)
            }
        };
        lost_at(path, done)
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        let deadline = self.deadline();
        let changes = Changes::default();
        let context = CallContext::new(&deadline).with_changes(&changes);
        let turn = lost_at(path, self.turn(context, Verb::Delete).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => ours::remove(&turn.session, context, ours, path, options).await,
            Speech::Plain(plain) => {
                context.judged(plain.remove(&turn.session, context, path, options).await)
            }
        };
        lost_at(path, done)
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let deadline = self.deadline();
        let changes = Changes::default();
        let context = CallContext::new(&deadline).with_changes(&changes);
        let turn = lost_at(from, self.turn(context, Verb::Rename).await)?;
        let done = match &turn.session.speech {
            Speech::Ours(ours) => {
                ours::rename(&turn.session, context, ours, from, to, options).await
            }
            Speech::Plain(plain) => {
                context.judged(plain.rename(&turn.session, context, from, to, options).await)
            }
        };
        lost_at(from, done)
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let turn = self.turn(context, Verb::DiskSpace).await?;
        match &turn.session.speech {
            Speech::Ours(_) => ours::space(&turn.session, context).await,
            Speech::Plain(plain) => plain.space(&turn.session, context).await,
        }
    }

    async fn exec(&self, request: ExecRequest) -> Result<Process> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let session = self.shared.session(context, Verb::Exec).await?;
        match &session.speech {
            Speech::Ours(ours) if !ours.info.capabilities.exec => {
                Err(Error::for_unsupported_verb(BackendKind::Remote, Verb::Exec)
                    .with_command(request.command.to_shell_line()))
            }
            Speech::Ours(ours) => ours::exec(&self.shared, &session, context, ours, request).await,
            Speech::Plain(plain) => {
                let started = plain.exec(&self.shared, &session, context, request).await;
                // Only this call may have shown whether the server can run commands.
                *self.shared.met() = Some(plain.capabilities());
                started
            }
        }
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let turn = self.turn(context, Verb::Processes).await?;
        match &turn.session.speech {
            Speech::Ours(ours) => ours::processes(&turn.session, context, ours).await,
            Speech::Plain(_) => {
                Err(super::plain::keeps_nothing(&turn.session.who, Verb::Processes))
            }
        }
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let session = self.shared.session(context, Verb::Attach).await?;
        match &session.speech {
            Speech::Ours(ours) => {
                ours::attach(&self.shared, &session, context, ours, id, from).await
            }
            Speech::Plain(_) => Err(super::plain::keeps_nothing(&session.who, Verb::Attach)),
        }
    }

    fn info(&self) -> BackendInfo {
        BackendInfo {
            kind: BackendKind::Remote,
            root_aliases: self.shared.settings.root.iter().cloned().collect(),
            capabilities: self.shared.met().unwrap_or(EXPECTED),
        }
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let Turn { session, _permit: permit } = self.turn(context, Verb::Exec).await?;
        match &session.speech {
            Speech::Ours(_) => ours::effective_policy(&session, context).await,
            Speech::Plain(plain) => {
                // Release the permit, so that calls on files do not have to wait for this request.
                drop(permit);
                let policy = plain.effective_policy(&session, context).await;
                *self.shared.met() = Some(plain.capabilities());
                policy
            }
        }
    }

    fn status_publisher(&self) -> &StatusPublisher {
        &self.shared.hub
    }

    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect> {
        let deadline = self.deadline();
        let context = CallContext::new(&deadline);
        let Some(call) = RemoteCallId::from_lost_call_id(ticket) else {
            return Ok(LostCallEffect::Unknown);
        };
        let turn = self.turn(context, Verb::Connect).await?;
        match &turn.session.speech {
            Speech::Ours(_) => ours::outcome(&turn.session, context, call).await,
            Speech::Plain(_) => Ok(LostCallEffect::Unknown),
        }
    }

    async fn connect(&self) -> Result<()> {
        // The attempt has its own time limit. It may be longer than the time limit of calls.
        let RemoteClientSettings { connect_timeout, operation_timeout, .. } = *self.shared.settings;
        let time_limit = operation_timeout.max(connect_timeout.saturating_mul(2));
        if self.shared.current(Verb::Connect)?.is_some() {
            return Ok(());
        }
        let wanted = timeout(time_limit, self.shared.keeper().wanted(Verb::Connect)).await;
        let made = wanted.unwrap_or_else(|_| Err(unconnected(Verb::Connect, time_limit)));
        self.shared.met_by(made).map(drop)
    }

    async fn close(&self) -> Result<()> {
        self.shared.processes.end().await;
        if let Some(keeper) = self.shared.keeper.get() {
            keeper.destroy().await;
        }
        self.shared.hub.set(ConnectionStatus::Destroyed, None);
        Ok(())
    }
}
