//! A full pool: who makes room, who waits, for how long, and in which order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ab_testkit::crowd;
use ab_testkit::expect::expect_error;
use agent_backend::pool::{
    BackendLeaseRequest, BackendPool, BackendPoolOptions, BackendPoolStats,
    DEFAULT_BACKEND_ACQUIRE_TIMEOUT, DEFAULT_BACKEND_CREATE_TIMEOUT,
    DEFAULT_BACKEND_DESTROY_TIMEOUT, DEFAULT_BACKEND_IDLE_TIMEOUT, DEFAULT_IDLE_CLEANUP_INTERVAL,
    DEFAULT_MAX_BACKENDS, DEFAULT_MAX_WAITING_CALLERS, IdleBackendCleanup,
};
use agent_backend::{Backend, ConnectionStatus, ErrorCode, ErrorKind};
use tokio::time::{Instant, advance};

use super::{CloseBehaviour, Config, Plan, TestFactory, ask, keyed, options, turns};

fn at_most(max_backends: usize) -> BackendPoolOptions<Config> {
    BackendPoolOptions { max_backends, ..options() }
}

#[test]
fn the_bounds_have_defaults() {
    let options = BackendPoolOptions::<Config>::default();
    assert_eq!(
        (options.max_backends, options.max_waiting_callers),
        (DEFAULT_MAX_BACKENDS, DEFAULT_MAX_WAITING_CALLERS)
    );
    assert_eq!(
        (options.idle_timeout, options.cleanup),
        (DEFAULT_BACKEND_IDLE_TIMEOUT, IdleBackendCleanup::Manual)
    );
    assert_eq!(
        IdleBackendCleanup::at_default_interval(),
        IdleBackendCleanup::Every(DEFAULT_IDLE_CLEANUP_INTERVAL)
    );
    let times = (options.acquire_timeout, options.create_timeout, options.destroy_timeout);
    assert_eq!(
        times,
        (
            DEFAULT_BACKEND_ACQUIRE_TIMEOUT,
            DEFAULT_BACKEND_CREATE_TIMEOUT,
            DEFAULT_BACKEND_DESTROY_TIMEOUT
        )
    );
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let zero = Duration::ZERO;
    let table = [
        ("max_backends", BackendPoolOptions { max_backends: 0, ..options() }),
        ("max_waiting", BackendPoolOptions { max_waiting_callers: 0, ..options() }),
        ("create_timeout", BackendPoolOptions { create_timeout: zero, ..options() }),
        ("destroy_timeout", BackendPoolOptions { destroy_timeout: zero, ..options() }),
        (
            "the cleanup interval",
            BackendPoolOptions { cleanup: IdleBackendCleanup::Every(zero), ..options() },
        ),
    ];
    for (name, options) in table {
        let error = expect_error(
            BackendPool::new(async |_| Ok(agent_backend::memory()), options),
            ErrorKind::Invalid,
        );
        assert_eq!(error.code(), ErrorCode::InvalidConfiguration);
        assert_eq!(error.to_string(), format!("cannot create a pool: {name} is zero"));
    }
}

#[test]
fn a_pool_needs_a_runtime() {
    let error = expect_error(
        BackendPool::new(async |_| Ok(agent_backend::memory()), options()),
        ErrorKind::Invalid,
    );
    assert_eq!(error.to_string(), "cannot create a pool: there is no tokio runtime");
}

