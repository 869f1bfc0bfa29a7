//! Commands, as far as every backend must answer for them.

use ab_core::process::{ExecRequest, ProcessId};
use ab_core::{Backend, BackendKind, Code, Kind, Verb};

use crate::expect::failure;

/// A backend that cannot run commands names itself and the verb; one that can runs one.
pub async fn needs_the_capability(backend: &Backend) {
    let info = backend.info();
    if info.capabilities.exec {
        assert!(backend.exec("true").await.unwrap().exit.success());
        backend.processes().await.unwrap();
        return;
    }
    let error = failure(backend.exec("echo hello").await, Kind::Unsupported);
    assert_eq!((error.code(), error.verb()), (Code::NotImplemented, Some(Verb::Exec)));
    let named = error.backend().expect("the error names no backend");
    // A scope speaks for the backend below it.
    assert!(info.kind == BackendKind::Scoped || info.kind == named, "{error:?}");
    assert!(error.message().contains(named.as_str()), "{error}");

    failure(backend.spawn(ExecRequest::shell("true")).await, Kind::Unsupported);
    failure(backend.processes().await, Kind::Unsupported);
    failure(backend.attach(&ProcessId::new("1"), 0).await, Kind::Unsupported);
}

/// A command of nothing is refused before anybody asks whether commands can run.
pub async fn empty_is_refused(backend: &Backend) {
    for nothing in ["", "   ", "\t\n"] {
        let error = failure(backend.exec(nothing).await, Kind::Invalid);
        assert_eq!((error.code(), error.command()), (Code::EmptyCommand, Some(nothing)));
    }
}
