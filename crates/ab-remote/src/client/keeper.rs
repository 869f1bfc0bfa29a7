//! The task that keeps a workspace connected. The [state machine](super::link) decides when this
//! task connects, waits and retries. The task also detects the loss of a connection.

use std::future::pending;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;

use ab_core::status::StatusPublisher;
use ab_core::{ConnectionStatus, Error, ErrorCode, ErrorKind, Result, Verb};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep};

use super::context::later;
use super::dial::{ConnectError, Gone, dial};
use super::link::{Effect, Generation, Input, Link};
use super::session::Session;
use super::settings::RemoteClientSettings;

type Waiter = oneshot::Sender<Result<Arc<Session>>>;
type Attempt = Pin<Box<dyn Future<Output = Result<Made, ConnectError>> + Send>>;

/// A new connection, and a receiver that is notified of its end.
struct Made {
    session: Session,
    gone: oneshot::Receiver<Gone>,
}

enum Told {
    Wanted(Waiter),
    Destroy(oneshot::Sender<()>),
}

/// The handle of the task that keeps a workspace connected.
#[derive(Debug)]
pub(crate) struct Keeper {
    told: mpsc::UnboundedSender<Told>,
    current: watch::Receiver<Option<Arc<Session>>>,
    /// Why there is neither a connection nor an attempt to connect. `None` while there is a
    /// connection or an attempt.
    given_up: watch::Receiver<Option<Error>>,
    task: JoinHandle<()>,
}

impl Keeper {
    pub(crate) fn start(settings: Arc<RemoteClientSettings>, hub: StatusPublisher) -> Self {
        let (told, hears) = mpsc::unbounded_channel();
        let (sets, current) = watch::channel(None);
        let (gives_up, given_up) = watch::channel(None);
        let link = Link::new(settings.reconnection);
        let keeping = Keeping {
            settings,
            hub,
            link,
            hears,
            current: sets,
            given_up: gives_up,
            connection: None,
            attempt: None,
            timer: None,
            waiting: Vec::new(),
            reason: None,
        };
        Self { told, current, given_up, task: tokio::spawn(keeping.run()) }
    }

    /// The connection, if there is one.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        let session = self.current.borrow().clone();
        session.filter(|session| !session.is_over())
    }

    /// A receiver that always has the current connection, or `None`.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Arc<Session>>> {
        self.current.clone()
    }

    /// Waits until there is neither a connection nor an attempt to connect. Returns the reason.
    pub(crate) fn given_up(&self) -> impl Future<Output = Error> + use<> {
        let mut given_up = self.given_up.clone();
        async move {
            match given_up.wait_for(Option::is_some).await {
                Ok(why) => why.clone().unwrap_or_else(lost),
                // The task has ended, so it will not connect again.
                Err(_) => ended(),
            }
        }
    }

    /// Waits for a connection. Starts an attempt to connect if none is running.
    pub(crate) async fn wanted(&self, verb: Verb) -> Result<Arc<Session>> {
        let (waiter, answer) = oneshot::channel();
        let destroyed = || Error::for_destroyed_backend(verb);
        self.told.send(Told::Wanted(waiter)).map_err(|_| destroyed())?;
        answer.await.map_err(|_| destroyed())?.map_err(|error| error.with_verb(verb))
    }

    /// Ends the task. The workspace makes no further connection. Returns when the current
    /// connection is closed.
    pub(crate) async fn destroy(&self) {
        let (done, ended) = oneshot::channel();
        if self.told.send(Told::Destroy(done)).is_ok() {
            let _ = ended.await;
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The task owns the connection, so aborting the task closes it.
        self.task.abort();
    }
}

struct Keeping {
    settings: Arc<RemoteClientSettings>,
    hub: StatusPublisher,
    link: Link,
    hears: mpsc::UnboundedReceiver<Told>,
    current: watch::Sender<Option<Arc<Session>>>,
    given_up: watch::Sender<Option<Error>>,
    connection: Option<(Generation, Arc<Session>, oneshot::Receiver<Gone>)>,
    attempt: Option<(Generation, Attempt)>,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: Vec<Waiter>,
    /// The error of the last attempt, or of the last loss of a connection.
    reason: Option<Error>,
}

enum Event {
    Told(Option<Told>),
    Attempted(Generation, Box<Result<Made, ConnectError>>),
    Lost(Generation, Option<Gone>),
    TimerFired,
}

impl Keeping {
    async fn run(mut self) {
        loop {
            match self.event().await {
                Event::Told(Some(Told::Wanted(waiter))) => {
                    self.notice_loss();
                    self.waiting.retain(|waiter| !waiter.is_closed());
                    self.waiting.push(waiter);
                    self.apply(Input::Wanted);
                }
                Event::Told(Some(Told::Destroy(done))) => {
                    self.apply(Input::Destroy);
                    let _ = done.send(());
                    return;
                }
                // All handles of the backend were dropped.
                Event::Told(None) => {
                    self.apply(Input::Destroy);
                    return;
                }
                Event::Attempted(generation, outcome) => {
                    self.attempt = None;
                    self.attempted(generation, *outcome);
                }
                Event::Lost(generation, gone) => {
                    self.reason = Some(match gone {
                        Some(gone) => gone.error,
                        None => lost(),
                    });
                    self.apply(Input::Lost(generation));
                }
                Event::TimerFired => {
                    self.timer = None;
                    self.apply(Input::TimerFired);
                }
            }
        }
    }

