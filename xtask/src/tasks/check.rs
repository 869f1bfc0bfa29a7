//! `check`: the short check to run while writing code.

use crate::failure::Failure;
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
    sequence.run(&format())?;
    sequence.run(&Step::cargo(
        "clippy",
        &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    ))?;
    let runner = Runner::detect();
    sequence.run(&runner.tidy())?;
    if let Some(examples) = runner.examples() {
        sequence.run(&examples)?;
    }
    sequence.run(&runner.fast_tests())
}

/// Checks the formatting; shared with `test`.
pub(crate) fn format() -> Step {
    Step::cargo("fmt", &["fmt", "--all", "--check"])
}
