//! Statistics of a pool.

use std::collections::BTreeMap;

/// The state of a pool at a point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendPoolStats {
    /// Usable backends, both active and idle.
    pub total: usize,
    /// Backends in use, including dead ones that were replaced.
    pub active: usize,
    /// Backends that are not in use.
    pub idle: usize,
    /// Backends that are being created.
    pub creating: usize,
    /// Backends that are being destroyed.
    pub destroying: usize,
    /// Callers that wait for an answer.
    pub waiting: usize,
    /// The number of users of the backend of each key.
    pub by_key: BTreeMap<String, usize>,
    /// Backends that could not be destroyed. The pool has dropped them.
    pub failed_destroys: u64,
}
