//! The end of a pool: destroyed, or merely dropped.

use std::sync::Arc;

use ab_testkit::expect::expect_error;
use agent_backend::pool::{BackendLeaseRequest, BackendPool, BackendPoolOptions, BackendPoolStats};
use agent_backend::{ConnectionStatus, Driver, ErrorCode, ErrorKind};
use tokio::runtime::{Builder, Handle};

use super::{CloseBehaviour, Plan, TestFactory, ask, keyed, options, turns};

#[tokio::test]
async fn everything_is_destroyed_also_what_is_in_use() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let used = pool.acquire(keyed("used")).await.unwrap();
    let fresh = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    drop(pool.acquire(keyed("idle")).await.unwrap());
    let dead = pool.acquire(keyed("dead")).await.unwrap();
    shop.driver(3).status_publisher().set(ConnectionStatus::Disconnected, None);
    let replacement = pool.acquire(keyed("dead")).await.unwrap();

    pool.destroy_all().await.unwrap();
    assert_eq!((shop.closes(), pool.stats()), (vec![1; 5], BackendPoolStats::default()));
    for lease in [used, fresh, dead, replacement] {
        expect_error(lease.read("file").await, ErrorKind::Destroyed);
        drop(lease);
    }
    turns().await;
    assert_eq!((shop.closes(), pool.stats()), (vec![1; 5], BackendPoolStats::default()));
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_asks_or_waits_is_refused() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { max_backends: 2, ..options() });
    let _held = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    let open = shop.plan_gate();
    let making = ask(&pool, keyed("making"));
    turns().await;
    let in_line = [ask(&pool, keyed("in line")), ask(&pool, BackendLeaseRequest::single_use())];
    turns().await;
    let own = pool.clone();
    let ending = tokio::spawn(async move { own.destroy_all().await });
    let [first, second] = in_line;
    for refused in [making, first, second] {
        let error = expect_error(refused.await.unwrap(), ErrorKind::Destroyed);
        assert_eq!(error.code(), ErrorCode::ConnectionClosed);
        assert_eq!(error.to_string(), "connect: the pool was destroyed");
    }
    for request in [keyed("late"), BackendLeaseRequest::single_use()] {
        expect_error(pool.acquire(request).await, ErrorKind::Destroyed);
    }
    turns().await;
    assert_eq!((shop.closes(), pool.stats().creating), (vec![1], 1));
    assert!(!ending.is_finished(), "something is still being made");
    open.send(()).unwrap();
    ending.await.unwrap().unwrap();
    assert_eq!((shop.closes(), shop.calls()), (vec![1, 1], 2));
}

#[tokio::test]
async fn ending_twice_is_ending_once() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let closing = shop.plan_closing(CloseBehaviour::Fine);
    drop(pool.acquire(keyed("ada")).await.unwrap());
    let end = || {
        let pool = pool.clone();
        tokio::spawn(async move { pool.destroy_all().await })
    };
    let (given_up, second) = (end(), end());
    turns().await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    assert!(!second.is_finished(), "both wait for the same end");
    closing.allow();
    second.await.unwrap().unwrap();
    pool.destroy_all().await.unwrap();
    assert_eq!(shop.closes(), [1]);
}

#[tokio::test]
async fn a_failure_is_told_and_the_others_go_nevertheless() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    for key in ["first", "second", "third"] {
        if key != "second" {
            shop.plan_closing(CloseBehaviour::Fails).allow();
        } else {
            shop.plan_closing(CloseBehaviour::Fine).allow();
        }
        drop(pool.acquire(keyed(key)).await.unwrap());
    }
    for _ in 0..2 {
        let error = expect_error(pool.destroy_all().await, ErrorKind::Io);
        let message = "cannot destroy 2 backends; the first error: does not close";
        assert_eq!((error.code(), error.message()), (ErrorCode::ExecError, message));
    }
    assert_eq!((shop.closes(), pool.stats().failed_destroys), (vec![1; 3], 2));

    let pool = shop.pool(options());
    shop.plan_closing(CloseBehaviour::Fails).allow();
    drop(pool.acquire(keyed("alone")).await.unwrap());
    let error = expect_error(pool.destroy_all().await, ErrorKind::Io);
    assert_eq!(error.message(), "does not close");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_does_not_end_does_not_hold_the_pool() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let _never = shop.plan_closing(CloseBehaviour::Fine);
    drop(pool.acquire(keyed("ada")).await.unwrap());
    drop(pool.acquire(keyed("grace")).await.unwrap());
    let error = expect_error(pool.destroy_all().await, ErrorKind::Timeout);
    assert_eq!(error.to_string(), "cannot destroy a backend: timed out after 30s");
    assert_eq!(shop.closes(), [0, 1]);
}

