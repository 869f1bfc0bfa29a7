//! `fuzz`: property tests that run until a deadline.

use crate::failure::Failure;
use crate::runner::REQUIRE_HOST;
use crate::sequence::Sequence;
use crate::step::{Listen, Step};

/// A property test that reads its deadline from `AB_FUZZ_SECONDS`.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    package: &'static str,
    test: &'static str,
}

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "path", package: "ab-core", test: "fuzz::fuzz_path" },
    Target { name: "edit", package: "ab-core", test: "fuzz::fuzz_edit" },
    Target { name: "policy", package: "ab-policy", test: "fuzz::fuzz_policy" },
    Target { name: "http", package: "ab-mcp", test: "fuzz::fuzz_http" },
    Target { name: "envelope", package: "ab-acp", test: "fuzz::fuzz_envelope" },
    Target { name: "tar", package: "ab-server", test: "fuzz::fuzz_tar" },
    Target { name: "operations", package: "ab-spaces", test: "fuzz::fuzz_operations" },
    Target { name: "screen", package: "ab-policy", test: "fuzz::fuzz_screen" },
    Target { name: "sftp", package: "ab-remote", test: "fuzz::fuzz_sftp" },
    Target { name: "sftp-extended", package: "ab-remote", test: "fuzz::fuzz_sftp_extended" },
];

pub(crate) fn run(targets: &[&Target], seconds: u64) -> Result<(), Failure> {
    let mut all = Sequence::default();
    for target in targets {
        let step = long_test(target.name, target.package, target.test)
            .env("AB_FUZZ_SECONDS", seconds.to_string());
        run_one_test(&mut all, &step)?;
    }
    println!("{}", all.report());
    Ok(())
}

/// One named test of the integration binary, optimised, with its output shown.
pub(crate) fn long_test(name: &str, package: &str, test: &str) -> Step {
    let arguments = [
        "test",
        "-p",
        package,
        "--release",
        "--test",
        "main",
        "--",
        "--exact",
        "--nocapture",
        test,
    ];
    Step::cargo(name, &arguments).listen(Listen::Libtest).env(REQUIRE_HOST, "1")
}

/// Runs a [`long_test`]. Fails if the test does not exist any more.
pub(crate) fn run_one_test(sequence: &mut Sequence, step: &Step) -> Result<(), Failure> {
    let before = sequence.tally().unwrap_or_default();
    sequence.run(step)?;
    if sequence.tally().unwrap_or_default().passed == before.passed {
        return Err(Failure::new(format!(
            "step `{}` ran no test: {}",
            step.name(),
            step.command_line()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_one_exact_test() {
        let target = &TARGETS[0];
        let step = long_test(target.name, target.package, target.test);
        assert_eq!(
            step.command_line(),
            "AB_REQUIRE_HOST=1 cargo test -p ab-core --release --test main -- --exact --nocapture fuzz::fuzz_path"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_vanished_test_fails() {
        let silent = Step::new("path", "true", &[]);
        let failure = run_one_test(&mut Sequence::default(), &silent).unwrap_err();
        assert!(failure.to_string().contains("ran no test"), "{failure}");
    }
}
