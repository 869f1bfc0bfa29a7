//! The consequences of a change of the ledger, carried out after its lock is released.

use ab_core::{Backend, Error, Result};
use tokio::sync::oneshot;

use super::lease::BackendLease;
use super::member::{Held, Make, MemberId};

/// The channel for the answer to a waiting caller.
pub(super) type Answer = oneshot::Sender<Result<BackendLease>>;

#[derive(Default)]
pub(super) struct Effects {
    pub(super) destroy: Vec<(MemberId, Held)>,
    pub(super) create: Vec<(MemberId, Make)>,
    pub(super) grant: Vec<(Answer, MemberId, Backend)>,
    pub(super) refuse: Vec<(Answer, Error)>,
    /// To be dropped.
    pub(super) discard: Vec<Box<dyn Send>>,
    /// The number of members has decreased, which a caller may wait for.
    pub(super) fewer: bool,
}
