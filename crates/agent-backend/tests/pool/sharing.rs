//! Who gets which backend: one for each key, a fresh one without, changed as the request says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ab_testkit::crowd;
use ab_testkit::expect::assert_content;
use agent_backend::pool::{BackendLeaseRequest, BackendPoolStats};
use agent_backend::{ConnectionStatus, Error};

use super::{Config, TestFactory, ask, failed, keyed, options, panic_quietly, turns};

#[tokio::test]
async fn a_key_has_one_backend() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let first = pool.acquire(keyed("ada")).await.unwrap();
    let second = pool.acquire(keyed("ada")).await.unwrap();
    first.write("file", "shared").await.unwrap();
    assert_content(&second, "file", "shared").await;
    drop((first, second));
    let later = pool.acquire(keyed("ada")).await.unwrap();
    assert_content(&later, "file", "shared").await;
    assert_eq!((shop.calls(), shop.closes()), (1, vec![0]));
}

#[tokio::test]
async fn a_key_without_a_backend_gets_a_new_one() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let ada = pool.acquire(keyed("ada")).await.unwrap();
    let grace = pool.acquire(keyed("grace")).await.unwrap();
    ada.write("file", "ada's").await.unwrap();
    assert!(!grace.exists("file").await.unwrap());
    assert_eq!(shop.calls(), 2);
}

#[tokio::test]
async fn those_who_ask_meanwhile_share_what_is_being_made() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let open = shop.plan_gate();
    let asking: Vec<_> = (0..10).map(|_| ask(&pool, keyed("ada"))).collect();
    turns().await;
    let stats = pool.stats();
    assert_eq!((stats.creating, stats.waiting, stats.total), (1, 10, 0));
    open.send(()).unwrap();
    let mut leases = Vec::new();
    for asking in asking {
        leases.push(asking.await.unwrap().unwrap());
    }
    let stats = pool.stats();
    assert_eq!((shop.calls(), stats.by_key["ada"], stats.waiting), (1, 10, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_on_many_threads_gets_one_backend_for_each_key() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let roots = crowd::run_on_threads(48, |number| {
        let (pool, key) = (pool.clone(), format!("key-{}", number % 3));
        let name = key.clone();
        let request = BackendLeaseRequest::for_key(&*key)
            .configure_if_created(move |config: &mut Config| config.name = name);
        async move {
            let lease = pool.acquire(request).await.unwrap();
            lease.touch(&format!("file-{number}")).await.unwrap();
            (key, lease.info().root_aliases.concat())
        }
    })
    .await;
    assert_eq!(shop.calls(), 3);
    assert_eq!(roots.iter().collect::<BTreeSet<_>>().len(), 3);
    for key in ["key-0", "key-1", "key-2"] {
        let lease = pool.acquire(BackendLeaseRequest::for_key(key)).await.unwrap();
        assert_eq!(lease.readdir(".").await.unwrap().len(), 16);
    }
    pool.destroy_all().await.unwrap();
    assert_eq!(shop.closes(), [1, 1, 1]);
}

#[tokio::test]
async fn no_key_means_fresh_and_not_pooled() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let first = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    let second = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    first.write("file", "mine").await.unwrap();
    assert!(!second.exists("file").await.unwrap());
    assert_eq!((pool.stats().active, pool.stats().by_key.len()), (2, 0));
    drop(first);
    turns().await;
    assert_eq!(shop.closes(), [1, 0], "it goes with its lease");
    assert_eq!(second.status(), ConnectionStatus::Connected);
    drop(second);
    turns().await;
    assert_eq!((shop.closes(), pool.stats()), (vec![1, 1], BackendPoolStats::default()));
}

