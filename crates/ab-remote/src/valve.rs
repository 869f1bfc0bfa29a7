//! How much window the channels of a connection are granted, one after the other.
//!
//! russh has one size of window for all channels of a connection. It grants that to whoever speaks
//! when half of it is used, and asks afterwards what it is to be from now on. So what is said about
//! one channel is given to the next one that speaks, which may be one that is held back and must
//! not have it.
//!
//! - While none is held back, everybody has the whole window.
//! - While one is, the size is two bytes. A channel that has nothing left gets those, answers with
//!   them, and waits so. The next time one that is held back has spoken, and has got its own two
//!   bytes, there is window again: the one that waits was told earlier and speaks first.
//! - Those that are held back may have nothing to say. After a while of silence nobody waits for
//!   them.
//!
//! A client that answers in another order gets some window for a channel that is held back, so all
//! of them together are bounded too.

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
    /// A channel that keeps up and has nothing left but two bytes.
    waits: Option<u32>,
    /// When one that is held back spoke.
    heard: Option<Instant>,
}

impl Valve {
    /// The window from now on, after `channel` was given `granted`.
    pub(crate) fn next(&mut self, channel: u32, granted: u32, pace: Pace, now: Instant) -> u32 {
        let much = granted > HELD_WINDOW;
        match pace {
            Pace::Free => {
                self.waits = None;
                WINDOW
            }
            Pace::Full => HELD_WINDOW,
            Pace::Held => {
                self.heard = Some(now);
                match !much && self.waits.take().is_some() {
                    true => SHARED_WINDOW,
                    false => HELD_WINDOW,
                }
            }
            Pace::AmongHeld if much => {
                self.waits = self.waits.filter(|waits| *waits != channel);
                HELD_WINDOW
            }
            Pace::AmongHeld => {
                let silent = self.heard.is_none_or(|heard| now.duration_since(heard) > SILENCE);
                match silent {
                    true => SHARED_WINDOW,
                    false => {
                        self.waits = Some(channel);
                        HELD_WINDOW
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::inbox::{HOLD_ALL, is_held};

    const PACKET: u32 = 32 * 1024;

    /// One connection as russh keeps it, with a client that sends whatever it may.
    struct Model {
        valve: Valve,
        target: u32,
        begun: Instant,
        /// Microseconds since then.
        clock: u64,
        way: u64,
        /// Packets by when they arrive.
        coming: BTreeMap<(u64, usize), (usize, u32)>,
        sent: usize,
        windows: [u32; 2],
        unread: usize,
        /// What the first channel has left to send, and the second has brought over.
        left: usize,
        carried: usize,
    }

    impl Model {
        /// The first channel is read by nobody, the second at once.
        fn new(way: u64, left: usize) -> Self {
            let mut model = Self {
                valve: Valve::default(),
                target: WINDOW,
                begun: Instant::now(),
                clock: 0,
                way,
                coming: BTreeMap::new(),
                sent: 0,
                windows: [WINDOW; 2],
                unread: 0,
                left,
                carried: 0,
            };
            model.send(0, WINDOW);
            model.send(1, WINDOW);
            model
        }

        fn send(&mut self, channel: usize, mut window: u32) {
            while window > 0 {
                let mut length = window.min(PACKET);
                if channel == 0 {
                    length = length.min(u32::try_from(self.left).unwrap_or(PACKET));
                    self.left -= length as usize;
                }
                if length == 0 {
                    return;
                }
                window -= length;
                self.sent += 1;
                self.coming.insert((self.clock + 2 * self.way, self.sent), (channel, length));
            }
        }

        fn step(&mut self) {
            let Some(((at, _), (channel, length))) = self.coming.pop_first() else { return };
            self.clock = self.clock.max(at) + 5;
            self.windows[channel] -= length;
            let mut grant = 0;
            if self.windows[channel] < self.target / 2 {
                grant = self.target - self.windows[channel];
                self.windows[channel] = self.target;
                let pace = match (channel, is_held(self.unread, self.unread)) {
                    _ if self.unread > HOLD_ALL => Pace::Full,
                    (0, true) => Pace::Held,
                    (_, true) => Pace::AmongHeld,
                    _ => Pace::Free,
                };
                let now = self.begun + Duration::from_micros(self.clock);
                let number = u32::from(channel == 1);
                self.target = self.valve.next(number, self.target, pace, now);
            }
            match channel {
                0 => {
                    self.unread += length as usize;
                    if is_held(self.unread, self.unread) && length <= HELD_WINDOW {
                        self.clock += 20_000;
                    }
                }
                _ => self.carried += length as usize,
            }
            self.send(channel, grant);
        }
    }

    #[test]
    fn one_that_is_not_read_does_not_hold_up_another() {
        for way in [50, 1_000, 10_000, 150_000] {
            for left in [8 << 20, usize::MAX] {
                let mut model = Model::new(way, left);
                let mut steps = 0;
                while model.carried < 256 << 20 {
                    model.step();
                    steps += 1;
                    assert!(steps < 3_000_000, "{way} {left}: {} bytes", model.carried);
                }
                assert!(model.unread <= 16 << 20, "{way}: {} bytes are unread", model.unread);
            }
        }
    }
}
