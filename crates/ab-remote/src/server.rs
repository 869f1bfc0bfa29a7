//! One connection from its first byte to the end of its last task.

mod connection;
mod goodbye;
mod patience;
mod preferences;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ab_core::Backend;
use russh::Disconnect;
use russh::server::{Config, Handle};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::auth::SshAccess;
use crate::backlog::Backlog;
use crate::client::context::later;
use crate::cut::{Cuttable, Scissors};
use crate::host_key::HostKey;
use crate::lanes::ConnectionThreads;
use crate::ledger::Ledger;
use crate::sftp::{Staging, Turn};
use connection::{Connection, Failure};
use patience::Patient;

/// How long a client may take to say who it is.
pub const DEFAULT_LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection that was told to end may take to do so.
const PARTING: Duration = Duration::from_secs(2);
/// What clients are told when the server is shut down.
const SHUTTING_DOWN: &str = "Server shutting down";
/// Channels that one connection may have open.
pub const DEFAULT_MAX_CHANNELS: usize = 128;
/// Commands that one connection may run at a time.
pub const DEFAULT_MAX_CONCURRENT_COMMANDS: usize = 64;
/// Channels of one connection that this end may have closed before the client did. russh keeps
/// something of each, about 2 KB, until the connection ends.
pub const MAX_SERVER_CLOSED_CHANNELS: usize = 16 * 1024;

/// What a server is made of, beside the workspace.
#[derive(Clone, Debug)]
pub struct SshServerSettings {
    pub host_key: HostKey,
    pub access: SshAccess,
    /// How the server calls itself, after `SSH-2.0-`: printable, without space or minus sign.
    pub ident: String,
    /// Shown to users before they log in.
    pub banner: Option<String>,
    pub login_timeout: Duration,
    /// How long every refused attempt to log in takes.
    pub refused_login_delay: Duration,
    /// Refused attempts that end a connection.
    pub max_attempts: usize,
    pub max_channels: usize,
    /// Commands of one connection that run at a time. One more is refused; the connection stays.
    pub max_commands: usize,
    /// Channels that were closed by this end before the client did, after which the connection is
    /// ended when a client wants one more and no command runs.
    pub max_server_closed_channels: usize,
    /// After how long without a word a client is asked whether it is there; thrice in vain ends
    /// the connection. Without it nobody is asked.
    pub keepalive: Option<Duration>,
}

impl SshServerSettings {
    pub fn new(host_key: HostKey, access: SshAccess) -> Self {
        Self {
            host_key,
            access,
            ident: concat!("AgentBackend_", env!("CARGO_PKG_VERSION")).to_owned(),
            banner: None,
            login_timeout: DEFAULT_LOGIN_TIMEOUT,
            refused_login_delay: Duration::from_millis(500),
            max_attempts: 6,
            max_channels: DEFAULT_MAX_CHANNELS,
            max_commands: DEFAULT_MAX_CONCURRENT_COMMANDS,
            max_server_closed_channels: MAX_SERVER_CLOSED_CHANNELS,
            keepalive: None,
        }
    }
}

/// Serves a workspace to any number of connections. Cheap to clone; clones are the same server.
#[derive(Clone)]
pub struct SshServer {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Backend,
    config: Arc<Config>,
    settings: Arc<SshServerSettings>,
    /// Whether the server still serves.
    open: watch::Sender<bool>,
    /// How many connections there are.
    connections: watch::Sender<usize>,
    commons: Commons,
    lanes: Option<ConnectionThreads>,
}

/// What all connections share beside the workspace.
#[derive(Clone, Debug)]
struct Commons {
    ledger: Arc<Ledger>,
    staging: Staging,
    making: Arc<Turn>,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The client left, politely or not, after it had logged in.
    Closed,
    /// It never got as far as logging in; why, as far as is known.
    NotLoggedIn(String),
    /// The server was shut down.
    ShutDown,
    /// It broke a rule of the protocol or a bound of ours.
    Failed(String),
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionEnd::Closed => f.write_str("the client left"),
            ConnectionEnd::NotLoggedIn(why) => write!(f, "the client did not log in: {why}"),
            ConnectionEnd::ShutDown => f.write_str("the server was shut down"),
            ConnectionEnd::Failed(why) => write!(f, "the connection failed: {why}"),
        }
    }
}

