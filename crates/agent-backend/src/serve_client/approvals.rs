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
/// The longest that one request waits for a decision: shorter than the time that a server may take to answer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Which approvals to list.
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
    /// One page of the approvals, the newest first.
    ///
    /// # Errors
    ///
    /// Errors of the connection and of the server, as for every call.
    pub async fn approvals(&self, query: &ApprovalQuery) -> Result<Page<Approval>> {
        self.json(Method::GET, &query.path(), Bytes::new()).await
    }

    /// The approvals of a session that wait for a decision.
    ///
    /// # Errors
    ///
    /// Errors of the connection and of the server, as for every call.
    pub async fn pending_approvals(&self, id: SessionId) -> Result<Vec<Approval>> {
        let query = ApprovalQuery {
            status: Some(ApprovalStatus::Pending),
            session_id: Some(id),
            per_page: Some(200),
            page: None,
        };
        Ok(self.approvals(&query).await?.items)
    }

    /// One approval.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is none with this id.
    pub async fn approval(&self, id: ApprovalId) -> Result<Approval> {
        self.json(Method::GET, &format!("{PATH}/{id}"), Bytes::new()).await
    }

    /// Decides an approval, and returns it as it is then.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](ab_core::ErrorKind::Conflict) if it was decided before, has expired, or cannot be shown
    /// whole and is to be approved.
    pub async fn decide_approval(
        &self,
        id: ApprovalId,
        decision: &ApprovalDecision,
    ) -> Result<Approval> {
        self.json(Method::POST, &format!("{PATH}/{id}"), body(decision)?).await
    }

    /// Asks for an approval. Asked again with the same requester and digest, it is the same approval until its answer
    /// is used.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ab_core::ErrorKind::Invalid) with a message for each field that the server does not
    /// accept; [`ErrorKind::Conflict`](ab_core::ErrorKind::Conflict) if an open approval has the digest and another
    /// text.
    pub async fn request_approval(&self, question: &ApprovalQuestion) -> Result<Approval> {
        self.json(Method::POST, PATH, body(question)?).await
    }

    /// Waits until the approval is decided or has expired, for at most `wait` and at most 30 seconds, and returns it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](ab_core::ErrorKind::NotFound) if there is none with this id.
    pub async fn wait_for_approval(&self, id: ApprovalId, wait: Duration) -> Result<Approval> {
        let seconds = wait.min(LONGEST_WAIT).as_millis().div_ceil(1000);
        self.json(Method::GET, &format!("{PATH}/{id}?wait={seconds}"), Bytes::new()).await
    }

    /// Uses the answer to a question of this client, which works once. Only if the status of the returned approval is
    /// approved may the caller do what it asked about.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`](ab_core::ErrorKind::Conflict) if the approval is pending, was used before, is about
    /// another digest, or another caller asked.
    pub async fn use_approval(&self, id: ApprovalId, digest: &str) -> Result<Approval> {
        let digest = digest.to_owned();
        let path = format!("{PATH}/{id}/use");
        self.json(Method::POST, &path, body(&ApprovalUse { digest })?).await
    }

    /// The approvals that pass the filter, then every approval that is made or changes.
    pub fn follow_approvals(&self, query: &ApprovalQuery) -> ApprovalStream {
        ApprovalStream { messages: MessageStream::new(self.clone(), query.path(), None) }
    }
}

/// Approvals as they change. After a lost connection it continues behind the last one that it returned.
pub struct ApprovalStream {
    messages: MessageStream,
}

impl ApprovalStream {
    /// The next approval, as it is after its change. The future may be dropped: no approval is lost.
    ///
    /// # Errors
    ///
    /// What the server answers instead of a stream, and
    /// [`ErrorKind::Disconnected`](ab_core::ErrorKind::Disconnected) once the server has been out of reach for the
    /// client's reconnect timeout.
    pub async fn next(&mut self) -> Result<Option<Approval>> {
        while let Some(message) = self.messages.next().await? {
            // One of a kind that this version does not know is skipped.
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
