//! `test`: everything, exactly as CI runs it.

use super::{check, up};
use crate::debian;
use crate::failure::Failure;
use crate::leftovers::{self, Watch};
use crate::peers::{self, PEERS};
use crate::runner::Runner;
use crate::sequence::Sequence;
use crate::step::Step;

pub(crate) fn run() -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    let outcome = steps(&mut sequence);
    println!("{}", sequence.report());
    outcome
}

fn steps(sequence: &mut Sequence) -> Result<(), Failure> {
    sequence.time("packages", debian::install_for_tests)?;
    sequence.run(&check::format())?;
    sequence.run(&Step::cargo(
        "clippy",
        &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    ))?;
    let mut peers = String::new();
    sequence.time("peers", || {
        peers = peers::install()?.to_string_lossy().into_owned();
        Ok(())
    })?;
    let runner = Runner::detect();
    if let Some(examples) = runner.examples() {
        sequence.run(&examples)?;
    }
    let watch = Watch::begin();
    let tests = runner.all_tests();
    sequence.run(&tests.env(leftovers::COOKIE, &watch.cookie).env(PEERS, peers))?;
    sequence.run(&Runner::doc_tests())?;
    sequence.time("up", up::once_as_built)?;
    sequence.time("leftovers", || watch.end())?;
    sequence.run(
        &Step::cargo("docs", &["doc", "--workspace", "--no-deps", "--locked"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}