/// The tasks of a connection's channels.
type Tasks = Arc<Mutex<TaskSets>>;

#[derive(Debug, Default)]
struct TaskSets {
    /// End at once with their connection.
    commands: JoinSet<()>,
    /// Finish what they have begun.
    files: JoinSet<()>,
}

impl TaskSets {
    /// Lets go of those that ended, so that their number is that of the channels.
    fn sweep(&mut self) {
        while self.commands.try_join_next().is_some() {}
        while self.files.try_join_next().is_some() {}
    }
}
/// Why a client was told to go, if it was.
type SentAway = Arc<OnceLock<Failure>>;

impl SshServer {
    pub fn new(backend: Backend, settings: SshServerSettings) -> Self {
        Self::made(backend, settings, None)
    }

    /// A server whose connections by [`serve_listener`](crate::serve_listener) are served on threads of their own.
    /// What else is served there is up to whoever calls [`serve`](Self::serve).
    pub fn with_threads(
        backend: Backend,
        settings: SshServerSettings,
        lanes: ConnectionThreads,
    ) -> Self {
        Self::made(backend, settings, Some(lanes))
    }

    fn made(
        backend: Backend,
        settings: SshServerSettings,
        threads: Option<ConnectionThreads>,
    ) -> Self {
        let config = Arc::new(preferences::config(&settings));
        let shared = Shared {
            backend,
            config,
            settings: Arc::new(settings),
            open: watch::Sender::new(true),
            connections: watch::Sender::new(0),
            commons: Commons {
                ledger: Arc::new(Ledger::new()),
                staging: Staging::default(),
                making: Arc::default(),
            },
            lanes: threads,
        };
        Self { shared: Arc::new(shared) }
    }

    /// The workspace that is served.
    pub fn backend(&self) -> &Backend {
        &self.shared.backend
    }

    pub fn settings(&self) -> &SshServerSettings {
        &self.shared.settings
    }

    /// The threads for its connections, if it has any.
    pub fn connection_threads(&self) -> Option<&ConnectionThreads> {
        self.shared.lanes.as_ref()
    }

    /// How many connections are being served.
    pub fn connection_count(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// Serves one connection to its end. All that it started has ended when this returns;
    /// dropping the future ends it too.
    pub async fn serve<S>(&self, stream: S) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_with_login_hook(stream, || {}).await
    }

