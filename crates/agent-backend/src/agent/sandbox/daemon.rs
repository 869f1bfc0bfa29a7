//! Local sandboxes: one daemon for each session, which is started when the session needs it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ab_api::SessionId;
use ab_core::{Backend, Error, ErrorCode, ErrorKind, Result};
use ab_host::MissingRootPolicy;
use ab_host::child_program::ChildProcess;
use ab_host::child_program::shared::{
    SharedProgramHandle, SharedProgramLock, StartedSharedProgram,
};
use ab_local::LocalWorkspaceConfig;
use ab_remote::client::{HostKeyCheck, SecretText};
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{ExternalSandbox, SandboxProvider};
use crate::RemoteConfig;
use crate::agent::{AgentSessionId, SessionContext};

/// How long a daemon may take to report its address.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait while another process starts the daemon of the same session.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two attempts to take a lock that another process holds.
const LOCK_PACE: Duration = Duration::from_millis(20);
/// The name of the directory in a sandbox that its daemon serves.
const HOME: &str = "home";

/// Runs one `agent-backend daemon` process for each session, with its own directory and token, on a
/// loopback port.
///
/// A daemon keeps running when its session ends. The next session with the same id uses it again,
/// even in another process. This process stops using a daemon when
/// [`stop_daemon`](Self::stop_daemon) is called, when the last clone of this value is dropped, and
/// when the process ends or is killed. The daemon ends when no process uses it any more. The
/// directories are kept.
#[derive(Clone, Debug)]
pub struct DaemonSandboxProvider {
    program: PathBuf,
    base: PathBuf,
    arguments: Vec<OsString>,
    running: Running,
}

/// The sessions that had a sandbox. Each session has a slot, which contains the daemon while the
/// daemon runs. The lock of the slot ensures that only one task starts the daemon.
type Running = Arc<std::sync::Mutex<HashMap<AgentSessionId, Slot>>>;
type Slot = Arc<Mutex<Option<RunningDaemon>>>;

impl DaemonSandboxProvider {
    /// Uses directories below `base`, served by `program`: the path of agent-backend, or a name
    /// that is searched in `PATH`.
    pub fn new(program: impl Into<PathBuf>, base: impl Into<PathBuf>) -> Self {
        let (program, base) = (program.into(), base.into());
        Self { program, base, arguments: Vec::new(), running: Arc::default() }
    }

    /// Adds command-line arguments for every daemon, such as `--isolation` and `--network`.
    pub fn add_program_arguments<T: Into<OsString>>(
        mut self,
        more: impl IntoIterator<Item = T>,
    ) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// Stops using the daemon of a session. The daemon ends unless another process uses it.
    pub async fn stop_daemon(&self, session: &AgentSessionId) {
        self.slot(session).lock().await.take();
    }

    fn slot(&self, session: &AgentSessionId) -> Slot {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.entry(session.clone()).or_default().clone()
    }

    /// Opens the base directory as a workspace, to create and find directories in it.
    fn directories(&self) -> Result<Backend> {
        let mut config = LocalWorkspaceConfig::new(&self.base);
        config.options.missing_root = MissingRootPolicy::Create;
        crate::local_with(config)
    }

    fn sandbox(&self, session: &SessionContext) -> Result<DaemonSandbox> {
        let directory = self.base.join(session.session_id.as_str());
        let home = directory.join(HOME);
        let Some(shown) = home.to_str().map(str::to_owned) else {
            let message = format!("the path {} is not UTF-8", home.display());
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        };
        let (sandboxes, session) = (self.clone(), session.session_id.clone());
        Ok(DaemonSandbox { sandboxes, session, directory, home: shown })
    }
}

#[async_trait]
impl SandboxProvider for DaemonSandboxProvider {
    async fn find_existing(
        &self,
        session: &SessionContext,
    ) -> Result<Option<Box<dyn ExternalSandbox>>> {
        let home = format!("{}/{HOME}", session.session_id);
        if !self.directories()?.exists(&home).await? {
            return Ok(None);
        }
        Ok(Some(Box::new(self.sandbox(session)?)))
    }

    async fn create(&self, session: &SessionContext) -> Result<Box<dyn ExternalSandbox>> {
        self.directories()?.mkdir(&format!("{}/{HOME}", session.session_id)).await?;
        Ok(Box::new(self.sandbox(session)?))
    }
}

#[derive(Debug)]
struct DaemonSandbox {
    sandboxes: DaemonSandboxProvider,
    session: AgentSessionId,
    directory: PathBuf,
    home: String,
}

#[async_trait]
impl ExternalSandbox for DaemonSandbox {
    async fn start(&self) -> Result<()> {
        let slot = self.sandboxes.slot(&self.session);
        let mut running = slot.lock().await;
        if running.as_ref().is_some_and(|daemon| daemon.program_use.is_running()) {
            return Ok(());
        }
        // Stop using the old daemon first, so that the new daemon does not have to wait until the
        // old one ends.
        *running = None;
        let lock = self.lock().await?;
        *running = match RunningDaemon::join(&lock).await? {
            Some(joined) => Some(joined),
            None => {
                let (directory, home) = (&self.directory, &self.home);
                Some(RunningDaemon::start(&lock, &self.sandboxes, directory, home).await?)
            }
        };
        Ok(())
    }

    fn working_directory(&self) -> &str {
        &self.home
    }

