//! Calls that take several requests: whether one that failed halfway has changed anything.
//!
//! Each request that changes something and may have reached the server is [noted](note) in the
//! [call](call) that it belongs to. A call that then loses its connection, or its patience, does not
//! know what became of it; one that noted nothing did nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use ab_core::{CallEffect, Error, Kind, Result};

tokio::task_local! {
    static CHANGED: AtomicBool;
    static BESIDE: ();
}

/// Makes a call that changes something.
pub(crate) async fn call<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    CHANGED.scope(AtomicBool::new(false), async { call.await.map_err(judged) }).await
}

/// Takes steps that change nothing which the workspace shows.
pub(crate) async fn beside<T>(steps: impl Future<Output = T>) -> T {
    BESIDE.scope((), steps).await
}

/// A request that changes something may have reached the server.
pub(crate) fn note() {
    if BESIDE.try_with(|()| ()).is_err() {
        let _ = CHANGED.try_with(|changed| changed.store(true, Ordering::Relaxed));
    }
}

/// Whether the call that this is a part of may have changed anything.
pub(crate) fn changed() -> bool {
    CHANGED.try_with(|changed| changed.load(Ordering::Relaxed)).unwrap_or(false)
}

/// What is known of a call that failed. A refusal tells by itself.
fn judged(error: Error) -> Error {
    match (error.kind(), changed()) {
        (Kind::Disconnected | Kind::Timeout, true) => error.with_effect(CallEffect::Unknown, None),
        (Kind::Disconnected | Kind::Timeout, false) => {
            error.with_effect(CallEffect::NotApplied, None)
        }
        _ => error,
    }
}
