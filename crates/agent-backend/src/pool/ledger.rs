//! The state of a pool: its members and its waiting callers. Plain data, changed under one lock. A
//! *member* is a backend of the pool, also while it is being created or destroyed. A *seated*
//! member occupies one of the limited slots.
//!
//! - A key has at most one member, which is being created, live, or being destroyed.
//! - The number of seated members is limited. Retired members are dead, have no key and do not
//!   count. They stay until their last user releases them and they are destroyed.
//! - If the member of a key is being created or live, no caller with this key is in the queue.
//! - No code of the caller runs here, and no value of the caller is dropped here. Actions that
//!   follow from a change are returned as [`Effects`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use ab_core::{Backend, Error, Result};
use tokio::time::Instant;

use super::effects::{Answer, Effects};
use super::failure;
use super::member::{Held, Make, Member, MemberId, Phase, TicketId};
use super::options::Limits;
use super::stats::BackendPoolStats;

/// A caller in the queue. The caller waits for a free slot, in which the pool can create its
/// backend.
struct Ticket {
    id: TicketId,
    key: Option<Arc<str>>,
    make: Make,
}

pub(super) struct Ledger {
    limits: Limits,
    closed: bool,
    next_id: u64,
    seated: BTreeMap<MemberId, Member>,
    retired: BTreeMap<MemberId, Member>,
    keys: HashMap<Arc<str>, MemberId>,
    /// The callers in the queue, in order of arrival. Their ids have the same order.
    line: VecDeque<Ticket>,
    /// All waiting callers: the callers in the queue, and the callers whose backend is being
    /// created.
    asking: HashMap<TicketId, Answer>,
    failed_destroys: u64,
    /// The number of backends that could not be destroyed since the pool was closed, and the first
    /// error.
    failures: Option<(usize, Error)>,
}

