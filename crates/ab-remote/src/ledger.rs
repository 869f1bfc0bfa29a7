//! Remembers the effects of calls, for clients whose connection ended before the answer arrived.
//!
//! Each connection of an agent-backend client has a record of its calls, called a book. A number
//! that the client chooses identifies the book. A call that changes something is entered in the
//! book when it begins. Its effect is recorded when it is done. A client that reconnects asks for
//! the effects of calls in the book of its old connection. If the server does not know yet that the
//! old connection is dead, it first ends this connection. A call that is not in the book after this
//! will therefore never take effect.
//!
//! Books are limited in size, and the books of dead connections expire. The effect of a call that
//! was dropped from a book is unknown. The effect is also unknown if a call is still running after
//! a long wait.
//!
//! A client may also ask about a call on the same connection that is still open. Channels are
//! served concurrently, so a call that is not in the book may still be entered. The server waits a
//! short time for this. If the call is still not in the book, its effect is unknown.
//!
//! Each connection has one number. No other connection has the same number. All channels of the
//! connection use the book with that number.

use std::collections::hash_map::Entry as Place;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ab_core::{Error, ErrorKind, LostCallEffect};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::wire::call::RemoteCallId;

/// Maximum number of calls in a book, which is the record of one connection.
const MAX_ENTRIES: usize = 4096;
/// Maximum number of books, which are the records of the calls of one connection.
const MAX_BOOKS: usize = 1024;
/// How long the calls of a dead connection are remembered.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// How long a client that asks for the effect of a call waits for the call to be done.
const SETTLING: Duration = Duration::from_secs(15);
/// How long a client that asks for the effect of a call on its own connection waits until this call
/// begins.
const ENTERING: Duration = Duration::from_secs(1);

/// The books of a server. Each book records the calls of one connection. The ledger is kept until
/// the server ends.
#[derive(Debug)]
pub(crate) struct Ledger {
    incarnation: u128,
    books: Mutex<HashMap<u128, Arc<Book>>>,
}

/// Records the calls of one connection and their effects.
#[derive(Debug)]
struct Book {
    entries: Mutex<Entries>,
    /// Notified when a call begins or is done.
    changed: Notify,
    /// The number of channels of the connection that are being served.
    seats: watch::Sender<usize>,
    /// Whether the connection must end. It must end when its client asks about the calls in this
    /// book on another connection.
    retired: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Entries {
    /// The calls in the order in which they began. The effect is `None` while a call is running.
    calls: VecDeque<(u32, Option<LostCallEffect>)>,
    /// Whether some calls were dropped from the book because it was full.
    forgotten: bool,
    /// When the last channel of the connection ended.
    left: Option<Instant>,
}

/// The client of an SSH connection, identified by a number that the client has chosen. Not set
/// until the client has sent the number. All channels of the connection share this value.
#[derive(Debug, Default)]
pub(crate) struct Caller(OnceLock<(u128, Arc<Book>)>);

/// A channel of a connection whose calls are recorded in a book. The connection counts as ended
/// when all its seats are dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    book: Arc<Book>,
}

/// A call that is recorded and has not ended. If this value is dropped without a call of
/// [`done`](Self::done), the effect of the call is unknown.
#[derive(Debug)]
pub(crate) struct Entry {
    book: Arc<Book>,
    request: u32,
    effect: LostCallEffect,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 16];
        // If this fails, the server may have the same number after a restart. Nothing else depends
        // on the number.
        let _ = getrandom::fill(&mut bytes);
        Self { incarnation: u128::from_be_bytes(bytes), books: Mutex::default() }
    }

    pub(crate) fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// Records that the client of a connection has chosen this number, and returns a seat for the
    /// channel. `None` if the client has already chosen another number, or if another connection
    /// already has this number.
    pub(crate) fn introduce(&self, caller: &Caller, connection: u128) -> Option<Seat> {
        let mut books = lock(&self.books);
        if caller.0.get().is_some() {
            return caller.seat(connection);
        }
        let now = Instant::now();
        books.retain(|_, book| !book.expired(now));
        if books.len() >= MAX_BOOKS && !books.contains_key(&connection) {
            let left = |book: &Book| lock(&book.entries).left;
            let oldest = books.iter().filter(|(_, book)| book.is_over());
            let oldest = oldest.min_by_key(|(_, book)| left(book)).map(|(number, _)| *number);
            // Only books of connections that have ended are dropped. The number of other books is
            // limited by the number of connections.
            oldest.map(|oldest| books.remove(&oldest));
        }
        let Place::Vacant(place) = books.entry(connection) else { return None };
        let book = place.insert(Arc::new(Book::new())).clone();
        let (_, book) = caller.0.get_or_init(|| (connection, book));
        Some(Seat::new(book))
    }

    /// Returns the effect of a call. `own` is the number of the connection on which the client
    /// asks. If the call is not done in time, its effect is unknown, and the client may ask again.
    pub(crate) async fn outcome(&self, call: RemoteCallId, own: Option<u128>) -> LostCallEffect {
        let book = lock(&self.books).get(&call.connection).cloned();
        let Some(book) = book else { return LostCallEffect::Unknown };
        if own != Some(call.connection) {
            book.retired.send_replace(true);
        }
        let settled = book.settled(call.request, own == Some(call.connection));
        timeout(SETTLING, settled).await.unwrap_or(LostCallEffect::Unknown)
    }
}

