//! Guards see every call. They may delay, refuse or record it, but never change it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{Actor, Call, CallOutcome, Verb};
use crate::effective_policy::EffectivePolicyControl;
use crate::error::{Error, Result};
use crate::journal::JournalGuard;

/// Runs before and after every call on a backend.
pub trait Guard: fmt::Debug + Send + Sync {
    /// Called before the call. Returns `Ready` if no future is needed.
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a>;

    /// Called before a file that was opened by `call` grows to `size` bytes.
    fn check_file_size(&self, call: &Call<'_>, size: u64) -> Result<()>;

    /// Called for a path that was refused before it became a call. For the record only.
    fn on_refused_path(&self, refusal: &RefusedPath<'_>);

    /// What this guard enforces, for [`EffectivePolicy`](crate::EffectivePolicy).
    fn effective_policy_control(&self) -> Option<EffectivePolicyControl>;

    /// Called after the call, exactly once for each `before_call` that let it pass: also if the
    /// call failed, was refused by a later guard, or its future was dropped.
    fn after_call(&self, call: &Call<'_>, outcome: &CallOutcome<'_>);
}

/// A path that is invalid or leaves the workspace.
#[derive(Clone, Debug)]
pub struct RefusedPath<'a> {
    pub actor: &'a Actor,
    pub verb: Verb,
    /// As the caller wrote it.
    pub path: &'a str,
    pub error: &'a Error,
}

/// The decision of a guard.
pub enum GuardDecision<'a> {
    Ready(Result<()>),
    Pending(BoxFuture<'a, Result<()>>),
}

impl GuardDecision<'_> {
    /// Lets the call pass.
    pub const ALLOW: GuardDecision<'static> = GuardDecision::Ready(Ok(()));
}

impl fmt::Debug for GuardDecision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuardDecision::Ready(result) => f.debug_tuple("Ready").field(result).finish(),
            GuardDecision::Pending(_) => f.write_str("Waits"),
        }
    }
}

/// The guards of a handle. Their order is fixed here and nowhere else: a refused call is still
/// recorded, and a call that waits for a person holds no permit.
#[derive(Clone, Debug, Default)]
pub struct Guards {
    pub trace: Vec<Arc<dyn Guard>>,
    pub journal: Option<Arc<JournalGuard>>,
    pub policy: Vec<Arc<dyn Guard>>,
    pub limits: Vec<Arc<dyn Guard>>,
}

impl Guards {
    pub(crate) fn in_order(self) -> Vec<Arc<dyn Guard>> {
        let journal = self.journal.map(|journal| journal as Arc<dyn Guard>);
        self.trace.into_iter().chain(journal).chain(self.policy).chain(self.limits).collect()
    }
}
