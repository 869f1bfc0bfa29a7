//! What a person at a terminal sees.

use crate::stage::Stage;

const ESCAPE: &str = "\u{1b}[";

#[test]
fn grep_groups_by_file_and_paints() {
    let stage = Stage::with(&[("a.txt", "x\nA needle.\ny\nz\nneedle\n"), ("b.txt", "NEEDLE\n")]);
    let ran = stage.watched(&["fs", "grep", "needle", "-i"]);
    let path = |name: &str| format!("{ESCAPE}35m{name}{ESCAPE}0m");
    let number = |number: u64| format!("{ESCAPE}32m{number}{ESCAPE}0m");
    let hit = |text: &str| format!("{ESCAPE}1m{ESCAPE}31m{text}{ESCAPE}0m");
    let expect = [
        path("a.txt"),
        format!("{}:A {}.", number(2), hit("needle")),
        format!("{}:{}", number(5), hit("needle")),
        String::new(),
        path("b.txt"),
        format!("{}:{}", number(1), hit("NEEDLE")),
    ];
    assert_eq!(
        (ran.code, ran.text().lines().collect::<Vec<_>>()),
        (0, expect.iter().map(String::as_str).collect())
    );
}

#[test]
fn colours_can_be_switched_off() {
    let stage = Stage::with(&[("a.txt", "needle\n2\n3\n4\nneedle\n")]);
    let ran = stage.watched_without_colours(&["fs", "grep", "needle", "-A", "1"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "a.txt\n1:needle\n2-2\n--\n5:needle\n"));
}

#[test]
fn control_characters_and_cut_lines_are_spelled_out() {
    let long = format!("needle{}\n", "x".repeat(9000));
    let stage = Stage::with(&[("a", "\u{1b}[31m needle\n"), ("b", &long)]);
    let ran = stage.watched_without_colours(&["fs", "grep", "needle"]);
    let text = ran.text();
    assert!(text.starts_with("a\n1:\\u{1b}[31m needle\n\nb\n1:needlexxx"), "{text:.60}");
    assert!(text.contains("x [cut: the line has 9006 bytes]\n"), "{text}");
    assert!(!text.contains(ESCAPE));
}

#[test]
fn a_literal_that_looks_like_a_regex_gets_a_hint() {
    let stage = Stage::with(&[("a", "fn main\n")]);
    let ran = stage.watched_without_colours(&["fs", "grep", "fn .*"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.text()
            .starts_with("note: the pattern is plain text; for a regular expression, pass -E\n"),
        "{}",
        ran.text()
    );
    let ran = stage.watched_without_colours(&["fs", "grep", "main()"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""));
}

#[test]
fn a_diff_is_painted() {
    let stage = Stage::with(&[("a/x", "1\n"), ("b/x", "2\n"), ("b/y", "\u{7}\n")]);
    let text = stage.watched(&["fs", "diff", "a", "b"]).text();
    for part in ["33mchanged", "31m-1", "32m+2", "32madded", "32m+\\u{7}", "36m@@ "] {
        assert!(text.contains(&format!("{ESCAPE}{part}")), "{part} in {text:?}");
    }
    let stat = stage.watched(&["fs", "diff", "a", "b", "--stat"]).text();
    assert!(stat.contains(&format!("{ESCAPE}33mchanged{ESCAPE}0m  +1 -1")), "{stat:?}");
}
