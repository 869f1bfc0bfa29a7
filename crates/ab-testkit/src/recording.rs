//! A driver that records every call and plays commands from a script.
//!
//! Its files are the files of the driver that it wraps. A test keeps one clone and gives the other
//! to a backend.

mod counted_file;
mod script;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::driver::{BackendInfo, Driver, File};
use ab_core::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use ab_core::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteOptions,
};
use ab_core::process::{
    DriverProcessChannels, ExecRequest, PathRestrictions, Process, ProcessId, ProcessInfo,
    StdinMode,
};
use ab_core::search::{SearchQuery, SearchResults};
use ab_core::status::StatusPublisher;
use ab_core::{EffectivePolicy, LostCallEffect, LostCallId};
use ab_core::{Error, MemoryDriver, Result, Verb, WsPath};
use async_trait::async_trait;
use bytes::Bytes;

use counted_file::CountedFile;

pub use script::ScriptedCommand;

/// A call as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    pub verb: Verb,
    /// The path of the call; the working directory of a command.
    pub path: Option<String>,
    /// The innermost scope root of the path, if there is one.
    pub scope_root: Option<String>,
    pub to: Option<String>,
    pub command: Option<String>,
    pub env: BTreeMap<String, String>,
    /// The path restrictions of a command.
    pub restrictions: PathRestrictions,
}

impl RecordedCall {
    fn new(verb: Verb) -> Self {
        Self {
            verb,
            path: None,
            scope_root: None,
            to: None,
            command: None,
            env: BTreeMap::new(),
            restrictions: PathRestrictions::default(),
        }
    }

    fn on(verb: Verb, path: &WsPath) -> Self {
        let scope_root = path.has_scope_root().then(|| path.innermost_scope_root().to_string());
        Self { path: Some(path.to_string()), scope_root, ..Self::new(verb) }
    }
}

/// The driver. Clones share the recorded calls.
#[derive(Clone)]
pub struct RecordingDriver(Arc<Shared>);

struct Shared {
    files: Arc<dyn Driver>,
    /// Bytes of files that were returned to the caller.
    bytes_read: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Vec<RecordedCall>,
    closes: usize,
    scripts: VecDeque<ScriptedCommand>,
    held: VecDeque<DriverProcessChannels>,
    processes: Vec<ProcessInfo>,
    failures: Vec<(Verb, Error)>,
    stalled: Vec<Verb>,
    yields: bool,
    started: u64,
    in_force: VecDeque<Result<EffectivePolicy>>,
}

impl RecordingDriver {
    /// Records over an empty memory workspace.
    pub fn new() -> Self {
        Self::wrapping(Arc::new(MemoryDriver::new()))
    }

    pub fn wrapping(files: Arc<dyn Driver>) -> Self {
        Self(Arc::new(Shared { files, bytes_read: Arc::default(), state: Mutex::default() }))
    }

    /// Every call so far.
    pub fn recorded_calls(&self) -> Vec<RecordedCall> {
        self.lock().seen.clone()
    }

    /// Verb and path of every call so far.
    pub fn verbs_and_paths(&self) -> Vec<(Verb, String)> {
        let line = |seen: &RecordedCall| (seen.verb, seen.path.clone().unwrap_or_default());
        self.lock().seen.iter().map(line).collect()
    }

    /// How often `verb` was called for `path`.
    pub fn call_count(&self, verb: Verb, path: &str) -> usize {
        let same = |seen: &&RecordedCall| seen.verb == verb && seen.path.as_deref() == Some(path);
        self.lock().seen.iter().filter(same).count()
    }

    /// How many bytes of files were read so far, by path or through open files.
    pub fn bytes_read(&self) -> u64 {
        self.0.bytes_read.load(Ordering::Relaxed)
    }

    /// The last command.
    #[track_caller]
    pub fn last_exec(&self) -> RecordedCall {
        let seen = self.lock().seen.iter().rev().find(|seen| seen.verb == Verb::Exec).cloned();
        seen.expect("no command came")
    }

    /// How often the driver was closed.
    pub fn close_count(&self) -> usize {
        self.lock().closes
    }

    /// Plays the next command from `script`. A command without a script just succeeds.
    pub fn script_next_command(&self, script: ScriptedCommand) {
        self.lock().scripts.push_back(script);
    }

    /// The driver's side of the oldest process whose script was [held](ScriptedCommand::driven_by_test).
    #[track_caller]
    pub fn take_test_driven_process(&self) -> DriverProcessChannels {
        let feed = self.lock().held.pop_front();
        feed.expect("no process is held")
    }

    /// Sets the process table.
    pub fn set_processes(&self, processes: Vec<ProcessInfo>) {
        self.lock().processes = processes;
    }

    /// Makes the next call of `verb` fail with `error`.
    pub fn fail_next(&self, verb: Verb, error: Error) {
        self.lock().failures.push((verb, error));
    }

