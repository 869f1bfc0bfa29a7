//! Runs steps one after the other and stops at the first failure. The final report contains the
//! time of each step and the number of tests.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::step::{Ending, Step};
use crate::tally::{self, Tally};

#[derive(Debug, Default)]
pub(crate) struct Sequence {
    times: Vec<Time>,
    tally: Option<Tally>,
    nextest: Vec<String>,
}

#[derive(Debug)]
struct Time {
    name: String,
    spent: Duration,
    verdict: &'static str,
}

impl Sequence {
    /// Runs `step`. Its test counts are kept even if it fails.
    pub(crate) fn run(&mut self, step: &Step) -> Result<(), Failure> {
        let mut ending = None;
        let outcome = self.time(step.name(), || {
            let Ending { status, .. } = ending.insert(step.run()?);
            if status.success() {
                return Ok(());
            }
            Err(Failure::step(step.name(), &step.command_line(), *status))
        });
        if let Some(ending) = ending {
            self.count(ending.summaries);
        }
        outcome
    }

    /// Runs `act` and reports its time as a step called `name`.
    pub(crate) fn time(
        &mut self,
        name: &str,
        act: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let outcome = act();
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        self.times.push(Time { name: name.to_owned(), spent: started.elapsed(), verdict });
        outcome
    }

    fn count(&mut self, summaries: Vec<String>) {
        for line in summaries {
            *self.tally.get_or_insert_default() += Tally::of(&line).unwrap_or_default();
            if tally::is_nextest(&line) {
                self.nextest.push(line);
            }
        }
    }

    /// The test counts so far; `None` if no test runner has reported yet.
    pub(crate) fn tally(&self) -> Option<Tally> {
        self.tally
    }

    /// The text to print at the end, with the test counts last.
    pub(crate) fn report(&self) -> String {
        let width = self.times.iter().map(|time| time.name.len()).max().unwrap_or(0).max(5);
        let mut report = String::from("\nwhere the time went\n");
        for Time { name, spent, verdict } in &self.times {
            report
                .push_str(&format!("  {name:width$} {:>8.1} s  {verdict}\n", spent.as_secs_f64()));
        }
        let total: Duration = self.times.iter().map(|time| time.spent).sum();
        report.push_str(&format!("  {:width$} {:>8.1} s\n", "total", total.as_secs_f64()));
        let Some(tally) = self.tally else {
            report.push_str("no test ran");
            return report;
        };
        for line in &self.nextest {
            report.push_str(&format!("{}\n", line.trim_start()));
        }
        report.push_str(&tally.to_string());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_steps_come_last() {
        let nextest = "Summary [ 0.1s] 2 tests run: 2 passed, 0 skipped";
        let mut sequence = Sequence::default();
        sequence.time("tests", || Ok(())).unwrap();
        sequence.count(vec![format!("   {nextest}")]);
        sequence.count(vec!["test result: ok. 3 passed; 1 failed; x".to_owned()]);
        let report = sequence.report();
        let last: Vec<&str> = report.lines().rev().take(2).collect();
        assert_eq!(last, ["5 passed, 1 failed", nextest]);
    }

    #[test]
    fn without_tests_the_report_says_so() {
        assert!(Sequence::default().report().ends_with("no test ran"));
    }

    #[cfg(unix)]
    #[test]
    fn a_failing_step_is_named() {
        let mut sequence = Sequence::default();
        sequence.run(&Step::new("fmt", "true", &[])).unwrap();
        let failure = sequence.run(&Step::new("tests", "sh", &["-c", "exit 101"])).unwrap_err();
        assert_eq!(failure.code(), 101);
        assert!(failure.to_string().starts_with("step `tests` failed with exit code 101"));
        let report = sequence.report();
        let verdict = |name: &str| {
            let line = report.lines().find(|line| line.contains(name)).unwrap();
            line.split_whitespace().last().unwrap().to_owned()
        };
        assert_eq!((verdict("fmt"), verdict("tests")), ("ok".to_owned(), "FAILED".to_owned()));
    }
}
