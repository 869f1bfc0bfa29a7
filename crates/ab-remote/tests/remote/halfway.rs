//! Calls that a plain server does by halves: what is said of them, and what is left.

mod shelf;

use std::sync::atomic::{AtomicUsize, Ordering};

use ab_core::options::{Attributes, Reach, RemoveOptions};
use ab_core::{Effect, Error, Kind};
use ab_remote::sftp::packet::Request;

use self::shelf::{Shelf, Verdict};
use crate::stage::within;

/// Cuts the connection at a request of some kind, the so-manieth of them.
fn cut_at(number: usize, is_meant: fn(&Request) -> bool) -> Shelf {
    let met = AtomicUsize::new(0);
    Shelf::new(move |request| {
        match is_meant(request) && met.fetch_add(1, Ordering::SeqCst) + 1 == number {
            true => Verdict::Cut,
            false => Verdict::Serve,
        }
    })
}

fn is_lost(error: &Error, effect: Effect) {
    assert_eq!(error.kind(), Kind::Disconnected, "{error:?}");
    assert_eq!((error.effect(), error.ticket()), (Some(effect), None), "{error:?}");
}

#[tokio::test]
async fn a_removal_that_is_cut_between_two_directories_may_have_removed() {
    // The first directory is opened before anything is removed, the second after.
    let everything = RemoveOptions { reach: Reach::Recursive, ..RemoveOptions::default() };
    for (number, effect) in [(1, Effect::NotApplied), (2, Effect::Unknown)] {
        let server = cut_at(number, |request| matches!(request, Request::OpenDir { .. }))
            .with("/top", None)
            .with("/top/file", Some("x"))
            .with("/top/inner", None);
        let backend = server.backend(|_| {}).await;
        is_lost(&within(backend.rm("top", everything)).await.unwrap_err(), effect);
        assert_eq!(server.files().is_empty(), effect == Effect::Unknown);
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn attributes_whose_look_afterwards_is_cut_may_be_set() {
    for (number, effect) in [(1, Effect::NotApplied), (2, Effect::Unknown)] {
        let server = cut_at(number, |request| matches!(request, Request::Lstat { .. }))
            .with("/file", Some("x"));
        let backend = server.backend(|_| {}).await;
        let attributes = Attributes { mode: Some(0o600), ..Attributes::default() };
        let set = within(backend.set_attributes("file", attributes)).await;
        is_lost(&set.unwrap_err(), effect);
        within(backend.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn a_draft_that_is_cut_changed_nothing_but_its_parents() {
    let filling = |request: &Request| matches!(request, Request::Write { .. });
    for (path, effect) in [("file", Effect::NotApplied), ("new/file", Effect::Unknown)] {
        let server = cut_at(1, filling).with("/file", Some("old"));
        let backend = server.backend(|_| {}).await;
        is_lost(&within(backend.write(path, "new")).await.unwrap_err(), effect);
        within(backend.destroy()).await.unwrap();
    }
}
