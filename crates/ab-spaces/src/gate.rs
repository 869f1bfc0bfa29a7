//! The gate of a space: the guard that every call of an operation passes last. It answers the
//! questions of the policy, and records when an operation starts.
//!
//! Every operation of a run acts under its own name. The gate can therefore distinguish its
//! question and its start from the questions and starts of other callers. A call that reaches the
//! gate was allowed by the policy and is performed next.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::{
    ApprovalAnswer, ApprovalRequest, Approver, Call, CallOutcome, EffectivePolicyControl, Error,
    Guard, Principal, PrincipalKind, Result,
};
use async_trait::async_trait;
use futures_util::future::BoxFuture;

/// Stores the start record of an operation. Called before the operation is performed.
pub(crate) type StartRecord = Box<dyn FnOnce() -> BoxFuture<'static, Result<()>> + Send>;

/// Answers the questions of a space's policy, and records the start of operations.
pub(crate) struct RunGate {
    operations: Mutex<HashMap<String, OpenOperation>>,
    /// Answers the policy's questions about callers that are not operations, such as a tool of the
    /// MCP endpoint.
    others: Arc<dyn Approver>,
}

/// What the gate knows about an operation that is being performed.
struct OpenOperation {
    /// The digest of the operation that a person approved, if a person was asked.
    granted: Option<String>,
    asked: Option<ApprovalRequest>,
    start: Option<StartRecord>,
}

impl RunGate {
    pub(crate) fn new(others: Arc<dyn Approver>) -> Arc<Self> {
        Arc::new(Self { operations: Mutex::default(), others })
    }

    /// Opens the gate for one operation. Dropping the returned value closes the gate.
    pub(crate) fn open(
        self: &Arc<Self>,
        principal: &Principal,
        granted: Option<String>,
        start: StartRecord,
    ) -> OpenGate {
        let name = principal.id().to_owned();
        let open = OpenOperation { granted, asked: None, start: Some(start) };
        self.lock().insert(name.clone(), open);
        OpenGate { gate: self.clone(), name }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenOperation>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the function that stores the start of the operation that makes this call. `None` if
    /// the start is already stored, or if the caller is not an operation.
    fn take_start(&self, call: &Call<'_>) -> Option<StartRecord> {
        let principal = call.actor.principal();
        if principal.kind() != PrincipalKind::Process {
            return None;
        }
        self.lock().get_mut(principal.id())?.start.take()
    }
}

/// Keeps the gate open for one operation until it is dropped.
pub(crate) struct OpenGate {
    gate: Arc<RunGate>,
    name: String,
}

impl OpenGate {
    /// The question that the policy asked about the operation, if there was one.
    pub(crate) fn asked(&self) -> Option<ApprovalRequest> {
        self.gate.lock().get(&self.name)?.asked.clone()
    }
}

impl Drop for OpenGate {
    fn drop(&mut self) {
        self.gate.lock().remove(&self.name);
    }
}

#[async_trait]
impl Approver for RunGate {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer {
        if asked.principal.kind() == PrincipalKind::Process
            && let Some(open) = self.lock().get_mut(asked.principal.id())
        {
            if open.granted.as_deref() == Some(asked.digest.to_string().as_str()) {
                return ApprovalAnswer::Yes(asked.principal.clone());
            }
            open.asked = Some(asked.clone());
            // The task that performs the run stores the question. In the same step it records that
            // the run waits for the decision.
            return ApprovalAnswer::Pending(ab_core::ApprovalId::new(asked.digest.to_string()));
        }
        self.others.ask(asked).await
    }
}

impl Guard for RunGate {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        match self.take_start(call) {
            None => GuardDecision::ALLOW,
            Some(start) => GuardDecision::Pending(start()),
        }
    }

    fn check_file_size(&self, _: &Call<'_>, _: u64) -> Result<(), Error> {
        Ok(())
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, _: &Call<'_>, _: &CallOutcome<'_>) {}
}

impl fmt::Debug for RunGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunGate").field("operations", &self.lock().len()).finish_non_exhaustive()
    }
}
