//! Single calls over HTTP that have much to do, beside the npm daemon.

use std::time::Instant;

use serde_json::{Value, json};

use crate::fixture::{Fixture, NEEDLE, PICTURE, SEARCHED, text};
use crate::http::{Connection, position, request, succeeded};
use crate::measure::{Bar, Pair, ROUNDS, Table, median};
use crate::programs::{Daemon, Peers};
use crate::servers::{Who, daemon};

/// Ours is so quick that one call would be measured by its neighbours.
const CALLS_OF_OURS: usize = 5;

pub(crate) async fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let ours = daemon(peers, Who::Ours, fixture.root());
    let npm = daemon(peers, Who::Npm, fixture.root());
    let both = Both { ours, npm };

    let tree = json!({ "path": "1000" });
    let pair = both.rates("directory_tree", &tree, "file42.txt").await;
    table.compare("HTTP, directory_tree of 1,000", "/s", Bar::AtLeast(150.0), &pair);

    let search = json!({ "path": "10000", "pattern": SEARCHED });
    let pair = both.rates("search_files", &search, "directory99/file77.txt").await;
    table.compare("HTTP, search_files of 10,000", "/s", Bar::AtLeast(40.0), &pair);

    let grep = json!({ "pattern": NEEDLE, "path": "10000", "outputMode": "files_with_matches" });
    let pair = both.rates("grep", &grep, "file42.txt").await;
    table.compare("HTTP, grep of 10,000", "/s", Bar::AtLeast(2.0), &pair);

    let write = json!({ "path": "written.txt", "content": text(1 << 20) });
    let pair = both.rates("write_file", &write, "written.txt").await;
    table.compare("HTTP, write_file of 1 MiB", "/s", Bar::AtLeast(4.0), &pair);

    // The peer refuses as much with 413.
    let write = json!({ "path": "written.txt", "content": text(10 << 20) });
    let mut caller = Caller::new(&both.ours, "write_file", &write, "written.txt").await;
    let mut speeds = Vec::new();
    for _ in 0..ROUNDS {
        speeds.push(10.0 * 1.048_576 * caller.rate(CALLS_OF_OURS).await);
    }
    table.alone("HTTP, write_file of 10 MiB", "MB/s", Bar::AtLeast(200.0), &speeds);

    let picture = json!({ "path": PICTURE });
    let pair = both.rates("read_media_file", &picture, "image/png").await;
    table.compare("HTTP, read_media_file of 10 MiB", "/s", Bar::AtLeast(3.0), &pair);
}

#[derive(Debug)]
struct Both {
    ours: Daemon,
    npm: Daemon,
}

impl Both {
    /// Calls a second of both, in turn, after one of each that does not count.
    async fn rates(&self, tool: &str, arguments: &Value, says: &str) -> Pair {
        let mut ours = Caller::new(&self.ours, tool, arguments, says).await;
        let mut npm = Caller::new(&self.npm, tool, arguments, says).await;
        let mut pair = Pair::default();
        for _ in 0..ROUNDS {
            pair.ours.push(ours.rate(CALLS_OF_OURS).await);
            pair.peer.push(npm.rate(1).await);
        }
        pair
    }
}

/// One call, made again and again.
#[derive(Debug)]
struct Caller {
    connection: Connection,
    request: Vec<u8>,
    says: Vec<u8>,
}

impl Caller {
    async fn new(daemon: &Daemon, tool: &str, arguments: &Value, says: &str) -> Caller {
        let request = request(daemon.port, tool, arguments);
        let connection = Connection::open(daemon.port).await;
        let mut caller = Caller { connection, request, says: says.as_bytes().to_vec() };
        caller.rate(1).await;
        caller
    }

    async fn rate(&mut self, calls: usize) -> f64 {
        self.connection.open_again().await;
        let mut times = Vec::new();
        for _ in 0..calls {
            let asked = Instant::now();
            let body = self.connection.ask(&self.request).await;
            times.push(asked.elapsed().as_secs_f64());
            succeeded(body);
            assert!(position(body, &self.says).is_some(), "the answer is about something else");
        }
        1.0 / median(times)
    }
}
