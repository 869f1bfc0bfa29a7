//! Destruction of a backend: it happens once, is final, and later calls get a clear error.

use ab_core::options::{FileAccess, OpenOptions};
use ab_core::{Backend, ConnectionStatus, ErrorCode, ErrorKind};
use bytes::Bytes;

use crate::ConnectionStatusRecorder;
use crate::crowd;
use crate::every_call;
use crate::expect::expect_error;

/// A second call is not an error.
pub async fn is_idempotent(backend: &Backend) {
    for _ in 0..3 {
        backend.destroy().await.unwrap();
        assert_eq!(backend.status(), ConnectionStatus::Destroyed);
    }
}

/// Every call fails at once with `Destroyed`.
pub async fn refuses_everything_after(backend: &Backend) {
    backend.write("kept", "x").await.unwrap();
    let clone = backend.clone();
    backend.destroy().await.unwrap();
    for handle in [backend, &clone] {
        let mut answers = every_call::try_every_call_on(handle, "kept").await;
        answers.extend(every_call::try_every_pathless_call(handle).await);
        // Use a path that would be refused, because a destroyed backend does not check paths.
        answers.extend(every_call::try_every_call_on(handle, "../out").await);
        for (call, result) in answers {
            let error = match result {
                Ok(()) => panic!("{call} went through after destroy"),
                Err(error) => error,
            };
            assert_eq!(
                (error.kind(), error.code()),
                (ErrorKind::Destroyed, ErrorCode::ConnectionClosed),
                "{call}: {error:?}"
            );
        }
    }
}

/// Subscribers see one transition.
pub async fn is_one_transition(backend: &Backend) {
    let heard = ConnectionStatusRecorder::subscribe(backend);
    backend.destroy().await.unwrap();
    backend.destroy().await.unwrap();
    assert_eq!(heard.transitions(), [(ConnectionStatus::Connected, ConnectionStatus::Destroyed)]);
}

/// Concurrent calls of `destroy` all succeed, with one transition.
pub async fn many_at_once_are_one(backend: &Backend) {
    let heard = ConnectionStatusRecorder::subscribe(backend);
    let destroyed = crowd::run_on_threads(8, |_| {
        let backend = backend.clone();
        async move { backend.destroy().await }
    });
    for result in destroyed.await {
        result.unwrap();
    }
    assert_eq!(backend.status(), ConnectionStatus::Destroyed);
    assert_eq!(heard.transitions(), [(ConnectionStatus::Connected, ConnectionStatus::Destroyed)]);
}

/// No call brings a destroyed backend back.
pub async fn nothing_leads_back(backend: &Backend) {
    backend.destroy().await.unwrap();
    assert_eq!(backend.connect().await.unwrap_err().kind(), ErrorKind::Destroyed);
    assert_eq!(backend.status(), ConnectionStatus::Destroyed);
}

/// Files that were opened before stop working.
pub async fn ends_open_files(backend: &Backend) {
    backend.write("file", "content").await.unwrap();
    let options = OpenOptions { access: FileAccess::ReadWrite, ..OpenOptions::default() };
    let file = backend.open("file", options).await.unwrap();
    let mut chunks = backend.read_chunks("file").await.unwrap();
    backend.destroy().await.unwrap();
    expect_error(file.read_at(0, 1).await, ErrorKind::Destroyed);
    expect_error(file.write_at(0, Bytes::from("x")).await, ErrorKind::Destroyed);
    expect_error(file.set_len(0).await, ErrorKind::Destroyed);
    expect_error(file.stat().await, ErrorKind::Destroyed);
    expect_error(file.sync().await, ErrorKind::Destroyed);
    expect_error(chunks.next().await, ErrorKind::Destroyed);
}
