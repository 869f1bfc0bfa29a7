//! The transition table of the documentation is the one of the code.

use ab_control::session_machine;

const DOCUMENT: &str = include_str!("../../../docs/sessions.md");

#[test]
fn the_document_has_the_table_of_the_code() {
    let table = session_machine::transition_table_markdown();
    assert!(DOCUMENT.contains(&table), "docs/sessions.md must contain this table:\n{table}");
}
