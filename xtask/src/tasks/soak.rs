//! `soak`: faults again and again, for a given time: the storm between a client and a server, and
//! kills of a server with sessions.

use super::fuzz::{long_test, run_one_test};
use crate::failure::Failure;
use crate::sequence::Sequence;

/// What can be soaked: its name, and the test that does it.
#[derive(Debug, PartialEq)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    package: &'static str,
    test: &'static str,
}

pub(crate) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "remote",
        package: "ab-remote",
        test: "remote::faults::slow_nothing_is_lost_in_a_storm",
    },
    Subject {
        name: "sessions",
        package: "ab-cli",
        test: "surviving::crashes::slow_sessions_survive_kills_at_any_moment",
    },
    Subject {
        name: "history",
        package: "ab-cli",
        test: "surviving::sources::a_second_task_on_a_large_history_transfers_nothing",
    },
];

/// The test prints its seed; `AB_SOAK_SEED` gives it the same again. `AB_SOAK_DROPS` makes the storm go on until so
/// many connections were lost.
pub(crate) fn run(subject: &Subject, minutes: u64) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    let step = long_test(subject.name, subject.package, subject.test)
        .env("AB_SOAK_SECONDS", (minutes * 60).to_string());
    run_one_test(&mut sequence, &step)?;
    println!("{}", sequence.report());
    Ok(())
}
