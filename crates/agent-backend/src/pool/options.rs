//! The options of a pool, and requests for a lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};

/// Default of the maximum number of backends in a pool.
pub const DEFAULT_MAX_BACKENDS: usize = 1024;
/// Default of the maximum number of callers that wait at the same time.
pub const DEFAULT_MAX_WAITING_CALLERS: usize = 16_384;
/// Default of how long an idle backend is kept.
pub const DEFAULT_BACKEND_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// The interval of [`IdleBackendCleanup::at_default_interval`].
pub const DEFAULT_IDLE_CLEANUP_INTERVAL: Duration = Duration::from_secs(60);
/// Default of how long a caller waits for a slot in a full pool.
pub const DEFAULT_BACKEND_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);
/// Default time limit of the factory.
pub const DEFAULT_BACKEND_CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Default time limit of a destruction. After that the pool drops the backend.
pub const DEFAULT_BACKEND_DESTROY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct BackendPoolOptions<C> {
    /// The configuration for the factory. Requests can change a copy of it.
    pub config: C,
    /// Maximum number of backends at the same time, including those that are being created or
    /// destroyed.
    pub max_backends: usize,
    /// Maximum number of callers that wait for an answer. Further callers are refused at once.
    pub max_waiting_callers: usize,
    /// How long a backend must be idle before a cleanup destroys it.
    pub idle_timeout: Duration,
    pub cleanup: IdleBackendCleanup,
    pub acquire_timeout: Duration,
    pub create_timeout: Duration,
    pub destroy_timeout: Duration,
}

/// Who destroys backends that have been idle for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleBackendCleanup {
    /// Only the caller destroys idle backends, with
    /// [`BackendPool::destroy_idle`](super::BackendPool::destroy_idle).
    #[default]
    Manual,
    /// The pool itself also destroys idle backends, at this interval.
    Every(Duration),
}

impl IdleBackendCleanup {
    /// Cleans up every [`DEFAULT_IDLE_CLEANUP_INTERVAL`].
    pub fn at_default_interval() -> Self {
        Self::Every(DEFAULT_IDLE_CLEANUP_INTERVAL)
    }
}

impl<C> BackendPoolOptions<C> {
    pub fn new(config: C) -> Self {
        Self {
            config,
            max_backends: DEFAULT_MAX_BACKENDS,
            max_waiting_callers: DEFAULT_MAX_WAITING_CALLERS,
            idle_timeout: DEFAULT_BACKEND_IDLE_TIMEOUT,
            cleanup: IdleBackendCleanup::default(),
            acquire_timeout: DEFAULT_BACKEND_ACQUIRE_TIMEOUT,
            create_timeout: DEFAULT_BACKEND_CREATE_TIMEOUT,
            destroy_timeout: DEFAULT_BACKEND_DESTROY_TIMEOUT,
        }
    }

    pub(super) fn check(self) -> Result<(C, Limits, IdleBackendCleanup)> {
        let nothing = [
            ("max_backends", self.max_backends == 0),
            ("max_waiting", self.max_waiting_callers == 0),
            ("create_timeout", self.create_timeout.is_zero()),
            ("destroy_timeout", self.destroy_timeout.is_zero()),
            ("the cleanup interval", self.cleanup == IdleBackendCleanup::Every(Duration::ZERO)),
        ];
        if let Some((name, _)) = nothing.iter().find(|(_, zero)| *zero) {
            let message = format!("cannot create a pool: {name} is zero");
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        }
        let limits = Limits {
            backends: self.max_backends,
            waiting: self.max_waiting_callers,
            idle: self.idle_timeout,
            acquire: self.acquire_timeout,
            create: self.create_timeout,
            destroy: self.destroy_timeout,
        };
        Ok((self.config, limits, self.cleanup))
    }
}

impl<C: Default> Default for BackendPoolOptions<C> {
    fn default() -> Self {
        Self::new(C::default())
    }
}

/// The validated limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) backends: usize,
    pub(super) waiting: usize,
    pub(super) idle: Duration,
    pub(super) acquire: Duration,
    pub(super) create: Duration,
    pub(super) destroy: Duration,
}

type Change<C> = Box<dyn FnOnce(&mut C) + Send>;

/// A request for a backend: its key, and changes of the pool's configuration.
pub struct BackendLeaseRequest<C> {
    pub(super) key: Option<Arc<str>>,
    pub(super) changes: Vec<Change<C>>,
}

impl<C> BackendLeaseRequest<C> {
    /// Requests the one backend of `key`.
    pub fn for_key(key: impl Into<String>) -> Self {
        Self { key: Some(Arc::from(key.into())), changes: Vec::new() }
    }

    /// Requests a backend for this caller alone. It is destroyed when the lease is dropped.
    pub fn single_use() -> Self {
        Self { key: None, changes: Vec::new() }
    }

    /// Changes a copy of the pool's configuration if a backend is created for this request. Values
    /// that are not changed stay as in the pool. A later change overrides an earlier one.
    pub fn configure_if_created(mut self, change: impl FnOnce(&mut C) + Send + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }
}

impl<C> fmt::Debug for BackendLeaseRequest<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("key", &self.key)
            .field("changes", &self.changes.len())
            .finish()
    }
}
