//! Speed of the gateway, `agent-backend server`, beside `sandbox-agent server` as it comes from npm.
//!
//! Both start the same agent: this program, which answers every request with nothing. One thread of compiled code drives
//! either. Ours and the peer take turns inside a round; what counts is the median of the ratios of the rounds.
//! `cargo xtask bench acp` installs the peer and runs it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

mod burst;
mod echo;
mod files;
mod gateway;
#[path = "../mcp/http.rs"]
#[allow(dead_code, reason = "the requests of this bench are its own")]
mod http;
#[path = "../mcp/measure.rs"]
mod measure;
#[path = "../mcp/programs.rs"]
#[allow(dead_code, reason = "this bench has no npm daemon")]
mod programs;
mod requests;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use self::gateway::{Fixture, Gateway, PEER, Who};
use self::measure::{Bar, Pair, ROUNDS, Table};
use self::programs::{Peers, kernel};

/// A server that answers may still have something to do.
const SETTLED: Duration = Duration::from_secs(1);
/// Agents that run while memory is measured.
const SERVERS: usize = 50;

fn main() -> ExitCode {
    if std::env::var_os(echo::ECHO).is_some() {
        echo::run();
        return ExitCode::SUCCESS;
    }
    let Some(peers) = Peers::find() else {
        println!("bench acp: AB_PEERS names no peers; `cargo xtask bench acp` installs them");
        return ExitCode::FAILURE;
    };
    println!("bench acp: median of {ROUNDS} rounds");
    println!("peer: {}; {}\n", peers.version_of(PEER), kernel());
    let fixture = Fixture::new();
    let mut table = Table::default();
    // Requests are sent and answers read on this thread alone.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    starts(&mut table, &peers, &fixture);
    runtime.block_on(requests::run(&mut table, &peers, &fixture));
    runtime.block_on(memory(&mut table, &peers, &fixture));
    burst::run(&mut table, &peers, &fixture);
    files::run(&mut table, &peers, &fixture);
    // A bar is for a quiet machine, so that it is told and does not fail the run.
    println!("\n{} below their bars", table.missed());
    ExitCode::SUCCESS
}

/// From the start of the process to its first healthy answer.
fn starts(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let start = |who| {
        let begun = Instant::now();
        let _gateway = Gateway::start(peers, who, fixture);
        begun.elapsed().as_secs_f64() * 1000.0
    };
    let pair = Pair::of(|| start(Who::Ours), || start(Who::Peer));
    table.compare("start until healthy", "ms", Bar::AtMost(0.25), &pair);
}

/// What a server keeps beside its agents.
async fn memory(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let mut pair = Pair::default();
    for _ in 0..ROUNDS {
        for (who, kept) in [(Who::Ours, &mut pair.ours), (Who::Peer, &mut pair.peer)] {
            let gateway = Gateway::start(peers, who, fixture);
            let mut servers = requests::open(&gateway, SERVERS).await;
            for server in &mut servers {
                server.ask().await;
            }
            thread::sleep(SETTLED);
            kept.push(gateway.memory());
        }
    }
    let what = format!("memory with {SERVERS} servers");
    table.compare(&what, "MB", Bar::AtMost(0.6), &pair);
}
