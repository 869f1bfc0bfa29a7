//! Whatever happens in whatever order: one live backend for each key, no more than the pool may
//! hold, nobody forgotten, everything destroyed once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ab_testkit::{RecordingDriver, fuzz};
use agent_backend::pool::{BackendLeaseRequest, BackendPool, BackendPoolOptions, BackendPoolStats};
use agent_backend::{Backend, BackendLease, ConnectionStatus, Driver, Result};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::advance;

use super::{CloseBehaviour, Closing, failed, panic_quietly, turns};

const MAX_BACKENDS: usize = 3;
const KEYS: u8 = 3;

/// Rounds of letting go until nobody can wait any more.
const ROUNDS: usize = 100;

#[derive(Clone, Debug)]
enum Act {
    /// Asks for a key's backend, or for a fresh one.
    Ask(Option<u8>),
    /// One who asks goes away.
    Leave(usize),
    Release(usize),
    /// One call of the factory comes back.
    Make(usize, Outcome),
    /// A backend's connection changes.
    Turn(usize, ConnectionStatus),
    /// One backend may come to its end.
    Allow(usize),
    Cleanup,
    Seconds(u64),
    /// Tasks have this many turns.
    Turns(usize),
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Made,
    Fails,
    Panics,
}

fn act() -> impl Strategy<Value = Act> {
    let any = 0..64_usize;
    let outcome = prop_oneof![
        6 => Just(Outcome::Made),
        1 => Just(Outcome::Fails),
        1 => Just(Outcome::Panics),
    ];
    let status = prop_oneof![
        2 => Just(ConnectionStatus::Disconnected),
        1 => Just(ConnectionStatus::Connected),
        1 => Just(ConnectionStatus::Connecting),
        1 => Just(ConnectionStatus::Reconnecting),
        1 => Just(ConnectionStatus::Destroyed),
    ];
    prop_oneof![
        8 => proptest::option::weighted(0.8, 0..KEYS).prop_map(Act::Ask),
        1 => any.clone().prop_map(Act::Leave),
        6 => any.clone().prop_map(Act::Release),
        8 => (any.clone(), outcome).prop_map(|(at, outcome)| Act::Make(at, outcome)),
        2 => (any.clone(), status).prop_map(|(at, status)| Act::Turn(at, status)),
        4 => any.prop_map(Act::Allow),
        1 => Just(Act::Cleanup),
        1 => (0..15_u64).prop_map(Act::Seconds),
        8 => (1..8_usize).prop_map(Act::Turns),
    ]
}

#[test]
fn one_live_backend_for_each_key_and_nobody_is_forgotten() {
    fuzz::check_property("pool", vec(act(), 1..80), |acts| {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        runtime.block_on(World::play(acts))
    });
}

/// What the factory knows.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    calls: u64,
    /// Calls that have not come back, with the keys they are for.
    pending: BTreeMap<u64, (Option<u8>, Option<oneshot::Sender<Outcome>>)>,
    made: Vec<Made>,
    /// What must not be, in words.
    wrong: Vec<String>,
}

struct Made {
    key: Option<u8>,
    driver: RecordingDriver,
    closing: Arc<Closing>,
    connected: bool,
    /// Was once seen dead, so that the pool may have replaced it.
    given_up: bool,
}

impl Made {
    fn is_live(&self) -> bool {
        self.driver.status_publisher().current() != ConnectionStatus::Destroyed && !self.given_up
    }
}

impl Shop {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap()
    }

    async fn make(self, key: Option<u8>) -> Result<Backend> {
        let (sender, outcome) = oneshot::channel();
        let call = self.books().begin(key, sender);
        let call = Call { shop: self.clone(), call };
        match outcome.await.unwrap() {
            Outcome::Made => {}
            Outcome::Fails => return Err(failed("no backend today")),
            Outcome::Panics => panic_quietly(),
        }
        let closing =
            Arc::new(Closing { close_behaviour: CloseBehaviour::Fine, permits: Semaphore::new(0) });
        let driver = RecordingDriver::new();
        let backend = Backend::new(driver.clone());
        backend.register_closeable(closing.clone()).await?;
        drop(call);
        let made = Made { key, driver, closing, connected: true, given_up: false };
        self.books().made.push(made);
        self.books().check();
        Ok(backend)
    }
}

/// A call of the factory that has not come back; it may also be given up.
struct Call {
    shop: Shop,
    call: u64,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.shop.books().pending.remove(&self.call);
    }
}

impl Books {
    fn begin(&mut self, key: Option<u8>, outcome: oneshot::Sender<Outcome>) -> u64 {
        self.calls += 1;
        self.pending.insert(self.calls, (key, Some(outcome)));
        self.check();
        self.calls
    }

    /// Notes what must not be at any moment.
    fn check(&mut self) {
        let live: Vec<Option<u8>> =
            self.made.iter().filter(|made| made.is_live()).map(|made| made.key).collect();
        let keys = self.pending.values().map(|(key, _)| *key).chain(live);
        let mut counts = BTreeMap::<Option<u8>, usize>::new();
        keys.for_each(|key| *counts.entry(key).or_default() += 1);
        let total: usize = counts.values().sum();
        if total > MAX_BACKENDS {
            self.wrong.push(format!("{total} backends at a time"));
        }
        for (key, count) in counts {
            if key.is_some() && count > 1 {
                self.wrong.push(format!("{count} backends for key {key:?}"));
            }
        }
    }
}

