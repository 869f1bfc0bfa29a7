//! `up`: installs what the product needs, builds it, and starts it on a sample repository.

mod sample;
mod server;
mod tour;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::debian;
use crate::failure::{Failure, exit_code};
use crate::sequence::Sequence;
use crate::step::Step;
use crate::workspace;
use server::Place;

/// Uses the test profile. It compiles in less than half the time of a release build, and
/// `cargo xtask test` does not compile the dependencies again.
const BUILD: &[&str] = &["build", "--locked", "-p", "ab-cli", "--bin", "agent-backend"];

/// What `up` runs after the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// The server, until it is interrupted.
    Server,
    /// The server and its first commands, then it stops.
    Once,
    /// The commands on files, one after the other.
    Tour,
}

pub(crate) fn run(show: Show) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    sequence.time("packages", debian::install_for_product)?;
    let binary = workspace::development_binary("agent-backend")?;
    if !binary.exists() {
        eprintln!(
            "\nThe first build compiles about 320 crates, which takes several minutes on two cores; \
             later builds compile only what changed."
        );
    }
    sequence.run(&Step::cargo("build", BUILD))?;
    let directory = workspace::target_directory()?.join("up");
    match show {
        Show::Server => Place::make(&binary, &directory)?.serve(),
        Show::Once => once(&binary, &directory),
        Show::Tour => tour(&binary),
    }
}

/// Starts the server that is built already, runs its first commands, and stops it.
pub(crate) fn once_as_built() -> Result<(), Failure> {
    let binary = workspace::development_binary("agent-backend")?;
    once(&binary, &workspace::target_directory()?.join("up"))
}

fn once(binary: &Path, directory: &Path) -> Result<(), Failure> {
    let directory = directory.join("once");
    server::clear(&directory)?;
    Place::make(binary, &directory)?.once()
}

fn tour(binary: &Path) -> Result<(), Failure> {
    // Show what this host lacks first. The tour runs in any case.
    let ending = Step::new("doctor", binary, &["doctor"]).run()?;
    if !ending.status.success() {
        eprintln!("doctor ended with exit code {}; see above", exit_code(ending.status));
    }
    tour::walk(binary)?;
    println!("\nIsolation in force for commands: {}\n", isolation(binary)?);
    println!("That was the tour. Next:");
    println!("  {} help", binary.display());
    println!("  cargo xtask up      the server, with a sample repository");
    println!("  README.md           a first program with the library");
    println!("  cargo xtask check   the short loop while you change something");
    println!("  cargo xtask test    everything CI runs");
    Ok(())
}

/// The isolation that `exec` uses here by default, and what would make it stronger.
fn isolation(binary: &Path) -> Result<String> {
    let asked = ["exec", "--explain", "--json"];
    let output = Command::new(binary)
        .args(asked)
        .current_dir(workspace::root())
        .output()
        .with_context(|| format!("start {} {}", binary.display(), asked.join(" ")))?;
    let explained: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("parse the explanation: {}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    let found = explained["isolation"].as_str().context("find `isolation` in the explanation")?;
    Ok(described(found))
}

fn described(isolation: &str) -> String {
    match isolation {
        "bwrap" => "bwrap, the strongest".to_owned(),
        weaker => format!("{weaker}; `agent-backend doctor` says why bwrap does not work here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weaker_isolation_points_at_doctor() {
        assert_eq!(described("bwrap"), "bwrap, the strongest");
        assert!(described("landlock").contains("doctor"));
    }
}