    /// Sets the result of the next call of `effective_policy`.
    pub fn set_next_effective_policy(&self, policy: Result<EffectivePolicy>) {
        self.lock().in_force.push_back(policy);
    }

    /// From now on, calls of `verb` never return.
    pub fn stall_calls(&self, verb: Verb) {
        self.lock().stalled.push(verb);
    }

    /// From now on, every call yields once.
    pub fn yield_on_each_call(&self) {
        self.lock().yields = true;
    }

    async fn arrive(&self, seen: RecordedCall) -> Result<()> {
        let verb = seen.verb;
        let (failure, stalled, yields) = {
            let mut state = self.lock();
            state.seen.push(seen);
            let failure = state.failures.iter().position(|(failing, _)| *failing == verb);
            let failure = failure.map(|at| state.failures.remove(at).1);
            (failure, state.stalled.contains(&verb), state.yields)
        };
        if yields {
            tokio::task::yield_now().await;
        }
        if stalled {
            pending::<()>().await;
        }
        failure.map_or(Ok(()), Err)
    }

    fn start(&self, stdin: StdinMode) -> Process {
        let mut state = self.lock();
        state.started += 1;
        let id = ProcessId::new(format!("process-{}", state.started));
        let script = state.scripts.pop_front().unwrap_or_else(|| ScriptedCommand::exits(0));
        let (process, feed) = Process::new_with_driver_channels(id, stdin);
        if let Some(held) = script.perform(feed) {
            state.held.push_back(held);
        }
        process
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> &dyn Driver {
        &*self.0.files
    }
}

impl Default for RecordingDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RecordingDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingDriver")
            .field("files", &self.0.files)
            .field("seen", &self.lock().seen.len())
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for RecordingDriver {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        self.arrive(RecordedCall::on(Verb::Stat, path)).await?;
        self.files().stat(path, options).await
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        self.arrive(RecordedCall::on(Verb::List, path)).await?;
        self.files().list(path, options).await
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        self.arrive(RecordedCall::on(Verb::Search, &query.root)).await?;
        self.files().search(query).await
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        self.arrive(RecordedCall::on(Verb::Read, path)).await?;
        let content = self.files().read(path, options).await?;
        self.0.bytes_read.fetch_add(content.bytes.len() as u64, Ordering::Relaxed);
        Ok(content)
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        self.arrive(RecordedCall::on(Verb::Write, path)).await?;
        self.files().write(path, content, options).await
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        self.arrive(RecordedCall::on(Verb::Open, path)).await?;
        let file = self.files().open(path, options).await?;
        Ok(Box::new(CountedFile::new(file, self.0.bytes_read.clone())))
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        self.arrive(RecordedCall::on(Verb::SetAttributes, path)).await?;
        self.files().set_attributes(path, attributes).await
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        self.arrive(RecordedCall::on(Verb::ReadLink, path)).await?;
        self.files().read_link(path).await
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        let seen =
            RecordedCall { to: Some(target.to_owned()), ..RecordedCall::on(Verb::Symlink, path) };
        self.arrive(seen).await?;
        self.files().symlink(path, target).await
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        self.arrive(RecordedCall::on(Verb::Mkdir, path)).await?;
        self.files().create_dir(path).await
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        self.arrive(RecordedCall::on(Verb::Delete, path)).await?;
        self.files().remove(path, options).await
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        self.arrive(RecordedCall {
            to: Some(to.to_string()),
            ..RecordedCall::on(Verb::Rename, from)
        })
        .await?;
        self.files().rename(from, to, options).await
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        self.arrive(RecordedCall::new(Verb::DiskSpace)).await?;
        self.files().disk_space().await
    }

    async fn exec(&self, request: ExecRequest) -> Result<Process> {
        let seen = RecordedCall {
            command: Some(request.command.to_shell_line()),
            env: request.env.clone(),
            restrictions: request.restrictions.clone(),
            ..RecordedCall::on(Verb::Exec, &request.cwd)
        };
        self.arrive(seen).await?;
        Ok(self.start(request.stdin))
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        self.arrive(RecordedCall::new(Verb::Processes)).await?;
        Ok(self.lock().processes.clone())
    }

    async fn attach(&self, _: &ProcessId, _: u64) -> Result<Process> {
        self.arrive(RecordedCall::new(Verb::Attach)).await?;
        Ok(self.start(StdinMode::Closed))
    }

    fn info(&self) -> BackendInfo {
        let mut info = self.files().info();
        info.capabilities.exec = true;
        info
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        let told = self.lock().in_force.pop_front();
        match told {
            Some(told) => told,
            None => self.files().effective_policy().await,
        }
    }

    fn status_publisher(&self) -> &StatusPublisher {
        self.files().status_publisher()
    }

    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect> {
        self.files().query_lost_call(ticket).await
    }

    async fn connect(&self) -> Result<()> {
        self.arrive(RecordedCall::new(Verb::Connect)).await?;
        self.files().connect().await
    }

    async fn close(&self) -> Result<()> {
        self.lock().closes += 1;
        self.files().close().await
    }
}
