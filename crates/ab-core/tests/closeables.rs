//! What is tracked is closed with the backend: last in first out, once, whatever goes wrong.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use ab_core::{
    Backend, Closeable, ConnectionStatus, Error, ErrorCode, ErrorKind, Result, ScopeOptions,
};
use ab_testkit::RecordingDriver;
use ab_testkit::expect::expect_error;
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join;
use tokio::sync::Semaphore;

/// What happened to all resources of a test, in order.
type Book = Arc<Mutex<Vec<String>>>;

#[derive(Clone, Copy)]
enum CloseBehaviour {
    Fine,
    Fails,
    Panics,
}

struct Resource {
    name: &'static str,
    close_behaviour: CloseBehaviour,
    /// Closing takes a permit; without one it waits.
    permits: Semaphore,
    book: Book,
}

impl Resource {
    fn new(name: &'static str, close_behaviour: CloseBehaviour, book: &Book) -> Arc<Self> {
        let permits = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { name, close_behaviour, permits, book: book.clone() })
    }

    fn fine(name: &'static str, book: &Book) -> Arc<Self> {
        Self::new(name, CloseBehaviour::Fine, book)
    }

    /// Does not get closed before the test adds a permit.
    fn waiting(name: &'static str, book: &Book) -> Arc<Self> {
        let permits = Semaphore::new(0);
        Arc::new(Self { name, close_behaviour: CloseBehaviour::Fine, permits, book: book.clone() })
    }
}

#[async_trait]
impl Closeable for Resource {
    async fn close(&self) -> Result<()> {
        self.permits.acquire().await.unwrap().forget();
        self.book.lock().unwrap().push(self.name.to_owned());
        match self.close_behaviour {
            CloseBehaviour::Fine => Ok(()),
            CloseBehaviour::Fails => {
                let message = format!("{} does not close", self.name);
                Err(Error::new(ErrorCode::ExecError, ErrorKind::Io, message))
            }
            CloseBehaviour::Panics => panic!("{} panics on purpose", self.name),
        }
    }
}

/// Goes on with a future as far as it can; whether it then waits for something.
fn waits<F: Future>(future: &mut Pin<Box<F>>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

fn closed(book: &Book) -> Vec<String> {
    book.lock().unwrap().clone()
}

fn world() -> (RecordingDriver, Backend, Book) {
    let driver = RecordingDriver::new();
    let backend = Backend::new(driver.clone());
    (driver, backend, Book::default())
}

#[tokio::test]
async fn closes_last_in_first_out() {
    let (driver, backend, book) = world();
    for name in ["first", "second", "third"] {
        backend.register_closeable(Resource::fine(name, &book)).await.unwrap();
    }
    assert_eq!(closed(&book), Vec::<String>::new());
    backend.destroy().await.unwrap();
    assert_eq!(closed(&book), ["third", "second", "first"]);
    assert_eq!((driver.close_count(), backend.status()), (1, ConnectionStatus::Destroyed));
    backend.destroy().await.unwrap();
    assert_eq!((closed(&book).len(), driver.close_count()), (3, 1));
}

#[tokio::test]
async fn the_driver_is_closed_last() {
    let (driver, backend, book) = world();
    let resource = Resource::waiting("resource", &book);
    backend.register_closeable(resource.clone()).await.unwrap();
    let mut destroy = Box::pin(backend.destroy());
    assert!(waits(&mut destroy));
    assert_eq!((driver.close_count(), backend.status()), (0, ConnectionStatus::Connected));
    expect_error(backend.read("file").await, ErrorKind::Destroyed);
    resource.permits.add_permits(1);
    destroy.await.unwrap();
    assert_eq!((driver.close_count(), backend.status()), (1, ConnectionStatus::Destroyed));
}

#[tokio::test]
async fn closeables_go_to_the_root() {
    let (_, root, book) = world();
    let outer = root.scope("outer", ScopeOptions::default()).unwrap();
    let inner = outer.scope("inner", ScopeOptions::default()).unwrap();
    root.register_closeable(Resource::fine("of the root", &book)).await.unwrap();
    inner.register_closeable(Resource::fine("of the inner", &book)).await.unwrap();
    outer.register_closeable(Resource::fine("of the outer", &book)).await.unwrap();
    inner.destroy().await.unwrap();
    outer.destroy().await.unwrap();
    drop((inner, outer));
    assert_eq!(closed(&book), Vec::<String>::new(), "a scope closes nothing");
    root.destroy().await.unwrap();
    assert_eq!(closed(&book), ["of the outer", "of the inner", "of the root"]);
}

#[tokio::test]
async fn a_failing_close_does_not_stop_the_others() {
    let (driver, backend, book) = world();
    for (name, close_behaviour) in [
        ("one", CloseBehaviour::Fine),
        ("two", CloseBehaviour::Fails),
        ("three", CloseBehaviour::Fine),
    ] {
        backend.register_closeable(Resource::new(name, close_behaviour, &book)).await.unwrap();
    }
    let error = backend.destroy().await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::ExecError, ErrorKind::Io));
    assert_eq!(error.message(), "two does not close");
    assert_eq!(closed(&book), ["three", "two", "one"]);
    assert_eq!((driver.close_count(), backend.status()), (1, ConnectionStatus::Destroyed));
    backend.destroy().await.unwrap();
    assert_eq!(closed(&book).len(), 3);
}

