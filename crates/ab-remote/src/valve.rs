//! How much window the channels of a connection are granted, one after the other.
//!
//! russh has one size of window for all channels of a connection. It grants that to whoever speaks
//! when half of it is used, and asks afterwards what it is to be from now on. So what is said about
//! one channel is given to the next one that speaks, which may be one that is held back and must
//! not have it.
//!
//! - While none is held back, everybody has the whole window.
//! - While one is, the size is two bytes. A channel that has nothing left gets those, answers with
//!   them, and waits so. Answers come in the order in which two bytes were given; so when the next
//!   to answer is one that waits, and not one that is held back, there is window for it.
//! - A channel that is held back may have window left from before. Until that is used there is none
//!   for others: it would be topped up with it.
//! - Those that are held back may have nothing to say. After a while of silence they do not count.
//!
//! A client that answers in another order gets some window for a channel that is held back, so all
//! of them together are bounded too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::inbox::WINDOW;

/// Window that a channel is given while it is held back. Half of it must be more than nothing, or
/// it would never be renewed.
pub(crate) const HELD_WINDOW: u32 = 2;
/// Window that a channel is given while others are held back.
const SHARED_WINDOW: u32 = 1024 * 1024;
/// After so long without a word from those that are held back, nobody waits for one.
const SILENCE: Duration = Duration::from_secs(1);

/// How a channel that was just granted window is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The connection has as much unread as it may.
    Full,
    /// More of the channel is unread than may be.
    Held,
    /// It keeps up, but others are held back.
    AmongHeld,
    /// Nobody is held back.
    Free,
}

#[derive(Debug, Default)]
pub(crate) struct Valve {
    /// Those that answer soon, in this order.
    due: VecDeque<Due>,
}

/// A channel that was given window.
#[derive(Clone, Copy, Debug)]
struct Due {
    channel: u32,
    held: bool,
    /// More than two bytes.
    much: bool,
    at: Instant,
}

impl Valve {
    /// The window from now on, after `channel` was given `granted`.
    pub(crate) fn next(&mut self, channel: u32, granted: u32, pace: Pace, now: Instant) -> u32 {
        if pace == Pace::Free {
            self.due.clear();
            return WINDOW;
        }
        let much = granted > HELD_WINDOW;
        let held = pace != Pace::AmongHeld;
        if much && held && self.due.front().is_some_and(|first| !first.held) {
            // It had nothing to say, and this one got what was meant for it.
            self.due.pop_front();
        }
        let is_silent = |due: &Due| now.duration_since(due.at) > SILENCE;
        self.due.retain(|due| due.channel != channel && !is_silent(due));
        if held || !much {
            self.due.push_back(Due { channel, held, much, at: now });
        }
        let streams = self.due.iter().any(|due| due.held && due.much);
        match self.due.front() {
            Some(first) if !first.held && !streams && pace != Pace::Full => SHARED_WINDOW,
            _ => HELD_WINDOW,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::inbox::{FIRST_WINDOW, HOLD_ALL, is_held};

    const PACKET: u32 = 32 * 1024;

    /// How a client is connected and answers.
    #[derive(Clone, Copy, Debug)]
    struct Client {
        /// Microseconds to it and back.
        way: u64,
        /// It looks so often what has come, in microseconds.
        tick: u64,
        /// Of what has come meanwhile it answers this channel first.
        first: usize,
        /// What each channel that nobody reads has to send.
        input: usize,
        /// How many of those there are.
        stalled: usize,
    }

    /// One connection as russh keeps it, with a client that sends whatever it may on channels of
    /// which the last two are read.
    struct Model {
        client: Client,
        valve: Valve,
        target: u32,
        begun: Instant,
        /// Microseconds since then.
        clock: u64,
        /// Packets by when they arrive.
        coming: BTreeMap<(u64, bool, usize), (usize, u32)>,
        sent: usize,
        windows: Vec<u32>,
        unread: Vec<usize>,
        left: Vec<usize>,
        carried: [usize; 2],
    }

    impl Model {
        fn new(client: Client) -> Self {
            let count = client.stalled + 2;
            let mut model = Self {
                client,
                valve: Valve::default(),
                target: FIRST_WINDOW,
                begun: Instant::now(),
                clock: 0,
                coming: BTreeMap::new(),
                sent: 0,
                windows: vec![FIRST_WINDOW; count],
                unread: vec![0; count],
                left: [vec![client.input; client.stalled], vec![usize::MAX; 2]].concat(),
                carried: [0; 2],
            };
            for channel in 0..count {
                model.send(channel, FIRST_WINDOW);
            }
            model
        }

        fn all(&self) -> usize {
            self.unread.iter().sum()
        }

        fn send(&mut self, channel: usize, mut window: u32) {
            let Client { way, tick, first, .. } = self.client;
            let heard = (self.clock + way / 2).div_ceil(tick) * tick;
            while window > 0 && self.left[channel] > 0 {
                let most = u32::try_from(self.left[channel]).unwrap_or(PACKET);
                let length = window.min(PACKET).min(most);
                self.left[channel] -= length as usize;
                window -= length;
                self.sent += 1;
                let place = (heard + way / 2, channel != first, self.sent);
                self.coming.insert(place, (channel, length));
            }
        }

        fn pace(&self, channel: usize) -> Pace {
            let all = self.all();
            if all > HOLD_ALL {
                Pace::Full
            } else if is_held(self.unread[channel], all) {
                Pace::Held
            } else if self.unread.iter().any(|unread| is_held(*unread, all)) {
                Pace::AmongHeld
            } else {
                Pace::Free
            }
        }

        fn step(&mut self) {
            let Some(((at, ..), (channel, length))) = self.coming.pop_first() else { return };
            self.clock = self.clock.max(at) + 5;
            self.windows[channel] -= length;
            let mut grant = 0;
            if self.windows[channel] < self.target / 2 {
                grant = self.target - self.windows[channel];
                self.windows[channel] = self.target;
                let now = self.begun + Duration::from_micros(self.clock);
                let (number, pace) = (u32::try_from(channel).unwrap(), self.pace(channel));
                self.target = self.valve.next(number, self.target, pace, now);
            }
            match channel.checked_sub(self.client.stalled) {
                Some(read) => self.carried[read] += length as usize,
                None => {
                    self.unread[channel] += length as usize;
                    if is_held(self.unread[channel], self.all()) && length <= HELD_WINDOW {
                        self.clock += 20_000;
                    }
                }
            }
            self.send(channel, grant);
        }
    }

    #[test]
    fn those_that_are_not_read_do_not_hold_up_others() {
        for way in [100, 2_000, 20_000, 300_000] {
            for tick in [1, 1_000] {
                for first in [0, 1, 3] {
                    for (stalled, input) in [(1, 8 << 20), (1, usize::MAX), (3, usize::MAX)] {
                        let client = Client { way, tick, first, input, stalled };
                        let mut model = Model::new(client);
                        let mut steps = 0;
                        while model.carried.iter().any(|carried| *carried < 100 << 20) {
                            model.step();
                            steps += 1;
                            let Model { carried, .. } = model;
                            assert!(steps < 1_000_000, "{client:?}: {carried:?} bytes");
                        }
                        let (unread, most) = (model.all(), 20 << 20);
                        assert!(unread <= most, "{client:?}: {unread} bytes are unread");
                    }
                }
            }
        }
    }
}