#[tokio::test]
async fn acquiring_and_releasing_count() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let by_key = |entries: &[(&str, usize)]| -> BTreeMap<String, usize> {
        entries.iter().map(|(key, users)| ((*key).to_owned(), *users)).collect()
    };
    assert_eq!(pool.stats(), BackendPoolStats::default());
    let first = pool.acquire(keyed("ada")).await.unwrap();
    let second = pool.acquire(keyed("ada")).await.unwrap();
    let fresh = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    let grace = pool.acquire(keyed("grace")).await.unwrap();
    drop(grace);
    let expect = BackendPoolStats {
        total: 3,
        active: 2,
        idle: 1,
        by_key: by_key(&[("ada", 2), ("grace", 0)]),
        ..BackendPoolStats::default()
    };
    assert_eq!(pool.stats(), expect);
    drop(first);
    assert_eq!(pool.stats().by_key, by_key(&[("ada", 1), ("grace", 0)]));
    drop(fresh);
    drop(second);
    turns().await;
    let expect = BackendPoolStats {
        total: 2,
        idle: 2,
        by_key: by_key(&[("ada", 0), ("grace", 0)]),
        ..BackendPoolStats::default()
    };
    assert_eq!(pool.stats(), expect);
}

#[tokio::test]
async fn a_request_changes_what_it_names_and_keeps_the_rest() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let change = keyed("ada")
        .configure_if_created(|config: &mut Config| config.size = 7)
        .configure_if_created(|config: &mut Config| config.size += 1);
    let ada = pool.acquire(change).await.unwrap();
    assert_eq!(ada.info().root_aliases, ["/default-8"]);
    let late =
        keyed("ada").configure_if_created(|config: &mut Config| config.name = "late".to_owned());
    let again = pool.acquire(late).await.unwrap();
    assert_eq!(again.info().root_aliases, ["/default-8"], "it was made already");
    let named = BackendLeaseRequest::single_use()
        .configure_if_created(|config: &mut Config| config.name = "other".to_owned());
    let _fresh = pool.acquire(named).await.unwrap();
    let _plain = pool.acquire(keyed("grace")).await.unwrap();
    let config = |name: &str, size| Config { name: name.to_owned(), size };
    assert_eq!(shop.configs(), [config("default", 8), config("other", 1), config("default", 1)]);
}

#[tokio::test]
async fn a_function_gets_a_backend_that_is_released_after_it() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let length = pool
        .with_backend(keyed("ada"), async |backend| {
            backend.write("file", "hello").await?;
            assert_eq!(pool.stats().by_key["ada"], 1);
            Ok::<_, Error>(backend.read("file").await?.len())
        })
        .await
        .unwrap();
    assert_eq!((length, pool.stats().active, pool.stats().idle), (5, 0, 1));
}

#[tokio::test]
async fn a_function_that_fails_or_panics_releases_too() {
    #[derive(Debug)]
    enum Own {
        Pool(Error),
        Work,
    }
    impl From<Error> for Own {
        fn from(error: Error) -> Self {
            Self::Pool(error)
        }
    }
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let refused = pool.with_backend(keyed("ada"), async |_| Err::<(), _>(Own::Work)).await;
    assert!(matches!(refused, Err(Own::Work)));
    assert_eq!(pool.stats().active, 0);

    let panicking = pool.clone();
    // In a task of its own, as servers do: the future can be sent.
    let task = tokio::spawn(async move {
        let work = async |_: &_| -> Result<(), Own> { panic_quietly() };
        panicking.with_backend(BackendLeaseRequest::for_key("ada"), work).await
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!((pool.stats().active, pool.stats().idle, shop.calls()), (0, 1, 1));

    shop.plan(super::Plan::Fails(failed("no backend today")));
    let refused = pool.with_backend(keyed("grace"), async |_| Ok::<(), Own>(())).await;
    assert!(matches!(refused, Err(Own::Pool(error)) if error.message() == "no backend today"));
}

#[tokio::test]
async fn a_function_that_is_given_up_releases_too() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let own = pool.clone();
    let task = tokio::spawn(async move {
        let work = async |_: &_| std::future::pending::<Result<(), Error>>().await;
        own.with_backend(keyed("ada"), work).await
    });
    turns().await;
    assert_eq!(pool.stats().active, 1);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!((pool.stats().active, pool.stats().idle), (0, 1));
}

#[tokio::test]
async fn a_lease_may_be_dropped_where_there_is_no_runtime() {
    let shop = TestFactory::default();
    let pool = shop.pool(options());
    let lease = pool.acquire(BackendLeaseRequest::single_use()).await.unwrap();
    std::thread::spawn(move || drop(lease)).join().unwrap();
    pool.destroy_all().await.unwrap();
    assert_eq!((shop.closes(), Arc::strong_count(&pool)), (vec![1], 1));
}
