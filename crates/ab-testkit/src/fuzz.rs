//! Checks properties on random inputs.
//!
//! By default a property runs a fixed number of cases from a fixed seed, so that every test run has
//! the same result. With [`FUZZ_SECONDS_VARIABLE`] it continues with new seeds until the deadline.

use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestError, TestRng, TestRunner};

/// How long to search for a counterexample.
pub const FUZZ_SECONDS_VARIABLE: &str = "AB_FUZZ_SECONDS";

/// Cases between two checks of the clock.
const ROUND: u32 = 1000;

/// Checks `property` on inputs from `strategy`. Panics with the smallest input that breaks it.
pub fn check_property<S: Strategy>(
    name: &str,
    strategy: S,
    property: impl Fn(S::Value) -> TestCaseResult,
) {
    match seconds() {
        None => fixed(name, &strategy, &property),
        Some(seconds) => until(name, Duration::from_secs(seconds), &strategy, &property),
    }
}

fn seconds() -> Option<u64> {
    let text = env::var(FUZZ_SECONDS_VARIABLE).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{FUZZ_SECONDS_VARIABLE}={text} is no number of seconds")),
    )
}

fn fixed<S: Strategy>(name: &str, strategy: &S, property: &impl Fn(S::Value) -> TestCaseResult) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = Config { failure_persistence: None, ..Config::default() };
    round(name, config, rng, strategy, property);
}

#[expect(clippy::print_stdout, reason = "whoever asked for a long run wants to see what it did")]
fn until<S: Strategy>(
    name: &str,
    limit: Duration,
    strategy: &S,
    property: &impl Fn(S::Value) -> TestCaseResult,
) {
    let started = Instant::now();
    let first = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut rounds: u128 = 0;
    while rounds == 0 || started.elapsed() < limit {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&first.wrapping_add(rounds).to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let config = Config { cases: ROUND, failure_persistence: None, ..Config::default() };
        round(name, config, rng, strategy, property);
        rounds += 1;
    }
    let cases = rounds * u128::from(ROUND);
    println!("{name}: {cases} cases in {} s, none failed", started.elapsed().as_secs());
}

fn round<S: Strategy>(
    name: &str,
    config: Config,
    rng: TestRng,
    strategy: &S,
    property: &impl Fn(S::Value) -> TestCaseResult,
) {
    match TestRunner::new_with_rng(config, rng).run(strategy, property) {
        Ok(()) => {}
        Err(TestError::Fail(reason, input)) => {
            panic!("{name} does not hold: {reason}\nsmallest input: {input:#?}")
        }
        Err(TestError::Abort(reason)) => panic!("{name} could not be checked: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::prop_assert;

    use super::*;

    #[test]
    #[should_panic(expected = "smallest input: 10")]
    fn a_broken_property_shows_its_smallest_input() {
        let rng = || TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = || Config { failure_persistence: None, ..Config::default() };
        round("holds", config(), rng(), &(0..1000u32), &|number| {
            prop_assert!(number < 1000);
            Ok(())
        });
        round("breaks", config(), rng(), &(0..1000u32), &|number| {
            prop_assert!(number < 10);
            Ok(())
        });
    }
}