impl Caller {
    /// A seat for another channel of this client. `None` if the client has chosen a different
    /// number.
    pub(crate) fn seat(&self, connection: u128) -> Option<Seat> {
        let (_, book) = self.0.get().filter(|(number, _)| *number == connection)?;
        Some(Seat::new(book))
    }
}

enum Found {
    Closed(LostCallEffect),
    UnderWay,
    Nothing { forgotten: bool },
}

impl Book {
    fn new() -> Self {
        Self {
            entries: Mutex::default(),
            changed: Notify::new(),
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

    /// Waits until a call is done, and returns its effect. If the client asks on another
    /// connection, also waits for the end of the call's connection.
    async fn settled(&self, request: u32, own: bool) -> LostCallEffect {
        if !own {
            let mut seats = self.seats.subscribe();
            // This cannot fail, because the sender is a part of this book.
            let _ = seats.wait_for(|seats| *seats == 0).await;
        }
        let entering = sleep(ENTERING);
        tokio::pin!(entering);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.find(request) {
                Found::Closed(effect) => return effect,
                Found::UnderWay => changed.await,
                Found::Nothing { forgotten: true } => return LostCallEffect::Unknown,
                // The connection has ended, so no more calls will begin.
                Found::Nothing { forgotten: false } if !own => return LostCallEffect::NotApplied,
                Found::Nothing { forgotten: false } => tokio::select! {
                    () = changed => {}
                    () = &mut entering => return LostCallEffect::Unknown,
                },
            }
        }
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
    fn new(book: &Arc<Book>) -> Self {
        book.seats.send_modify(|seats| *seats += 1);
        Self { book: book.clone() }
    }

    /// Records a call that is about to begin.
    pub(crate) fn begin(&self, request: u32) -> Entry {
        let mut entries = lock(&self.book.entries);
        entries.calls.push_back((request, None));
        if entries.calls.len() > MAX_ENTRIES {
            entries.calls.pop_front();
            entries.forgotten = true;
        }
        drop(entries);
        self.book.changed.notify_waiters();
        Entry { book: self.book.clone(), request, effect: LostCallEffect::Unknown }
    }

    /// Whether a client has asked for the effect of a call on this connection, on another
    /// connection. Further calls on this connection must then be refused.
    pub(crate) fn is_retired(&self) -> bool {
        *self.book.retired.borrow()
    }

    /// Waits until a client asks, on another connection, for the effect of a call on this
    /// connection. This connection must then end.
    pub(crate) async fn retired(&self) {
        let mut retired = self.book.retired.subscribe();
        // This cannot fail, because the sender is a part of the book, which exists as long as this
        // seat.
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
    pub(crate) fn done(mut self, effect: LostCallEffect) {
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
        self.book.changed.notify_waiters();
    }
}

/// The effect of a call that failed with `error`. There was no effect if the error shows that the
/// call failed before any change.
pub(crate) fn effect_of_failure(error: &Error) -> LostCallEffect {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::NotEmpty
        | ErrorKind::SpecialFile
        | ErrorKind::LinkLoop
        | ErrorKind::InvalidPath
        | ErrorKind::PathEscape
        | ErrorKind::PermissionDenied
        | ErrorKind::DeniedByPolicy
        | ErrorKind::RejectedByPerson
        | ErrorKind::ApprovalPending
        | ErrorKind::Unsupported
        | ErrorKind::TooLarge
        | ErrorKind::Conflict
        | ErrorKind::TextNotFound
        | ErrorKind::TextNotUnique
        | ErrorKind::Invalid
        | ErrorKind::Unavailable
        | ErrorKind::Destroyed => LostCallEffect::NotApplied,
        ErrorKind::NoSpace
        | ErrorKind::CommandFailed
        | ErrorKind::Timeout
        | ErrorKind::Cancelled
        | ErrorKind::Disconnected
        | ErrorKind::Io => LostCallEffect::Unknown,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(request: u32) -> RemoteCallId {
        RemoteCallId { connection: 7, request }
    }

    fn taken(ledger: &Ledger, connection: u128) -> Seat {
        ledger.introduce(&Caller::default(), connection).unwrap()
    }

    #[tokio::test]
    async fn a_book_says_what_became_of_its_calls() {
        let ledger = Ledger::new();
        let seat = taken(&ledger, 7);
        seat.begin(1).done(LostCallEffect::Applied);
        seat.begin(2).done(LostCallEffect::NotApplied);
        drop(seat.begin(3));
        drop(seat);
        for (request, expect) in [
            (1, LostCallEffect::Applied),
            (2, LostCallEffect::NotApplied),
            (3, LostCallEffect::Unknown),
            (4, LostCallEffect::NotApplied),
        ] {
            assert_eq!(ledger.outcome(call(request), None).await, expect, "{request}");
        }
        let other = RemoteCallId { connection: 8, request: 1 };
        assert_eq!(ledger.outcome(other, None).await, LostCallEffect::Unknown);
    }

    #[tokio::test]
    async fn a_connection_that_is_asked_about_ends_first() {
        let ledger = Ledger::new();
        let seat = taken(&ledger, 7);
        let asking = ledger.outcome(call(1), Some(8));
        let serving = async {
            seat.retired().await;
            // The call was running, and was done before the channel ended.
            seat.begin(1).done(LostCallEffect::Applied);
            drop(seat);
        };
        let (effect, ()) = tokio::join!(asking, serving);
        assert_eq!(effect, LostCallEffect::Applied);
    }

    #[tokio::test]
    async fn a_call_of_the_same_connection_is_waited_for() {
        let ledger = Ledger::new();
        let seat = taken(&ledger, 7);
        let entry = seat.begin(1);
        let (effect, ()) = tokio::join!(ledger.outcome(call(1), Some(7)), async {
            entry.done(LostCallEffect::Applied)
        });
        assert_eq!(effect, LostCallEffect::Applied);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_same_connection_may_still_enter_is_not_said_never_to_happen() {
        let ledger = Ledger::new();
        let seat = taken(&ledger, 7);
        // Another channel records the call a little later, after a different call.
        let entering = async {
            seat.begin(2).done(LostCallEffect::Applied);
            sleep(ENTERING / 2).await;
            let entry = seat.begin(1);
            sleep(ENTERING).await;
            entry.done(LostCallEffect::Applied);
        };
        let (effect, ()) = tokio::join!(biased; ledger.outcome(call(1), Some(7)), entering);
        assert_eq!(effect, LostCallEffect::Applied);
        // If the call does not begin in time, its effect is unknown.
        let before = Instant::now();
        assert_eq!(ledger.outcome(call(3), Some(7)).await, LostCallEffect::Unknown);
        assert_eq!(before.elapsed(), ENTERING);
        // The connection has ended, so the call will never begin.
        drop(seat);
        assert_eq!(ledger.outcome(call(3), Some(8)).await, LostCallEffect::NotApplied);
    }

    #[tokio::test]
    async fn what_is_forgotten_is_unknown() {
        let ledger = Ledger::new();
        let seat = taken(&ledger, 7);
        for request in 0..=MAX_ENTRIES {
            seat.begin(u32::try_from(request).unwrap()).done(LostCallEffect::Applied);
        }
        drop(seat);
        assert_eq!(ledger.outcome(call(0), None).await, LostCallEffect::Unknown);
        assert_eq!(ledger.outcome(call(1), None).await, LostCallEffect::Applied);
        for connection in 100..100 + MAX_BOOKS as u128 {
            taken(&ledger, connection);
        }
        assert_eq!(lock(&ledger.books).len(), MAX_BOOKS);
        assert_eq!(ledger.outcome(call(1), None).await, LostCallEffect::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn books_of_dead_connections_expire() {
        let ledger = Ledger::new();
        taken(&ledger, 7).begin(1).done(LostCallEffect::Applied);
        tokio::time::advance(KEPT).await;
        assert_eq!(ledger.outcome(call(1), None).await, LostCallEffect::Applied);
        tokio::time::advance(Duration::from_millis(1)).await;
        taken(&ledger, 8);
        assert_eq!(ledger.outcome(call(1), None).await, LostCallEffect::Unknown);
    }

    #[tokio::test]
    async fn a_number_is_one_caller_s() {
        let ledger = Ledger::new();
        let (one, two) = (Caller::default(), Caller::default());
        assert!(one.seat(7).is_none(), "nobody said hello");
        let first = ledger.introduce(&one, 7).unwrap();
        // Another channel of the same connection.
        one.seat(7).unwrap().begin(1).done(LostCallEffect::Applied);
        assert!(one.seat(8).is_none());
        assert!(ledger.introduce(&one, 7).is_some());
        assert!(ledger.introduce(&one, 8).is_none());
        assert!(ledger.introduce(&two, 7).is_none());
        drop(first);
        assert_eq!(ledger.outcome(call(1), None).await, LostCallEffect::Applied);
        // No other connection can use the number later. Because a client has asked about the
        // first connection, further calls on it must be refused.
        assert!(ledger.introduce(&two, 7).is_none() && two.seat(7).is_none());
        assert!(one.seat(7).unwrap().is_retired());
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_is_unknown_until_it_does() {
        let ledger = Ledger::new();
        let seat = taken(&ledger, 7);
        let entry = seat.begin(1);
        // A request on another connection waits until this connection has ended. A request on this
        // connection waits for the call.
        for own in [None, Some(7)] {
            let before = Instant::now();
            assert_eq!(ledger.outcome(call(1), own).await, LostCallEffect::Unknown);
            assert_eq!(before.elapsed(), SETTLING);
        }
        entry.done(LostCallEffect::Applied);
        drop(seat);
        assert_eq!(ledger.outcome(call(1), None).await, LostCallEffect::Applied);
    }
}
