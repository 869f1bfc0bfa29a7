//! Approvals of programs outside the server.

use ab_api::{Approval, ApprovalDecider, ApprovalStatus};

use super::{OVERDUE, end, insert, is_over, requester_key};
use crate::error::StoreError;
use crate::store::Store;
use crate::writer::{Writing, from_json};

/// Maximum number of pending approvals of programs.
const MAX_PENDING: i64 = 1000;

/// The result of a program's request for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedApproval {
    pub approval: Approval,
    /// Whether the request created the approval. If not, the program asked before and has not used
    /// the decision.
    pub is_new: bool,
}

impl Store {
    /// Stores the question of a program. If the same program already asked about the same digest
    /// and has not used the decision, returns the earlier approval instead. It may be pending or
    /// decided.
    ///
    /// # Errors
    ///
    /// [`StoreError::DigestReused`] if the earlier question has a different text.
    /// [`StoreError::TooManyPending`] if too many approvals of programs are pending.
    /// [`StoreError::NotFound`] if the approval names no requester.
    pub async fn request_approval(
        &self,
        approval: Approval,
    ) -> Result<RequestedApproval, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                if let Some(earlier) = unused(writing, &approval).await? {
                    if earlier.subject != approval.subject {
                        return Err(StoreError::DigestReused(earlier.id));
                    }
                    return Ok(RequestedApproval { approval: earlier, is_new: false });
                }
                let sql = "SELECT COUNT(*) FROM approvals \
                     WHERE status = 'pending' AND requester IS NOT NULL";
                let pending: i64 =
                    sqlx::query_scalar(sql).fetch_one(writing.connection().await?).await?;
                if pending >= MAX_PENDING {
                    return Err(StoreError::TooManyPending { limit: MAX_PENDING });
                }
                insert(writing, &approval).await?;
                Ok(RequestedApproval { approval, is_new: true })
            })
        })
        .await
    }
}

/// Finds an approval of the same requester about the same digest that is not used and not expired.
async fn unused(writing: &mut Writing, asked: &Approval) -> Result<Option<Approval>, StoreError> {
    let requester = asked.requester.as_ref().ok_or(StoreError::NotFound)?;
    let sql = "SELECT body FROM approvals WHERE requester = $1 AND digest = $2 \
         AND status IN ('pending', 'approved', 'denied') AND used IS NULL ORDER BY id";
    let query = sqlx::query_scalar(sql).bind(requester_key(requester)?);
    let bodies: Vec<String> =
        query.bind(&asked.subject.digest).fetch_all(writing.connection().await?).await?;
    for body in bodies {
        let earlier: Approval = from_json("approval", &body)?;
        if !is_over(&earlier) {
            return Ok(Some(earlier));
        }
        if earlier.status == ApprovalStatus::Pending {
            let (by, why) = (ApprovalDecider::for_timeout(), Some(OVERDUE.to_owned()));
            end(writing, earlier, ApprovalStatus::Expired, by, why).await?;
        }
    }
    Ok(None)
}