#[tokio::test]
async fn dropping_the_pool_drops_and_destroys_nothing() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let lease = pool.acquire(keyed("used")).await.unwrap();
    let fresh = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    drop(pool.acquire(keyed("idle")).await.unwrap());
    let held = Arc::new(());
    shop.plan(Plan::Hangs(held.clone()));
    let asking = ask(&pool, keyed("hangs"));
    turns().await;
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    assert_eq!((Arc::strong_count(&pool), Arc::strong_count(&held)), (1, 2));

    drop(pool);
    turns().await;
    assert_eq!(Arc::strong_count(&held), 1, "what was being made is given up");
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    lease.write("file", "still works").await.unwrap();
    let hub = shop.driver(2);
    assert_eq!(hub.status_publisher().listener_count(), 0, "the pool let go of the idle one");
    drop((lease, fresh));
    turns().await;
    assert_eq!(shop.closes(), [0, 0, 0]);
}

#[test]
fn a_pool_whose_runtime_has_ended_refuses() {
    let shop = TestFactory::default();
    let first = Builder::new_current_thread().enable_time().build().unwrap();
    let pool =
        first.block_on(async { shop.pool(BackendPoolOptions { max_backends: 1, ..options() }) });
    let lease = first.block_on(pool.acquire(keyed("ada"))).unwrap();
    drop(first);

    let second = Builder::new_current_thread().enable_time().build().unwrap();
    second.block_on(async {
        let shared = pool.acquire(keyed("ada")).await.unwrap();
        shared.write("file", "what is there works").await.unwrap();
        let waiting = [ask(&pool, keyed("grace")), ask(&pool, BackendLeaseRequest::single_use())];
        turns().await;
        drop((shared, lease));
        for waiting in waiting {
            expect_error(waiting.await.unwrap(), ErrorKind::Destroyed);
        }
        expect_error(pool.acquire(keyed("ada")).await, ErrorKind::Destroyed);
        pool.destroy_all().await.unwrap();
    });
}

#[test]
fn a_pool_whose_runtime_has_ended_makes_nothing() {
    let shop = TestFactory::default();
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let pool = runtime().block_on(async { shop.pool(options()) });
    runtime().block_on(async {
        for request in [keyed("ada"), BackendLeaseRequest::single_use()] {
            expect_error(pool.acquire(request).await, ErrorKind::Destroyed);
        }
        assert_eq!((pool.destroy_idle().await, shop.calls()), (0, 0));
    });
}

#[tokio::test]
async fn pool_and_lease_can_be_shown() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let lease = pool.acquire(keyed("ada")).await.unwrap();
    assert!(format!("{pool:?}").contains("active: 1"));
    assert!(format!("{lease:?}").starts_with("Lease(Backend"));
    assert_eq!(format!("{:?}", keyed("k")), "Request { key: Some(\"k\"), changes: 0 }");
}

#[tokio::test]
async fn a_factory_may_give_scopes_of_one_backend() {
    let base = agent_backend::memory();
    let root = base.clone();
    let factory = move |name: &'static str| {
        let tenant = root.scope(name, agent_backend::ScopeOptions::default());
        std::future::ready(tenant)
    };
    let pool = BackendPool::new(factory, BackendPoolOptions::new("nobody")).unwrap();
    let request = BackendLeaseRequest::for_key("ada")
        .configure_if_created(|name: &mut &'static str| *name = "tenants/ada");
    pool.with_backend(request, async |tenant| tenant.write("file", "x").await).await.unwrap();
    pool.destroy_all().await.unwrap();
    assert_eq!((base.status(), base.open_scope_count()), (ConnectionStatus::Connected, 0));
    assert!(base.exists("tenants/ada/file").await.unwrap());
}