    fn attempted(&mut self, generation: Generation, outcome: Result<Made, ConnectError>) {
        match outcome {
            Ok(Made { session, gone }) => {
                self.reason = None;
                let session = Arc::new(session);
                self.connection = Some((generation, session.clone(), gone));
                self.current.send_replace(Some(session));
                self.apply(Input::AttemptSucceeded(generation));
            }
            Err(ConnectError { error, retryable }) => {
                self.reason = Some(error);
                self.apply(Input::AttemptFailed { generation, retryable });
            }
        }
    }

    /// Handles the loss of a connection. A caller may notice the loss before the task does.
    fn notice_loss(&mut self) {
        let Some((generation, session, gone)) = &mut self.connection else { return };
        if session.is_over() {
            let generation = *generation;
            self.reason = Some(gone.try_recv().map_or_else(|_| lost(), |gone| gone.error));
            self.apply(Input::Lost(generation));
        }
    }

    /// Waits for the next event.
    async fn event(&mut self) -> Event {
        let attempted = async {
            match &mut self.attempt {
                Some((generation, attempt)) => {
                    Event::Attempted(*generation, Box::new(attempt.await))
                }
                None => pending().await,
            }
        };
        let lost = async {
            match &mut self.connection {
                Some((generation, _, gone)) => Event::Lost(*generation, gone.await.ok()),
                None => pending().await,
            }
        };
        let fired = async {
            match &mut self.timer {
                Some(timer) => {
                    timer.await;
                    Event::TimerFired
                }
                None => pending().await,
            }
        };
        tokio::select! {
            told = self.hears.recv() => Event::Told(told),
            event = attempted => event,
            event = lost => event,
            event = fired => event,
        }
    }

    fn apply(&mut self, input: Input) {
        for effect in self.link.apply(input) {
            self.perform(effect);
        }
        self.given_up.send_replace(match self.link.status() {
            ConnectionStatus::Disconnected => Some(self.reason.clone().unwrap_or_else(lost)),
            ConnectionStatus::Destroyed => Some(ended()),
            ConnectionStatus::Connecting
            | ConnectionStatus::Connected
            | ConnectionStatus::Reconnecting => None,
        });
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Report(status) => {
                let error = match status {
                    ConnectionStatus::Disconnected | ConnectionStatus::Reconnecting => {
                        self.reason.clone()
                    }
                    ConnectionStatus::Connected
                    | ConnectionStatus::Connecting
                    | ConnectionStatus::Destroyed => None,
                };
                self.hub.set(status, error);
            }
            Effect::StartAttempt(generation) => {
                let attempt = Box::pin(attempt(self.settings.clone()));
                self.attempt = Some((generation, attempt));
            }
            Effect::Schedule(delay) => self.timer = Some(Box::pin(sleep(delay))),
            Effect::CancelTimer => self.timer = None,
            Effect::CancelAttempt => self.attempt = None,
            Effect::RejectPending => {
                self.current.send_replace(None);
                if let Some((_, session, _)) = &self.connection {
                    session.end(self.reason.as_ref().unwrap_or(&ended()));
                }
            }
            Effect::CloseConnection => self.connection = None,
            Effect::AdmitWaiting => {
                if let Some((_, session, _)) = &self.connection {
                    for waiter in self.waiting.drain(..) {
                        let _ = waiter.send(Ok(session.clone()));
                    }
                }
            }
            Effect::FailWaiting => {
                let reason = match self.link.status() {
                    ConnectionStatus::Destroyed => Error::for_destroyed_backend(Verb::Connect),
                    _ => self.reason.clone().unwrap_or_else(lost),
                };
                for waiter in self.waiting.drain(..) {
                    let _ = waiter.send(Err(reason.clone()));
                }
            }
        }
    }
}

async fn attempt(settings: Arc<RemoteClientSettings>) -> Result<Made, ConnectError> {
    let deadline = later(Instant::now(), settings.connect_timeout);
    let mut dialled = dial(&settings).await?;
    let (_, nobody) = oneshot::channel();
    let gone = std::mem::replace(&mut dialled.gone, nobody);
    let session = Session::open(&settings, dialled, number(), deadline).await?;
    Ok(Made { session, gone })
}

/// A random number that identifies a connection.
fn number() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_be_bytes(bytes),
        // If the system provides no random numbers, use the seeds of hash maps instead.
        Err(_) => {
            let random = || u128::from(RandomState::new().build_hasher().finish());
            (random() << 64) | random()
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, "the connection was lost")
}

fn ended() -> Error {
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Destroyed, "the backend was destroyed")
}
