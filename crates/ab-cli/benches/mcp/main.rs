//! Speed of the MCP server, beside the npm daemon of the same name and the official filesystem
//! server, both as they come from their registry.
//!
//! One thread of compiled code drives every server. Ours and the peer take turns inside a round;
//! what counts is the median of the ratios of the rounds. `cargo xtask bench mcp` installs the peers
//! and runs it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

mod fixture;
mod http;
mod load;
mod measure;
mod programs;
mod servers;
mod starts;
mod stdio;
mod tools;

use std::process::ExitCode;

use self::fixture::Fixture;
use self::measure::{ROUNDS, Table};
use self::programs::Peers;

fn main() -> ExitCode {
    let Some(peers) = Peers::find() else {
        println!("bench mcp: AB_PEERS names no peers; `cargo xtask bench mcp` installs them");
        return ExitCode::FAILURE;
    };
    println!("bench mcp: median of {ROUNDS} rounds");
    println!("{}\n", servers::versions(&peers));
    let fixture = Fixture::new();
    let mut table = Table::default();
    // Requests are sent and answers read on this thread alone.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    starts::run(&mut table, &peers, &fixture);
    stdio::run(&mut table, &peers, &fixture);
    runtime.block_on(load::run(&mut table, &peers, &fixture));
    runtime.block_on(tools::run(&mut table, &peers, &fixture));
    // A bar is for a quiet machine, so that it is told and does not fail the run.
    println!("\n{} below their bars", table.missed());
    ExitCode::SUCCESS
}
