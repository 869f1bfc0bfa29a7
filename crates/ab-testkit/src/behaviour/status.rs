//! Status and description: the same API for every kind of backend.

use ab_core::options::AttributeChanges;
use ab_core::{Backend, ConnectionStatus, ErrorKind, LostCallEffect, LostCallId};

use crate::ConnectionStatusRecorder;
use crate::every_call;
use crate::expect::expect_error;

/// A workspace without a connection is connected from the start, and works.
pub async fn starts_connected(backend: &Backend) {
    assert_eq!(backend.status(), ConnectionStatus::Connected);
    backend.write("file", "x").await.unwrap();
    assert_eq!(backend.status(), ConnectionStatus::Connected);
}

/// The effect of a call on another backend is unknown.
pub async fn tickets_of_others_are_unknown(backend: &Backend) {
    for text in ["", "nobody's", "00000000000000000000000000000000-7"] {
        let outcome = backend.query_lost_call(&LostCallId::new(text)).await.unwrap();
        assert_eq!(outcome, LostCallEffect::Unknown, "{text}");
    }
}

/// A connected workspace stays connected, without a transition.
pub async fn connect_is_idempotent(backend: &Backend) {
    let heard = ConnectionStatusRecorder::subscribe(backend);
    for _ in 0..3 {
        backend.connect().await.unwrap();
        assert_eq!(backend.status(), ConnectionStatus::Connected);
    }
    assert_eq!(heard.transitions(), []);
}

/// Between creation and destruction there is one transition, no matter which calls are made.
pub async fn connected_until_destroyed(backend: &Backend) {
    let heard = ConnectionStatusRecorder::subscribe(backend);
    backend.write("file", "x").await.unwrap();
    expect_error(backend.read("missing").await, ErrorKind::NotFound);
    expect_error(backend.read("../out").await, ErrorKind::PathEscape);
    assert_eq!(heard.transitions(), []);
    backend.destroy().await.unwrap();
    assert_eq!(heard.transitions(), [(ConnectionStatus::Connected, ConnectionStatus::Destroyed)]);
}

/// After unsubscribing, a listener gets no more transitions; the others do.
pub async fn subscriptions_are_independent(backend: &Backend) {
    let mut gone = ConnectionStatusRecorder::subscribe(backend);
    let (first, second) = (
        ConnectionStatusRecorder::subscribe(backend),
        ConnectionStatusRecorder::subscribe(backend),
    );
    gone.unsubscribe();
    backend.destroy().await.unwrap();
    let expect = [(ConnectionStatus::Connected, ConnectionStatus::Destroyed)];
    assert_eq!(gone.transitions(), []);
    assert_eq!(first.transitions(), expect);
    assert_eq!(second.transitions(), expect);
}

/// Kind and capabilities agree with the results of calls.
pub async fn info_is_honest(backend: &Backend) {
    let info = backend.info();
    let can = info.capabilities;
    backend.write("file", "x").await.unwrap();

    let links = backend.symlink("link", "file").await;
    assert_eq!(supported(links), can.symlinks, "links");
    let mode = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
    assert_eq!(supported(backend.set_attributes("file", mode).await), can.file_modes, "modes");
    assert_eq!(backend.stat("file").await.unwrap().mode.is_some(), can.file_modes, "modes");
    backend.mkdir("empty").await.unwrap();
    assert_eq!(backend.exists("empty").await.unwrap(), can.empty_dirs, "empty_dirs");
    assert_eq!(
        supported(backend.search(&every_call::all_names_query()).await),
        can.search,
        "search"
    );
    assert_eq!(supported(backend.exec("true").await), can.exec, "exec");
    assert_eq!(supported(backend.detached_processes().await), can.detached_processes, "processes");

    assert_eq!(backend.info(), info, "what a backend is does not change");
}

fn supported<T>(result: ab_core::Result<T>) -> bool {
    match result {
        Err(error) if error.kind() == ErrorKind::Unsupported => false,
        Ok(_) => true,
        Err(error) => panic!("neither done nor unsupported: {error:?}"),
    }
}