struct World {
    shop: Shop,
    pool: Arc<BackendPool<Option<u8>>>,
    asking: Vec<(Option<u8>, JoinHandle<Result<BackendLease>>)>,
    leases: Vec<BackendLease>,
}

impl World {
    async fn play(acts: Vec<Act>) -> Result<(), TestCaseError> {
        let shop = Shop::default();
        let own = shop.clone();
        let options = BackendPoolOptions {
            max_backends: MAX_BACKENDS,
            idle_timeout: Duration::from_secs(10),
            acquire_timeout: Duration::from_secs(20),
            create_timeout: Duration::from_secs(25),
            // A backend that is given up is not destroyed, which is what this is about.
            destroy_timeout: Duration::from_secs(1_000_000),
            ..BackendPoolOptions::new(None)
        };
        let pool = Arc::new(BackendPool::new(move |key| own.clone().make(key), options)?);
        let mut world = World { shop, pool, asking: Vec::new(), leases: Vec::new() };
        for act in acts {
            world.act(act).await;
            world.take_leases().await;
            world.check()?;
        }
        world.let_go().await?;
        world.end().await
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Ask(key) => {
                let request = match key {
                    Some(key) => BackendLeaseRequest::for_key(key.to_string()),
                    None => BackendLeaseRequest::single_use(),
                };
                let request =
                    request.configure_if_created(move |config: &mut Option<u8>| *config = key);
                let pool = self.pool.clone();
                let asking = tokio::spawn(async move { pool.acquire(request).await });
                self.asking.push((key, asking));
            }
            Act::Leave(at) => {
                if let Some(at) = pick(at, self.asking.len()) {
                    self.asking.swap_remove(at).1.abort();
                }
            }
            Act::Release(at) => {
                if let Some(at) = pick(at, self.leases.len()) {
                    drop(self.leases.swap_remove(at));
                }
            }
            Act::Make(at, outcome) => {
                let mut books = self.shop.books();
                let unanswered = books.pending.values_mut().filter(|(_, sender)| sender.is_some());
                let mut unanswered: Vec<_> = unanswered.collect();
                let chosen = pick(at, unanswered.len()).and_then(|at| unanswered[at].1.take());
                let _ = chosen.map(|sender| sender.send(outcome));
            }
            Act::Turn(at, status) => {
                let driver = {
                    let mut books = self.shop.books();
                    let Some(at) = pick(at, books.made.len()) else { return };
                    let made = &mut books.made[at];
                    made.connected |= status == ConnectionStatus::Connected;
                    made.given_up |= status == ConnectionStatus::Disconnected && made.connected;
                    made.driver.clone()
                };
                driver.status_publisher().set(status, None);
            }
            Act::Allow(at) => {
                let books = self.shop.books();
                if let Some(at) = pick(at, books.made.len()) {
                    books.made[at].closing.allow();
                }
            }
            Act::Cleanup => {
                let pool = self.pool.clone();
                tokio::spawn(async move { pool.destroy_idle().await });
            }
            Act::Seconds(seconds) => advance(Duration::from_secs(seconds)).await,
            Act::Turns(count) => {
                for _ in 0..count {
                    yield_now().await;
                }
            }
        }
    }

    async fn take_leases(&mut self) {
        let (done, asking) =
            std::mem::take(&mut self.asking).into_iter().partition(|(_, task)| task.is_finished());
        self.asking = asking;
        let done: Vec<(Option<u8>, JoinHandle<Result<BackendLease>>)> = done;
        for (_, task) in done {
            self.leases.extend(task.await.unwrap());
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let mut books = self.shop.books();
        books.check();
        prop_assert!(books.wrong.is_empty(), "{:?}", books.wrong);
        let stats = self.pool.stats();
        prop_assert_eq!(stats.total, stats.active + stats.idle);
        Ok(())
    }

    /// Every call comes back, every backend may end, every lease is dropped: nobody waits on.
    async fn let_go(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..ROUNDS {
            for made in &self.shop.books().made {
                made.closing.allow();
            }
            let pending: Vec<_> =
                self.shop.books().pending.values_mut().filter_map(|(_, s)| s.take()).collect();
            for sender in pending {
                let _ = sender.send(Outcome::Made);
            }
            turns().await;
            self.take_leases().await;
            self.check()?;
            self.leases.clear();
            let stats = self.pool.stats();
            let busy = stats.active + stats.waiting + stats.creating + stats.destroying;
            if busy == 0 && self.asking.is_empty() {
                return Ok(());
            }
        }
        let stats = self.pool.stats();
        Err(TestCaseError::fail(format!("{} are forgotten: {stats:?}", self.asking.len())))
    }

    async fn end(self) -> Result<(), TestCaseError> {
        for made in &self.shop.books().made {
            made.closing.allow();
        }
        self.pool.destroy_all().await?;
        prop_assert_eq!(self.pool.stats(), BackendPoolStats::default());
        let books = self.shop.books();
        for (at, made) in books.made.iter().enumerate() {
            prop_assert_eq!(made.driver.close_count(), 1, "backend {} of key {:?}", at, made.key);
        }
        Ok(())
    }
}

/// One of `count`, if there is any.
fn pick(at: usize, count: usize) -> Option<usize> {
    (count > 0).then(|| at % count)
}
