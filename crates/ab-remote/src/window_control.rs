//! Decides how much window the channels of a connection are granted.
//!
//! A channel is *held back* while it has too many unread bytes. russh has one window size for all
//! channels of a connection. When a channel has used half of its window, russh grants it the
//! current size. Only then russh asks for the new size. The size that is returned for one channel
//! is therefore granted to the next channel that sends. This may be a channel that is held back and
//! must not get a large window.
//!
//! - While no channel is held back, every channel gets the full window.
//! - While a channel is held back, the size is two bytes. A channel whose window is used up gets
//!   two bytes, sends them, and waits for the next grant. Clients send in the order of their
//!   grants. If the next channel to send waits and is not held back, the size is raised for this
//!   channel.
//! - A channel that is held back may have window left from before. No larger window is granted
//!   until this channel has used its old window, because this channel would get the larger window.
//! - A channel that is held back may have nothing to send. After some time without data, it is no
//!   longer considered.
//!
//! If a client sends in a different order, a channel that is held back may get some window.
//! Therefore the total of all channels is also limited.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::inbox::WINDOW;

/// The window of a channel with too many unread bytes. Half of it must be more than zero, or russh
/// would never renew it.
pub(crate) const HELD_WINDOW: u32 = 2;
/// The window of a channel that is read in time, while others have too many unread bytes.
const SHARED_WINDOW: u32 = 1024 * 1024;
/// If a channel sends no data for this time, it is no longer waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// The state of a channel that was just granted window, which determines the next window size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The connection has reached its limit of unread bytes.
    Full,
    /// The channel has too many unread bytes.
    Held,
    /// The channel is read in time, but others have too many unread bytes.
    AmongHeld,
    /// No channel has too many unread bytes.
    Free,
}

#[derive(Debug, Default)]
pub(crate) struct WindowControl {
    /// The channels that were granted window, in the order in which they are expected to send.
    due: VecDeque<Due>,
}

/// A channel that was granted window.
#[derive(Clone, Copy, Debug)]
struct Due {
    channel: u32,
    held: bool,
    /// Whether the channel was granted more than two bytes.
    much: bool,
    at: Instant,
}

impl WindowControl {
    /// Returns the new window size. `channel` was just granted `granted` bytes.
    pub(crate) fn next(&mut self, channel: u32, granted: u32, pace: Pace, now: Instant) -> u32 {
        if pace == Pace::Free {
            self.due.clear();
            return WINDOW;
        }
        let much = granted > HELD_WINDOW;
        let held = pace != Pace::AmongHeld;
        if much && held && self.due.front().is_some_and(|first| !first.held) {
            // The channel that was expected to send next has sent nothing. This channel got the
            // window that was meant for that channel.
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

    /// A simulated client.
    #[derive(Clone, Copy, Debug)]
    struct Client {
        /// The round-trip time in microseconds.
        way: u64,
        /// The interval at which the client handles received packets, in microseconds.
        tick: u64,
        /// The channel that it answers first.
        first: usize,
        /// The number of bytes that the client sends on each channel that is not read.
        input: usize,
        /// The number of channels that are not read.
        stalled: usize,
    }

    /// Simulates one connection. The client sends as much as its windows allow. Only the last two
    /// channels are read.
    struct Model {
        client: Client,
        window_control: WindowControl,
        target: u32,
        begun: Instant,
        /// Microseconds since `begun`.
        clock: u64,
        /// Packets in flight, sorted by their arrival time.
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
                window_control: WindowControl::default(),
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
                self.target = self.window_control.next(number, self.target, pace, now);
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
