//! What became of calls, for clients whose connection ended before the answer was there.
//!
//! Each connection of a client of ours has a book, under the number that the client gave it. A call
//! that changes something is entered when it begins and closed when it is done. A client that comes
//! back asks the book of its old connection: that connection is ended first if this side does not
//! know yet that it is dead, so that what is not in the book by then never happens.
//!
//! Books are bounded, and those of dead connections expire. What is not remembered any more is
//! unknown, never guessed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::{Effect, Error, Kind};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::wire::call::CallNumber;

/// Calls that a book remembers.
const MAX_ENTRIES: usize = 4096;
/// Books that are kept.
const MAX_BOOKS: usize = 1024;
/// How long the book of a dead connection is kept.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// The books of a server, from its start to its end.
#[derive(Debug)]
pub(crate) struct Ledger {
    incarnation: u128,
    books: Mutex<HashMap<u128, Arc<Book>>>,
}

/// The calls of one connection.
#[derive(Debug)]
struct Book {
    entries: Mutex<Entries>,
    /// Something was closed.
    closed: Notify,
    /// How many channels of the connection are served.
    seats: watch::Sender<usize>,
    /// Whether the connection is to end.
    retired: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Entries {
    /// In the order in which they began; nothing while one is under way.
    calls: VecDeque<(u32, Option<Effect>)>,
    /// Whether some were let go of.
    forgotten: bool,
    /// When the last channel ended.
    left: Option<Instant>,
}

/// A channel of a connection that has a book.
#[derive(Debug)]
pub(crate) struct Seat {
    book: Arc<Book>,
}

/// A call that is under way. Dropped without [`done`](Self::done), nobody knows what became of it.
#[derive(Debug)]
pub(crate) struct Entry {
    book: Arc<Book>,
    request: u32,
    effect: Effect,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 16];
        // Without randomness two servers could be taken for one, and nothing else.
        let _ = getrandom::fill(&mut bytes);
        Self { incarnation: u128::from_be_bytes(bytes), books: Mutex::default() }
    }

    pub(crate) fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// Takes a seat for a channel of a connection, whose book is begun if there is none.
    pub(crate) fn seat(&self, connection: u128) -> Seat {
        let mut books = lock(&self.books);
        let now = Instant::now();
        books.retain(|_, book| !book.expired(now));
        if books.len() >= MAX_BOOKS && !books.contains_key(&connection) {
            let left = |book: &Book| lock(&book.entries).left;
            let oldest = books.iter().filter(|(_, book)| book.is_over());
            let oldest = oldest.min_by_key(|(_, book)| left(book)).map(|(number, _)| *number);
            // Those of living connections are as bounded as the connections are.
            oldest.map(|oldest| books.remove(&oldest));
        }
        let book = books.entry(connection).or_insert_with(|| Arc::new(Book::new())).clone();
        book.seats.send_modify(|seats| *seats += 1);
        Seat { book }
    }

    /// What became of a call. `own` is the connection that asks.
    pub(crate) async fn outcome(&self, call: CallNumber, own: Option<u128>) -> Effect {
        let book = lock(&self.books).get(&call.connection).cloned();
        let Some(book) = book else { return Effect::Unknown };
        if own != Some(call.connection) {
            book.retired.send_replace(true);
            let mut seats = book.seats.subscribe();
            // The sender is in the book that is held here.
            let _ = seats.wait_for(|seats| *seats == 0).await;
        }
        loop {
            let closed = book.closed.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
            match book.find(call.request) {
                Found::Closed(effect) => return effect,
                Found::UnderWay => closed.await,
                Found::Nothing { forgotten: false } => return Effect::NotApplied,
                Found::Nothing { forgotten: true } => return Effect::Unknown,
            }
        }
    }
}

enum Found {
    Closed(Effect),
    UnderWay,
    Nothing { forgotten: bool },
}

impl Book {
    fn new() -> Self {
        Self {
            entries: Mutex::default(),
            closed: Notify::new(),
            seats: watch::Sender::new(0),
            retired: watch::Sender::new(false),
        }
    }

    fn is_over(&self) -> bool {
        *self.seats.borrow() == 0
    }

    fn expired(&self, now: Instant) -> bool {
        let left = lock(&self.entries).left;
        self.is_over() && left.is_some_and(|left| now.duration_since(left) > KEPT)
    }

    fn find(&self, request: u32) -> Found {
        let entries = lock(&self.entries);
        match entries.calls.iter().find(|call| call.0 == request) {
            Some((_, Some(effect))) => Found::Closed(*effect),
            Some((_, None)) => Found::UnderWay,
            None => Found::Nothing { forgotten: entries.forgotten },
        }
    }
}

impl Seat {
    /// Enters a call that begins.
    pub(crate) fn begin(&self, request: u32) -> Entry {
        let mut entries = lock(&self.book.entries);
        entries.calls.push_back((request, None));
        if entries.calls.len() > MAX_ENTRIES {
            entries.calls.pop_front();
            entries.forgotten = true;
        }
        Entry { book: self.book.clone(), request, effect: Effect::Unknown }
    }

