//! A lease on a backend of a pool. Dropping it releases the backend.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ab_core::Backend;

use super::keeper::Keeper;
use super::member::MemberId;

/// A backend of a pool. It counts as in use until this value is dropped.
///
/// A clone of the [`Backend`] inside does not count as a use: the pool may destroy the backend
/// while the clone still exists.
#[must_use = "dropping the lease gives the backend back"]
pub struct BackendLease {
    backend: Backend,
    member: MemberId,
    keeper: Arc<Keeper>,
}

impl BackendLease {
    pub(super) fn new(backend: Backend, member: MemberId, keeper: Arc<Keeper>) -> Self {
        Self { backend, member, keeper }
    }
}

impl Deref for BackendLease {
    type Target = Backend;

    fn deref(&self) -> &Backend {
        &self.backend
    }
}

impl Drop for BackendLease {
    fn drop(&mut self) {
        self.keeper.release(self.member);
    }
}

impl fmt::Debug for BackendLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.backend).finish()
    }
}
