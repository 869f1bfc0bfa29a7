//! The wrapper that runs guards around a driver.
//!
//! A [`Passage`] is one call on its way through the guards. It counts the guards that have allowed
//! the call, and calls `after_call` on each of them, at the latest when it is dropped. Guards
//! therefore release limits and write journal entries even if the future of a call is dropped. For
//! `open` and `exec` the passage lives as long as the file or the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

use crate::call::{Actor, Call, CallOutcome, CallResult, Verb};
use crate::driver::{BackendInfo, Driver, File};
use crate::effective_policy::EffectivePolicy;
use crate::error::Result;
use crate::guard::{Guard, GuardDecision};
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use crate::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveDepth, RemoveOptions,
    RenameOptions, StatOptions, WriteMode, WriteOptions, WritePosition,
};
use crate::path::WsPath;
use crate::process::{ExecRequest, Process, ProcessExit, ProcessId, ProcessInfo};
use crate::search::{SearchQuery, SearchResults};
use crate::status::StatusPublisher;

#[derive(Debug)]
pub(crate) struct Guarded {
    inner: Arc<dyn Driver>,
    actor: Actor,
    guards: Arc<[Arc<dyn Guard>]>,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<dyn Driver>, actor: Actor, guards: Arc<[Arc<dyn Guard>]>) -> Self {
        Self { inner, actor, guards }
    }

    fn call<'a>(&'a self, verb: Verb, path: &'a WsPath) -> Call<'a> {
        Call::for_path(&self.actor, verb, path)
    }

    async fn enter<'a>(&'a self, call: &'a Call<'a>) -> Result<Passage<'a>> {
        let mut passage = Passage { guards: &self.guards, call, ledger: Ledger::new() };
        for guard in self.guards.iter() {
            let answer = match guard.before_call(call) {
                GuardDecision::Ready(answer) => answer,
                GuardDecision::Pending(future) => future.await,
            };
            if let Err(error) = answer {
                passage.finish(CallResult::Failed(&error), 0);
                return Err(error);
            }
            passage.ledger.entered += 1;
        }
        Ok(passage)
    }
}

/// How many guards have allowed the call. Calls `after_call` on each of them exactly once.
struct Ledger {
    entered: usize,
    started: Instant,
}

impl Ledger {
    fn new() -> Self {
        Self { entered: 0, started: Instant::now() }
    }

    /// Calls `after_call` on the guards that have allowed the call, in reverse order.
    fn settle(
        &mut self,
        guards: &[Arc<dyn Guard>],
        call: &Call<'_>,
        end: CallResult<'_>,
        bytes: u64,
        exit: Option<&ProcessExit>,
    ) {
        if self.entered == 0 {
            return;
        }
        let outcome = CallOutcome { result: end, bytes, duration: self.started.elapsed(), exit };
        for guard in guards[..std::mem::take(&mut self.entered)].iter().rev() {
            // If one guard panics, the other guards must still be called.
            let _ = catch_unwind(AssertUnwindSafe(|| guard.after_call(call, &outcome)));
        }
    }
}

struct Passage<'a> {
    guards: &'a Arc<[Arc<dyn Guard>]>,
    call: &'a Call<'a>,
    ledger: Ledger,
}

impl Passage<'_> {
    fn finish(&mut self, end: CallResult<'_>, bytes: u64) {
        self.ledger.settle(self.guards, self.call, end, bytes, None);
    }

    fn ends<T>(mut self, result: Result<T>, bytes: impl FnOnce(&T) -> u64) -> Result<T> {
        match &result {
            Ok(value) => self.finish(CallResult::Succeeded, bytes(value)),
            Err(error) => self.finish(CallResult::Failed(error), 0),
        }
        result
    }

    /// Moves the outstanding calls of `after_call` to a [`LongPassage`], which lives longer than
    /// this call.
    fn detach(mut self) -> LongPassage {
        let call = self.call;
        LongPassage {
            guards: self.guards.clone(),
            actor: call.actor.clone(),
            path: call.path.cloned(),
            command: call.command.map(str::to_owned),
            call: Call {
                path: None,
                to: None,
                command: None,
                request: None,
                actor: &DETACHED,
                ..call.clone()
            },
            ledger: std::mem::replace(&mut self.ledger, Ledger::new()),
            bytes: AtomicU64::new(0),
        }
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.finish(CallResult::Cancelled, 0);
    }
}

/// A placeholder for the actor in the call of a [`LongPassage`]. [`LongPassage::call`] replaces the
/// placeholder with the real actor before guards see the call.
static DETACHED: std::sync::LazyLock<Actor> = std::sync::LazyLock::new(Actor::default);

/// The [`Passage`] of a call that has opened a file or started a process. It ends with the file or
/// process.
struct LongPassage {
    guards: Arc<[Arc<dyn Guard>]>,
    actor: Actor,
    path: Option<WsPath>,
    command: Option<String>,
    call: Call<'static>,
    ledger: Ledger,
    bytes: AtomicU64,
}

