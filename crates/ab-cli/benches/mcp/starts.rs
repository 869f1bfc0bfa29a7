//! How long a start takes, and what a server keeps that has nothing to do.

use std::thread;
use std::time::{Duration, Instant};

use crate::fixture::Fixture;
use crate::measure::{Bar, Pair, Table};
use crate::programs::Peers;
use crate::servers::{self, Talking, Who};

/// A daemon that answers may not yet have nothing to do: ours finds out what is in force.
const SETTLED: Duration = Duration::from_secs(1);

pub(crate) fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let root = fixture.root();
    let daemon = |who| {
        let begun = Instant::now();
        let daemon = servers::daemon(peers, who, root);
        (begun.elapsed().as_secs_f64() * 1000.0, daemon)
    };
    let mut memory = Pair::default();
    let mut start = |who, kept: fn(&mut Pair) -> &mut Vec<f64>| {
        let (time, daemon) = daemon(who);
        thread::sleep(SETTLED);
        kept(&mut memory).push(daemon.memory());
        time
    };
    let mut pair = Pair::default();
    for _ in 0..crate::measure::ROUNDS {
        pair.ours.push(start(Who::Ours, |pair| &mut pair.ours));
        pair.peer.push(start(Who::Npm, |pair| &mut pair.peer));
    }
    table.compare("start of the daemon until healthy", "ms", Bar::AtMost(1.0 / 40.0), &pair);
    table.alone("  ours alone", "ms", Bar::AtMost(15.0), &pair.ours);
    table.compare("memory of an idle daemon", "MB", Bar::AtMost(1.0 / 6.0), &memory);
    let talking = |who| {
        let begun = Instant::now();
        Talking::start(peers, who, root);
        begun.elapsed().as_secs_f64() * 1000.0
    };
    let pair = Pair::of(|| talking(Who::Ours), || talking(Who::Npm));
    table.compare("start over stdio until initialized", "ms", Bar::AtMost(1.0 / 40.0), &pair);
}
