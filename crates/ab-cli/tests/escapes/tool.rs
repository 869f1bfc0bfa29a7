//! The table through the `exec` tool of an MCP server: the same walls, reached by another door.

use ab_core::effective_policy::{PolicyControlKind, PolicyControlStrength};
use ab_testkit::escapes::{
    self, CommandReport, CommandRunner, EscapeAttempt, EscapeTestbed, SandboxOption,
};
use serde_json::json;

use super::{Binary, make};
use crate::mcp::Session;

/// `exec` of a server that was started for one attempt.
struct Tool {
    binary: Binary,
}

impl CommandRunner for Tool {
    fn run(&self, testbed: &EscapeTestbed, wishes: &[SandboxOption], line: &str) -> CommandReport {
        let mut session = Session::of(self.binary.of("mcp", testbed, wishes));
        let answer = session.call("exec", json!({ "command": line, "timeout": 60 }));
        session.end();
        let value = &answer["structuredContent"];
        let said = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        if value.is_null() {
            CommandReport {
                refused: answer["isError"] == true,
                stderr: answer["content"].to_string(),
                ..CommandReport::default()
            }
        } else {
            CommandReport { refused: false, stdout: said("stdout"), stderr: said("stderr") }
        }
    }

    fn claimed_control_strength(
        &self,
        testbed: &EscapeTestbed,
        wishes: &[SandboxOption],
        subject: PolicyControlKind,
    ) -> PolicyControlStrength {
        self.binary.claimed_control_strength(testbed, wishes, subject)
    }

    fn is_unconfined(&self) -> bool {
        self.binary.is_unconfined()
    }
}

fn make_all(mode: &'static str) {
    // The tool has no terminals, and its server no flags for limits.
    let lacking = [SandboxOption::Terminal, SandboxOption::Limited];
    let can = |attempt: &&EscapeAttempt| {
        !attempt.sandbox_options.iter().any(|option| lacking.contains(option))
    };
    assert_eq!(escapes::all_attempts().filter(|attempt| !can(attempt)).count(), 3);
    make(mode, escapes::all_attempts().filter(can), &Tool { binary: Binary::new(mode) });
}

#[test]
fn nothing_gets_out_of_bwrap_by_the_tool() {
    make_all("bwrap");
}

#[test]
fn nothing_gets_out_of_landlock_by_the_tool_that_it_claims_to_hold() {
    make_all("landlock");
}

#[test]
fn software_claims_no_more_by_the_tool_than_it_holds() {
    make_all("software");
}

#[test]
fn without_walls_the_attempts_get_out_by_the_tool() {
    make_all("none");
}
