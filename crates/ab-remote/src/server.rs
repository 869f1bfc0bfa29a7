//! Serves one SSH connection from its first byte until all its tasks have ended.

mod connection;
mod disconnect_message;
mod preferences;
mod stall_timeout;

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
use crate::cut::{Cuttable, StreamCutter};
use crate::host_key::HostKey;
use crate::lanes::SshConnectionThreads;
use crate::ledger::Ledger;
use crate::sftp::{Staging, Turn};
use connection::{Connection, Failure};
use stall_timeout::StallTimeoutStream;

/// Default time limit for a client to log in.
pub(crate) const DEFAULT_LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may take to end after the server has asked it to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The text of the disconnect message at shutdown.
const SHUTTING_DOWN: &str = "Server shutting down";
/// Default of the maximum number of open channels of one connection.
pub const DEFAULT_MAX_CHANNELS: usize = 128;
/// Default of the maximum number of concurrent commands of one connection.
pub(crate) const DEFAULT_MAX_CONCURRENT_COMMANDS: usize = 64;
/// Maximum number of channels of one connection that this side closed before the client did. russh
/// keeps about 2 KB for each of these channels until the connection ends.
pub(crate) const MAX_SERVER_CLOSED_CHANNELS: usize = 16 * 1024;

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct SshServerSettings {
    pub host_key: HostKey,
    pub access: SshAccess,
    /// The part of the server's identification after `SSH-2.0-`. It must be printable and contain
    /// no spaces or minus signs.
    pub software_identification: String,
    /// A text that is shown to users before they log in.
    pub banner: Option<String>,
    pub login_timeout: Duration,
    /// How long the answer to a refused login attempt is delayed.
    pub refused_login_delay: Duration,
    /// Number of refused login attempts after which the connection is closed.
    pub max_login_attempts: usize,
    pub max_channels: usize,
    /// Maximum number of concurrent commands of one connection. A further command is refused, and
    /// the connection stays open.
    pub max_commands: usize,
    /// Maximum number of channels that the server closes before the client. When this number is
    /// reached, the connection ends as soon as the client opens another channel and no command is
    /// running.
    pub max_server_closed_channels: usize,
    /// If the client is silent for this time, a keepalive is sent. After three unanswered
    /// keepalives the connection is ended. `None` disables keepalives.
    pub keepalive: Option<Duration>,
}

impl SshServerSettings {
    pub fn new(host_key: HostKey, access: SshAccess) -> Self {
        Self {
            host_key,
            access,
            software_identification: concat!("AgentBackend_", env!("CARGO_PKG_VERSION")).to_owned(),
            banner: None,
            login_timeout: DEFAULT_LOGIN_TIMEOUT,
            refused_login_delay: Duration::from_millis(500),
            max_login_attempts: 6,
            max_channels: DEFAULT_MAX_CHANNELS,
            max_commands: DEFAULT_MAX_CONCURRENT_COMMANDS,
            max_server_closed_channels: MAX_SERVER_CLOSED_CHANNELS,
            keepalive: None,
        }
    }
}

/// Serves a workspace to any number of connections. Cheap to clone: all clones are the same server.
#[derive(Clone)]
pub struct SshServer {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Backend,
    config: Arc<Config>,
    settings: Arc<SshServerSettings>,
    /// Whether the server still accepts connections.
    open: watch::Sender<bool>,
    /// The number of connections.
    connections: watch::Sender<usize>,
    commons: Commons,
    lanes: Option<SshConnectionThreads>,
}

/// State that all connections of a server share, in addition to the workspace.
#[derive(Clone, Debug)]
struct Commons {
    ledger: Arc<Ledger>,
    staging: Staging,
    making: Arc<Turn>,
}

/// The reason why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshConnectionEnd {
    /// The client disconnected after it had logged in.
    Closed,
    /// The client did not log in. Contains the reason, if it is known.
    NotLoggedIn(String),
    /// The server was shut down.
    ShutDown,
    /// The client violated the protocol or a limit.
    Failed(String),
}