    async fn backend(&self) -> Result<Backend> {
        let slot = self.sandboxes.slot(&self.session);
        let config = slot.lock().await.as_ref().map(|daemon| daemon.config.clone());
        let Some(config) = config else {
            let message = format!("the sandbox of session {} is not running", self.session);
            return Err(Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unavailable, message));
        };
        let backend = crate::remote_with(config)?;
        backend.connect().await?;
        Ok(backend)
    }
}

impl DaemonSandbox {
    /// Takes the lock that is needed to start or join the daemon. Other processes with the same
    /// session may hold it.
    async fn lock(&self) -> Result<SharedProgramLock> {
        let start = Instant::now();
        loop {
            if let Some(lock) = SharedProgramLock::try_acquire(&self.directory)? {
                return Ok(lock);
            }
            if start.elapsed() >= LOCK_TIMEOUT {
                let message = format!(
                    "another process was starting the daemon of session {} for {LOCK_TIMEOUT:?}",
                    self.session
                );
                return Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message));
            }
            sleep(LOCK_PACE).await;
        }
    }
}

/// A daemon that has reported its address. It ends when no process uses it.
#[derive(Debug)]
struct RunningDaemon {
    program_use: SharedProgramHandle,
    config: RemoteConfig,
    /// Set if this process has started the daemon.
    _started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    /// The daemon's process. It is stored so that it is reaped when it ends.
    _process: ChildProcess,
    /// The task that keeps reading the daemon's log, so that the daemon never blocks on a full
    /// pipe.
    reading: JoinHandle<()>,
}

impl RunningDaemon {
    /// Joins a daemon that another process has started. `None` if no daemon runs, or if it is about
    /// to end.
    async fn join(lock: &SharedProgramLock) -> Result<Option<RunningDaemon>> {
        let Some((program_use, record)) = lock.join_running()? else { return Ok(None) };
        let record: Value = serde_json::from_str(&record).unwrap_or_default();
        let Ok(config) = config(&record, record["token"].as_str().unwrap_or_default()) else {
            return Ok(None);
        };
        let reached = async { crate::remote_with(config.clone())?.connect().await };
        match timeout(START_TIMEOUT, reached).await {
            Ok(Ok(())) => Ok(Some(RunningDaemon { program_use, config, _started: None })),
            _ => Ok(None),
        }
    }

    async fn start(
        lock: &SharedProgramLock,
        sandboxes: &DaemonSandboxProvider,
        directory: &Path,
        home: &str,
    ) -> Result<RunningDaemon> {
        let mut arguments: Vec<OsString> = [
            "daemon",
            "--port",
            "0",
            "--log-format",
            "json",
            "--auth-token-file",
            "-",
            "--end-with-input",
            "--rootDir",
        ]
        .map(OsString::from)
        .into();
        arguments.push(home.into());
        arguments.extend([OsString::from("--ssh-host-key"), directory.join("host_key").into()]);
        arguments.extend(sandboxes.arguments.iter().cloned());
        let StartedSharedProgram { mut process, log, mut program_use } =
            lock.start(&sandboxes.program, &arguments)?;
        // Each id has 80 random bits.
        let token = format!("{}{}", SessionId::generate(), SessionId::generate());
        let fails = |error: std::io::Error| {
            let message = format!("cannot send the token to the daemon: {error}");
            Error::new(ErrorCode::ExecError, ErrorKind::Io, message).with_source(error)
        };
        program_use.send(&format!("{token}\n")).map_err(fails)?;
        let mut lines = BufReader::new(log).lines();
        let notice = timeout(START_TIMEOUT, notice(&mut lines)).await;
        let notice = match notice {
            Ok(Ok(notice)) => notice,
            Ok(Err(said)) => {
                let ended = process.wait_and_describe_exit().await;
                let message = format!("the daemon ended, {ended}: {said}");
                return Err(Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message));
            }
            Err(_) => {
                process.kill().await;
                let message = format!("the daemon was not ready within {START_TIMEOUT:?}");
                return Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message));
            }
        };
        let config = config(&notice, &token)?;
        let record =
            json!({ "url": notice["url"], "host_key": notice["host_key"], "token": token });
        lock.write_record(&record.to_string())?;
        let reading =
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let started = Started { _process: process, reading };
        Ok(RunningDaemon { program_use, config, _started: Some(started) })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// The log line with the daemon's address. If the daemon ended first, the error contains its
/// output.
async fn notice<R>(lines: &mut Lines<BufReader<R>>) -> Result<Value, String>
where
    R: tokio::io::AsyncRead + Unpin,
{
    let mut said = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let parsed: Value = serde_json::from_str(&line).unwrap_or_default();
        let fields = if parsed["fields"].is_object() { &parsed["fields"] } else { &parsed };
        if fields["url"].is_string() {
            return Ok(fields.clone());
        }
        said = line;
    }
    Err(said)
}

fn config(notice: &Value, token: &str) -> Result<RemoteConfig> {
    let url = notice["url"].as_str().unwrap_or_default();
    let socket = format!("{}/ssh", url.replacen("http", "ws", 1));
    let config = RemoteConfig::parse(&socket)?.token(SecretText::from(token.to_owned()))?;
    match notice["host_key"].as_str().and_then(|key| key.parse().ok()) {
        Some(pin) => config.host_key_check(HostKeyCheck::Pin(pin)),
        None => Ok(config),
    }
}
