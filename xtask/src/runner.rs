//! The test runner: nextest, or plain `cargo test` on a machine that lacks it.

use std::env;
use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

use crate::step::{Listen, Step};
use crate::workspace;

/// Makes a test that cannot run on this host fail instead of saying so.
const REQUIRE_HOST: &str = "AB_REQUIRE_HOST";

/// All that fails is wanted, not only the first.
const ALL: &[&str] = &["--workspace", "--locked", "--no-fail-fast"];

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Runner {
    Nextest,
    CargoTest,
}

impl Runner {
    /// Looks for nextest; says so when there is none.
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

    /// Every test of the workspace, tidy included, doc tests not.
    pub(crate) fn all_tests(self) -> Step {
        let step = match self {
            Runner::Nextest if env::var_os("CI").is_some_and(|value| !value.is_empty()) => {
                self.step("tests", &[ALL, &["--profile", "ci"]].concat())
            }
            Runner::Nextest => self.step("tests", ALL),
            // Named kinds of targets keep the doc tests out: they are a step of their own.
            Runner::CargoTest => {
                self.step("tests", &[ALL, &["--lib", "--bins", "--tests", "--examples"]].concat())
            }
        };
        step.env(REQUIRE_HOST, "1")
    }

    /// The tests that keep the tree tidy.
    pub(crate) fn tidy(self) -> Step {
        self.step("tidy", &["--package", "xtask"])
    }

    /// All other tests but the slow ones.
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

    /// Doc tests; nextest does not know them.
    pub(crate) fn doc_tests() -> Step {
        Step::cargo("doc tests", &["test", "--workspace", "--doc", "--locked"])
            .listen(Listen::Libtest)
            .env(REQUIRE_HOST, "1")
    }

    fn step(self, name: &str, arguments: &[&str]) -> Step {
        let (verb, listen): (&[&str], Listen) = match self {
            // Its output goes through our pipe, where it would see no terminal.
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
    fn fast_tests_leave_out_the_slow_ones() {
        let line = Runner::Nextest.fast_tests().command_line();
        assert!(line.ends_with("--workspace --exclude xtask --profile fast"), "{line}");
        let line = Runner::CargoTest.fast_tests().command_line();
        assert!(line.ends_with("-- --skip slow_"), "{line}");
    }
}
