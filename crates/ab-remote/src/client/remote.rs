//! The driver of a workspace elsewhere.
//!
//! It starts disconnected and connects when it is first needed. Every call goes over the connection
//! that there is; calls that were on their way when it is lost fail at once, and say what is known of
//! their effect. Guards and walls are the server's: they are where the files are.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ab_core::driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
use ab_core::metadata::{DiskSpace, FileContent, Listing, Removed, Renamed, Stat};
use ab_core::options::{
    Attributes, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions, StatOptions,
    WriteOptions,
};
use ab_core::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use ab_core::search::{Query, SearchResults};
use ab_core::status::StatusHub;
use ab_core::{
    CallEffect, Code, EffectivePolicy, Error, Kind, Result, Status, Ticket, Verb, WsPath,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::deadline::{self, Motion};
use super::keeper::Keeper;
use super::ours;
use super::process::Processes;
use super::session::{Session, Speech};
use super::settings::ClientSettings;
use super::steps;
use crate::wire::call::CallNumber;

/// A workspace elsewhere. Connections and everything on them end with it.
pub struct Remote {
    shared: Arc<Shared>,
}

/// What the driver and its processes share.
pub(crate) struct Shared {
    pub(crate) settings: Arc<ClientSettings>,
    hub: StatusHub,
    keeper: OnceLock<Keeper>,
    /// Calls that may be under way.
    turns: Semaphore,
    motion: Motion,
    /// What the server was when it was last met.
    met: Mutex<Option<Capabilities>>,
    pub(crate) processes: Processes,
}

impl Remote {
    /// A workspace that settings describe. Nothing is connected yet.
    pub fn new(settings: ClientSettings) -> Result<Self> {
        settings.check()?;
        let turns = Semaphore::new(settings.max_operations);
        let shared = Shared {
            settings: Arc::new(settings),
            hub: StatusHub::new(Status::Disconnected),
            keeper: OnceLock::new(),
            turns,
            motion: Motion::default(),
            met: Mutex::default(),
            processes: Processes::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub fn settings(&self) -> &ClientSettings {
        &self.shared.settings
    }

    /// Makes a call, which has one deadline for everything that it waits for.
    async fn timed<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        deadline::call(self.shared.settings.operation_timeout, &self.shared.motion, call).await
    }

    /// The connection, and a turn to use it.
    async fn turn(&self, verb: Verb) -> Result<Turn<'_>> {
        let ClientSettings { operation_timeout, max_operations, .. } = *self.shared.settings;
        let permit = deadline::turn(operation_timeout, self.shared.turns.acquire()).await;
        let Some(permit) = permit else {
            let message = format!(
                "its turn did not come within {operation_timeout:?}: \
                 {max_operations} calls are under way"
            );
            return Err(Error::new(Code::Timeout, Kind::Timeout, message).with_verb(verb));
        };
        // Nobody closes it.
        let Ok(permit) = permit else { return Err(Error::destroyed(verb)) };
        let session = self.shared.session(verb).await?;
        Ok(Turn { session, _permit: permit })
    }
}

struct Turn<'a> {
    session: Arc<Session>,
    _permit: SemaphorePermit<'a>,
}

impl Shared {
    /// The connection, which is waited for as long as the call may take.
    pub(crate) async fn session(&self, verb: Verb) -> Result<Arc<Session>> {
        if let Some(session) = self.current(verb)? {
            return Ok(session);
        }
        let patience = self.settings.operation_timeout;
        let wanted = deadline::within(patience, self.keeper().wanted(verb)).await;
        self.met_by(wanted.unwrap_or_else(|| Err(unconnected(verb, patience))))
    }

    /// The connection, if there is one.
    fn current(&self, verb: Verb) -> Result<Option<Arc<Session>>> {
        match self.hub.current() {
            Status::Destroyed => Err(Error::destroyed(verb)),
            _ => Ok(self.keeper().current()),
        }
    }

    fn met_by(&self, made: Result<Arc<Session>>) -> Result<Arc<Session>> {
        let session = made?;
        *self.met() = Some(capabilities(&session));
        Ok(session)
    }

