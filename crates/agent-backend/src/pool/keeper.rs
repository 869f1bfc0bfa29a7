//! Performs what the ledger decides: creates and destroys backends and answers waiting callers.
//!
//! A driver, a factory or a status listener may call the pool again. Therefore no code of the
//! caller runs, and no value of the caller is dropped, while the ledger's lock is held.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ab_core::{Backend, ConnectionStatus, Result};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::effects::Effects;
use super::failure;
use super::lease::BackendLease;
use super::ledger::Ledger;
use super::member::{Held, Make, MemberId, TicketId};
use super::options::Limits;
use super::place::Place;
use super::stats::BackendPoolStats;
use super::tasks::Tasks;

pub(super) struct Keeper {
    limits: Limits,
    ledger: Mutex<Ledger>,
    tasks: Tasks,
    /// Notified when a backend has left the pool.
    fewer: Notify,
}

impl Keeper {
    pub(super) fn new(limits: Limits) -> Result<Arc<Self>> {
        let ledger = Mutex::new(Ledger::new(limits));
        Ok(Arc::new(Self { limits, ledger, tasks: Tasks::new()?, fewer: Notify::new() }))
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn reuse(self: &Arc<Self>, key: &str) -> Option<BackendLease> {
        let (member, backend) = self.act(|ledger, effects| ledger.reuse(key, effects))?;
        Some(BackendLease::new(backend, member, self.clone()))
    }

    pub(super) fn enter(self: &Arc<Self>, key: Option<Arc<str>>, make: Make) -> Place {
        let (sender, answer) = oneshot::channel();
        let asked = key.clone();
        let ticket = self.act(|ledger, effects| ledger.enter(asked, make, sender, effects));
        Place { keeper: self.clone(), ticket, key, answer }
    }

    pub(super) fn give_up(self: &Arc<Self>, ticket: TicketId) -> bool {
        self.act(|ledger, effects| ledger.give_up(ticket, effects))
    }

    pub(super) fn leave(self: &Arc<Self>, ticket: TicketId, key: Option<&str>) {
        self.act(|ledger, effects| ledger.leave(ticket, key, effects));
    }

    pub(super) fn release(self: &Arc<Self>, member: MemberId) {
        self.act(|ledger, effects| ledger.release(member, effects));
    }

    /// Gives free slots to waiting callers. Called when something outside the pool has changed,
    /// such as the status of a backend.
    pub(super) fn settle(self: &Arc<Self>) {
        self.act(|_, _| ());
    }

    pub(super) fn stats(&self) -> BackendPoolStats {
        self.lock().stats()
    }

    pub(super) async fn cleanup(self: &Arc<Self>) -> usize {
        let expired = self.act(|ledger, effects| ledger.expire(Instant::now(), effects));
        self.until(|ledger| !ledger.has_any(&expired)).await;
        expired.len()
    }

    pub(super) fn clean_up_every(self: &Arc<Self>, period: Duration) {
        let keeper = self.clone();
        self.tasks.spawn(async move {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                keeper.cleanup().await;
            }
        });
    }

    pub(super) async fn destroy_all(self: &Arc<Self>) -> Result<()> {
        self.act(Ledger::close);
        self.until(Ledger::is_empty).await;
        self.tasks.join().await;
        self.lock().verdict()
    }

    /// Ends the pool without waiting. Its backends are dropped, but not destroyed.
    pub(super) fn abandon(&self) {
        let mut effects = Effects::default();
        self.lock().abandon(&mut effects);
        drop(self.tasks.abort());
        self.fewer.notify_waiters();
    }

    /// Changes the ledger, serves waiting callers, and then performs the resulting actions.
    fn act<T>(self: &Arc<Self>, change: impl FnOnce(&mut Ledger, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let answer = {
            let mut ledger = self.lock();
            let answer = change(&mut ledger, &mut effects);
            ledger.settle(&mut effects);
            answer
        };
        self.perform(effects);
        answer
    }

    fn perform(self: &Arc<Self>, effects: Effects) {
        let Effects { destroy, create, grant, refuse, discard, fewer } = effects;
        for (id, held) in destroy {
            let end = End { keeper: self.clone(), id, ended: None };
            self.tasks.spawn(end.attend(held));
        }
        for (id, make) in create {
            let birth = Birth { keeper: self.clone(), id, made: None };
            self.tasks.spawn(birth.attend(make));
        }
        for (answer, id, backend) in grant {
            // If the caller has gone, sending returns the lease. It is then dropped, which releases
            // the backend.
            let _ = answer.send(Ok(BackendLease::new(backend, id, self.clone())));
        }
        for (answer, error) in refuse {
            let _ = answer.send(Err(error));
        }
        if fewer {
            self.fewer.notify_waiters();
        }
        drop(discard);
    }

    async fn until(&self, done: impl Fn(&Ledger) -> bool) {
        loop {
            let mut fewer = pin!(self.fewer.notified());
            // Register before checking, so that no notification is missed in between.
            fewer.as_mut().enable();
            if done(&self.lock()) {
                return;
            }
            fewer.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the factory, and reports the result to the ledger even if the factory panics.
struct Birth {
    keeper: Arc<Keeper>,
    id: MemberId,
    made: Option<Result<Backend>>,
}

impl Birth {
    async fn attend(mut self, make: Make) {
        let limits = self.keeper.limits;
        let made = timeout(limits.create, make()).await;
        self.made = Some(made.unwrap_or_else(|_| Err(failure::factory_too_slow(&limits))));
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        let made = match self.made.take() {
            Some(Ok(backend)) if backend.status() == ConnectionStatus::Destroyed => {
                Err(failure::made_destroyed())
            }
            Some(Ok(backend)) => Ok(Held::new(backend, Arc::downgrade(&self.keeper))),
            Some(Err(error)) => Err(error),
            None if thread::panicking() => Err(failure::factory_panicked()),
            // The runtime has shut down, so no caller can be served any more.
            None => return self.keeper.abandon(),
        };
        self.keeper.act(|ledger, effects| ledger.made(self.id, made, effects));
    }
}

/// Destroys a backend, and reports the end to the ledger even if the driver panics.
struct End {
    keeper: Arc<Keeper>,
    id: MemberId,
    ended: Option<Result<()>>,
}

impl End {
    async fn attend(mut self, held: Held) {
        let limits = self.keeper.limits;
        let ended = timeout(limits.destroy, held.backend.destroy()).await;
        self.ended = Some(ended.unwrap_or_else(|_| Err(failure::destroy_too_slow(&limits))));
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let ended = match self.ended.take() {
            Some(ended) => ended,
            None if thread::panicking() => Err(failure::destroy_panicked()),
            None => return self.keeper.abandon(),
        };
        self.keeper.act(|ledger, effects| ledger.ended(self.id, ended, effects));
    }
}
