//! The envelope of answers: `data`, and `meta` with the id of the request.

use ab_api::PageRequest;
use serde::Serialize;
use utoipa::ToSchema;

use crate::log::RequestId;

/// An answer
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Enveloped<T> {
    data: T,
    meta: AnswerMeta,
}

/// About the answer
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AnswerMeta {
    request_id: String,
    /// Whether the list goes on
    #[serde(skip_serializing_if = "Option::is_none")]
    has_more: Option<bool>,
    /// The `page` that goes on
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl<T> Enveloped<T> {
    pub(crate) fn new(data: T, request: &RequestId) -> Self {
        let request_id = request.to_string();
        Self { data, meta: AnswerMeta { request_id, has_more: None, next_cursor: None } }
    }
}

impl<T> Enveloped<Vec<T>> {
    /// One page of a list.
    pub(crate) fn page(items: Vec<T>, total: u64, page: PageRequest, request: &RequestId) -> Self {
        let built = page.build_response_page(items, total);
        let meta = AnswerMeta {
            request_id: request.to_string(),
            has_more: Some(built.next_page.is_some()),
            next_cursor: built.next_page.map(|page| page.to_string()),
        };
        Self { data: built.items, meta }
    }
}
