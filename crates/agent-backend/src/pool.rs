//! A pool of backends: at most one for each key, shared by all callers that ask for it.
//!
//! ```
//! use agent_backend::pool::{BackendLeaseRequest, BackendPool, BackendPoolOptions};
//! use agent_backend::{Backend, MemoryDriverOptions, Result};
//!
//! #[derive(Clone)]
//! struct Config {
//!     root: String,
//! }
//!
//! async fn make(config: Config) -> Result<Backend> {
//!     let options = MemoryDriverOptions { root: config.root, ..MemoryDriverOptions::default() };
//!     agent_backend::memory_with(options, Default::default())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let pool = BackendPool::new(make, BackendPoolOptions::new(Config { root: "/work".to_owned() }))?;
//!
//! let lease = pool.acquire(BackendLeaseRequest::for_key("ada")).await?;
//! lease.write("notes.txt", "hello").await?;
//! drop(lease); // the next caller with the key "ada" finds the notes
//!
//! let grace = BackendLeaseRequest::for_key("grace").configure_if_created(|config: &mut Config| config.root = "/srv".into());
//! pool.with_backend(grace, async |backend| backend.write("/srv/notes.txt", "hi").await).await?;
//!
//! assert_eq!((pool.stats().idle, pool.stats().active), (2, 0));
//! pool.destroy_all().await
//! # }
//! ```
//!
//! A backend is dead if it was destroyed, or if it was connected once and is now disconnected. A
//! backend that is connecting, reconnecting, or was never connected is not dead, because replacing
//! it would leave two backends for one key. So a driver that will connect again reports
//! `Reconnecting`. The next caller gets a new backend instead of a dead one. A dead backend is
//! destroyed when its last user releases it.
//!
//! A backend keeps its key and its slot until its destruction is complete. So there are never two
//! backends for one key, and never more than the maximum. Only dead backends do not count.

mod effects;
mod failure;
mod keeper;
mod lease;
mod ledger;
mod member;
mod options;
mod place;
mod stats;
mod tasks;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use ab_core::{Backend, Error, Result};

use keeper::Keeper;
use member::{Make, Making};

pub use lease::BackendLease;
pub use options::{
    BackendLeaseRequest, BackendPoolOptions, DEFAULT_BACKEND_ACQUIRE_TIMEOUT,
    DEFAULT_BACKEND_CREATE_TIMEOUT, DEFAULT_BACKEND_DESTROY_TIMEOUT, DEFAULT_BACKEND_IDLE_TIMEOUT,
    DEFAULT_IDLE_CLEANUP_INTERVAL, DEFAULT_MAX_BACKENDS, DEFAULT_MAX_WAITING_CALLERS,
    IdleBackendCleanup,
};
pub use stats::BackendPoolStats;

type Factory<C> = dyn Fn(C) -> Making + Send + Sync;

/// A pool of backends. To share it, put it into an [`Arc`].
///
/// Call [`destroy_all`](Self::destroy_all) to end the pool. A pool that is only dropped cannot
/// wait. It drops its backends without destroying them, and aborts creations and destructions in
/// progress. Existing leases keep working.
pub struct BackendPool<C> {
    factory: Arc<Factory<C>>,
    config: Arc<C>,
    keeper: Arc<Keeper>,
}

impl<C: Clone + Send + Sync + 'static> BackendPool<C> {
    /// Creates a pool. `factory` must return a new backend on each call. The pool then owns this
    /// backend.
    ///
    /// Fails with `INVALID_CONFIGURATION` if the options are invalid, or if there is no tokio
    /// runtime with time enabled. The pool's tasks run on that runtime.
    pub fn new<F, Made>(factory: F, options: BackendPoolOptions<C>) -> Result<Self>
    where
        F: Fn(C) -> Made + Send + Sync + 'static,
        Made: Future<Output = Result<Backend>> + Send + 'static,
    {
        let (config, limits, cleanup) = options.check()?;
        let keeper = Keeper::new(limits)?;
        match cleanup {
            IdleBackendCleanup::Manual => {}
            IdleBackendCleanup::Every(period) => keeper.clean_up_every(period),
        }
        let factory: Arc<Factory<C>> = Arc::new(move |config| Box::pin(factory(config)));
        Ok(Self { factory, config: Arc::new(config), keeper })
    }

    /// Returns a lease on a backend. The backend is in use until the lease is dropped.
    ///
    /// With a key, the lease is on the only backend of this key. If no backend of the key is alive,
    /// the pool creates one. Callers that ask for the same key during the creation share the new
    /// backend, or share the error. The changes in the request apply only if the backend is created
    /// for this request. Without a key, the lease is on a new backend that is destroyed with the
    /// lease.
    ///
    /// If the pool is full, it destroys the backend that was idle longest. If no backend is idle,
    /// callers wait in order, at most [`acquire_timeout`](BackendPoolOptions::acquire_timeout).
    /// After the wait, the creation may take
    /// [`create_timeout`](BackendPoolOptions::create_timeout). The creation continues if the caller
    /// drops the future. A new backend with a key then becomes idle, and a new backend without a
    /// key is destroyed.
    ///
    /// # Errors
    /// Returns the error of the factory. `TIMEOUT` if the creation took too long, if no slot became
    /// free in time, or if too many callers are already waiting. `CONNECTION_CLOSED` if the factory
    /// panicked, if its backend was already destroyed, or if the pool was destroyed.
    pub async fn acquire(&self, request: BackendLeaseRequest<C>) -> Result<BackendLease> {
        let BackendLeaseRequest { key, changes } = request;
        if let Some(lease) = key.as_deref().and_then(|key| self.keeper.reuse(key)) {
            return Ok(lease);
        }
        let (factory, defaults) = (self.factory.clone(), self.config.clone());
        let make: Make = Box::new(move || {
            let mut config = C::clone(&defaults);
            changes.into_iter().for_each(|change| change(&mut config));
            factory(config)
        });
        self.keeper.enter(key, make).wait().await
    }

    /// Runs `work` on a backend and releases the backend afterwards, even if `work` fails or
    /// panics.
    pub async fn with_backend<T, E: From<Error>>(
        &self,
        request: BackendLeaseRequest<C>,
        work: impl AsyncFnOnce(&Backend) -> Result<T, E>,
    ) -> Result<T, E> {
        let lease = self.acquire(request).await?;
        work(&lease).await
    }

    /// Destroys the backends that were idle for [`idle_timeout`](BackendPoolOptions::idle_timeout),
    /// and dead backends that are not in use. Waits until they are destroyed and returns their
    /// number.
    pub async fn destroy_idle(&self) -> usize {
        self.keeper.cleanup().await
    }

    pub fn stats(&self) -> BackendPoolStats {
        self.keeper.stats()
    }

    /// Ends the pool. Refuses all waiting and later callers, and destroys every backend, even if it
    /// is in use. Returns when all backends are destroyed. A backend that is being created is
    /// destroyed as soon as the factory returns it. Further calls wait until the pool has ended,
    /// and return the same result.
    ///
    /// # Errors
    /// Returns the first failure to destroy a backend. The other backends are destroyed
    /// nevertheless.
    pub async fn destroy_all(&self) -> Result<()> {
        self.keeper.destroy_all().await
    }
}

impl<C> Drop for BackendPool<C> {
    fn drop(&mut self) {
        self.keeper.abandon();
    }
}

impl<C> fmt::Debug for BackendPool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendPool").field("stats", &self.keeper.stats()).finish_non_exhaustive()
    }
}
