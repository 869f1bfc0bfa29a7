//! Counts and logs wrong tokens, and delays the responses to make guessing slow.
//!
//! Wrong tokens are counted for each address. After a few wrong tokens, every further response is
//! delayed, longer each time. Above a limit the response is 429. A request with the right token is
//! never delayed, so that other callers at the same address cannot lock it out. Requests without a
//! token are not counted.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of addresses in the table. If it is full, the address whose last failure is the
/// oldest is removed.
const REMEMBERED: usize = 1024;

/// Limits on wrong tokens. Addresses are counted as an IPv4 address or an IPv6 /64 network.
#[derive(Clone, Copy, Debug)]
pub struct TokenGuessLimits {
    /// Number of wrong tokens from an address that are answered without delay.
    pub max_undelayed_attempts: u32,
    /// After this number of wrong tokens from an address the response is 429.
    pub max_attempts: u32,
    /// The delay of the first delayed response. The delay doubles with each further response.
    pub first_delay: Duration,
    pub max_delay: Duration,
    /// Maximum number of delayed requests of one address. Further requests are answered with 429 at
    /// once.
    pub max_delayed_per_address: u32,
    /// Maximum number of delayed requests of all addresses together.
    pub max_delayed: u32,
    /// After this time without a wrong token, the count of an address is reset to zero.
    pub forget_after: Duration,
}

impl Default for TokenGuessLimits {
    fn default() -> Self {
        Self {
            max_undelayed_attempts: 5,
            max_attempts: 20,
            first_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(1),
            max_delayed_per_address: 64,
            max_delayed: 512,
            forget_after: Duration::from_secs(60),
        }
    }
}

/// Counts the wrong tokens that a port receives, by address.
#[derive(Debug)]
pub(crate) struct Guesses {
    settings: TokenGuessLimits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    addresses: HashMap<IpAddr, Failures>,
    waiting: u32,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
    waiting: u32,
}

/// What to do about a wrong token: the new count, and whether to delay or to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    /// The number of wrong tokens, including this one.
    count: u32,
    wait: Duration,
    too_many: bool,
}

impl Guesses {
    pub(crate) fn new(settings: TokenGuessLimits) -> Guesses {
        Guesses { settings, table: Mutex::default() }
    }

    /// Counts and logs a wrong token, and waits if the response must be delayed. Returns the
    /// seconds for `Retry-After` if the response is 429.
    pub(crate) async fn wrong(&self, peer: IpAddr) -> Option<u64> {
        let peer = peer.to_canonical();
        let verdict = self.note(peer, Instant::now());
        // Log the first wrong token, and then each time the number has doubled.
        if verdict.count.is_power_of_two() {
            tracing::warn!(%peer, failures = verdict.count, "a wrong token");
        }
        if !verdict.wait.is_zero() {
            let _place = Place { guesses: self, address: block(peer) };
            tokio::time::sleep(verdict.wait).await;
        }
        verdict.too_many.then(|| self.settings.forget_after.as_secs().max(1))
    }

    /// Counts a wrong token. If the response must be delayed, the delayed request is counted too.
    fn note(&self, peer: IpAddr, now: Instant) -> Verdict {
        let settings = &self.settings;
        let mut table = self.lock();
        let Table { addresses, waiting } = &mut *table;
        let address = block(peer);
        if addresses.len() >= REMEMBERED && !addresses.contains_key(&address) {
            let quiet = addresses.iter().min_by_key(|(_, failures)| failures.last);
            if let Some(quiet) = quiet.map(|(address, _)| *address) {
                addresses.remove(&quiet);
            }
        }
        let failures =
            addresses.entry(address).or_insert(Failures { count: 0, last: now, waiting: 0 });
        if now.saturating_duration_since(failures.last) >= settings.forget_after {
            failures.count = 0;
        }
        failures.last = now;
        failures.count = failures.count.saturating_add(1);
        let count = failures.count;
        let beyond = count > settings.max_attempts;
        if count <= settings.max_undelayed_attempts {
            return Verdict { count, wait: Duration::ZERO, too_many: beyond };
        }
        if failures.waiting >= settings.max_delayed_per_address || *waiting >= settings.max_delayed
        {
            return Verdict { count, wait: Duration::ZERO, too_many: true };
        }
        let doubled =
            1_u32.checked_shl(count - settings.max_undelayed_attempts - 1).unwrap_or(u32::MAX);
        let wait = settings.first_delay.saturating_mul(doubled).min(settings.max_delay);
        if !wait.is_zero() {
            failures.waiting += 1;
            *waiting += 1;
        }
        Verdict { count, wait, too_many: beyond }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a delayed request until its delay is over or its caller has disconnected.
struct Place<'a> {
    guesses: &'a Guesses,
    address: IpAddr,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut table = self.guesses.lock();
        table.waiting = table.waiting.saturating_sub(1);
        // During the wait, the address may have been removed from the table, or removed and added
        // again.
        if let Some(failures) = table.addresses.get_mut(&self.address) {
            failures.waiting = failures.waiting.saturating_sub(1);
        }
    }
}

