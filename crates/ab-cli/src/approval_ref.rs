//! A reference to an approval in an argument: its id, or a prefix of the id.

use std::str::FromStr;

use ab_api::ApprovalId;
use agent_backend::ServeClient;
use agent_backend::serve_client::ApprovalQuery;

use crate::failure::Failure;
use crate::session_ref::{InvalidReference, MOST_PAGES, NAMED, PER_PAGE, id_prefix};

/// The id of an approval, or a prefix of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApprovalRef(String);

impl FromStr for ApprovalRef {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<ApprovalRef, InvalidReference> {
        id_prefix(text).map(ApprovalRef).ok_or_else(|| InvalidReference::new("approval", text))
    }
}

impl ApprovalRef {
    /// Finds the approval.
    ///
    /// # Errors
    ///
    /// A usage error unless exactly one approval has this prefix. Also fails if the server cannot
    /// be reached.
    pub(crate) async fn find(&self, client: &ServeClient) -> Result<ApprovalId, Failure> {
        let ApprovalRef(text) = self;
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let mut found = Vec::new();
        let mut page = Some(1);
        while let Some(number) = page.filter(|number| *number <= MOST_PAGES) {
            let (page_number, per_page) = (Some(number), Some(PER_PAGE));
            let query = ApprovalQuery { page: page_number, per_page, ..ApprovalQuery::default() };
            let answer = client.approvals(&query).await?;
            let ids = answer.items.iter().map(|approval| approval.id);
            found.extend(ids.filter(|id| id.to_string().starts_with(text.as_str())));
            page = answer.next_page;
        }
        match found.as_slice() {
            [id] => Ok(*id),
            [] => Err(Failure::usage(format!("no approval ID starts with '{text}'"))
                .with_hint("list all approvals: agent-backend approvals list --status all")),
            several => {
                let names: Vec<String> =
                    several.iter().take(NAMED).map(ToString::to_string).collect();
                let (count, names) = (several.len(), names.join(", "));
                let message = format!("{count} approval IDs start with '{text}': {names}");
                Err(Failure::usage(message).with_hint("type more of the ID"))
            }
        }
    }
}
