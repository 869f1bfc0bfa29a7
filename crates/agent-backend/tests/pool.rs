//! The pool, over a workshop that makes backends as the test tells it to.

mod cleanup;
mod dead;
mod ending;
mod factory;
mod interleavings;
mod limits;
mod remote;
mod sharing;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};

use ab_testkit::RecordingDriver;
use agent_backend::pool::{BackendLeaseRequest, BackendPool, BackendPoolOptions};
use agent_backend::{
    Backend, BackendLease, Closeable, ConnectionStatus, Driver, Error, ErrorCode, ErrorKind,
    MemoryDriver, MemoryDriverOptions, Result,
};
use async_trait::async_trait;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, yield_now};

/// More turns than any chain of tasks in these tests needs.
const TURNS: usize = 64;

/// Lets every task go as far as it can without the test.
async fn turns() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Config {
    name: String,
    size: u32,
}

fn options() -> BackendPoolOptions<Config> {
    BackendPoolOptions::new(Config { name: "default".to_owned(), size: 1 })
}

fn keyed(key: &str) -> BackendLeaseRequest<Config> {
    BackendLeaseRequest::for_key(key)
}

/// Asks in a task of its own.
fn ask(
    pool: &Arc<BackendPool<Config>>,
    request: BackendLeaseRequest<Config>,
) -> JoinHandle<Result<BackendLease>> {
    let pool = pool.clone();
    tokio::spawn(async move { pool.acquire(request).await })
}

/// Makes backends as planned, and well when nothing is planned. Clones are the same workshop.
#[derive(Clone, Default)]
struct TestFactory(Arc<Mutex<Shop>>);

#[derive(Default)]
struct Shop {
    plans: VecDeque<Plan>,
    configs: Vec<Config>,
    drivers: Vec<RecordingDriver>,
}

/// What becomes of one call of the factory.
enum Plan {
    MadeWhen(oneshot::Receiver<()>),
    Fails(Error),
    PanicsAtOnce,
    PanicsLater,
    /// Never comes back; what it holds is dropped with it.
    Hangs(Arc<()>),
    /// Has this status before the pool gets it.
    Starts(ConnectionStatus),
    /// Its destruction takes this along.
    Ends(Arc<Closing>),
}

impl TestFactory {
    fn pool(&self, options: BackendPoolOptions<Config>) -> Arc<BackendPool<Config>> {
        let shop = self.clone();
        Arc::new(BackendPool::new(move |config| shop.call(config), options).unwrap())
    }

    /// The next call goes as planned, after those planned before.
    fn plan(&self, plan: Plan) {
        self.0.lock().unwrap().plans.push_back(plan);
    }

    /// The next call makes its backend when the sender says so.
    fn plan_gate(&self) -> oneshot::Sender<()> {
        let (open, gate) = oneshot::channel();
        self.plan(Plan::MadeWhen(gate));
        open
    }

    /// The backend of the next call is not destroyed before the test lets it.
    fn plan_closing(&self, close_behaviour: CloseBehaviour) -> Arc<Closing> {
        let closing = Arc::new(Closing { close_behaviour, permits: Semaphore::new(0) });
        self.plan(Plan::Ends(closing.clone()));
        closing
    }

    /// What each call of the factory was given.
    fn configs(&self) -> Vec<Config> {
        self.0.lock().unwrap().configs.clone()
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().configs.len()
    }

    /// The driver of the backend that was made as number `at`.
    fn driver(&self, at: usize) -> RecordingDriver {
        self.0.lock().unwrap().drivers[at].clone()
    }

    /// How often each backend that was made has been closed.
    fn closes(&self) -> Vec<usize> {
        self.0.lock().unwrap().drivers.iter().map(RecordingDriver::close_count).collect()
    }

    fn call(&self, config: Config) -> impl Future<Output = Result<Backend>> + Send + use<> {
        let root = format!("/{}-{}", config.name, config.size);
        let plan = {
            let mut shop = self.0.lock().unwrap();
            shop.configs.push(config);
            shop.plans.pop_front()
        };
        if let Some(Plan::PanicsAtOnce) = plan {
            panic_quietly();
        }
        let shop = self.clone();
        async move {
            let options = MemoryDriverOptions { root, ..MemoryDriverOptions::default() };
            let driver = RecordingDriver::wrapping(Arc::new(MemoryDriver::with_options(options)?));
            let backend = Backend::new(driver.clone());
            match plan {
                None => {}
                Some(Plan::MadeWhen(gate)) => gate.await.unwrap(),
                Some(Plan::Fails(error)) => return Err(error),
                Some(Plan::PanicsAtOnce | Plan::PanicsLater) => panic_quietly(),
                Some(Plan::Hangs(held)) => {
                    pending::<()>().await;
                    drop(held);
                }
                Some(Plan::Starts(status)) => driver.status_publisher().set(status, None),
                Some(Plan::Ends(closing)) => {
                    backend.register_closeable(closing).await?;
                }
            }
            shop.0.lock().unwrap().drivers.push(driver);
            Ok(backend)
        }
    }
}

/// Panics without the report that a panic by mistake gets.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("on purpose"))
}

/// Goes with a backend, when the test adds a permit.
struct Closing {
    close_behaviour: CloseBehaviour,
    permits: Semaphore,
}

#[derive(Clone, Copy)]
enum CloseBehaviour {
    Fine,
    Fails,
    /// Panics when it is given up, and so not where the backend would catch it.
    PanicsWhenGivenUp,
}

impl Closing {
    fn allow(&self) {
        self.permits.add_permits(1);
    }
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_quietly();
    }
}

#[async_trait]
impl Closeable for Closing {
    async fn close(&self) -> Result<()> {
        let bomb = match self.close_behaviour {
            CloseBehaviour::PanicsWhenGivenUp => Some(Bomb),
            CloseBehaviour::Fine | CloseBehaviour::Fails => None,
        };
        self.permits.acquire().await.unwrap().forget();
        std::mem::forget(bomb);
        match self.close_behaviour {
            CloseBehaviour::Fine | CloseBehaviour::PanicsWhenGivenUp => Ok(()),
            CloseBehaviour::Fails => Err(failed("does not close")),
        }
    }
}

fn failed(message: &str) -> Error {
    Error::new(ErrorCode::ExecError, ErrorKind::Io, message)
}
