//! Compares backends with a model: random operations on a small pure workspace and on a backend
//! must have equal results.
//!
//! Results are equal if they have the same values, error kinds and paths in errors, and if the
//! final trees have the same bytes. Where a backend has a [choice](ReferenceWorkspaceOptions), the
//! model follows what the backend reports. A backend is added by one line:
//!
//! ```
//! use ab_core::{Backend, MemoryDriver};
//! use ab_testkit::{TestBackend, model_tests};
//!
//! async fn plain() -> TestBackend {
//!     TestBackend::new(Backend::new(MemoryDriver::new()))
//! }
//!
//! model_tests! { memory => plain }
//! # fn main() {}
//! ```
//!
//! Every run uses new sequences. A failed run prints its seed, which
//! [`OPERATION_SEQUENCE_SEED_VARIABLE`] takes, and the smallest sequence that still fails.

mod answer;
mod lockstep;
mod operation;
mod perform;
mod place;
mod predict;
mod strategy;
mod traits;
mod tree;

use std::cell::Cell;
use std::env;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::TestBackend;
use lockstep::Tally;

pub use operation::{
    ExpectedVersion, MAX_OPEN_FILES, OpenFileSlot, SAMPLE_GLOBS, WorkspaceOperation,
};
pub use strategy::{MAX_SEQUENCE_OPERATIONS, any_operation, any_operation_sequence};
pub use traits::{
    EmptyDirSupport, InitialFileLayer, ReferenceWorkspaceOptions, SearchSupport, WorkspaceLayout,
};
pub use tree::ReferenceWorkspace;

/// How many sequences to run, instead of the [default](DEFAULT_OPERATION_SEQUENCE_COUNT). If it is
/// set, a successful run also prints a summary.
pub const OPERATION_SEQUENCE_COUNT_VARIABLE: &str = "AB_MODEL_SEQUENCES";
pub const DEFAULT_OPERATION_SEQUENCE_COUNT: u32 = 2000;
/// The seed of an earlier run, to repeat its sequences.
pub const OPERATION_SEQUENCE_SEED_VARIABLE: &str = "AB_MODEL_SEED";

/// Longest search for a smaller sequence that still fails.
const SHRINKING: Duration = Duration::from_secs(60);

/// Creates tests of [`check_against_reference`], each from the path of an `async fn() ->
/// TestBackend` and optionally the [`WorkspaceLayout`] of its backend.
#[macro_export]
macro_rules! model_tests {
    (@layout) => { $crate::model::WorkspaceLayout::default() };
    (@layout $layout:expr) => { $layout };
    ($($name:ident => $fixture:path $(where $layout:expr)?),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                let layout = $crate::model_tests!(@layout $($layout)?);
                $crate::model::check_against_reference(stringify!($name), $fixture, layout);
            }
        )+
    };
}

/// Runs random sequences, each on its own backend from `fixture`. Panics with the smallest sequence
/// for which the backend differs from the model.
pub fn check_against_reference<F: Future<Output = TestBackend>>(
    name: &str,
    fixture: impl Fn() -> F,
    layout: WorkspaceLayout,
) {
    check_against_reference_with_default_count(
        name,
        fixture,
        layout,
        DEFAULT_OPERATION_SEQUENCE_COUNT,
    );
}