impl Ledger {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            closed: false,
            next_id: 0,
            seated: BTreeMap::new(),
            retired: BTreeMap::new(),
            keys: HashMap::new(),
            line: VecDeque::new(),
            asking: HashMap::new(),
            failed_destroys: 0,
            failures: None,
        }
    }

    /// Counts one more user of the key's backend, if the backend is alive. A dead backend is
    /// retired.
    pub(super) fn reuse(
        &mut self,
        key: &str,
        effects: &mut Effects,
    ) -> Option<(MemberId, Backend)> {
        let id = *self.keys.get(key)?;
        let Phase::Live { held, users, .. } = &mut self.seated.get_mut(&id)?.phase else {
            return None;
        };
        if held.is_dead() {
            self.retire(id, effects);
            return None;
        }
        *users += 1;
        Some((id, held.backend.clone()))
    }

    /// Adds a caller that waits for a backend. It gets its answer through `answer`.
    pub(super) fn enter(
        &mut self,
        key: Option<Arc<str>>,
        make: Make,
        answer: Answer,
        effects: &mut Effects,
    ) -> TicketId {
        let id = TicketId(self.next_id());
        // The backend may have been created since the caller last checked.
        if let Some((member, backend)) = key.as_deref().and_then(|key| self.reuse(key, effects)) {
            effects.grant.push((answer, member, backend));
            effects.discard.push(Box::new(make));
            return id;
        }
        if let Some(error) = self.refusal() {
            effects.refuse.push((answer, error));
            effects.discard.push(Box::new(make));
            return id;
        }
        self.asking.insert(id, answer);
        match key.as_deref().and_then(|key| self.being_made(key)) {
            Some(asked) => {
                asked.insert(id);
                effects.discard.push(Box::new(make));
            }
            None => self.line.push_back(Ticket { id, key, make }),
        }
        id
    }

    /// Removes a caller from the queue. Returns `false` if the caller is not in the queue, because
    /// its backend is already being created.
    pub(super) fn give_up(&mut self, id: TicketId, effects: &mut Effects) -> bool {
        let Ok(at) = self.line.binary_search_by_key(&id, |ticket| ticket.id) else { return false };
        if let Some(ticket) = self.line.remove(at) {
            effects.discard.push(Box::new(ticket.make));
        }
        true
    }

    /// Removes a caller that dropped its future.
    pub(super) fn leave(&mut self, id: TicketId, key: Option<&str>, effects: &mut Effects) {
        if self.asking.remove(&id).is_none() || self.give_up(id, effects) {
            return;
        }
        if let Some(asked) = key.and_then(|key| self.being_made(key)) {
            asked.remove(&id);
        }
    }

    /// Records the backend that the factory has made, and gives it to the callers that wait for it.
    /// If the factory failed, they receive its error.
    pub(super) fn made(&mut self, id: MemberId, made: Result<Held>, effects: &mut Effects) {
        let Some(asked) = self.seated.get_mut(&id).and_then(Member::take_asked) else {
            effects.discard.push(Box::new(made));
            return;
        };
        let held = match made {
            Ok(held) => held,
            Err(error) => {
                self.remove(id, effects);
                let answers = asked.iter().filter_map(|ticket| self.asking.remove(ticket));
                effects.refuse.extend(answers.map(|answer| (answer, error.clone())));
                effects.discard.push(Box::new(error));
                return;
            }
        };
        let answers: Vec<Answer> =
            asked.iter().filter_map(|ticket| self.asking.remove(ticket)).collect();
        let users = answers.len();
        let grants = answers.into_iter().map(|answer| (answer, id, held.backend.clone()));
        effects.grant.extend(grants);
        let Some(member) = self.seated.get_mut(&id) else { return };
        let useful = users > 0 || member.key.is_some();
        member.phase = Phase::Live { held, users, idle_since: Instant::now() };
        if self.closed || !useful {
            self.end(id, effects);
        }
    }

    /// Counts one user of a backend less. When the last user releases the backend, it becomes idle.
    /// If it cannot be used again, its destruction starts.
    pub(super) fn release(&mut self, id: MemberId, effects: &mut Effects) {
        let Some(member) = self.member(id) else { return };
        let Phase::Live { held, users, idle_since } = &mut member.phase else { return };
        *users = users.saturating_sub(1);
        *idle_since = Instant::now();
        // A backend without a key is not reused, whether it is for a single use or retired.
        if *users == 0 && (member.key.is_none() || held.is_dead()) {
            self.dismiss(id, effects);
        }
    }

    /// Removes a member whose destruction has ended, and records the error if it failed.
    pub(super) fn ended(&mut self, id: MemberId, ended: Result<()>, effects: &mut Effects) {
        if let Err(error) = ended {
            self.failed_destroys += 1;
            match &mut self.failures {
                None if self.closed => self.failures = Some((1, error)),
                None => effects.discard.push(Box::new(error)),
                Some((count, _)) => {
                    *count += 1;
                    effects.discard.push(Box::new(error));
                }
            }
        }
        self.remove(id, effects);
    }

    /// Starts to destroy backends that were idle long enough, and dead backends that are not in
    /// use.
    pub(super) fn expire(&mut self, now: Instant, effects: &mut Effects) -> Vec<MemberId> {
        let expired = |member: &Member| {
            let idle = member.idle_since().map(|since| now.saturating_duration_since(since));
            idle.is_some_and(|idle| idle >= self.limits.idle || member.is_dead())
        };
        let seated = self.seated.iter().filter(|(_, member)| expired(member));
        let ids: Vec<MemberId> = seated.map(|(id, _)| *id).collect();
        for id in &ids {
            self.dismiss(*id, effects);
        }
        ids
    }

    /// Refuses all callers and starts to destroy all backends.
    pub(super) fn close(&mut self, effects: &mut Effects) {
        self.closed = true;
        let answers = self.asking.drain().map(|(_, answer)| (answer, failure::closed()));
        effects.refuse.extend(answers);
        for ticket in self.line.drain(..) {
            effects.discard.push(Box::new(ticket.make));
        }
        let ids: Vec<MemberId> = self.seated.keys().chain(self.retired.keys()).copied().collect();
        for id in ids {
            self.end(id, effects);
        }
    }

    /// Removes all members and callers from the state. The backends are dropped, but not destroyed.
    pub(super) fn abandon(&mut self, effects: &mut Effects) {
        self.closed = true;
        self.keys.clear();
        effects.discard.push(Box::new(std::mem::take(&mut self.seated)));
        effects.discard.push(Box::new(std::mem::take(&mut self.retired)));
        effects.discard.push(Box::new(std::mem::take(&mut self.asking)));
        for ticket in self.line.drain(..) {
            effects.discard.push(Box::new(ticket.make));
        }
        effects.fewer = true;
    }

    /// Gives free slots to the callers in the queue. Must be called after every change.
    pub(super) fn settle(&mut self, effects: &mut Effects) {
        if self.line.is_empty() {
            return;
        }
        if self.is_full() {
            self.retire_dead(effects);
        }
        let mut at = 0;
        while let Some(ticket) = self.line.get(at).filter(|_| !self.is_full()) {
            // The key's previous backend is still being destroyed. A key must not have two
            // backends.
            if ticket.key.as_deref().is_some_and(|key| self.keys.contains_key(key)) {
                at += 1;
            } else if let Some(ticket) = self.line.remove(at) {
                self.begin(ticket, effects);
            }
        }
        self.make_room(effects);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seated.is_empty() && self.retired.is_empty()
    }

    pub(super) fn has_any(&self, ids: &[MemberId]) -> bool {
        ids.iter().any(|id| self.seated.contains_key(id) || self.retired.contains_key(id))
    }

    /// The result of closing the pool: the first error of a destruction, if there was one.
    pub(super) fn verdict(&self) -> Result<()> {
        match &self.failures {
            None => Ok(()),
            Some((1, first)) => Err(first.clone()),
            Some((count, first)) => {
                let message = format!("cannot destroy {count} backends; the first error: {first}");
                Err(Error::new(first.code(), first.kind(), message).with_source(first.clone()))
            }
        }
    }

    pub(super) fn stats(&self) -> BackendPoolStats {
        let mut stats = BackendPoolStats {
            waiting: self.asking.len(),
            failed_destroys: self.failed_destroys,
            ..BackendPoolStats::default()
        };
        for member in self.seated.values().chain(self.retired.values()) {
            match &member.phase {
                Phase::Creating { .. } => stats.creating += 1,
                Phase::Ending => stats.destroying += 1,
                Phase::Live { users: 0, .. } => stats.idle += 1,
                Phase::Live { .. } => stats.active += 1,
            }
        }
        stats.total = stats.active + stats.idle;
        for (key, id) in &self.keys {
            if let Some(Phase::Live { users, .. }) = self.seated.get(id).map(|m| &m.phase) {
                stats.by_key.insert(key.to_string(), *users);
            }
        }
        stats
    }

    /// Starts to create a backend for a caller, and for all other callers in the queue with the
    /// same key.
    fn begin(&mut self, ticket: Ticket, effects: &mut Effects) {
        let id = MemberId(self.next_id());
        let mut asked = BTreeSet::from([ticket.id]);
        if let Some(key) = &ticket.key {
            self.keys.insert(key.clone(), id);
            let line = std::mem::take(&mut self.line).into_iter();
            let (same, others): (VecDeque<Ticket>, _) =
                line.partition(|other| other.key.as_ref() == Some(key));
            self.line = others;
            for other in same {
                asked.insert(other.id);
                effects.discard.push(Box::new(other.make));
            }
        }
        self.seated.insert(id, Member { key: ticket.key, phase: Phase::Creating { asked } });
        effects.create.push((id, ticket.make));
    }

    /// Starts to destroy as many idle backends as needed. The backends that were idle longest come
    /// first.
    fn make_room(&mut self, effects: &mut Effects) {
        if !self.is_full() || self.line.is_empty() {
            return;
        }
        let idle = self.seated.iter().filter_map(|(id, m)| Some((m.idle_since()?, *id)));
        let mut idle: Vec<(Instant, MemberId)> = idle.collect();
        if idle.is_empty() {
            return;
        }
        let leaving = self.seated.values().filter(|member| member.is_ending()).count();
        let keys: HashSet<&str> = self.line.iter().filter_map(|t| t.key.as_deref()).collect();
        let wanted = keys.len() + self.line.iter().filter(|ticket| ticket.key.is_none()).count();
        idle.sort_unstable();
        for (_, id) in idle.into_iter().take(wanted.saturating_sub(leaving)) {
            self.end(id, effects);
        }
    }

    fn retire_dead(&mut self, effects: &mut Effects) {
        let dead = self.seated.iter().filter(|(_, member)| member.is_dead());
        let dead: Vec<MemberId> = dead.map(|(id, _)| *id).collect();
        for id in dead {
            self.retire(id, effects);
        }
    }

    /// Removes a dead member from its key and slot. It is destroyed when its last user releases it.
    fn retire(&mut self, id: MemberId, effects: &mut Effects) {
        let Some(mut member) = self.seated.remove(&id) else { return };
        if let Some(key) = member.key.take() {
            self.keys.remove(&key);
        }
        let unused = member.idle_since().is_some();
        self.retired.insert(id, member);
        if unused {
            self.end(id, effects);
        }
    }

    /// Starts to destroy a member that is not in use. A dead member does not occupy its slot during
    /// its destruction.
    fn dismiss(&mut self, id: MemberId, effects: &mut Effects) {
        if self.seated.get(&id).is_some_and(Member::is_dead) {
            self.retire(id, effects);
        } else {
            self.end(id, effects);
        }
    }

    /// Marks a live member as ending, and starts to destroy its backend.
    fn end(&mut self, id: MemberId, effects: &mut Effects) {
        if let Some(held) = self.member(id).and_then(Member::take_held) {
            effects.destroy.push((id, held));
        }
    }

    fn remove(&mut self, id: MemberId, effects: &mut Effects) {
        if let Some(key) = self.seated.remove(&id).and_then(|member| member.key) {
            self.keys.remove(&key);
        }
        self.retired.remove(&id);
        effects.fewer = true;
    }

    /// The error for a new caller, if the pool is closed or too many callers wait.
    fn refusal(&self) -> Option<Error> {
        if self.closed {
            return Some(failure::closed());
        }
        let crowded = self.asking.len() >= self.limits.waiting;
        crowded.then(|| failure::crowded(&self.limits))
    }

    fn being_made(&mut self, key: &str) -> Option<&mut BTreeSet<TicketId>> {
        let id = self.keys.get(key)?;
        match &mut self.seated.get_mut(id)?.phase {
            Phase::Creating { asked } => Some(asked),
            Phase::Live { .. } | Phase::Ending => None,
        }
    }

    fn member(&mut self, id: MemberId) -> Option<&mut Member> {
        self.seated.get_mut(&id).or_else(|| self.retired.get_mut(&id))
    }

    fn is_full(&self) -> bool {
        self.seated.len() >= self.limits.backends
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}
