//! Guards see every call. A guard may delay, refuse or record a call, but cannot change it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::call::{Actor, Call, CallOutcome, Verb};
use crate::effective_policy::EffectivePolicyControl;
use crate::error::{Error, Result};
use crate::journal::JournalGuard;

/// Runs before and after every call on a backend.
pub trait Guard: fmt::Debug + Send + Sync {
    /// Called before the call. Returns `Ready` if the decision needs no future.
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a>;

    /// Called before a file that was opened by `call` grows to `size` bytes.
    fn check_file_size(&self, call: &Call<'_>, size: u64) -> Result<()>;

    /// Called for a path that the parser refused. There is no call in this case, so a guard can
    /// only record the path.
    fn on_refused_path(&self, refusal: &RefusedPath<'_>);

    /// The control that this guard enforces, for [`EffectivePolicy`](crate::EffectivePolicy).
    fn effective_policy_control(&self) -> Option<EffectivePolicyControl>;

    /// Called after the call, exactly once for each `before_call` that allowed the call. It is also
    /// called if the call failed, if a later guard refused the call, or if the future of the call
    /// was dropped.
    fn after_call(&self, call: &Call<'_>, outcome: &CallOutcome<'_>);
}

/// A path that is invalid or leaves the workspace.
#[derive(Clone, Debug)]
pub struct RefusedPath<'a> {
    pub actor: &'a Actor,
    pub verb: Verb,
    /// The path in the form in which the caller wrote it.
    pub path: &'a str,
    pub error: &'a Error,
}

/// The decision of a guard.
pub enum GuardDecision<'a> {
    Ready(Result<()>),
    Pending(BoxFuture<'a, Result<()>>),
}

impl GuardDecision<'_> {
    /// Allows the call.
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

/// The guards of a handle. They run in the order of the fields: trace and journal come first, so
/// that they record calls that the policy refuses. The limits come last, so that a call that waits
/// for a person does not count towards a limit.
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
