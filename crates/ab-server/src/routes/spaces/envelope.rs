//! The envelope of responses: `data`, and `meta` with the id of the request.

use ab_api::PageRequest;
use ab_core::Listing;
use ab_core::metadata::WalkProblem;
use serde::Serialize;
use utoipa::ToSchema;

use crate::log::RequestId;

/// A response
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Enveloped<T> {
    data: T,
    meta: AnswerMeta,
}

/// Information about the response
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerMeta {
    request_id: String,
    /// Whether the list has more entries
    #[serde(skip_serializing_if = "Option::is_none")]
    has_more: Option<bool>,
    /// The value of `page` with which the list continues
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// Paths that could not be read, and why. The rest of the list is complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

impl AnswerMeta {
    fn new(request: &RequestId) -> Self {
        let request_id = request.to_string();
        Self { request_id, has_more: None, next_cursor: None, problems: Vec::new() }
    }
}

impl<T> Enveloped<T> {
    pub(crate) fn new(data: T, request: &RequestId) -> Self {
        Self { data, meta: AnswerMeta::new(request) }
    }
}

impl<T> Enveloped<Vec<T>> {
    /// One page of a list.
    pub(crate) fn page(items: Vec<T>, total: u64, page: PageRequest, request: &RequestId) -> Self {
        let built = page.build_response_page(items, total);
        let meta = AnswerMeta {
            has_more: Some(built.next_page.is_some()),
            next_cursor: built.next_page.map(|page| page.to_string()),
            ..AnswerMeta::new(request)
        };
        Self { data: built.items, meta }
    }

    /// The entries of a directory. The response says whether the list is truncated. It has no next
    /// page.
    pub(crate) fn listing(items: Vec<T>, listing: &Listing, request: &RequestId) -> Self {
        let problem = |it: &WalkProblem| format!("{}: {}", it.path, it.error.message());
        let meta = AnswerMeta {
            has_more: Some(listing.truncated.is_some()),
            problems: listing.problems.iter().map(problem).collect(),
            ..AnswerMeta::new(request)
        };
        Self { data: items, meta }
    }
}
