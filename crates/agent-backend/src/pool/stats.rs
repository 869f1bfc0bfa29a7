//! What a pool tells about itself.

use std::collections::BTreeMap;

/// A pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Backends that can be used: the active and the idle.
    pub total: usize,
    /// Backends that somebody uses, also dead ones that were replaced.
    pub active: usize,
    /// Backends that nobody uses.
    pub idle: usize,
    /// Backends that the factory is making.
    pub creating: usize,
    /// Backends that are being destroyed.
    pub destroying: usize,
    /// Callers that have asked and have no answer yet.
    pub waiting: usize,
    /// How many use the backend of each key.
    pub by_key: BTreeMap<String, usize>,
    /// Backends that failed to be destroyed so far; the pool has let go of them.
    pub failed_destroys: u64,
}