impl fmt::Display for SshConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SshConnectionEnd::Closed => f.write_str("the client left"),
            SshConnectionEnd::NotLoggedIn(why) => write!(f, "the client did not log in: {why}"),
            SshConnectionEnd::ShutDown => f.write_str("the server was shut down"),
            SshConnectionEnd::Failed(why) => write!(f, "the connection failed: {why}"),
        }
    }
}

/// The tasks that serve the channels of a connection.
type Tasks = Arc<Mutex<TaskSets>>;

#[derive(Debug, Default)]
struct TaskSets {
    /// Channels with a command or a process. They are cancelled when the connection ends.
    commands: JoinSet<()>,
    /// SFTP channels. They complete their running requests when the connection ends.
    files: JoinSet<()>,
}

impl TaskSets {
    /// Removes the tasks that have ended, so that the sets contain at most one task for each open
    /// channel.
    fn sweep(&mut self) {
        while self.commands.try_join_next().is_some() {}
        while self.files.try_join_next().is_some() {}
    }
}
/// Why the server disconnected the client. Not set if it did not.
type SentAway = Arc<OnceLock<Failure>>;

impl SshServer {
    pub fn new(backend: Backend, settings: SshServerSettings) -> Self {
        Self::made(backend, settings, None)
    }

    /// Creates a server that serves the connections of
    /// [`serve_ssh_on_listener`](crate::serve_ssh_on_listener) on these threads. Callers of
    /// [`serve`](Self::serve) choose the thread themselves.
    pub fn with_threads(
        backend: Backend,
        settings: SshServerSettings,
        threads: SshConnectionThreads,
    ) -> Self {
        Self::made(backend, settings, Some(threads))
    }

    fn made(
        backend: Backend,
        settings: SshServerSettings,
        threads: Option<SshConnectionThreads>,
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

    /// The workspace that this server serves.
    pub fn backend(&self) -> &Backend {
        &self.shared.backend
    }

    pub fn settings(&self) -> &SshServerSettings {
        &self.shared.settings
    }

    /// The threads on which connections are served, if the server has such threads.
    pub fn connection_threads(&self) -> Option<&SshConnectionThreads> {
        self.shared.lanes.as_ref()
    }

    /// The number of connections that are being served.
    pub fn connection_count(&self) -> usize {
        *self.shared.connections.borrow()
    }

    /// Serves one connection until it ends. Returns when every task and command of the connection
    /// has ended. Dropping the future also ends the connection.
    pub async fn serve<S>(&self, stream: S) -> SshConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_with_login_hook(stream, || {}).await
    }

