//! The pool's rules once more, over workspaces elsewhere: they start disconnected, are lost and come
//! back.
//!
//! A backend is handed out as its factory made it: disconnected, unless the factory connects it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ab_remote::{HostKey, SshAccess, SshServer};
use agent_backend::pool::{BackendLeaseRequest, BackendPool, BackendPoolOptions, BackendPoolStats};
use agent_backend::remote::{ByteStream, Connector, ReconnectPolicy, RemoteEndpoint};
use agent_backend::{
    Backend, ConnectionStatus, ConnectionStatusChange, ErrorCode, ErrorKind, RemoteConfig, Result,
};
use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

/// A server in memory, which can be cut off.
#[derive(Clone, Debug)]
struct Far {
    server: SshServer,
    reachable: Arc<AtomicBool>,
    /// Connections that are served.
    served: watch::Sender<usize>,
    /// Ends those that were made before.
    cuts: watch::Sender<u64>,
    made: Arc<AtomicUsize>,
}

/// Counts down when a connection is over, however it ends.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|served| *served -= 1);
    }
}

#[async_trait]
impl Connector for Far {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        if !self.reachable.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (server, mut cuts) = (self.server.clone(), self.cuts.subscribe());
        self.served.send_modify(|served| *served += 1);
        let counted = Counted(self.served.clone());
        tokio::spawn(async move {
            let _counted = counted;
            tokio::select! {
                _ = server.serve(theirs) => {}
                _ = cuts.changed() => {}
            }
        });
        Ok(Box::new(ours))
    }
}

/// What a request may change.
#[derive(Clone, Debug)]
struct Config {
    far: Far,
    max_retries: u32,
    connects: bool,
}

impl Far {
    fn new() -> Far {
        let key = HostKey::generate_ephemeral("a test").unwrap();
        let server = SshServer::new(
            agent_backend::memory(),
            ab_remote::SshServerSettings::new(key, SshAccess::AnyUser),
        );
        Far {
            server,
            reachable: Arc::new(AtomicBool::new(true)),
            served: watch::Sender::new(0),
            cuts: watch::Sender::new(0),
            made: Arc::default(),
        }
    }

    fn pool(&self) -> Arc<BackendPool<Config>> {
        self.pool_with(|options| options)
    }

    fn pool_with(
        &self,
        set: impl FnOnce(BackendPoolOptions<Config>) -> BackendPoolOptions<Config>,
    ) -> Arc<BackendPool<Config>> {
        let config = Config { far: self.clone(), max_retries: 0, connects: false };
        Arc::new(BackendPool::new(make, set(BackendPoolOptions::new(config))).unwrap())
    }

    /// Cuts every connection.
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }

    async fn serves(&self, count: usize) {
        self.served.subscribe().wait_for(|served| *served == count).await.unwrap();
    }
}

async fn make(config: Config) -> Result<Backend> {
    config.far.made.fetch_add(1, Ordering::SeqCst);
    let reconnection = ReconnectPolicy {
        max_retries: config.max_retries,
        initial_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(5),
        ..ReconnectPolicy::default()
    };
    let endpoint = RemoteEndpoint::Stream(Arc::new(config.far));
    let backend =
        agent_backend::remote_with(RemoteConfig::new(endpoint).reconnection(reconnection))?;
    if config.connects {
        backend.connect().await?;
    }
    Ok(backend)
}

fn keyed(key: &str) -> BackendLeaseRequest<Config> {
    BackendLeaseRequest::for_key(key)
}

/// Waits for a status, from now on or already.
async fn becomes(backend: &Backend, status: ConnectionStatus) {
    let (sender, mut changes) = mpsc::unbounded_channel();
    let _listening = backend.on_status_change(move |change: &ConnectionStatusChange| {
        let _ = sender.send(change.to);
    });
    if backend.status() == status {
        return;
    }
    while changes.recv().await.unwrap() != status {}
}

#[tokio::test]
async fn one_that_was_never_connected_is_handed_out_as_it_is_and_kept() {
    let far = Far::new();
    let pool = far.pool();
    let first = pool.acquire(keyed("ada")).await.unwrap();
    assert_eq!(first.status(), ConnectionStatus::Disconnected);
    // Still disconnected: another would be a second one for the key.
    let second = pool.acquire(keyed("ada")).await.unwrap();
    assert_eq!((far.made(), second.status()), (1, ConnectionStatus::Disconnected));
    first.write("notes.txt", "by the first").await.unwrap();
    assert_eq!(second.status(), ConnectionStatus::Connected);
    assert_eq!(second.read_text("notes.txt").await.unwrap(), "by the first");
    drop((first, second));
    let third = pool.acquire(keyed("ada")).await.unwrap();
    assert_eq!((far.made(), third.status()), (1, ConnectionStatus::Connected));
}

#[tokio::test]
async fn one_that_could_not_connect_is_kept_and_tries_again() {
    let far = Far::new();
    let pool = far.pool();
    far.reachable.store(false, Ordering::SeqCst);
    let lease = pool.acquire(keyed("ada")).await.unwrap();
    let error = lease.read("a").await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    assert_eq!(lease.status(), ConnectionStatus::Disconnected);
    far.reachable.store(true, Ordering::SeqCst);
    let again = pool.acquire(keyed("ada")).await.unwrap();
    again.write("a", "there").await.unwrap();
    assert_eq!((far.made(), lease.status()), (1, ConnectionStatus::Connected));
}

