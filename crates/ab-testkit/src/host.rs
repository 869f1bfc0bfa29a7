//! Tests that a host cannot run say so; one setting makes that a failure.

use std::env;

/// Set where the host is meant to offer everything, as in CI.
pub const REQUIRE_HOST: &str = "AB_REQUIRE_HOST";

/// Tells that `what` cannot be tested here and `why`; the caller then returns.
///
/// # Panics
/// When [`REQUIRE_HOST`] is set: a test that silently never runs proves nothing.
#[expect(clippy::print_stderr, reason = "the reader of the test's output is the one to tell")]
#[track_caller]
pub fn cannot_run(what: &str, why: &str) {
    let message = format!("this host cannot run {what}: {why}");
    if env::var_os(REQUIRE_HOST).is_some() {
        panic!("{message} ({REQUIRE_HOST} is set)");
    }
    eprintln!("skipped: {message}");
}
