//! Many callers at a time over HTTP, beside the npm daemon.

use std::time::Duration;

use serde_json::json;

use crate::fixture::{FILE, Fixture};
use crate::http::{Load, load, request};
use crate::measure::{Bar, Pair, ROUNDS, Table};
use crate::programs::{Daemon, Peers};
use crate::servers::{Who, daemon};

const TIME: Duration = Duration::from_millis(1500);

pub(crate) async fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let ours = daemon(peers, Who::Ours, fixture.root());
    let npm = daemon(peers, Who::Npm, fixture.root());
    let once = async |daemon: &Daemon, connections| -> Load {
        let request = request(daemon.port, "read_text_file", &json!({ "path": FILE }));
        load(daemon.port, &request, connections, TIME).await
    };
    once(&ours, 8).await;
    once(&npm, 8).await;
    for connections in [8, 32] {
        let (mut rate, mut p50) = (Pair::default(), Pair::default());
        for _ in 0..ROUNDS {
            let (ours, npm) = (once(&ours, connections).await, once(&npm, connections).await);
            rate.ours.push(ours.rate);
            rate.peer.push(npm.rate);
            p50.ours.push(ours.p50);
            p50.peer.push(npm.p50);
        }
        let what = format!("HTTP, read_text_file 1 KiB, {connections} connections");
        table.compare(&what, "/s", Bar::AtLeast(40.0), &rate);
        table.compare("  p50", "ms", Bar::AtMost(1.0 / 30.0), &p50);
    }
}