impl LongPassage {
    fn call(&self) -> Call<'_> {
        Call {
            actor: &self.actor,
            path: self.path.as_ref(),
            command: self.command.as_deref(),
            ..self.call.clone()
        }
    }

    fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn grow(&self, size: u64) -> Result<()> {
        let call = self.call();
        self.guards.iter().try_for_each(|guard| guard.check_file_size(&call, size))
    }

    fn finish(&mut self, end: CallResult<'_>, exit: Option<&ProcessExit>) {
        let mut ledger = std::mem::replace(&mut self.ledger, Ledger::new());
        let bytes = self.bytes.load(Ordering::Relaxed);
        ledger.settle(&self.guards, &self.call(), end, bytes, exit);
    }
}

/// An open file. It reports changes of its size to the guards. When it is closed, it also reports
/// the number of transferred bytes.
struct GuardedFile {
    inner: Box<dyn File>,
    placement: WritePosition,
    passage: LongPassage,
}

impl std::fmt::Debug for GuardedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GuardedFile").field(&self.inner).finish()
    }
}

impl Drop for GuardedFile {
    fn drop(&mut self) {
        self.passage.finish(CallResult::Succeeded, None);
    }
}

#[async_trait]
impl File for GuardedFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        let bytes = self.inner.read_at(offset, length).await?;
        self.passage.count(bytes.len());
        Ok(bytes)
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        let length = bytes.len();
        let start = match self.placement {
            WritePosition::AtOffset => offset,
            WritePosition::End => self.inner.stat().await?.size,
        };
        self.passage.grow(start.saturating_add(length as u64))?;
        self.inner.write_at(offset, bytes).await?;
        self.passage.count(length);
        Ok(())
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        self.passage.grow(length)?;
        self.inner.set_len(length).await
    }

    async fn stat(&self) -> Result<Stat> {
        self.inner.stat().await
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        self.inner.set_attributes(attributes).await
    }

    async fn sync(&self) -> Result<()> {
        self.inner.sync().await
    }
}

fn nothing<T>(_: &T) -> u64 {
    0
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Guarded {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        let call = self.call(Verb::Stat, path);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.stat(path, options).await, nothing)
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        let call = Call { recursive: options.max_depth > 1, ..self.call(Verb::List, path) };
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.list(path, options).await, nothing)
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        let call = Call { recursive: true, ..self.call(Verb::Search, &query.root) };
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.search(query).await, nothing)
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        let call = self.call(Verb::Read, path);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.read(path, options).await, |content| content.bytes.len() as u64)
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        let verb = match options.mode {
            WriteMode::CreateIfMissing => Verb::Touch,
            WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::Replace => Verb::Write,
        };
        let size = content.len() as u64;
        let call = Call { size: Some(size), ..self.call(verb, path) };
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.write(path, content, options).await, |_| size)
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        let modifies = options.access.can_write();
        let call = Call { modifies_workspace: modifies, ..self.call(Verb::Open, path) };
        let passage = self.enter(&call).await?;
        match self.inner.open(path, options).await {
            Ok(inner) => {
                let (placement, passage) = (options.position, passage.detach());
                Ok(Box::new(GuardedFile { inner, placement, passage }))
            }
            Err(error) => passage.ends(Err(error), nothing),
        }
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        let call = self.call(Verb::SetAttributes, path);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.set_attributes(path, attributes).await, nothing)
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        let call = self.call(Verb::ReadLink, path);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.read_link(path).await, nothing)
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        let call = self.call(Verb::Symlink, path);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.symlink(path, target).await, nothing)
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        let call = self.call(Verb::Mkdir, path);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.create_dir(path).await, nothing)
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        let recursive = options.depth == RemoveDepth::Recursive;
        let call = Call { recursive, ..self.call(Verb::Delete, path) };
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.remove(path, options).await, nothing)
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let call = Call { to: Some(to), recursive: true, ..self.call(Verb::Rename, from) };
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.rename(from, to, options).await, nothing)
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        let call = Call::new(&self.actor, Verb::DiskSpace);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.disk_space().await, nothing)
    }

    async fn exec(&self, request: ExecRequest) -> Result<Process> {
        let line = request.command.to_shell_line();
        let call = Call {
            command: Some(&line),
            request: Some(&request),
            ..self.call(Verb::Exec, &request.cwd)
        };
        let passage = self.enter(&call).await?;
        match self.inner.exec(request.clone()).await {
            Ok(process) => {
                let mut passage = passage.detach();
                process.exit_receiver().on_end(move |exit| match exit {
                    Some(exit) => passage.finish(CallResult::Succeeded, Some(exit)),
                    None => passage.finish(CallResult::Cancelled, None),
                });
                Ok(process)
            }
            Err(error) => passage.ends(Err(error), nothing),
        }
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        let call = Call::new(&self.actor, Verb::Processes);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.processes().await, nothing)
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        let call = Call::new(&self.actor, Verb::Attach);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.attach(id, from).await, nothing)
    }

    fn info(&self) -> BackendInfo {
        self.inner.info()
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        let mut policy = self.inner.effective_policy().await?;
        for control in self.guards.iter().filter_map(|guard| guard.effective_policy_control()) {
            policy.controls.retain(|known| known.kind != control.kind);
            policy.controls.push(control);
        }
        Ok(policy)
    }

    fn status_publisher(&self) -> &StatusPublisher {
        self.inner.status_publisher()
    }

    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect> {
        self.inner.query_lost_call(ticket).await
    }

    async fn connect(&self) -> Result<()> {
        let call = Call::new(&self.actor, Verb::Connect);
        let passage = self.enter(&call).await?;
        passage.ends(self.inner.connect().await, nothing)
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
