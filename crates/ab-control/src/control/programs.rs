//! Approvals that programs outside the server request.

use ab_api::{Approval, ApprovalId, ApprovalQuestion, ApprovalRequester, Time};
use ab_store::{ApprovalOwner, RequestedApproval};

use super::{ControlPlane, ControlPlaneError};

impl ControlPlane {
    /// Stores the question of a program outside the server. If the program already asked the same
    /// question and has not used the answer, returns the existing approval.
    ///
    /// # Errors
    ///
    /// [`DigestReused`](ab_store::StoreError::DigestReused) or
    /// [`TooManyPending`](ab_store::StoreError::TooManyPending) in [`ControlPlaneError::Store`].
    pub async fn request_approval(
        &self,
        question: &ApprovalQuestion,
        principal: String,
    ) -> Result<RequestedApproval, ControlPlaneError> {
        let lifetime = question.lifetime().unwrap_or(self.plane.settings.approval_timeout);
        let requester = ApprovalRequester { principal, name: question.requester.clone() };
        let requester = Some(requester);
        let approval =
            Approval { requester, ..Approval::new_pending(question.subject(), Time::now()) };
        let approval = approval.expiring_after(lifetime);
        Ok(self.plane.store.request_approval(approval).await?)
    }

    /// Records that a program now uses the decision of its approval. The decision may be a grant or
    /// a denial. It can be used once.
    ///
    /// # Errors
    ///
    /// [`UseDecision`](ab_store::StoreError::UseDecision) in [`ControlPlaneError::Store`] if the approval is
    /// pending, was used before, is about something else, or was requested by another caller.
    pub async fn use_approval(
        &self,
        id: ApprovalId,
        digest: String,
        principal: String,
    ) -> Result<Approval, ControlPlaneError> {
        let asked = self.plane.store.get_approval(id).await?;
        let name = asked.requester.map(|requester| requester.name).unwrap_or_default();
        let scope = ApprovalOwner::Program(ApprovalRequester { principal, name });
        Ok(self.plane.store.use_decision_of_approval(id, scope, digest).await?)
    }
}
