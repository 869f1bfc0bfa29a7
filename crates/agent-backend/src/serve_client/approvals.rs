//! Approvals of a server: lists, decisions, and a stream of their changes.

use std::fmt;
use std::time::Duration;

use ab_api::{
    Approval, ApprovalDecision, ApprovalId, ApprovalQuestion, ApprovalStatus, ApprovalUse, Page,
    SessionId,
};
use ab_core::Result;
use bytes::Bytes;
use http::Method;

use super::stream::MessageStream;
use super::{ServeClient, body, with_query};

const PATH: &str = "/v1/approvals";
/// Maximum time that one request waits for a decision. Must be shorter than the time limit for an
/// answer of the server.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Filters and the page of a list of approvals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalQuery {
    pub status: Option<ApprovalStatus>,
    pub session_id: Option<SessionId>,
    pub page: Option<u32>,
    pub per_page: Option<u32>,
}

impl ApprovalQuery {
    fn path(&self) -> String {
        let ApprovalQuery { status, session_id, page, per_page } = self;
        with_query(
            PATH,
            &[
                ("status", status.map(|status| status.as_str().to_owned())),
                ("sessionId", session_id.map(|id| id.to_string())),
                ("page", page.map(|page| page.to_string())),
                ("perPage", per_page.map(|count| count.to_string())),
            ],
        )
    }
}

impl ServeClient {
    /// Returns one page of the approvals that match the query, newest first.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn approvals(&self, query: &ApprovalQuery) -> Result<Page<Approval>> {
        self.json(Method::GET, &query.path(), Bytes::new()).await
    }

    /// Returns the pending approvals of a session.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn pending_approvals(&self, id: SessionId) -> Result<Vec<Approval>> {
        let query = ApprovalQuery {
            status: Some(ApprovalStatus::Pending),
            session_id: Some(id),
            per_page: Some(200),
            page: None,
        };
        Ok(self.approvals(&query).await?.items)
    }

    /// Returns the approval with this id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is no such approval.
    pub async fn approval(&self, id: ApprovalId) -> Result<Approval> {
        self.json(Method::GET, &format!("{PATH}/{id}"), Bytes::new()).await
    }

    /// Decides an approval, and returns it with the decision.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](ab_core::ErrorKind::Conflict) if the approval was already decided or
    /// has expired, or if it would be granted although it cannot be shown completely.
    pub async fn decide_approval(
        &self,
        id: ApprovalId,
        decision: &ApprovalDecision,
    ) -> Result<Approval> {
        self.json(Method::POST, &format!("{PATH}/{id}"), body(decision)?).await
    }

    /// Requests an approval. A repeated request with the same requester and digest returns the same
    /// approval, until its decision is used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ab_core::ErrorKind::Invalid) if the server does not accept the
    /// question. The error has a message for each wrong field.
    /// [`ErrorKind::Conflict`](ab_core::ErrorKind::Conflict) if an open approval has the same
    /// digest and a different text.
    pub async fn request_approval(&self, question: &ApprovalQuestion) -> Result<Approval> {
        self.json(Method::POST, PATH, body(question)?).await
    }

    /// Waits until the approval is decided or has expired, and returns it. Waits at most `wait`,
    /// and never longer than 30 seconds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is no such approval.
    pub async fn wait_for_approval(&self, id: ApprovalId, wait: Duration) -> Result<Approval> {
        let seconds = wait.min(LONGEST_WAIT).as_millis().div_ceil(1000);
        self.json(Method::GET, &format!("{PATH}/{id}?wait={seconds}"), Bytes::new()).await
    }

    /// Uses the decision about a question of this client. A decision can be used once. The caller
    /// may perform its action only if the status of the returned approval is approved.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](ab_core::ErrorKind::Conflict) if the approval is pending, was used
    /// before, is about a different digest, or was requested by another caller.
    pub async fn use_approval(&self, id: ApprovalId, digest: &str) -> Result<Approval> {
        let digest = digest.to_owned();
        let path = format!("{PATH}/{id}/use");
        self.json(Method::POST, &path, body(&ApprovalUse { digest })?).await
    }

    /// Returns first the approvals that match the filter, and then every approval that is created
    /// or changed.
    pub fn follow_approvals(&self, query: &ApprovalQuery) -> ApprovalStream {
        ApprovalStream { messages: MessageStream::new(self.clone(), query.path(), None) }
    }
}

/// A stream of approvals as they change. After a lost connection it continues after the last
/// approval that it returned.
pub struct ApprovalStream {
    messages: MessageStream,
}

impl ApprovalStream {
    /// Returns the next approval in its state after the change. Cancel safe.
    ///
    /// # Errors
    ///
    /// Fails if the server answers with an error instead of a stream.
    /// [`ErrorKind::Disconnected`](ab_core::ErrorKind::Disconnected) if the server could not be
    /// reached for the client's reconnect timeout.
    pub async fn next(&mut self) -> Result<Option<Approval>> {
        while let Some(message) = self.messages.next().await? {
            // Skip messages that this version cannot parse.
            if let Ok(approval) = serde_json::from_str(&message.data) {
                return Ok(Some(approval));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for ApprovalStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = &self.messages.after;
        f.debug_struct("ApprovalStream").field("after", after).finish_non_exhaustive()
    }
}
