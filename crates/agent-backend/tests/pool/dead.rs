//! Which backends are dead, and what becomes of them.

use std::time::Duration;

use ab_testkit::expect::expect_error;
use agent_backend::pool::{BackendLeaseRequest, BackendPoolOptions};
use agent_backend::{ConnectionStatus, Driver, ErrorCode, ErrorKind};

use ConnectionStatus::{Connected, Connecting, Destroyed, Disconnected, Reconnecting};

use super::{CloseBehaviour, Plan, TestFactory, ask, keyed, options, turns};

#[tokio::test]
async fn only_what_was_connected_can_be_dead_before_it_is_destroyed() {
    let table: [(&[ConnectionStatus], usize); 9] = [
        (&[Connected], 1),
        (&[Disconnected], 1),
        (&[Connecting], 1),
        (&[Disconnected, Connecting, Disconnected], 1),
        (&[Reconnecting], 1),
        (&[Connected, Reconnecting], 1),
        (&[Connected, Disconnected, Connecting], 1),
        (&[Connected, Disconnected], 2),
        (&[Connecting, Connected, Disconnected], 2),
    ];
    for (statuses, calls) in table {
        let shop = TestFactory::default();
        let pool = shop.pool(options());
        shop.plan(Plan::Starts(statuses[0]));
        let first = pool.acquire(keyed("ada")).await.unwrap();
        for status in statuses {
            shop.driver(0).status_publisher().set(*status, None);
        }
        let second = pool.acquire(keyed("ada")).await.unwrap();
        assert_eq!(shop.calls(), calls, "{statuses:?}");
        drop((first, second));
        turns().await;
        let expect: &[usize] = if calls == 1 { &[0] } else { &[1, 0] };
        assert_eq!(shop.closes(), expect, "{statuses:?}");
    }
}

#[tokio::test]
async fn a_dead_one_is_replaced_at_once_and_destroyed_with_its_last_user() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { max_backends: 1, ..options() });
    let users =
        [pool.acquire(keyed("ada")).await.unwrap(), pool.acquire(keyed("ada")).await.unwrap()];
    shop.driver(0).status_publisher().set(Disconnected, None);
    let next = pool.acquire(keyed("ada")).await.unwrap();
    assert_eq!((shop.calls(), next.status()), (2, Connected));
    let stats = pool.stats();
    assert_eq!((stats.total, stats.active, stats.by_key["ada"]), (2, 2, 1));

    let [first, second] = users;
    drop(first);
    turns().await;
    assert_eq!(shop.closes(), [0, 0], "one still uses it");
    drop(second);
    turns().await;
    assert_eq!(shop.closes(), [1, 0]);
    drop(next);
    turns().await;
    assert_eq!((shop.closes(), pool.stats().idle), (vec![1, 0], 1));
}

#[tokio::test]
async fn a_dead_one_that_nobody_uses_goes_when_it_is_found() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    drop(pool.acquire(keyed("ada")).await.unwrap());
    shop.driver(0).status_publisher().set(Disconnected, None);
    let _next = pool.acquire(keyed("ada")).await.unwrap();
    turns().await;
    assert_eq!(shop.closes(), [1, 0]);

    let grace = pool.acquire(keyed("grace")).await.unwrap();
    shop.driver(2).status_publisher().set(Disconnected, None);
    drop(grace);
    turns().await;
    assert_eq!(shop.closes(), [1, 0, 1], "its last user found it dead");
}

#[tokio::test]
async fn the_end_of_a_dead_one_holds_nobody_up() {
    /// Who finds out that it is dead.
    #[derive(Debug)]
    enum Finder {
        NextCaller,
        LastUser,
        Cleanup,
    }
    for finder in [Finder::NextCaller, Finder::LastUser, Finder::Cleanup] {
        let shop = TestFactory::default();
        let pool = shop.pool(BackendPoolOptions { max_backends: 1, ..options() });
        let closing = shop.plan_closing(CloseBehaviour::Fine);
        let lease = pool.acquire(keyed("ada")).await.unwrap();
        let lose = || shop.driver(0).status_publisher().set(Disconnected, None);
        match finder {
            Finder::NextCaller => {
                drop(lease);
                lose();
            }
            Finder::LastUser => {
                lose();
                drop(lease);
            }
            Finder::Cleanup => {
                drop(lease);
                lose();
                let own = pool.clone();
                tokio::spawn(async move { own.destroy_idle().await });
                turns().await;
            }
        }
        let next = ask(&pool, keyed("ada"));
        turns().await;
        assert!(next.is_finished(), "{finder:?}");
        assert_eq!(pool.stats().destroying, 1);
        closing.allow();
        turns().await;
        assert_eq!((shop.closes(), pool.stats().destroying), (vec![1, 0], 0));
    }
}

#[tokio::test]
async fn one_that_its_user_destroyed_is_replaced() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let first = pool.acquire(keyed("ada")).await.unwrap();
    first.destroy().await.unwrap();
    let second = pool.acquire(keyed("ada")).await.unwrap();
    assert_eq!((first.status(), second.status()), (Destroyed, Connected));
    drop(first);
    turns().await;
    assert_eq!((shop.closes(), pool.stats().total), (vec![1, 0], 1));
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_dead_one_goes_to_who_waits() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { max_backends: 1, ..options() });
    for request in [keyed("ada"), BackendLeaseRequest::single_use()] {
        let held = pool.acquire(request).await.unwrap();
        let waiting = ask(&pool, keyed("grace"));
        turns().await;
        assert!(!waiting.is_finished());
        shop.driver(shop.calls() - 1).status_publisher().set(Disconnected, None);
        let served = waiting.await.unwrap().unwrap();
        assert_eq!(served.status(), Connected);
        drop((held, served));
        turns().await;
    }
    assert_eq!(shop.closes(), [1, 1, 1, 0]);
}

#[tokio::test]
async fn one_that_is_made_destroyed_is_refused() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    shop.plan(Plan::Starts(Destroyed));
    let error = expect_error(pool.acquire(keyed("ada")).await, ErrorKind::Destroyed);
    assert_eq!(error.code(), ErrorCode::ConnectionClosed);
    drop(pool.acquire(keyed("ada")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn cleanup_takes_the_dead_without_waiting_for_the_timeout() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { idle_timeout: Duration::from_secs(5), ..options() });
    let used = pool.acquire(keyed("used")).await.unwrap();
    drop(pool.acquire(keyed("idle")).await.unwrap());
    for at in [0, 1] {
        shop.driver(at).status_publisher().set(Disconnected, None);
    }
    assert_eq!(pool.destroy_idle().await, 1);
    assert_eq!((shop.closes(), pool.stats().total), (vec![0, 1], 1));
    drop(used);
}
