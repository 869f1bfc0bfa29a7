//! What follows from a change of the ledger, to be done once its lock is free.

use ab_core::{Backend, Error, Result};
use tokio::sync::oneshot;

use super::lease::BackendLease;
use super::member::{Held, Make, MemberId};

/// Where someone who waits is told what they get.
pub(super) type Answer = oneshot::Sender<Result<BackendLease>>;

#[derive(Default)]
pub(super) struct Effects {
    pub(super) destroy: Vec<(MemberId, Held)>,
    pub(super) create: Vec<(MemberId, Make)>,
    pub(super) grant: Vec<(Answer, MemberId, Backend)>,
    pub(super) refuse: Vec<(Answer, Error)>,
    /// Has no use any more.
    pub(super) discard: Vec<Box<dyn Send>>,
    /// Somebody may wait for there to be fewer members.
    pub(super) fewer: bool,
}
