//! Actions that follow from a change of the ledger, which is the state of the pool. They are
//! performed after the ledger's lock is released.

use ab_core::{Backend, Error, Result};
use tokio::sync::oneshot;

use super::lease::BackendLease;
use super::member::{Held, Make, MemberId};

/// The channel on which a waiting caller receives its lease or an error.
pub(super) type Answer = oneshot::Sender<Result<BackendLease>>;

#[derive(Default)]
pub(super) struct Effects {
    pub(super) destroy: Vec<(MemberId, Held)>,
    pub(super) create: Vec<(MemberId, Make)>,
    pub(super) grant: Vec<(Answer, MemberId, Backend)>,
    pub(super) refuse: Vec<(Answer, Error)>,
    /// Values to drop after the lock is released.
    pub(super) discard: Vec<Box<dyn Send>>,
    /// Whether a backend has left the pool. Tasks that wait for an empty pool must then check
    /// again.
    pub(super) fewer: bool,
}
