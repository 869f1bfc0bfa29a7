//! Guards: they see every call and may wait, refuse or record, but never alter it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{Actor, Call, CallOutcome, Verb};
use crate::effective::EffectivePolicyControl;
use crate::error::{Error, Result};
use crate::journal::JournalGuard;

/// Stands before and after every call on a backend.
pub trait Guard: fmt::Debug + Send + Sync {
    /// Before the call. A guard that knows its answer gives it without a future.
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a>;

    /// A file opened by `call` is about to be `size` bytes long.
    fn check_file_size(&self, call: &Call<'_>, size: u64) -> Result<()>;

    /// A path was refused before any call could be made of it. For the record only.
    fn on_refused_path(&self, refusal: &RefusedPath<'_>);

    /// What this guard sees to, for [`EffectivePolicy`](crate::EffectivePolicy).
    fn effective_policy_control(&self) -> Option<EffectivePolicyControl>;

    /// After the call: exactly once for each `enter` that let it pass, whether the call went
    /// through, failed, was refused by a later guard, or its caller went away.
    fn after_call(&self, call: &Call<'_>, outcome: &CallOutcome<'_>);
}

/// A path that is none, or that leaves the workspace.
#[derive(Clone, Debug)]
pub struct RefusedPath<'a> {
    pub actor: &'a Actor,
    pub verb: Verb,
    /// As the caller wrote it.
    pub path: &'a str,
    pub error: &'a Error,
}

/// A guard's answer.
pub enum GuardDecision<'a> {
    Ready(Result<()>),
    Pending(BoxFuture<'a, Result<()>>),
}

impl GuardDecision<'_> {
    /// Let the call pass.
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
