//! Paging: `page` and `perPage` in, `items`, `nextPage` and `total` out.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::violation::FieldViolations;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The entries of this page.
    pub items: Vec<T>,
    /// The number of this page. The first page is 1.
    pub page: u32,
    /// The number of entries on a full page.
    pub per_page: u32,
    /// The number of the next page. Null on the last page.
    pub next_page: Option<u32>,
    /// The number of entries on all pages together.
    pub total: u64,
}

/// The query parameters of a paged list.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams,
)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct PageRequest {
    /// The page to get. The first page is 1.
    pub page: Option<u32>,
    /// The number of entries on a page: 1 to 200, 20 by default.
    pub per_page: Option<u32>,
}

impl PageRequest {
    /// The default of `perPage`.
    pub const DEFAULT_PER_PAGE: u32 = 20;
    /// The maximum `perPage`.
    pub const MAX_PER_PAGE: u32 = 200;

    /// The page to read.
    pub fn page(&self) -> u32 {
        self.page.unwrap_or(1)
    }

    /// The number of entries to read.
    pub fn per_page(&self) -> u32 {
        self.per_page.unwrap_or(Self::DEFAULT_PER_PAGE)
    }

    /// The number of entries on the pages before this one.
    pub fn offset(&self) -> u64 {
        u64::from(self.page().saturating_sub(1)) * u64::from(self.per_page())
    }

    /// Checks the range of both parameters.
    ///
    /// # Errors
    ///
    /// Returns one violation for each parameter that is out of range.
    pub fn check(&self) -> Result<(), FieldViolations> {
        let mut violations = FieldViolations::default();
        if self.page() == 0 {
            violations.add_invalid("page", "must be at least 1");
        }
        if !(1..=Self::MAX_PER_PAGE).contains(&self.per_page()) {
            violations.add_invalid("perPage", "must be 1 to 200");
        }
        violations.into_result(())
    }

    /// Builds the response for this page: `items` of a list that has `total` entries.
    pub fn build_response_page<T>(&self, items: Vec<T>, total: u64) -> Page<T> {
        let end = self.offset() + u64::from(self.per_page());
        let next_page = (end < total).then(|| self.page().saturating_add(1));
        Page { items, page: self.page(), per_page: self.per_page(), next_page, total }
    }
}
