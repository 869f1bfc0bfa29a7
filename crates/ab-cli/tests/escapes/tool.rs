//! The table through the `exec` tool of an MCP server: the same walls, reached by another door.

use ab_core::effective::{ControlStrength, ControlSubject};
use ab_testkit::escapes::{self, Attempt, Ground, Said, Surface, Wish};
use serde_json::json;

use super::{Binary, make};
use crate::mcp::Session;

/// `exec` of a server that was started for one attempt.
struct Tool {
    binary: Binary,
}

impl Surface for Tool {
    fn run(&self, ground: &Ground, wishes: &[Wish], line: &str) -> Said {
        let mut session = Session::of(self.binary.of("mcp", ground, wishes));
        let answer = session.call("exec", json!({ "command": line, "timeout": 60 }));
        session.end();
        let value = &answer["structuredContent"];
        let said = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        if value.is_null() {
            Said {
                refused: answer["isError"] == true,
                stderr: answer["content"].to_string(),
                ..Said::default()
            }
        } else {
            Said { refused: false, stdout: said("stdout"), stderr: said("stderr") }
        }
    }

    fn strength(
        &self,
        ground: &Ground,
        wishes: &[Wish],
        subject: ControlSubject,
    ) -> ControlStrength {
        self.binary.strength(ground, wishes, subject)
    }

    fn is_open(&self) -> bool {
        self.binary.is_open()
    }
}

fn make_all(mode: &'static str) {
    // The tool has no terminals.
    let can = |attempt: &&Attempt| !attempt.wishes.contains(&Wish::Terminal);
    assert_eq!(escapes::all().filter(|attempt| !can(attempt)).count(), 1);
    make(mode, escapes::all().filter(can), &Tool { binary: Binary::new(mode) });
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
