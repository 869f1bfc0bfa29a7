//! Approvals of a server: lists, decisions, and a stream of their changes.

use std::fmt;

use ab_api::{Approval, ApprovalDecision, ApprovalId, ApprovalStatus, Page, SessionId};
use ab_core::Result;
use bytes::Bytes;
use http::Method;

use super::stream::MessageStream;
use super::{ServeClient, body, with_query};

const PATH: &str = "/v1/approvals";

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