    /// Like [`serve`](Self::serve), for a client that is to see only `view`, such as a scope of the
    /// workspace.
    pub async fn serve_with_backend<S>(&self, view: Backend, stream: S) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_to(view, stream, || {}).await
    }

    /// Like [`serve`](Self::serve); `logged_in` is called once the client is known.
    pub async fn serve_with_login_hook<S>(
        &self,
        stream: S,
        logged_in: impl FnOnce() + Send,
    ) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_to(self.shared.backend.clone(), stream, logged_in).await
    }

    async fn serve_to<S>(
        &self,
        backend: Backend,
        stream: S,
        logged_in: impl FnOnce() + Send,
    ) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut open = self.shared.open.subscribe();
        if !*open.borrow_and_update() {
            return ConnectionEnd::ShutDown;
        }
        let _counted = Counted::new(&self.shared.connections);
        let (stream, scissors) = Cuttable::new(Backlog::new(Patient::new(stream)));
        let tasks = Tasks::default();
        let mut leash = Leash { scissors, tasks: tasks.clone() };
        let (known, mut logins) = watch::channel(false);
        let sent_away = SentAway::default();
        let connection = Connection::new(
            backend,
            self.shared.settings.clone(),
            self.shared.commons.clone(),
            tasks.clone(),
            known,
            sent_away.clone(),
        );
        let deadline = later(Instant::now(), self.shared.settings.login_timeout);
        let config = self.shared.config.clone();
        let greeting = timeout_at(deadline, russh::server::run_stream(config, stream, connection));
        let mut greeting = std::pin::pin!(greeting);
        let greeted = tokio::select! {
            greeted = &mut greeting => greeted,
            () = closed(&mut open) => {
                leash.scissors.part(goodbye::in_the_clear(SHUTTING_DOWN));
                // It ends at the end that it finds; a client that does not listen is not waited for.
                let _ = timeout(PARTING, greeting).await;
                return ConnectionEnd::ShutDown;
            }
        };
        let mut session = match greeted {
            Ok(Ok(session)) => session,
            Ok(Err(error)) => return ConnectionEnd::NotLoggedIn(error.to_string()),
            Err(_) => return ConnectionEnd::NotLoggedIn("it took too long".to_owned()),
        };
        let handle = session.handle();
        let mut told = Some(logged_in);
        let ended = loop {
            let event = tokio::select! {
                ended = &mut session => Event::Ended(ended),
                event = login(&mut logins, deadline), if told.is_some() => event,
                () = closed(&mut open) => Event::ShutDown,
            };
            match (event, told.take()) {
                (Event::LoggedIn, Some(told)) => told(),
                (Event::LoggedIn, None) => {}
                (Event::TooLate, _) => {
                    break ConnectionEnd::NotLoggedIn("it took too long".to_owned());
                }
                (Event::ShutDown, _) => {
                    part(&handle, &mut session, SHUTTING_DOWN).await;
                    break ConnectionEnd::ShutDown;
                }
                (Event::Ended(Ok(())), None) => {
                    let why = sent_away.get().map(Failure::to_string);
                    break why.map_or(ConnectionEnd::Closed, ConnectionEnd::Failed);
                }
                (Event::Ended(Err(error)), None) if error.is_departure() => {
                    break ConnectionEnd::Closed;
                }
                (Event::Ended(Err(error)), None) => break ConnectionEnd::Failed(error.to_string()),
                (Event::Ended(Ok(())), Some(_)) => {
                    break ConnectionEnd::NotLoggedIn("it left".to_owned());
                }
                (Event::Ended(Err(error)), Some(_)) => {
                    break ConnectionEnd::NotLoggedIn(error.to_string());
                }
            }
        };
        leash.join().await;
        ended
    }

    /// Ends every connection and refuses new ones; returns when none is left.
    pub async fn shut_down(&self) {
        self.shared.open.send_replace(false);
        let mut connections = self.shared.connections.subscribe();
        // The sender lives as long as this server.
        let _ = connections.wait_for(|count| *count == 0).await;
    }

    pub(crate) fn is_open(&self) -> watch::Receiver<bool> {
        self.shared.open.subscribe()
    }
}

impl fmt::Debug for SshServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SshServer")
            .field("backend", &self.shared.backend)
            .field("settings", &self.shared.settings)
            .field("connections", &self.connection_count())
            .finish_non_exhaustive()
    }
}

/// What happens to a connection.
enum Event {
    LoggedIn,
    /// It did not log in within its time.
    TooLate,
    Ended(Result<(), connection::Failure>),
    ShutDown,
}

/// Waits until the client is known, or its time is up.
async fn login(logins: &mut watch::Receiver<bool>, deadline: Instant) -> Event {
    match timeout_at(deadline, logins.wait_for(|known| *known)).await {
        Ok(Ok(_)) => return Event::LoggedIn,
        Ok(Err(_)) => {}
        Err(_) => return Event::TooLate,
    }
    // The connection is gone, and says so itself.
    std::future::pending().await
}

/// Waits until the server is shut down.
pub(crate) async fn closed(open: &mut watch::Receiver<bool>) {
    // An error means that no server is left, which is as shut down as can be.
    let _ = open.wait_for(|open| !*open).await;
}

/// Says goodbye, and waits a little for the client to hear it.
async fn part(handle: &Handle, session: &mut russh::server::RunningSession<Connection>, why: &str) {
    let told = handle.disconnect(Disconnect::ByApplication, why.to_owned(), "en".to_owned());
    let _ = timeout(PARTING, async {
        let _ = told.await;
        let _ = session.await;
    })
    .await;
}

/// Counts a connection while it lives.
struct Counted<'a>(&'a watch::Sender<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Ends all that a connection started, also when nobody waits for it any more.
struct Leash {
    scissors: Scissors,
    tasks: Tasks,
}

impl Leash {
    async fn join(&mut self) {
        self.scissors.cut();
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.commands.shutdown().await;
        // What was asked for before the connection ended is done, so that whoever asks what became
        // of it can be told.
        let _ = timeout(PARTING, async { while tasks.files.join_next().await.is_some() {} }).await;
        tasks.files.shutdown().await;
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let mut tasks = lock(&self.tasks);
        tasks.commands.abort_all();
        tasks.files.abort_all();
    }
}

fn lock(tasks: &Tasks) -> std::sync::MutexGuard<'_, TaskSets> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}