/// The address under which a peer is counted. For IPv6 this is the /64 network, because one host
/// can use all of its addresses.
pub(crate) fn block(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn waits_grow_and_then_it_is_too_much() {
        let guesses = Guesses::new(TokenGuessLimits {
            max_undelayed_attempts: 2,
            max_attempts: 7,
            ..TokenGuessLimits::default()
        });
        let now = Instant::now();
        let met = |_| {
            let verdict = guesses.note(peer("10.0.0.1"), now);
            (verdict.wait.as_millis(), verdict.too_many)
        };
        let expect = [
            (0, false),
            (0, false),
            (250, false),
            (500, false),
            (1000, false),
            (1000, false),
            (1000, false),
            (1000, true),
            (1000, true),
        ];
        assert_eq!((0..9).map(met).collect::<Vec<_>>(), expect);
        // Other addresses are not delayed.
        assert_eq!(guesses.note(peer("10.0.0.2"), now).wait, Duration::ZERO);
    }

    #[test]
    fn failures_are_forgotten_in_silence_only() {
        let settings =
            TokenGuessLimits { max_undelayed_attempts: 1, ..TokenGuessLimits::default() };
        let (guesses, start) = (Guesses::new(settings), Instant::now());
        let count =
            |seconds| guesses.note(peer("10.0.0.1"), start + Duration::from_secs(seconds)).count;
        assert_eq!([count(0), count(59), count(118), count(178)], [1, 2, 3, 1]);
    }

    #[test]
    fn a_network_of_the_new_protocol_is_one_address() {
        let (guesses, now) = (Guesses::new(TokenGuessLimits::default()), Instant::now());
        assert_eq!(guesses.note(peer("2001:db8:1:2::1"), now).count, 1);
        assert_eq!(guesses.note(peer("2001:db8:1:2:ffff::9"), now).count, 2);
        assert_eq!(guesses.note(peer("2001:db8:1:3::1"), now).count, 1);
    }

    #[test]
    fn only_so_many_wait_and_are_remembered() {
        let settings = TokenGuessLimits {
            max_undelayed_attempts: 0,
            max_delayed_per_address: 2,
            max_delayed: 3,
            max_attempts: 100,
            ..TokenGuessLimits::default()
        };
        let (guesses, now) = (Guesses::new(settings), Instant::now());
        let met = |text| {
            let verdict = guesses.note(peer(text), now);
            (verdict.wait.is_zero(), verdict.too_many)
        };
        let (waits, sent_away) = ((false, false), (true, true));
        assert_eq!([met("10.0.0.1"), met("10.0.0.1"), met("10.0.0.1")], [waits, waits, sent_away]);
        assert_eq!([met("10.0.0.2"), met("10.0.0.2")], [waits, sent_away]);
        // When a delayed caller disconnects, another request can be delayed in its place.
        drop(Place { guesses: &guesses, address: peer("10.0.0.1") });
        assert_eq!([met("10.0.0.1"), met("10.0.0.1")], [waits, sent_away]);
        for number in 0..3 * u32::try_from(REMEMBERED).unwrap() {
            guesses.note(std::net::Ipv4Addr::from_bits(number).into(), now);
        }
        assert_eq!(guesses.lock().addresses.len(), REMEMBERED);
    }

    #[tokio::test]
    async fn a_caller_that_leaves_gives_its_place_back() {
        let wait = Duration::from_secs(1000);
        let settings = TokenGuessLimits {
            max_undelayed_attempts: 0,
            first_delay: wait,
            max_delay: wait,
            ..TokenGuessLimits::default()
        };
        let guesses = Guesses::new(settings);
        {
            let mut waiting = Box::pin(guesses.wrong(peer("::ffff:10.0.0.1")));
            let polled = std::future::poll_fn(|context| {
                std::task::Poll::Ready(waiting.as_mut().poll(context).is_ready())
            });
            assert!(!polled.await);
            assert_eq!(guesses.lock().waiting, 1);
        }
        let table = guesses.lock();
        // The request was counted under the canonical address.
        assert_eq!((table.waiting, table.addresses[&peer("10.0.0.1")].waiting), (0, 0));
    }
}
