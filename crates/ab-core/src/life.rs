//! The lifetime of a handle: its status, registered resources, scopes and destruction.
//!
//! The first handle (the root) owns the driver and the registered resources. A handle that is
//! derived from the root (a scope) owns nothing. A scope has the status of its parent until the
//! scope is destroyed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;

use crate::call::Verb;
use crate::driver::Driver;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::status::{ConnectionStatus, StatusPublisher, StatusSubscription};

/// A resource that must be closed when its backend is destroyed.
#[async_trait]
pub trait Closeable: Send + Sync {
    /// Closes the resource. Called again if the future was dropped before it was complete.
    async fn close(&self) -> Result<()>;
}

/// The id of a registered resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseableId(u64);

pub(crate) struct Life {
    root: Arc<Root>,
    scope: Option<Scope>,
    /// The scopes of this handle that have not been destroyed or dropped.
    children: Mutex<BTreeSet<u64>>,
}

struct Scope {
    id: u64,
    parent: Arc<Life>,
    gone: AtomicBool,
    hub: StatusPublisher,
    _forward: StatusSubscription,
}

struct Root {
    driver: Arc<dyn Driver>,
    /// Set before any resource is closed, so that new calls fail at once.
    ending: AtomicBool,
    tracked: Mutex<Vec<(CloseableId, Arc<dyn Closeable>)>>,
    /// Whether the destruction is complete. The lock is held while the destruction runs.
    finished: tokio::sync::Mutex<bool>,
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Life {
    pub(crate) fn root(driver: Arc<dyn Driver>) -> Arc<Self> {
        let root = Root {
            driver,
            ending: AtomicBool::new(false),
            tracked: Mutex::default(),
            finished: tokio::sync::Mutex::new(false),
        };
        Arc::new(Self { root: Arc::new(root), scope: None, children: Mutex::default() })
    }

    pub(crate) fn scope(parent: &Arc<Self>) -> Arc<Self> {
        let id = next_id();
        let hub = StatusPublisher::new(parent.status());
        let own = hub.clone();
        let forward =
            parent.hub().subscribe(move |change| own.set(change.to, change.error.clone()));
        hub.set(parent.status(), None);
        parent.children().insert(id);
        let scope = Scope {
            id,
            parent: parent.clone(),
            gone: AtomicBool::new(false),
            hub,
            _forward: forward,
        };
        Arc::new(Self { root: parent.root.clone(), scope: Some(scope), children: Mutex::default() })
    }

    pub(crate) fn status(&self) -> ConnectionStatus {
        match &self.scope {
            Some(scope) if scope.gone.load(Ordering::Acquire) => ConnectionStatus::Destroyed,
            Some(scope) => scope.parent.status(),
            None => self.root.driver.status_publisher().current(),
        }
    }

    /// The object that reports changes of this handle's status.
    pub(crate) fn hub(&self) -> &StatusPublisher {
        match &self.scope {
            Some(scope) => &scope.hub,
            None => self.root.driver.status_publisher(),
        }
    }

    /// Fails if this handle, or a handle from which it was derived, was destroyed.
    pub(crate) fn check(&self, verb: Verb) -> Result<()> {
        let ending = self.root.ending.load(Ordering::Acquire);
        if ending || self.status() == ConnectionStatus::Destroyed {
            return Err(Error::for_destroyed_backend(verb));
        }
        Ok(())
    }

    pub(crate) fn scopes(&self) -> usize {
        self.children().len()
    }

    pub(crate) async fn track(&self, resource: Arc<dyn Closeable>) -> Result<CloseableId> {
        let id = CloseableId(next_id());
        {
            let mut tracked = self.root.tracked();
            if self.check(Verb::Connect).is_ok() {
                tracked.push((id, resource));
                return Ok(id);
            }
        }
        // The resource was registered too late to be closed with the other resources. Close it now,
        // so that it does not stay open.
        let _ = AssertUnwindSafe(resource.close()).catch_unwind().await;
        Err(Error::new(
            ErrorCode::ConnectionClosed,
            ErrorKind::Destroyed,
            "the backend was destroyed; the resource was closed instead of tracked",
        ))
    }

    pub(crate) fn untrack(&self, id: CloseableId) -> Option<Arc<dyn Closeable>> {
        let mut tracked = self.root.tracked();
        let at = tracked.iter().position(|(tracked, _)| *tracked == id)?;
        Some(tracked.remove(at).1)
    }

    pub(crate) async fn destroy(&self) -> Result<()> {
        match &self.scope {
            Some(scope) => {
                scope.end();
                Ok(())
            }
            None => self.root.destroy().await,
        }
    }

    fn children(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scope {
    fn end(&self) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            self.parent.children().remove(&self.id);
            self.hub.set(ConnectionStatus::Destroyed, None);
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(scope) = &self.scope {
            scope.parent.children().remove(&scope.id);
        }
    }
}

impl Root {
    fn tracked(&self) -> MutexGuard<'_, Vec<(CloseableId, Arc<dyn Closeable>)>> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the registered resources in the reverse order of their registration, and then the
    /// driver. If a caller drops the future, the next call continues the destruction.
    async fn destroy(&self) -> Result<()> {
        self.ending.store(true, Ordering::Release);
        if self.is_closing_here() {
            // A resource that is being closed has called this function. The destruction is
            // therefore already running.
            return Ok(());
        }
        let mut finished = self.finished.lock().await;
        if *finished {
            return Ok(());
        }
        let mut failures: Vec<Error> = Vec::new();
        loop {
            // Keep the resource registered until it is closed. If it were unregistered first, a
            // dropped future could leave it half closed and unregistered.
            let Some((id, resource)) = self.tracked().last().cloned() else { break };
            match self.closing(AssertUnwindSafe(resource.close()).catch_unwind()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failures.push(error),
                Err(_) => failures.push(panicked()),
            }
            self.tracked().retain(|(tracked, _)| *tracked != id);
        }
        if let Err(error) = self.driver.close().await {
            failures.push(error);
        }
        *finished = true;
        drop(finished);
        let count = failures.len();
        match failures.into_iter().next() {
            None => Ok(()),
            Some(first) if count == 1 => Err(first),
            Some(first) => Err(Error::new(
                first.code(),
                first.kind(),
                format!("{count} resources failed to close, the first: {first}"),
            )
            .with_source(first)),
        }
    }
}

thread_local! {
    /// The backends that are closing a resource in the future that this thread polls now.
    static CLOSING: RefCell<Vec<*const Root>> = const { RefCell::new(Vec::new()) };
}

impl Root {
    /// Runs `close`. If `close` itself destroys this backend, [`Root::is_closing_here`] detects
    /// this, so that the destruction does not wait for itself.
    async fn closing<T>(&self, close: impl Future<Output = T>) -> T {
        let mut close = std::pin::pin!(close);
        std::future::poll_fn(|context| {
            CLOSING.with_borrow_mut(|roots| roots.push(self));
            let polled = close.as_mut().poll(context);
            CLOSING.with_borrow_mut(Vec::pop);
            polled
        })
        .await
    }

    fn is_closing_here(&self) -> bool {
        CLOSING.with_borrow(|roots| roots.contains(&std::ptr::from_ref(self)))
    }
}

fn panicked() -> Error {
    Error::new(
        ErrorCode::ConnectionClosed,
        ErrorKind::Io,
        "a tracked resource panicked while closing",
    )
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life")
            .field("status", &self.status())
            .field("scope", &self.scope.as_ref().map(|scope| scope.id))
            .field("scopes", &self.scopes())
            .finish_non_exhaustive()
    }
}
