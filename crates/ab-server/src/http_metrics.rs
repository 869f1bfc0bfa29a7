//! Counts requests by route and status, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::Method;

/// Upper bounds of the buckets of durations, in seconds.
pub(crate) const REQUEST_BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];
/// The label for unknown values, so that callers cannot create labels.
pub(crate) const OTHER: &str = "other";

/// Counts of the requests since the process started. A stream is counted when it begins.
#[derive(Debug, Default)]
pub(crate) struct HttpMetrics(Mutex<HttpCounts>);

/// The counts of [`HttpMetrics`] at a point in time.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HttpCounts {
    /// The number of requests by route, method and status.
    pub(crate) requests: BTreeMap<(String, &'static str, u16), u64>,
    /// For each bound of [`REQUEST_BUCKETS`], the number of durations that are at most this bound
    /// and greater than the one before it.
    pub(crate) buckets: [u64; REQUEST_BUCKETS.len()],
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl HttpMetrics {
    /// Counts a request. `route` is the template of its path. `None` if no route matched.
    pub(crate) fn add(&self, route: Option<&str>, method: &Method, status: u16, time: Duration) {
        let key = (route.unwrap_or(OTHER).to_owned(), name(method), status);
        let seconds = time.as_secs_f64();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.requests.entry(key).or_default() += 1;
        counts.count += 1;
        counts.sum += seconds;
        if let Some(index) = REQUEST_BUCKETS.iter().position(|bound| seconds <= *bound) {
            counts.buckets[index] += 1;
        }
    }

    pub(crate) fn counts(&self) -> HttpCounts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The name of a known method, or [`OTHER`], because callers can send any word as a method.
fn name(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_cannot_make_labels() {
        let metrics = HttpMetrics::default();
        for word in ["GET", "BREW", "STEEP"] {
            let method = Method::from_bytes(word.as_bytes()).unwrap();
            metrics.add(None, &method, 404, Duration::from_millis(2));
        }
        metrics.add(Some("/a/{id}"), &Method::GET, 200, Duration::from_secs(100));
        let counts = metrics.counts();
        let keys: Vec<_> =
            counts.requests.iter().map(|((route, method, _), n)| (&**route, *method, *n)).collect();
        assert_eq!(keys, [("/a/{id}", "GET", 1), ("other", "GET", 1), ("other", "other", 2)]);
        assert_eq!((counts.count, counts.buckets[1]), (4, 3));
    }
}
