//! The published client for node, at our daemon and at its own.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fixture::{Fixture, LARGE, SMALL};
use crate::measure::{Bar, Pair, ROUNDS, Table};
use crate::our_daemon;
use crate::programs::{Daemon, Peers};

/// The rows by the names that the script gives them: what it is, its unit, its bar.
const ROWS: &[(&str, &str, &str, Bar)] = &[
    ("connect", "npm client, connect", "ms", Bar::AtMost(0.7)),
    ("stat", "npm client, stat, p50", "ms", Bar::AtMost(0.7)),
    ("read", "npm client, read 1 KiB, p50", "ms", Bar::AtMost(0.75)),
    ("exec", "npm client, exec true", "ms", Bar::AtMost(0.4)),
    ("large_read", "npm client, read 10 MB", "MB/s", Bar::AtLeast(3.5)),
    ("large_write", "npm client, write 10 MB", "MB/s", Bar::AtLeast(2.5)),
];

/// More than elsewhere: they are short, and what is measured is small beside what else happens on a
/// machine.
const MANY_ROUNDS: usize = 2 * ROUNDS - 1;
/// The client complains at length where there is none.
const TOKEN: &str = "bench";

pub(crate) fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let root = fixture.root();
    let mut ours = our_daemon(&root, fixture);
    ours.args(["--auth-token", TOKEN]);
    let ours = Daemon::start(ours);
    let mut npm = peers.npm_daemon();
    npm.args(["daemon", "--isolation", "software", "--rootDir"]).arg(&root);
    npm.arg("--ssh-host-key").arg(fixture.beside("npm_host_key"));
    npm.args(["--auth-token", TOKEN]);
    let npm = Daemon::start(npm);
    // The client is what is measured, so that it keeps the time; one process asks both in turn.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/remote/published.mjs");
    let mut client = Command::new("node");
    client.arg(script).args([ours.port, npm.port].map(|port| port.to_string()));
    client.arg(TOKEN).arg(&root).args([SMALL, LARGE]).arg(MANY_ROUNDS.to_string());
    let output = client.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the client ended with {}", output.status);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, what, unit, bar) in ROWS {
        let figures = |who: &str| -> Vec<f64> {
            let figures = rows[name][who].as_array().unwrap();
            figures.iter().map(|figure| figure.as_f64().unwrap()).collect()
        };
        let pair = Pair { ours: figures("ours"), peer: figures("peer") };
        table.compare(what, unit, *bar, &pair);
    }
}
