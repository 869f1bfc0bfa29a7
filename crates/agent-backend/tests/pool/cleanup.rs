//! Backends that nobody uses: when they go, and who looks.

use std::time::Duration;

use agent_backend::pool::{
    BackendLeaseRequest, BackendPoolOptions, BackendPoolStats, DEFAULT_BACKEND_IDLE_TIMEOUT,
    DEFAULT_IDLE_CLEANUP_INTERVAL, IdleBackendCleanup,
};
use tokio::runtime::Handle;
use tokio::time::advance;

use super::{CloseBehaviour, TestFactory, keyed, options, turns};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn idle_ones_go_after_the_timeout_and_used_ones_stay() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let used = pool.acquire(keyed("used")).await.unwrap();
    let fresh = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    drop(pool.acquire(keyed("early")).await.unwrap());
    advance(SECOND).await;
    drop(pool.acquire(keyed("late")).await.unwrap());
    advance(DEFAULT_BACKEND_IDLE_TIMEOUT - SECOND * 2).await;
    assert_eq!(pool.destroy_idle().await, 0, "not yet");
    advance(SECOND).await;
    assert_eq!(pool.destroy_idle().await, 1);
    assert_eq!(shop.closes(), [0, 0, 1, 0]);
    let keys: Vec<String> = pool.stats().by_key.into_keys().collect();
    assert_eq!((keys, pool.stats().total), (vec!["late".to_owned(), "used".to_owned()], 3));

    drop(used);
    advance(SECOND).await;
    assert_eq!(pool.destroy_idle().await, 1, "time counts from the release");
    assert_eq!(shop.closes(), [0, 0, 1, 1]);
    advance(DEFAULT_BACKEND_IDLE_TIMEOUT - SECOND).await;
    assert_eq!((pool.destroy_idle().await, shop.closes()), (1, vec![1, 0, 1, 1]));
    drop(fresh);
}

#[tokio::test(start_paused = true)]
async fn using_one_again_starts_the_time_anew() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { idle_timeout: SECOND * 10, ..options() });
    for _ in 0..5 {
        drop(pool.acquire(keyed("ada")).await.unwrap());
        advance(SECOND * 9).await;
        assert_eq!(pool.destroy_idle().await, 0);
    }
    advance(SECOND).await;
    assert_eq!((pool.destroy_idle().await, pool.stats()), (1, BackendPoolStats::default()));
    drop(pool.acquire(keyed("ada")).await.unwrap());
    assert_eq!(shop.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn cleanup_is_by_hand_unless_asked_for() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    drop(pool.acquire(keyed("ada")).await.unwrap());
    advance(DEFAULT_BACKEND_IDLE_TIMEOUT * 10).await;
    turns().await;
    assert_eq!((shop.closes(), pool.stats().idle), (vec![0], 1));
}

#[tokio::test(start_paused = true)]
async fn cleanup_at_intervals() {
    let shop = TestFactory::default();
    let options =
        BackendPoolOptions { cleanup: IdleBackendCleanup::at_default_interval(), ..options() };
    let pool = shop.pool(options);
    turns().await;
    drop(pool.acquire(keyed("first")).await.unwrap());
    for round in 1..=6 {
        assert_eq!(pool.stats().idle, 1, "before round {round}");
        advance(DEFAULT_IDLE_CLEANUP_INTERVAL).await;
        turns().await;
        let gone = DEFAULT_IDLE_CLEANUP_INTERVAL * round >= DEFAULT_BACKEND_IDLE_TIMEOUT;
        assert_eq!(shop.closes()[0] == 1, gone, "after round {round}");
        if gone {
            break;
        }
    }
    drop(pool.acquire(keyed("second")).await.unwrap());
    advance(DEFAULT_BACKEND_IDLE_TIMEOUT + DEFAULT_IDLE_CLEANUP_INTERVAL).await;
    turns().await;
    assert_eq!((shop.closes(), pool.stats()), (vec![1, 1], BackendPoolStats::default()));
}

#[tokio::test(start_paused = true)]
async fn the_task_that_looks_ends_with_the_pool() {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let shop = TestFactory::default();
    let options =
        || BackendPoolOptions { cleanup: IdleBackendCleanup::at_default_interval(), ..options() };
    let pool = shop.pool(options());
    turns().await;
    assert_eq!(alive(), 1);
    drop(pool);
    turns().await;
    assert_eq!(alive(), 0, "dropped");

    let pool = shop.pool(options());
    drop(pool.acquire(keyed("ada")).await.unwrap());
    turns().await;
    pool.destroy_all().await.unwrap();
    assert_eq!(alive(), 0, "destroyed");
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_is_given_up_goes_on() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { idle_timeout: Duration::ZERO, ..options() });
    let closing = shop.plan_closing(CloseBehaviour::Fine);
    drop(pool.acquire(keyed("ada")).await.unwrap());
    let own = pool.clone();
    let cleaning = tokio::spawn(async move { own.destroy_idle().await });
    turns().await;
    cleaning.abort();
    assert!(cleaning.await.unwrap_err().is_cancelled());
    assert_eq!(pool.stats().destroying, 1);
    closing.allow();
    turns().await;
    assert_eq!((shop.closes(), pool.stats()), (vec![1], BackendPoolStats::default()));
}
