//! What a pool is told: its options, and what a request asks for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};

/// Backends that a pool holds unless told otherwise.
pub const DEFAULT_MAX_BACKENDS: usize = 1024;
/// Callers that wait for an answer at a time unless told otherwise.
pub const DEFAULT_MAX_WAITING_CALLERS: usize = 16_384;
/// How long a backend is kept that nobody uses.
pub const DEFAULT_BACKEND_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// How often [`IdleCleanup::at_default_interval`] looks.
pub const DEFAULT_IDLE_CLEANUP_INTERVAL: Duration = Duration::from_secs(60);
/// How long a caller waits for room in a full pool.
pub const DEFAULT_BACKEND_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the factory may take.
pub const DEFAULT_BACKEND_CREATE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a backend may take to be destroyed before the pool lets go of it.
pub const DEFAULT_BACKEND_DESTROY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct PoolOptions<C> {
    /// What the factory is given, before a request's changes.
    pub config: C,
    /// Backends at a time: live, being made, or on their way out.
    pub max_backends: usize,
    /// Callers that have asked and have no answer yet; one more is refused at once.
    pub max_waiting_callers: usize,
    /// How long nobody must have used a backend for a cleanup to take it.
    pub idle_timeout: Duration,
    pub cleanup: IdleCleanup,
    pub acquire_timeout: Duration,
    pub create_timeout: Duration,
    pub destroy_timeout: Duration,
}

/// Who looks for backends that have been idle too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleCleanup {
    /// Only callers of [`BackendPool::destroy_idle`](super::BackendPool::destroy_idle).
    #[default]
    Manual,
    /// The pool itself as well, this often.
    Every(Duration),
}

impl IdleCleanup {
    /// Every [`DEFAULT_IDLE_CLEANUP_INTERVAL`].
    pub fn at_default_interval() -> Self {
        Self::Every(DEFAULT_IDLE_CLEANUP_INTERVAL)
    }
}

impl<C> PoolOptions<C> {
    pub fn new(config: C) -> Self {
        Self {
            config,
            max_backends: DEFAULT_MAX_BACKENDS,
            max_waiting_callers: DEFAULT_MAX_WAITING_CALLERS,
            idle_timeout: DEFAULT_BACKEND_IDLE_TIMEOUT,
            cleanup: IdleCleanup::default(),
            acquire_timeout: DEFAULT_BACKEND_ACQUIRE_TIMEOUT,
            create_timeout: DEFAULT_BACKEND_CREATE_TIMEOUT,
            destroy_timeout: DEFAULT_BACKEND_DESTROY_TIMEOUT,
        }
    }

    pub(super) fn check(self) -> Result<(C, Limits, IdleCleanup)> {
        let nothing = [
            ("max_backends", self.max_backends == 0),
            ("max_waiting", self.max_waiting_callers == 0),
            ("create_timeout", self.create_timeout.is_zero()),
            ("destroy_timeout", self.destroy_timeout.is_zero()),
            ("the cleanup interval", self.cleanup == IdleCleanup::Every(Duration::ZERO)),
        ];
        if let Some((name, _)) = nothing.iter().find(|(_, zero)| *zero) {
            let message = format!("make a pool: {name} is zero");
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

impl<C: Default> Default for PoolOptions<C> {
    fn default() -> Self {
        Self::new(C::default())
    }
}

/// The bounds of a pool, all of which make sense.
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

/// Which backend is wanted, and how it differs from the pool's configuration.
pub struct LeaseRequest<C> {
    pub(super) key: Option<Arc<str>>,
    pub(super) changes: Vec<Change<C>>,
}

impl<C> LeaseRequest<C> {
    /// The one backend of `key`.
    pub fn keyed(key: impl Into<String>) -> Self {
        Self { key: Some(Arc::from(key.into())), changes: Vec::new() }
    }

    /// A backend for this caller alone, destroyed when the lease is dropped.
    pub fn single_use() -> Self {
        Self { key: None, changes: Vec::new() }
    }

    /// Changes a copy of the pool's configuration, if a backend has to be made for this request.
    /// What is not changed stays as the pool has it; a later change wins over an earlier one.
    pub fn configure_if_created(mut self, change: impl FnOnce(&mut C) + Send + 'static) -> Self {
        self.changes.push(Box::new(change));
        self
    }
}

impl<C> fmt::Debug for LeaseRequest<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("key", &self.key)
            .field("changes", &self.changes.len())
            .finish()
    }
}
