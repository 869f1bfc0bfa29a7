//! The test runner: nextest, or plain `cargo test` if nextest is not installed.

use std::env;
use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

use crate::step::{Listen, Step};
use crate::workspace;

/// With this variable, a test that cannot run on this host fails instead of being skipped.
pub(crate) const REQUIRE_HOST: &str = "AB_REQUIRE_HOST";

/// Run all tests even after a failure.
const ALL: &[&str] = &["--workspace", "--locked", "--no-fail-fast"];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Runner {
    Nextest,
    CargoTest,
}

impl Runner {
    /// Looks for nextest and prints a note if it is missing.
    pub(crate) fn detect() -> Runner {
        let found = Command::new(workspace::cargo())
            .args(["nextest", "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if found {
            return Runner::Nextest;
        }
        eprintln!("xtask: cargo-nextest is not installed, so `cargo test` runs the tests");
        Runner::CargoTest
    }

    /// Every test of the workspace including tidy, without doc tests.
    pub(crate) fn all_tests(self) -> Step {
        let step = match self {
            Runner::Nextest if env::var_os("CI").is_some_and(|value| !value.is_empty()) => {
                self.step("tests", &[ALL, &["--profile", "ci"]].concat())
            }
            Runner::Nextest => self.step("tests", ALL),
            // Name the kinds of targets, because this excludes doc tests. Doc tests are a separate
            // step.
            Runner::CargoTest => {
                self.step("tests", &[ALL, &["--lib", "--bins", "--tests"]].concat())
            }
        };
        step.env(REQUIRE_HOST, "1")
    }

    /// Builds the examples, because some tests start them. Returns no step for nextest, which
    /// builds them together with the tests. `cargo test` builds them only if no kinds of targets
    /// are named.
    pub(crate) fn examples(self) -> Option<Step> {
        match self {
            Runner::Nextest => None,
            Runner::CargoTest => {
                Some(Step::cargo("examples", &["build", "--workspace", "--examples", "--locked"]))
            }
        }
    }

    /// The tidy tests.
    pub(crate) fn tidy(self) -> Step {
        self.step("tidy", &["--package", "xtask"])
    }

    /// All other tests except the slow ones.
    pub(crate) fn fast_tests(self) -> Step {
        let others = ["--workspace", "--exclude", "xtask"];
        match self {
            Runner::Nextest => {
                self.step("fast tests", &[&others[..], &["--profile", "fast"]].concat())
            }
            Runner::CargoTest => self.step(
                "fast tests",
                &[&others[..], &["--lib", "--bins", "--tests", "--", "--skip", "slow_"]].concat(),
            ),
        }
    }

    /// Doc tests, which nextest does not support.
    pub(crate) fn doc_tests() -> Step {
        Step::cargo("doc tests", &["test", "--workspace", "--doc", "--locked"])
            .listen(Listen::Libtest)
            .env(REQUIRE_HOST, "1")
    }

    fn step(self, name: &str, arguments: &[&str]) -> Step {
        let (verb, listen): (&[&str], Listen) = match self {
            // Its output goes through our pipe, so it cannot detect the terminal itself.
            Runner::Nextest if io::stderr().is_terminal() => {
                (&["nextest", "run", "--color", "always"], Listen::Nextest)
            }
            Runner::Nextest => (&["nextest", "run"], Listen::Nextest),
            Runner::CargoTest => (&["test"], Listen::Libtest),
        };
        Step::cargo(name, &[verb, arguments].concat()).listen(listen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_runs_with_the_lock_file_and_on_the_required_host() {
        for runner in [Runner::Nextest, Runner::CargoTest] {
            let line = runner.all_tests().command_line();
            assert!(line.starts_with("AB_REQUIRE_HOST=1 cargo "), "{line}");
            assert!(line.contains("--workspace --locked"), "{line}");
        }
    }

    #[test]
    fn examples_are_built_before_cargo_runs_the_tests() {
        let step = Runner::CargoTest.examples().unwrap();
        assert_eq!(step.command_line(), "cargo build --workspace --examples --locked");
        let line = Runner::CargoTest.all_tests().command_line();
        assert!(line.ends_with("--lib --bins --tests"), "as tests they have other names: {line}");
        assert!(Runner::Nextest.examples().is_none());
    }

    #[test]
    fn fast_tests_leave_out_the_slow_ones() {
        let line = Runner::Nextest.fast_tests().command_line();
        assert!(line.ends_with("--workspace --exclude xtask --profile fast"), "{line}");
        let line = Runner::CargoTest.fast_tests().command_line();
        assert!(line.ends_with("-- --skip slow_"), "{line}");
    }
}