#[tokio::test]
async fn a_panicking_close_does_not_stop_the_others() {
    let (driver, backend, book) = world();
    for (name, close_behaviour) in [
        ("one", CloseBehaviour::Fine),
        ("two", CloseBehaviour::Panics),
        ("three", CloseBehaviour::Fails),
        ("four", CloseBehaviour::Fine),
    ] {
        backend.register_closeable(Resource::new(name, close_behaviour, &book)).await.unwrap();
    }
    let error = backend.destroy().await.unwrap_err();
    assert!(error.message().starts_with("2 resources failed to close"), "{error}");
    assert!(error.message().contains("three does not close"), "{error}");
    assert_eq!(closed(&book), ["four", "three", "two", "one"]);
    assert_eq!((driver.close_count(), backend.status()), (1, ConnectionStatus::Destroyed));
}

#[tokio::test]
async fn concurrent_destroys_close_once() {
    let (driver, backend, book) = world();
    let resource = Resource::waiting("resource", &book);
    backend.register_closeable(resource.clone()).await.unwrap();
    let mut both = Box::pin(join(backend.destroy(), backend.destroy()));
    assert!(waits(&mut both));
    resource.permits.add_permits(2);
    let (first, second) = both.await;
    first.unwrap();
    second.unwrap();
    assert_eq!((closed(&book).len(), driver.close_count()), (1, 1));
}

#[tokio::test]
async fn a_cancelled_destroy_is_finished_by_the_next() {
    let (driver, backend, book) = world();
    let stuck = Resource::waiting("stuck", &book);
    backend.register_closeable(Resource::fine("first", &book)).await.unwrap();
    backend.register_closeable(stuck.clone()).await.unwrap();
    backend.register_closeable(Resource::fine("last", &book)).await.unwrap();
    assert!(backend.destroy().now_or_never().is_none(), "closing must wait");
    assert_eq!(closed(&book), ["last"]);
    assert_eq!(driver.close_count(), 0);
    expect_error(backend.write("file", "x").await, ErrorKind::Destroyed);

    stuck.permits.add_permits(1);
    backend.destroy().await.unwrap();
    assert_eq!(closed(&book), ["last", "stuck", "first"], "what was being closed is closed too");
    assert_eq!((driver.close_count(), backend.status()), (1, ConnectionStatus::Destroyed));
}

#[tokio::test]
async fn tracking_after_destroy_closes_at_once() {
    let (_, backend, book) = world();
    let scope = backend.scope("scope", ScopeOptions::default()).unwrap();
    backend.destroy().await.unwrap();
    for handle in [&backend, &scope] {
        let result = handle.register_closeable(Resource::fine("late", &book)).await;
        assert_eq!(expect_error(result, ErrorKind::Destroyed).code(), ErrorCode::ConnectionClosed);
    }
    assert_eq!(closed(&book), ["late", "late"]);
    let result =
        backend.register_closeable(Resource::new("bad", CloseBehaviour::Panics, &book)).await;
    expect_error(result, ErrorKind::Destroyed);
}

#[tokio::test]
async fn tracking_while_destroying_closes_at_once() {
    let (_, backend, book) = world();
    let stuck = Resource::waiting("stuck", &book);
    backend.register_closeable(stuck.clone()).await.unwrap();
    let mut destroy = Box::pin(backend.destroy());
    assert!(waits(&mut destroy));
    expect_error(
        backend.register_closeable(Resource::fine("late", &book)).await,
        ErrorKind::Destroyed,
    );
    assert_eq!(closed(&book), ["late"]);
    stuck.permits.add_permits(1);
    destroy.await.unwrap();
}

#[tokio::test]
async fn tracking_on_a_destroyed_scope_closes_at_once() {
    let (_, backend, book) = world();
    let scope = backend.scope("scope", ScopeOptions::default()).unwrap();
    scope.destroy().await.unwrap();
    expect_error(
        scope.register_closeable(Resource::fine("late", &book)).await,
        ErrorKind::Destroyed,
    );
    assert_eq!(closed(&book), ["late"]);
}

#[tokio::test]
async fn what_is_untracked_is_not_closed() {
    let (_, backend, book) = world();
    let scope = backend.scope("scope", ScopeOptions::default()).unwrap();
    let kept = backend.register_closeable(Resource::fine("kept", &book)).await.unwrap();
    let taken = scope.register_closeable(Resource::fine("taken", &book)).await.unwrap();
    assert_ne!(kept, taken);
    assert!(backend.unregister_closeable(taken).is_some());
    assert!(backend.unregister_closeable(taken).is_none(), "it was taken back already");
    backend.destroy().await.unwrap();
    assert_eq!(closed(&book), ["kept"]);
    assert!(backend.unregister_closeable(kept).is_none());
}

/// Ends its own backend while it is being closed.
struct Eager(Backend);

#[async_trait]
impl Closeable for Eager {
    async fn close(&self) -> Result<()> {
        self.0.destroy().await
    }
}

#[tokio::test]
async fn a_resource_may_destroy_its_backend_while_it_is_closed() {
    let (_, backend, book) = world();
    backend.register_closeable(Resource::fine("first", &book)).await.unwrap();
    backend.register_closeable(Arc::new(Eager(backend.clone()))).await.unwrap();
    backend.destroy().await.unwrap();
    assert_eq!(closed(&book), ["first"]);
    assert_eq!(backend.status(), ConnectionStatus::Destroyed);
}
