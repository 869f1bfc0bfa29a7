//! Factories that fail, hang or panic, and callers that go away while one works.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ab_testkit::expect::expect_error;
use agent_backend::pool::{
    BackendLeaseRequest, BackendPoolOptions, BackendPoolStats, DEFAULT_BACKEND_CREATE_TIMEOUT,
};
use agent_backend::{ErrorCode, ErrorKind, Verb};
use tokio::time::Instant;

use super::{Config, Plan, TestFactory, ask, failed, keyed, options, turns};

#[tokio::test]
async fn a_failure_reaches_all_who_wait_and_the_next_try_is_new() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    shop.plan(Plan::Fails(failed("no backend today")));
    let asking: Vec<_> = (0..5).map(|_| ask(&pool, keyed("ada"))).collect();
    for asking in asking {
        let error = expect_error(asking.await.unwrap(), ErrorKind::Io);
        assert_eq!((error.code(), error.message()), (ErrorCode::ExecError, "no backend today"));
    }
    assert_eq!((shop.calls(), pool.stats()), (1, BackendPoolStats::default()));
    drop(pool.acquire(keyed("ada")).await.unwrap());
    assert_eq!(shop.calls(), 2);
}

#[tokio::test]
async fn a_panic_is_an_error_and_leaves_the_pool_in_order() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { max_backends: 1, ..options() });
    for plan in [Plan::PanicsAtOnce, Plan::PanicsLater] {
        shop.plan(plan);
        let asking: Vec<_> = (0..3).map(|_| ask(&pool, keyed("ada"))).collect();
        for asking in asking {
            let error = expect_error(asking.await.unwrap(), ErrorKind::Io);
            assert_eq!(
                (error.code(), error.verb()),
                (ErrorCode::ConnectionClosed, Some(Verb::Connect))
            );
            assert_eq!(error.to_string(), "connect: the pool's factory panicked");
        }
    }
    let panics = keyed("ada").configure_if_created(|_: &mut Config| super::panic_quietly());
    expect_error(pool.acquire(panics).await, ErrorKind::Io);
    assert_eq!((shop.calls(), pool.stats()), (2, BackendPoolStats::default()));
    drop(pool.acquire(keyed("ada")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_hangs_is_given_up() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { max_backends: 1, ..options() });
    let held = Arc::new(());
    shop.plan(Plan::Hangs(held.clone()));
    let (first, second) = (ask(&pool, keyed("ada")), ask(&pool, keyed("ada")));
    let started = Instant::now();
    for asking in [first, second] {
        let error = expect_error(asking.await.unwrap(), ErrorKind::Timeout);
        assert_eq!(
            (error.code(), error.retry_advice()),
            (ErrorCode::Timeout, agent_backend::RetryAdvice::Safe)
        );
    }
    assert_eq!(started.elapsed().as_secs(), DEFAULT_BACKEND_CREATE_TIMEOUT.as_secs());
    assert_eq!((Arc::strong_count(&held), pool.stats()), (1, BackendPoolStats::default()));
    drop(pool.acquire(keyed("grace")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_time_for_making_is_a_setting() {
    let shop = TestFactory::default();
    let create_timeout = Duration::from_millis(250);
    let pool = shop.pool(BackendPoolOptions { create_timeout, ..options() });
    shop.plan(Plan::Hangs(Arc::default()));
    let started = Instant::now();
    let error =
        expect_error(pool.acquire(BackendLeaseRequest::single_use()).await, ErrorKind::Timeout);
    assert_eq!(error.message(), "the pool's factory created no backend within 250ms");
    assert!(started.elapsed() < create_timeout * 2);
}

#[tokio::test]
async fn what_is_being_made_outlives_who_asked_for_it() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let open = shop.plan_gate();
    let (first, second) = (ask(&pool, keyed("ada")), ask(&pool, keyed("ada")));
    turns().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    assert_eq!(pool.stats().waiting, 1);
    open.send(()).unwrap();
    let _lease = second.await.unwrap().unwrap();
    assert_eq!((shop.calls(), pool.stats().by_key["ada"]), (1, 1));
}

#[tokio::test]
async fn what_nobody_waits_for_is_idle_or_without_a_key_destroyed() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    for (request, closes) in [(keyed("ada"), 0), (BackendLeaseRequest::single_use(), 1)] {
        let open = shop.plan_gate();
        let asking = ask(&pool, request);
        turns().await;
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        let stats = pool.stats();
        assert_eq!((stats.creating, stats.waiting), (1, 0));
        open.send(()).unwrap();
        turns().await;
        assert_eq!(shop.closes().last(), Some(&closes));
    }
    let stats = pool.stats();
    assert_eq!((stats.total, stats.idle, stats.creating), (1, 1, 0));
}

#[tokio::test]
async fn a_lease_that_was_never_taken_is_given_back() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let open = shop.plan_gate();
    let mut asking = Box::pin(pool.acquire(keyed("ada")));
    assert!(poll_once(&mut asking).await.is_pending());
    open.send(()).unwrap();
    turns().await;
    assert_eq!(pool.stats().active, 1, "it is on its way");
    drop(asking);
    assert_eq!((pool.stats().active, pool.stats().idle), (0, 1));
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}
