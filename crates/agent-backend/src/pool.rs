//! Backends that are used again: at most one for each key, shared by all who ask for it.
//!
//! ```
//! use agent_backend::pool::{LeaseRequest, BackendPool, PoolOptions};
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
//! let pool = BackendPool::new(make, PoolOptions::new(Config { root: "/work".to_owned() }))?;
//!
//! let lease = pool.acquire(LeaseRequest::keyed("ada")).await?;
//! lease.write("notes.txt", "hello").await?;
//! drop(lease); // and whoever asks for ada next finds the notes
//!
//! let grace = LeaseRequest::keyed("grace").configure_if_created(|config: &mut Config| config.root = "/srv".into());
//! pool.with_backend(grace, async |backend| backend.write("/srv/notes.txt", "hi").await).await?;
//!
//! assert_eq!((pool.stats().idle, pool.stats().active), (2, 0));
//! pool.destroy_all().await
//! # }
//! ```
//!
//! A backend is dead when it was destroyed, or when it was connected once and is now disconnected.
//! One that connects, reconnects or was never connected is not: replacing it would leave two for
//! one key. So a driver that means to connect again says `Reconnecting`. A dead one is replaced for
//! the next who asks, and destroyed when its last user lets go.
//!
//! A backend that is being destroyed keeps its key and its place in the pool until that is done, so
//! neither "one for each key" nor the maximum is ever exceeded by what is on its way out. Only the
//! dead no longer count.

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
    DEFAULT_BACKEND_ACQUIRE_TIMEOUT, DEFAULT_BACKEND_CREATE_TIMEOUT,
    DEFAULT_BACKEND_DESTROY_TIMEOUT, DEFAULT_BACKEND_IDLE_TIMEOUT, DEFAULT_IDLE_CLEANUP_INTERVAL,
    DEFAULT_MAX_BACKENDS, DEFAULT_MAX_WAITING_CALLERS, IdleCleanup, LeaseRequest, PoolOptions,
};
pub use stats::PoolStats;

type Factory<C> = dyn Fn(C) -> Making + Send + Sync;

/// A pool. Share it behind an [`Arc`].
///
/// End it with [`destroy_all`](Self::destroy_all). A pool that is merely dropped cannot wait: it
/// lets go of its backends without destroying them, and gives up what it was making or destroying.
/// Leases that are still held go on working.
pub struct BackendPool<C> {
    factory: Arc<Factory<C>>,
    config: Arc<C>,
    keeper: Arc<Keeper>,
}

impl<C: Clone + Send + Sync + 'static> BackendPool<C> {
    /// A pool of what `factory` makes: a new backend each time, which the pool then owns.
    ///
    /// Needs a tokio runtime with time, which the pool's tasks run on; without one, or with options
    /// that make no sense, it is `INVALID_CONFIGURATION`.
    pub fn new<F, Made>(factory: F, options: PoolOptions<C>) -> Result<Self>
    where
        F: Fn(C) -> Made + Send + Sync + 'static,
        Made: Future<Output = Result<Backend>> + Send + 'static,
    {
        let (config, limits, cleanup) = options.check()?;
        let keeper = Keeper::new(limits)?;
        match cleanup {
            IdleCleanup::Manual => {}
            IdleCleanup::Every(period) => keeper.clean_up_every(period),
        }
        let factory: Arc<Factory<C>> = Arc::new(move |config| Box::pin(factory(config)));
        Ok(Self { factory, config: Arc::new(config), keeper })
    }

    /// A backend to use until the lease is dropped.
    ///
    /// With a key, it is the key's one backend, which is made when there is none that lives; those
    /// who ask while it is being made share it, or the error. What the request changes counts only
    /// when the backend is made for it. Without a key, it is a fresh one that goes with its lease.
    ///
    /// A full pool destroys the backend that has been idle longest; when none is idle, callers
    /// wait, first come first served, at most [`acquire_timeout`](PoolOptions::acquire_timeout).
    /// Making it may take [`create_timeout`](PoolOptions::create_timeout) more, and goes on when
    /// the caller goes away: a backend with a key is then idle, a fresh one is destroyed.
    ///
    /// # Errors
    /// What the factory said; `TIMEOUT` when it took too long, when there was no room in time or
    /// when too many wait already; `CONNECTION_CLOSED` when it panicked, when what it made was
    /// already destroyed, or when the pool was.
    pub async fn acquire(&self, request: LeaseRequest<C>) -> Result<BackendLease> {
        let LeaseRequest { key, changes } = request;
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

    /// Runs `work` on a backend and lets go of it afterwards, also when `work` fails or panics.
    pub async fn with_backend<T, E: From<Error>>(
        &self,
        request: LeaseRequest<C>,
        work: impl AsyncFnOnce(&Backend) -> Result<T, E>,
    ) -> Result<T, E> {
        let lease = self.acquire(request).await?;
        work(&lease).await
    }

    /// Destroys the backends that have been idle for [`idle_timeout`](PoolOptions::idle_timeout),
    /// and dead ones that nobody uses. Says how many, once they are gone.
    pub async fn destroy_idle(&self) -> usize {
        self.keeper.cleanup().await
    }

    pub fn stats(&self) -> PoolStats {
        self.keeper.stats()
    }

    /// Ends the pool: refuses who asks from now on, and who waits; destroys every backend, also
    /// those in use; returns when all are gone. What is being made is destroyed as soon as the
    /// factory hands it over. Calling it again waits for the same end and says the same.
    ///
    /// # Errors
    /// The first failure to destroy a backend; the others are destroyed nevertheless.
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