#[tokio::test]
async fn a_factory_that_connects_hands_out_what_is_connected_or_says_why_not() {
    let far = Far::new();
    let pool = far.pool();
    let request =
        |key| keyed(key).configure_if_created(|config: &mut Config| config.connects = true);
    let lease = pool.acquire(request("ada")).await.unwrap();
    assert_eq!(lease.status(), ConnectionStatus::Connected);
    far.reachable.store(false, Ordering::SeqCst);
    let (one, other) = tokio::join!(pool.acquire(request("bob")), pool.acquire(request("bob")));
    for refused in [one, other] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Disconnected);
    }
    assert_eq!((far.made(), pool.stats().total), (2, 1));
}

#[tokio::test]
async fn many_who_ask_at_once_share_one_connection() {
    let far = Far::new();
    let pool = far.pool();
    let asking = (0..20).map(|at| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let write = async |backend: &Backend| backend.write(&format!("{at}"), "x").await;
            pool.with_backend(keyed("ada"), write).await.unwrap();
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    assert_eq!((far.made(), *far.served.borrow()), (1, 1));
    let stats = pool.stats();
    assert_eq!((stats.total, stats.active, stats.idle), (1, 0, 1));
}

#[tokio::test]
async fn without_a_key_each_has_a_connection_of_its_own_that_goes_with_it() {
    let far = Far::new();
    let pool = far.pool();
    let (one, other) = (
        pool.acquire(BackendLeaseRequest::single_use()).await.unwrap(),
        pool.acquire(BackendLeaseRequest::single_use()).await.unwrap(),
    );
    one.connect().await.unwrap();
    other.connect().await.unwrap();
    assert_eq!((far.made(), *far.served.borrow()), (2, 2));
    drop(one);
    far.serves(1).await;
    drop(other);
    far.serves(0).await;
}

#[tokio::test]
async fn one_that_reconnects_is_kept() {
    let far = Far::new();
    let pool = far.pool();
    let lease = pool.acquire(keyed("ada")).await.unwrap();
    lease.connect().await.unwrap();
    far.reachable.store(false, Ordering::SeqCst);
    far.cut();
    becomes(&lease, ConnectionStatus::Reconnecting).await;
    let meanwhile = pool.acquire(keyed("ada")).await.unwrap();
    assert_eq!(meanwhile.status(), ConnectionStatus::Reconnecting);
    far.reachable.store(true, Ordering::SeqCst);
    meanwhile.write("a", "after").await.unwrap();
    assert_eq!((far.made(), lease.status()), (1, ConnectionStatus::Connected));
}

#[tokio::test]
async fn one_that_has_given_up_is_replaced() {
    let far = Far::new();
    let pool = far.pool();
    let few = |config: &mut Config| config.max_retries = 2;
    let lost = pool.acquire(keyed("ada").configure_if_created(few)).await.unwrap();
    lost.connect().await.unwrap();
    far.reachable.store(false, Ordering::SeqCst);
    far.cut();
    becomes(&lost, ConnectionStatus::Reconnecting).await;
    becomes(&lost, ConnectionStatus::Disconnected).await;
    far.reachable.store(true, Ordering::SeqCst);
    let next = pool.acquire(keyed("ada")).await.unwrap();
    next.write("a", "again").await.unwrap();
    assert_eq!((far.made(), next.status()), (2, ConnectionStatus::Connected));
    // Who had the old one keeps it, until it lets go.
    assert_eq!(lost.status(), ConnectionStatus::Disconnected);
    let stats: BackendPoolStats = pool.stats();
    assert_eq!((stats.total, stats.by_key["ada"]), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn cleanup_closes_the_connections_of_the_idle() {
    let far = Far::new();
    let idle_timeout = Duration::from_secs(5);
    let pool = far.pool_with(|options| BackendPoolOptions { idle_timeout, ..options });
    let used = pool.acquire(keyed("used")).await.unwrap();
    used.connect().await.unwrap();
    pool.with_backend(keyed("idle"), async |backend: &Backend| backend.connect().await)
        .await
        .unwrap();
    far.serves(2).await;
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(pool.destroy_idle().await, 1);
    far.serves(1).await;
    used.write("a", "alive").await.unwrap();
}

#[tokio::test]
async fn the_end_of_the_pool_ends_every_connection() {
    let far = Far::new();
    let pool = far.pool();
    let held = pool.acquire(keyed("held")).await.unwrap();
    held.connect().await.unwrap();
    pool.with_backend(keyed("idle"), async |backend: &Backend| backend.connect().await)
        .await
        .unwrap();
    let never = pool.acquire(keyed("never connected")).await.unwrap();
    pool.destroy_all().await.unwrap();
    far.serves(0).await;
    assert_eq!(
        (held.status(), never.status()),
        (ConnectionStatus::Destroyed, ConnectionStatus::Destroyed)
    );
    assert_eq!(held.read("a").await.unwrap_err().kind(), ErrorKind::Destroyed);
}

#[tokio::test]
async fn what_fails_gives_its_backend_back_connected() {
    let far = Far::new();
    let pool = far.pool();
    let failing = async |backend: &Backend| backend.read("no such file").await.map(drop);
    let error = pool.with_backend(keyed("ada"), failing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let stats = pool.stats();
    assert_eq!((stats.active, stats.idle), (0, 1));
    let lease = pool.acquire(keyed("ada")).await.unwrap();
    assert_eq!((lease.status(), far.made()), (ConnectionStatus::Connected, 1));
}
