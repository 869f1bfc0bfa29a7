//! The official conformance suite for servers, against the daemon: both frozen sets of requirements,
//! as far as they need no tool, resource or prompt that only a fixture has.

use ab_testkit::peers::Peers;

use super::daemon::Daemon;
use crate::stage::{Stage, run};

const PROGRAM: &str = "dist/index.js";

/// What the suite said of each scenario that it ran.
struct Report {
    lines: Vec<String>,
}

impl Report {
    fn of(peers: &Peers, url: &str, revision: &str) -> Report {
        let package = peers.package("@modelcontextprotocol/conformance");
        let mut command = peers.new_node(&package.join(PROGRAM));
        command.args(["server", "--url", url, "--requirements", revision]);
        let said = run(command, b"").text();
        let (_, summary) = said.split_once("=== SUMMARY ===").unwrap_or_else(|| panic!("{said}"));
        Report { lines: summary.lines().map(str::to_owned).collect() }
    }

    /// Whether there were checks, and all of them passed.
    fn passed(&self, scenario: &str) -> bool {
        let wanted = format!("✓ {scenario}: ");
        let line = self.lines.iter().find_map(|line| line.strip_prefix(&wanted));
        line.is_some_and(|counts| !counts.starts_with("0 ") && counts.ends_with(" 0 failed"))
    }
}

#[track_caller]
fn passes(revision: &str, scenarios: &[&str]) {
    let Some(peers) = Peers::find("the official conformance suite") else { return };
    let stage = Stage::new();
    let daemon = Daemon::start_open(&stage);
    let report = Report::of(&peers, &daemon.url, revision);
    daemon.end();
    let failed: Vec<_> = scenarios.iter().filter(|it| !report.passed(it)).collect();
    assert!(failed.is_empty(), "{revision}: {failed:?}\n{}", report.lines.join("\n"));
}

#[test]
fn what_2025_11_25_requires_without_fixtures_passes() {
    passes(
        "2025-11-25",
        &[
            "server-initialize",
            "ping",
            "completion-complete",
            "tools-list",
            "resources-list",
            "prompts-list",
            "dns-rebinding-protection",
        ],
    );
}

#[test]
fn what_2026_07_28_requires_without_fixtures_passes() {
    passes(
        "2026-07-28",
        &[
            "tools-list",
            "resources-list",
            "sep-2164-resource-not-found",
            "prompts-list",
            "dns-rebinding-protection",
            "caching",
            "http-header-validation",
        ],
    );
}