#[tokio::test(start_paused = true)]
async fn the_one_idle_longest_makes_room() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(3));
    for key in ["first", "second", "third"] {
        drop(pool.acquire(keyed(key)).await.unwrap());
        advance(Duration::from_secs(1)).await;
    }
    drop(pool.acquire(keyed("first")).await.unwrap());
    let _fourth = pool.acquire(keyed("fourth")).await.unwrap();
    let keys: Vec<String> = pool.stats().by_key.into_keys().collect();
    assert_eq!(keys, ["first", "fourth", "third"]);
    assert_eq!(shop.closes(), [0, 1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn no_more_make_room_than_are_wanted() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(4));
    for key in ["a", "b", "c", "d"] {
        drop(pool.acquire(keyed(key)).await.unwrap());
        advance(Duration::from_secs(1)).await;
    }
    // Three wait for one key, one for a fresh backend: two places.
    let asking = [keyed("e"), keyed("e"), BackendLeaseRequest::single_use(), keyed("e")];
    let asking = asking.map(|request| ask(&pool, request));
    let mut leases = Vec::new();
    for asking in asking {
        leases.push(asking.await.unwrap().unwrap());
    }
    assert_eq!(shop.closes(), [1, 1, 0, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_next_is_made_when_the_last_is_gone() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(1));
    let closing = shop.plan_closing(CloseBehaviour::Fine);
    drop(pool.acquire(keyed("ada")).await.unwrap());
    let asking = ask(&pool, keyed("grace"));
    turns().await;
    let stats = pool.stats();
    assert_eq!((stats.destroying, stats.waiting, shop.calls()), (1, 1, 1));
    closing.allow();
    let _lease = asking.await.unwrap().unwrap();
    assert_eq!((shop.closes(), shop.calls()), (vec![1, 0], 2));
}

#[tokio::test(start_paused = true)]
async fn a_key_is_taken_until_its_backend_is_gone() {
    let shop = TestFactory::default();
    let idle_timeout = Duration::ZERO;
    let pool = shop.pool(BackendPoolOptions { idle_timeout, ..options() });
    let closing = shop.plan_closing(CloseBehaviour::Fine);
    drop(pool.acquire(keyed("ada")).await.unwrap());
    let cleaning = tokio::spawn({
        let pool = pool.clone();
        async move { pool.destroy_idle().await }
    });
    turns().await;
    let same = ask(&pool, keyed("ada"));
    let other = ask(&pool, keyed("grace"));
    turns().await;
    assert!(!same.is_finished() && !cleaning.is_finished());
    let _other = other.await.unwrap().unwrap();
    closing.allow();
    let lease = same.await.unwrap().unwrap();
    assert_eq!((cleaning.await.unwrap(), lease.status()), (1, ConnectionStatus::Connected));
    assert_eq!(shop.closes(), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn who_comes_first_is_served_first() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(1));
    let mut held = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    let mut line = Vec::new();
    for number in 0..6 {
        let request = if number % 2 == 0 {
            keyed(&format!("{number}"))
        } else {
            BackendLeaseRequest::single_use()
        };
        let request =
            request.configure_if_created(move |config: &mut Config| config.size = 100 + number);
        line.push(ask(&pool, request));
        turns().await;
    }
    for asking in line {
        assert!(!asking.is_finished());
        drop(held);
        held = asking.await.unwrap().unwrap();
    }
    let order: Vec<u32> = shop.configs().iter().map(|config| config.size).collect();
    assert_eq!(order, [1, 100, 101, 102, 103, 104, 105]);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_one_key_take_one_place() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(1));
    let held = pool.acquire(keyed("held")).await.unwrap();
    let waiting: Vec<_> = (0..3).map(|_| ask(&pool, keyed("ada"))).collect();
    turns().await;
    let shared = pool.acquire(keyed("held")).await.unwrap();
    assert_eq!(pool.stats().by_key["held"], 2, "what is there needs no place");
    drop((held, shared));
    let mut leases = Vec::new();
    for waiting in waiting {
        leases.push(waiting.await.unwrap().unwrap());
    }
    assert_eq!((shop.calls(), pool.stats().by_key["ada"]), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_room_ends() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(1));
    let held = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    let started = Instant::now();
    let error = expect_error(pool.acquire(keyed("ada")).await, ErrorKind::Timeout);
    assert_eq!(
        (error.code(), error.retry_advice()),
        (ErrorCode::Timeout, agent_backend::RetryAdvice::Safe)
    );
    let message = "connect: all 1 backends of the pool were in use for 60s";
    assert_eq!(error.to_string(), message);
    assert_eq!(started.elapsed().as_secs(), DEFAULT_BACKEND_ACQUIRE_TIMEOUT.as_secs());
    assert_eq!((pool.stats().waiting, shop.calls()), (0, 1));
    drop(held);
    drop(pool.acquire(keyed("ada")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_time_in_line_is_not_the_time_of_making() {
    let shop = TestFactory::default();
    let acquire_timeout = Duration::from_secs(1);
    let pool = shop.pool(BackendPoolOptions { acquire_timeout, ..at_most(1) });
    let open = shop.plan_gate();
    let asking = ask(&pool, keyed("ada"));
    turns().await;
    advance(acquire_timeout * 10).await;
    turns().await;
    assert!(!asking.is_finished());
    open.send(()).unwrap();
    drop(asking.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn without_time_to_wait_a_full_pool_answers_at_once() {
    let shop = TestFactory::default();
    let acquire_timeout = Duration::ZERO;
    let pool = shop.pool(BackendPoolOptions { acquire_timeout, ..at_most(1) });
    let held = pool.acquire(keyed("ada")).await.unwrap();
    let started = Instant::now();
    expect_error(pool.acquire(keyed("grace")).await, ErrorKind::Timeout);
    assert!(started.elapsed() < Duration::from_secs(1));
    drop((pool.acquire(keyed("ada")).await.unwrap(), held));
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_the_line() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(1));
    let held = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    let (gone, stays) = (ask(&pool, keyed("gone")), ask(&pool, keyed("stays")));
    turns().await;
    assert_eq!(pool.stats().waiting, 2);
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(pool.stats().waiting, 1);
    drop(held);
    let _lease = stays.await.unwrap().unwrap();
    let keys: Vec<String> = pool.stats().by_key.into_keys().collect();
    assert_eq!((keys, shop.calls()), (vec!["stays".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn one_more_than_may_wait_is_refused_at_once() {
    let shop = TestFactory::default();
    let pool = shop.pool(BackendPoolOptions { max_waiting_callers: 2, ..at_most(1) });
    let held = pool.acquire(keyed("ada")).await.unwrap();
    let waiting = [
        ask(&pool, BackendLeaseRequest::single_use()),
        ask(&pool, BackendLeaseRequest::single_use()),
    ];
    turns().await;
    let started = Instant::now();
    let error =
        expect_error(pool.acquire(BackendLeaseRequest::single_use()).await, ErrorKind::Timeout);
    assert_eq!(error.to_string(), "connect: too many callers: 2 already wait for the pool");
    assert_eq!((error.code(), started.elapsed()), (ErrorCode::Timeout, Duration::ZERO));
    drop(pool.acquire(keyed("ada")).await.unwrap());
    drop(held);
    for waiting in waiting {
        drop(waiting.await.unwrap().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_making_gives_its_place_to_the_next() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(1));
    shop.plan(Plan::Fails(super::failed("no backend today")));
    let (first, second) = (ask(&pool, keyed("first")), ask(&pool, keyed("second")));
    expect_error(first.await.unwrap(), ErrorKind::Io);
    drop(second.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_does_not_end_gives_its_place_back() {
    for close_behaviour in [CloseBehaviour::Fine, CloseBehaviour::PanicsWhenGivenUp] {
        let shop = TestFactory::default();
        let pool = shop.pool(at_most(1));
        let _never = shop.plan_closing(close_behaviour);
        drop(pool.acquire(keyed("ada")).await.unwrap());
        let started = Instant::now();
        drop(pool.acquire(keyed("grace")).await.unwrap());
        assert_eq!(started.elapsed().as_secs(), DEFAULT_BACKEND_DESTROY_TIMEOUT.as_secs());
        assert_eq!((pool.stats().failed_destroys, pool.stats().total), (1, 1));
        pool.destroy_all().await.unwrap();
        assert_eq!(
            pool.stats(),
            BackendPoolStats { failed_destroys: 1, ..BackendPoolStats::default() }
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_to_end_gives_its_place_back() {
    let shop = TestFactory::default();
    let pool = shop.pool(at_most(1));
    let closing = shop.plan_closing(CloseBehaviour::Fails);
    closing.allow();
    drop(pool.acquire(keyed("ada")).await.unwrap());
    drop(pool.acquire(keyed("grace")).await.unwrap());
    assert_eq!((shop.closes(), pool.stats().failed_destroys), (vec![1, 0], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_in_a_small_pool_never_exceeds_it() {
    const ROUNDS: usize = 50;
    let made = Arc::<Mutex<Vec<(usize, Backend)>>>::default();
    let book = made.clone();
    let factory = move |key: usize| {
        let backend = agent_backend::memory();
        let mut made = book.lock().unwrap();
        made.retain(|(_, backend)| backend.status() != ConnectionStatus::Destroyed);
        let keys: Vec<usize> = made.iter().map(|(key, _)| *key).collect();
        made.push((key, backend.clone()));
        std::future::ready(if keys.len() < 3 && !keys.contains(&key) {
            Ok(backend)
        } else {
            Err(super::failed(&format!("{keys:?} are there when {key} is made")))
        })
    };
    let pool = Arc::new(
        BackendPool::new(factory, BackendPoolOptions { max_backends: 3, ..Default::default() })
            .unwrap(),
    );
    crowd::run_on_threads(8, |number| {
        let pool = pool.clone();
        async move {
            for round in 0..ROUNDS {
                let key = (number * 7 + round * 5) % 6;
                let request = BackendLeaseRequest::for_key(key.to_string())
                    .configure_if_created(move |own| *own = key);
                let lease = pool.acquire(request).await.unwrap();
                lease.touch(&format!("{number}-{round}")).await.unwrap();
            }
        }
    })
    .await;
    assert_eq!((pool.stats().active, pool.stats().waiting), (0, 0));
    pool.destroy_all().await.unwrap();
    assert!(
        made.lock().unwrap().iter().all(|(_, made)| made.status() == ConnectionStatus::Destroyed)
    );
}
