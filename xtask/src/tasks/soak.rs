//! `soak`: repeats faults for a given time. The faults are lost connections between a client and a
//! server, and kills of a server with sessions. Also runs once the tests that are too large for
//! every test run: coding agents of vendors, and the example for the crate `rig`.

use super::fuzz::{long_test, run_one_test};
use crate::failure::Failure;
use crate::leftovers::{self, Watch};
use crate::peers::{self, PEERS};
use crate::runner::REQUIRE_HOST;
use crate::sequence::Sequence;
use crate::step::{Listen, Step};
use crate::workspace;

/// A test that can be run as a soak, and its name on the command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    package: &'static str,
    test: &'static str,
    pub(crate) extent: Extent,
}

/// How often and how long a test runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    Minutes,
    /// Runs once with each of these coding agents. The test installs them.
    Agents(&'static str),
    /// Runs once. The package is outside of the workspace and is built first. The test finds the
    /// built program through the environment variable.
    Program {
        directory: &'static str,
        variable: &'static str,
    },
}

pub(crate) const SUBJECTS: &[Subject] = &[
    Subject {
        name: "remote",
        package: "ab-remote",
        test: "remote::faults::slow_nothing_is_lost_in_a_storm",
        extent: Extent::Minutes,
    },
    Subject {
        name: "sessions",
        package: "ab-cli",
        test: "surviving::storm::slow_sessions_stand_random_requests_and_kills",
        extent: Extent::Minutes,
    },
    Subject {
        name: "kills",
        package: "ab-cli",
        test: "surviving::crashes::slow_sessions_survive_kills_at_any_moment",
        extent: Extent::Minutes,
    },
    Subject {
        name: "agents",
        package: "ab-cli",
        test: "real_agents::slow_vendor_agents_edit_by_task_and_through_the_gateway",
        extent: Extent::Agents("codex,claude,copilot,opencode,qwen"),
    },
    Subject {
        name: "rig",
        package: "agent-backend",
        test: "agent::example::slow_the_rig_example_does_a_task_with_our_tools",
        extent: Extent::Program { directory: "rig", variable: "AB_RIG_AGENT" },
    },
];

/// The test prints its seed; `AB_SOAK_SEED` repeats a run with it. `AB_SOAK_DROPS` sets how many
/// connections must be lost before the run ends. `AB_SOAK_AGENTS` names other agents.
pub(crate) fn run(subject: &Subject, minutes: u64) -> Result<(), Failure> {
    let mut sequence = Sequence::default();
    let step = match subject.extent {
        Extent::Minutes => long_test(subject.name, subject.package, subject.test)
            .env("AB_SOAK_SECONDS", (minutes * 60).to_string()),
        Extent::Agents(agents) => {
            let agents = std::env::var("AB_SOAK_AGENTS").unwrap_or_else(|_| agents.to_owned());
            let peers = peers::install()?;
            debug_test(subject).env(PEERS, peers.to_string_lossy()).env("AB_SOAK_AGENTS", agents)
        }
        Extent::Program { directory, variable } => {
            let target = workspace::target_directory()?.join(directory);
            sequence.run(&program(directory, &target.to_string_lossy()))?;
            let program = target.join("debug").join(format!("{directory}-agent"));
            debug_test(subject).env(variable, program.to_string_lossy())
        }
    };
    let watch = Watch::begin();
    run_one_test(&mut sequence, &step.env(leftovers::COOKIE, &watch.cookie))?;
    sequence.time("leftovers", || watch.end())?;
    println!("{}", sequence.report());
    Ok(())
}

/// Builds a package of `examples` that is no part of the workspace, with its own lock file.
fn program(directory: &str, target: &str) -> Step {
    let manifest = format!("examples/{directory}/Cargo.toml");
    let arguments = ["build", "--locked", "--manifest-path", &manifest, "--target-dir", target];
    Step::cargo("build", &arguments)
}

/// Uses a debug build, because most of the time is spent in programs that are not built here.
fn debug_test(subject: &Subject) -> Step {
    let filter = ["--", "--exact", "--nocapture", subject.test];
    let arguments = [&["test", "-p", subject.package, "--test", "main"], &filter[..]].concat();
    Step::cargo(subject.name, &arguments).listen(Listen::Libtest).env(REQUIRE_HOST, "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_driven_by_one_exact_test() {
        let subject = SUBJECTS.iter().find(|subject| subject.name == "agents").unwrap();
        assert_eq!(
            debug_test(subject).command_line(),
            "AB_REQUIRE_HOST=1 cargo test -p ab-cli --test main -- --exact --nocapture \
             real_agents::slow_vendor_agents_edit_by_task_and_through_the_gateway"
        );
    }

    #[test]
    fn the_program_of_an_example_is_built_outside_the_workspace() {
        let subject = SUBJECTS.iter().find(|subject| subject.name == "rig").unwrap();
        let Extent::Program { directory, .. } = subject.extent else { panic!("{subject:?}") };
        assert_eq!(
            program(directory, "target/rig").command_line(),
            "cargo build --locked --manifest-path examples/rig/Cargo.toml --target-dir target/rig"
        );
        let manifest = workspace::root().join("examples").join(directory).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        assert!(manifest.contains("name = \"rig-agent\""), "{manifest}");
    }
}