    /// Whether somebody was told already what became of the connection's calls.
    pub(crate) fn is_retired(&self) -> bool {
        *self.book.retired.borrow()
    }

    /// Waits until somebody wants the connection to be over.
    pub(crate) async fn retired(&self) {
        let mut retired = self.book.retired.subscribe();
        // The sender is in the book that is held here.
        let _ = retired.wait_for(|retired| *retired).await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.book.entries).left = Some(Instant::now());
        self.book.seats.send_modify(|seats| *seats -= 1);
    }
}

impl Entry {
    pub(crate) fn done(mut self, effect: Effect) {
        self.effect = effect;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut entries = lock(&self.book.entries);
        let entry = entries.calls.iter_mut().rev().find(|call| call.0 == self.request);
        if let Some(entry) = entry {
            entry.1 = Some(self.effect);
        }
        drop(entries);
        self.book.closed.notify_waiters();
    }
}

/// What a failed call did: nothing, where it failed before it could.
pub(crate) fn effect_of_failure(error: &Error) -> Effect {
    match error.kind() {
        Kind::NotFound
        | Kind::AlreadyExists
        | Kind::NotADirectory
        | Kind::IsADirectory
        | Kind::NotEmpty
        | Kind::SpecialFile
        | Kind::LinkLoop
        | Kind::InvalidPath
        | Kind::Escape
        | Kind::PermissionDenied
        | Kind::Denied
        | Kind::Rejected
        | Kind::Unsupported
        | Kind::TooLarge
        | Kind::Conflict
        | Kind::NoMatch
        | Kind::Ambiguous
        | Kind::Invalid
        | Kind::Unavailable
        | Kind::Destroyed => Effect::NotApplied,
        Kind::NoSpace
        | Kind::Failed
        | Kind::Timeout
        | Kind::Cancelled
        | Kind::Disconnected
        | Kind::Io => Effect::Unknown,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(request: u32) -> CallNumber {
        CallNumber { connection: 7, request }
    }

    #[tokio::test]
    async fn a_book_says_what_became_of_its_calls() {
        let ledger = Ledger::new();
        let seat = ledger.seat(7);
        seat.begin(1).done(Effect::Applied);
        seat.begin(2).done(Effect::NotApplied);
        drop(seat.begin(3));
        drop(seat);
        for (request, expect) in [
            (1, Effect::Applied),
            (2, Effect::NotApplied),
            (3, Effect::Unknown),
            (4, Effect::NotApplied),
        ] {
            assert_eq!(ledger.outcome(call(request), None).await, expect, "{request}");
        }
        let other = CallNumber { connection: 8, request: 1 };
        assert_eq!(ledger.outcome(other, None).await, Effect::Unknown);
    }

    #[tokio::test]
    async fn a_connection_that_is_asked_about_ends_first() {
        let ledger = Ledger::new();
        let seat = ledger.seat(7);
        let asking = ledger.outcome(call(1), Some(8));
        let serving = async {
            seat.retired().await;
            // It was on its way, and done before the channel ended.
            seat.begin(1).done(Effect::Applied);
            drop(seat);
        };
        let (effect, ()) = tokio::join!(asking, serving);
        assert_eq!(effect, Effect::Applied);
    }

    #[tokio::test]
    async fn a_call_of_the_same_connection_is_waited_for() {
        let ledger = Ledger::new();
        let seat = ledger.seat(7);
        let entry = seat.begin(1);
        let (effect, ()) =
            tokio::join!(ledger.outcome(call(1), Some(7)), async { entry.done(Effect::Applied) });
        assert_eq!(effect, Effect::Applied);
    }

    #[tokio::test]
    async fn what_is_forgotten_is_unknown() {
        let ledger = Ledger::new();
        let seat = ledger.seat(7);
        for request in 0..=MAX_ENTRIES {
            seat.begin(u32::try_from(request).unwrap()).done(Effect::Applied);
        }
        drop(seat);
        assert_eq!(ledger.outcome(call(0), None).await, Effect::Unknown);
        assert_eq!(ledger.outcome(call(1), None).await, Effect::Applied);
        for connection in 100..100 + MAX_BOOKS as u128 {
            ledger.seat(connection);
        }
        assert_eq!(lock(&ledger.books).len(), MAX_BOOKS);
        assert_eq!(ledger.outcome(call(1), None).await, Effect::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn books_of_dead_connections_expire() {
        let ledger = Ledger::new();
        ledger.seat(7).begin(1).done(Effect::Applied);
        tokio::time::advance(KEPT).await;
        assert_eq!(ledger.outcome(call(1), None).await, Effect::Applied);
        tokio::time::advance(Duration::from_millis(1)).await;
        ledger.seat(8);
        assert_eq!(ledger.outcome(call(1), None).await, Effect::Unknown);
    }
}
