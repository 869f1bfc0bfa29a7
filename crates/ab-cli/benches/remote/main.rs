//! Speed of SSH and SFTP as the daemon serves them, beside the npm daemon of the same name and
//! OpenSSH's own server, and of our own client.
//!
//! What is measured is what clients see: the published client for node, and OpenSSH's `sftp`, both
//! unchanged, and ours. Ours and the peer take turns inside a round; what counts is the median of the ratios
//! of the rounds. `cargo xtask bench remote` installs the peers and runs it; the program itself takes
//! the names of [`PARTS`] to run only those.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a benchmark talks, and ends at the first thing that is not as it must be"
)]

mod client;
mod crowd;
mod fixture;
#[path = "../mcp/measure.rs"]
mod measure;
mod openssh;
#[path = "../mcp/programs.rs"]
mod programs;
mod published;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use self::fixture::Fixture;
use self::measure::{ROUNDS, Table};
use self::programs::{NPM_DAEMON, Peers, kernel, ours, version};

/// What can be run alone.
const PARTS: [&str; 4] = ["published", "openssh", "client", "crowd"];

fn main() -> ExitCode {
    // Cargo adds an option of its own.
    let chosen: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let Some(unknown) = chosen.iter().find(|name| !PARTS.contains(&name.as_str())) {
        println!("bench remote: no part is named {unknown}; there are {}", PARTS.join(", "));
        return ExitCode::FAILURE;
    }
    let runs = |part: &str| chosen.is_empty() || chosen.iter().any(|name| name == part);
    let Some(peers) = Peers::find() else {
        println!("bench remote: AB_PEERS names no peers; `cargo xtask bench remote` installs them");
        return ExitCode::FAILURE;
    };
    println!("bench remote: median of {ROUNDS} rounds or more");
    println!(
        "peers: {}, node {}, {}; {}\n",
        peers.version_of(NPM_DAEMON),
        version("node", "--version"),
        version("ssh", "-V"),
        kernel()
    );
    let fixture = Fixture::new();
    let mut table = Table::default();
    if runs("published") {
        published::run(&mut table, &peers, &fixture);
    }
    if runs("openssh") {
        match openssh::find() {
            Some(sshd) => openssh::run(&mut table, sshd, &fixture),
            None => println!("no sshd here, so nothing is measured beside OpenSSH's server"),
        }
    }
    if runs("client") {
        client::run(&mut table, openssh::find(), &fixture);
    }
    if runs("crowd") {
        crowd::run(&mut table, &fixture);
    }
    // A bar is for a quiet machine, so that it is told and does not fail the run.
    println!("\n{} below their bars", table.missed());
    ExitCode::SUCCESS
}

/// Our daemon's command line; where it listens is added to it.
fn our_daemon(root: &Path, fixture: &Fixture) -> std::process::Command {
    let mut command = ours();
    command.args(["daemon", "--isolation", "software", "--rootDir"]).arg(root);
    command.arg("--ssh-host-key").arg(fixture.beside("our_host_key"));
    command
}
