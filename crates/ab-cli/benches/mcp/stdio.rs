//! Calls over standard streams, beside the official filesystem server.

use std::time::Instant;

use serde_json::json;

use crate::fixture::{FILE, Fixture};
use crate::measure::{Bar, Pair, Table, median};
use crate::programs::Peers;
use crate::servers::{Talking, Who};

const READS: usize = 1000;

pub(crate) fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let root = fixture.root();
    let mut ours = Talking::start(peers, Who::Ours, root);
    let mut official = Talking::start(peers, Who::Official, root);
    // The official server takes relative paths as well.
    let file = json!({ "path": FILE });
    let reads = |server: &mut Talking| {
        let mut times = Vec::with_capacity(READS);
        for _ in 0..READS {
            let asked = Instant::now();
            let answer = server.call("read_text_file", &file);
            times.push(asked.elapsed().as_secs_f64() * 1e6);
            assert!(answer.len() > 2048, "text and value: {answer}");
        }
        median(times)
    };
    // What is compiled while it runs has its time before the first round.
    reads(&mut ours);
    reads(&mut official);
    let pair = Pair::of(|| reads(&mut ours), || reads(&mut official));
    table.compare("stdio, read_text_file 1 KiB, p50", "us", Bar::AtMost(0.35), &pair);

    let directory = json!({ "path": "10000" });
    let trees = |server: &mut Talking| {
        let asked = Instant::now();
        let answer = server.call("directory_tree", &directory);
        let time = asked.elapsed().as_secs_f64();
        assert!(answer.matches("file42.txt").count() >= 100, "all of the tree");
        1.0 / time
    };
    trees(&mut ours);
    trees(&mut official);
    let pair = Pair::of(|| trees(&mut ours), || trees(&mut official));
    table.compare("stdio, directory_tree of 10,000", "/s", Bar::AtLeast(3.0), &pair);
}