    /// A connection other than one that is over, as long as somebody tries to make one; or why
    /// nobody does.
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

fn unconnected(verb: Verb, patience: Duration) -> Error {
    let message = format!("there was no connection within {patience:?}");
    Error::new(Code::Timeout, Kind::Timeout, message).with_verb(verb)
}

/// What the server can do.
fn capabilities(session: &Session) -> Capabilities {
    match &session.speech {
        Speech::Ours(ours) => ours.info.capabilities,
        Speech::Plain(plain) => plain.capabilities(),
    }
}

/// What is taken for granted of a server that was not met yet: that it is one of ours.
const EXPECTED: Capabilities = Capabilities {
    exec: true,
    detached: true,
    search: true,
    links: true,
    modes: true,
    empty_dirs: true,
    jail: true,
    atomic_write: true,
    exact_kinds: true,
};

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("settings", &self.shared.settings)
            .field("status", &self.shared.hub.current())
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Remote {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        self.timed(async {
            let turn = self.turn(Verb::Stat).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::stat(&turn.session, ours, path, options).await,
                Speech::Plain(plain) => plain.stat(&turn.session, path, options).await,
            }
        })
        .await
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        self.timed(async {
            let turn = self.turn(Verb::List).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::list(&turn.session, ours, path, options).await,
                Speech::Plain(plain) => plain.list(&turn.session, path, options).await,
            }
        })
        .await
    }

    async fn search(&self, query: &Query) -> Result<SearchResults> {
        self.timed(async {
            let turn = self.turn(Verb::Search).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::search(&turn.session, ours, query).await,
                Speech::Plain(_) => {
                    drop(turn);
                    ab_core::search::search_by_walk(self, query).await
                }
            }
        })
        .await
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        self.timed(async {
            let turn = self.turn(Verb::Read).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::read(&turn.session, ours, path, options).await,
                Speech::Plain(plain) => plain.read(&turn.session, path, options).await,
            }
        })
        .await
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        self.timed(async {
            let turn = self.turn(Verb::Write).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => {
                    ours::write(&turn.session, ours, path, content, options).await
                }
                Speech::Plain(plain) => {
                    steps::call(plain.write(&turn.session, path, content, options)).await
                }
            }
        })
        .await
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        self.timed(async {
            let turn = self.turn(Verb::Open).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::open(&turn.session, ours, path, options).await,
                Speech::Plain(plain) => steps::call(plain.open(&turn.session, path, options)).await,
            }
        })
        .await
    }

    async fn set_attributes(&self, path: &WsPath, attributes: Attributes) -> Result<Stat> {
        self.timed(async {
            let turn = self.turn(Verb::SetAttributes).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => {
                    ours::set_attributes(&turn.session, ours, path, attributes).await
                }
                Speech::Plain(plain) => {
                    steps::call(plain.set_attributes(&turn.session, path, attributes)).await
                }
            }
        })
        .await
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        self.timed(async {
            let turn = self.turn(Verb::ReadLink).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::read_link(&turn.session, ours, path).await,
                Speech::Plain(plain) => plain.read_link(&turn.session, path).await,
            }
        })
        .await
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        self.timed(async {
            let turn = self.turn(Verb::Symlink).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::symlink(&turn.session, ours, path, target).await,
                Speech::Plain(plain) => {
                    steps::call(plain.symlink(&turn.session, path, target)).await
                }
            }
        })
        .await
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        self.timed(async {
            let turn = self.turn(Verb::Mkdir).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::create_dir(&turn.session, ours, path).await,
                Speech::Plain(plain) => steps::call(plain.create_dir(&turn.session, path)).await,
            }
        })
        .await
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<Removed> {
        self.timed(async {
            let turn = self.turn(Verb::Delete).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::remove(&turn.session, ours, path, options).await,
                Speech::Plain(plain) => {
                    steps::call(plain.remove(&turn.session, path, options)).await
                }
            }
        })
        .await
    }

    async fn rename(&self, from: &WsPath, to: &WsPath, options: RenameOptions) -> Result<Renamed> {
        self.timed(async {
            let turn = self.turn(Verb::Rename).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::rename(&turn.session, ours, from, to, options).await,
                Speech::Plain(plain) => {
                    steps::call(plain.rename(&turn.session, from, to, options)).await
                }
            }
        })
        .await
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        self.timed(async {
            let turn = self.turn(Verb::DiskSpace).await?;
            match &turn.session.speech {
                Speech::Ours(_) => ours::space(&turn.session).await,
                Speech::Plain(plain) => plain.space(&turn.session).await,
            }
        })
        .await
    }

    async fn exec(&self, request: ExecRequest) -> Result<Process> {
        self.timed(async {
            let session = self.shared.session(Verb::Exec).await?;
            match &session.speech {
                Speech::Ours(ours) if !ours.info.capabilities.exec => {
                    Err(Error::unsupported(BackendKind::Remote, Verb::Exec)
                        .with_command(request.command.line()))
                }
                Speech::Ours(ours) => ours::exec(&self.shared, &session, ours, request).await,
                Speech::Plain(plain) => {
                    let started = plain.exec(&self.shared, &session, request).await;
                    // Whether it runs commands may be known only now.
                    *self.shared.met() = Some(plain.capabilities());
                    started
                }
            }
        })
        .await
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        self.timed(async {
            let turn = self.turn(Verb::Processes).await?;
            match &turn.session.speech {
                Speech::Ours(ours) => ours::processes(&turn.session, ours).await,
                Speech::Plain(_) => {
                    Err(super::plain::keeps_nothing(&turn.session.who, Verb::Processes))
                }
            }
        })
        .await
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        self.timed(async {
            let session = self.shared.session(Verb::Attach).await?;
            match &session.speech {
                Speech::Ours(ours) => ours::attach(&self.shared, &session, ours, id, from).await,
                Speech::Plain(_) => Err(super::plain::keeps_nothing(&session.who, Verb::Attach)),
            }
        })
        .await
    }

    fn info(&self) -> BackendInfo {
        BackendInfo {
            kind: BackendKind::Remote,
            root_aliases: self.shared.settings.root.iter().cloned().collect(),
            capabilities: self.shared.met().unwrap_or(EXPECTED),
        }
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.timed(async {
            let Turn { session, _permit: permit } = self.turn(Verb::Exec).await?;
            match &session.speech {
                Speech::Ours(_) => ours::effective_policy(&session).await,
                Speech::Plain(plain) => {
                    // Files do not wait for what is asked about commands.
                    drop(permit);
                    let policy = plain.effective_policy(&session).await;
                    *self.shared.met() = Some(plain.capabilities());
                    policy
                }
            }
        })
        .await
    }

    fn status(&self) -> &StatusHub {
        &self.shared.hub
    }

    async fn outcome(&self, ticket: &Ticket) -> Result<CallEffect> {
        self.timed(async {
            let Some(call) = CallNumber::parse(ticket) else { return Ok(CallEffect::Unknown) };
            let turn = self.turn(Verb::Connect).await?;
            match &turn.session.speech {
                Speech::Ours(_) => ours::outcome(&turn.session, call).await,
                Speech::Plain(_) => Ok(CallEffect::Unknown),
            }
        })
        .await
    }

    async fn connect(&self) -> Result<()> {
        // An attempt has its own time, and calls may be given less.
        let ClientSettings { connect_timeout, operation_timeout, .. } = *self.shared.settings;
        let patience = operation_timeout.max(connect_timeout.saturating_mul(2));
        if self.shared.current(Verb::Connect)?.is_some() {
            return Ok(());
        }
        let wanted = timeout(patience, self.shared.keeper().wanted(Verb::Connect)).await;
        let made = wanted.unwrap_or_else(|_| Err(unconnected(Verb::Connect, patience)));
        self.shared.met_by(made).map(drop)
    }

    async fn close(&self) -> Result<()> {
        self.shared.processes.end().await;
        if let Some(keeper) = self.shared.keeper.get() {
            keeper.destroy().await;
        }
        self.shared.hub.set(Status::Destroyed, None);
        Ok(())
    }
}