    /// Like [`serve`](Self::serve), for a client that can access only `backend`, such as a scope of
    /// the workspace.
    pub async fn serve_with_backend<S>(&self, backend: Backend, stream: S) -> SshConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_to(backend, stream, || {}).await
    }

    /// Like [`serve`](Self::serve), but calls `logged_in` when the client is authenticated.
    pub(crate) async fn serve_with_login_hook<S>(
        &self,
        stream: S,
        logged_in: impl FnOnce() + Send,
    ) -> SshConnectionEnd
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
    ) -> SshConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut open = self.shared.open.subscribe();
        if !*open.borrow_and_update() {
            return SshConnectionEnd::ShutDown;
        }
        let _counted = Counted::new(&self.shared.connections);
        let (stream, cutter) = Cuttable::new(Backlog::new(StallTimeoutStream::new(stream)));
        let tasks = Tasks::default();
        let mut resources = ConnectionResources { cutter, tasks: tasks.clone() };
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
                resources.cutter.part(disconnect_message::in_the_clear(SHUTTING_DOWN));
                // The russh session ends when the stream reports EOF. A client that does not read
                // the message is dropped after the timeout.
                let _ = timeout(CLOSE_TIMEOUT, greeting).await;
                return SshConnectionEnd::ShutDown;
            }
        };
        let mut session = match greeted {
            Ok(Ok(session)) => session,
            Ok(Err(error)) => return SshConnectionEnd::NotLoggedIn(error.to_string()),
            Err(_) => return SshConnectionEnd::NotLoggedIn("it took too long".to_owned()),
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
                    break SshConnectionEnd::NotLoggedIn("it took too long".to_owned());
                }
                (Event::ShutDown, _) => {
                    part(&handle, &mut session, SHUTTING_DOWN).await;
                    break SshConnectionEnd::ShutDown;
                }
                (Event::Ended(Ok(())), None) => {
                    let why = sent_away.get().map(Failure::to_string);
                    break why.map_or(SshConnectionEnd::Closed, SshConnectionEnd::Failed);
                }
                (Event::Ended(Err(error)), None) if error.is_departure() => {
                    break SshConnectionEnd::Closed;
                }
                (Event::Ended(Err(error)), None) => {
                    break SshConnectionEnd::Failed(error.to_string());
                }
                (Event::Ended(Ok(())), Some(_)) => {
                    break SshConnectionEnd::NotLoggedIn("it left".to_owned());
                }
                (Event::Ended(Err(error)), Some(_)) => {
                    break SshConnectionEnd::NotLoggedIn(error.to_string());
                }
            }
        };
        resources.join().await;
        ended
    }

    /// Ends every connection and refuses new ones. Returns when all connections have ended.
    pub async fn shut_down(&self) {
        self.shared.open.send_replace(false);
        let mut connections = self.shared.connections.subscribe();
        // This cannot fail, because the sender lives as long as this server.
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

/// The next event of a connection.
enum Event {
    LoggedIn,
    /// The client did not log in within the time limit.
    TooLate,
    Ended(Result<(), connection::Failure>),
    ShutDown,
}

/// Waits until the client has logged in or the deadline has passed.
async fn login(logins: &mut watch::Receiver<bool>, deadline: Instant) -> Event {
    match timeout_at(deadline, logins.wait_for(|known| *known)).await {
        Ok(Ok(_)) => return Event::LoggedIn,
        Ok(Err(_)) => {}
        Err(_) => return Event::TooLate,
    }
    // The connection has ended before the login. The caller learns this from the session itself.
    std::future::pending().await
}

/// Waits until the server is shut down.
pub(crate) async fn closed(open: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped, which counts as a shutdown.
    let _ = open.wait_for(|open| !*open).await;
}

/// Sends a disconnect message, and waits a short time so that the client can receive it.
async fn part(handle: &Handle, session: &mut russh::server::RunningSession<Connection>, why: &str) {
    let told = handle.disconnect(Disconnect::ByApplication, why.to_owned(), "en".to_owned());
    let _ = timeout(CLOSE_TIMEOUT, async {
        let _ = told.await;
        let _ = session.await;
    })
    .await;
}

/// Counts a connection as long as it exists.
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

/// The tasks and the stream of a connection. Dropping this value ends all of them, even if the
/// future that serves the connection is dropped.
struct ConnectionResources {
    cutter: StreamCutter,
    tasks: Tasks,
}

impl ConnectionResources {
    async fn join(&mut self) {
        self.cutter.cut();
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.commands.shutdown().await;
        // Complete requests that were sent before the end of the connection, so that the client can
        // later ask for their effects.
        let _ = timeout(CLOSE_TIMEOUT, async { while tasks.files.join_next().await.is_some() {} })
            .await;
        tasks.files.shutdown().await;
    }
}

impl Drop for ConnectionResources {
    fn drop(&mut self) {
        let mut tasks = lock(&self.tasks);
        tasks.commands.abort_all();
        tasks.files.abort_all();
    }
}

fn lock(tasks: &Tasks) -> std::sync::MutexGuard<'_, TaskSets> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}