/// Like [`check_against_reference`], but with another default number of sequences. It is used for
/// backends that are slow to create.
pub fn check_against_reference_with_default_count<F: Future<Output = TestBackend>>(
    name: &str,
    fixture: impl Fn() -> F,
    layout: WorkspaceLayout,
    unasked: u32,
) {
    let sequences = setting(OPERATION_SEQUENCE_COUNT_VARIABLE);
    let seed = setting(OPERATION_SEQUENCE_SEED_VARIABLE).unwrap_or_else(fresh_seed);
    let count = sequences.unwrap_or(unasked);
    let started = Instant::now();
    match search(&fixture, layout, count, seed) {
        Ok(tally) => {
            let seconds = started.elapsed().as_secs_f64();
            let Tally { operations, done } = tally;
            let line = format!(
                "model::{name}: {count} sequences, {operations} operations of which {done} were \
                 not refused, in {seconds:.1} s, all as the model says, {OPERATION_SEQUENCE_SEED_VARIABLE}={seed}\n"
            );
            if sequences.is_some() {
                // Bypasses the capture of test output, which hides the output of passing tests.
                std::io::stderr().write_all(line.as_bytes()).unwrap();
            }
        }
        Err(difference) => {
            panic!(
                "{name} is not as the model says, {OPERATION_SEQUENCE_SEED_VARIABLE}={seed}\n{difference}"
            )
        }
    }
}

/// Returns a summary, or the smallest difference.
fn search<F: Future<Output = TestBackend>>(
    fixture: &impl Fn() -> F,
    layout: WorkspaceLayout,
    sequences: u32,
    seed: u64,
) -> Result<Tally, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let traits = runtime
        .block_on(async { ReferenceWorkspaceOptions::of(&fixture().await.backend, layout).await });
    let total = Cell::new(Tally::default());
    // The cheapest generator, because one is created for every choice of every operation.
    let mut bytes = *b"any sixteen byte";
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: sequences,
        failure_persistence: None,
        max_shrink_iters: u32::MAX - 1,
        max_shrink_time: u32::try_from(SHRINKING.as_millis()).unwrap_or(u32::MAX),
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::XorShift, &bytes);
    let found =
        TestRunner::new_with_rng(config, rng).run(&any_operation_sequence(), |operations| {
            let run = async {
                let world = fixture().await;
                lockstep::run(&world, traits, &operations).await
            };
            let tally = runtime.block_on(run).map_err(|d| TestCaseError::fail(d.to_string()))?;
            let Tally { operations, done } = total.get();
            let operations = operations + tally.operations;
            total.set(Tally { operations, done: done + tally.done });
            Ok(())
        });
    match found {
        Ok(()) => Ok(total.get()),
        Err(TestError::Fail(difference, _)) => Err(difference.to_string()),
        Err(TestError::Abort(reason)) => Err(format!("could not be checked: {reason}")),
    }
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    now as u64
}

#[cfg(test)]
mod tests {
    use ab_core::{Backend, MemoryDriver, MemoryDriverOptions};

    use super::*;

    /// A workspace with room for two bytes, a limit that the model does not have.
    async fn tight() -> TestBackend {
        let options = MemoryDriverOptions { max_bytes: 2, ..MemoryDriverOptions::default() };
        TestBackend::new(Backend::new(MemoryDriver::with_options(options).unwrap()))
    }

    async fn with_something_in_it() -> TestBackend {
        let data = vec![("b/a".to_owned(), "x".into())];
        let options = MemoryDriverOptions { initial_files: data, ..MemoryDriverOptions::default() };
        TestBackend::new(Backend::new(MemoryDriver::with_options(options).unwrap()))
    }

    #[test]
    fn a_difference_is_found_and_made_small() {
        let difference = search(&tight, WorkspaceLayout::default(), 1000, 1).unwrap_err();
        let lines: Vec<&str> = difference.lines().collect();
        assert_eq!(lines.len(), 3, "not small:\n{difference}");
        assert!(lines[1].contains("the model:   file of 3 bytes"), "{difference}");
        assert!(lines[2].contains("the backend: NoSpace on "), "{difference}");
    }

    #[test]
    fn a_seed_brings_the_same_sequences_back() {
        let find = |seed| search(&tight, WorkspaceLayout::default(), 1000, seed).unwrap_err();
        assert_eq!(find(2), find(2));
    }

    #[test]
    fn what_a_fixture_put_there_is_given() {
        let tally = search(&with_something_in_it, WorkspaceLayout::default(), 100, 3).unwrap();
        assert!(tally.done > 0 && tally.operations > tally.done, "{tally:?}");
    }
}
