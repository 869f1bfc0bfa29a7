//! Searching, as far as every backend must answer for it.

use ab_core::{Backend, Code, Kind, Verb};

use crate::every_call;
use crate::expect::failure;

/// A backend that cannot search says so; one that can finds names.
pub async fn needs_the_capability(backend: &Backend) {
    backend.write("dir/needle", "x").await.unwrap();
    let query = every_call::names();
    if backend.info().capabilities.search {
        assert!(!backend.search(&query).await.unwrap().matches.is_empty());
        return;
    }
    let error = failure(backend.search(&query).await, Kind::Unsupported);
    assert_eq!((error.code(), error.verb()), (Code::NotImplemented, Some(Verb::Search)));
}
