//! `race`: long runs of the tests that swap directories for links while they are read.

use super::fuzz::{long_test, run_one_test};
use crate::failure::Failure;
use crate::sequence::Sequence;

pub(crate) fn run(rounds: u64) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    for test in ["escape::swap_race", "restricted::swap_race"] {
        let step = long_test("race", "ab-host", test).env("AB_RACE_ROUNDS", rounds.to_string());
        run_one_test(&mut sequence, &step)?;
    }
    println!("{}", sequence.report());
    Ok(())
}
