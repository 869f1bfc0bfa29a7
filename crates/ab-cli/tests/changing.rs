//! `write`, `edit`, `rm`, `mv`, `mkdir` and `touch`.

use std::fs;

use serde_json::json;

use crate::stage::Stage;

fn version(stage: &Stage, path: &str) -> String {
    stage.json(&["fs", "stat", "--json", path])["version"].as_str().unwrap().to_owned()
}

#[test]
fn write_takes_standard_input_or_content() {
    let stage = Stage::new();
    let ran = stage.run_with(&["fs", "write", "deep/er/a"], b"from \xff stdin");
    assert_eq!((ran.code, ran.text().as_str()), (0, ""));
    assert_eq!(ran.err, "note: wrote 12 bytes to 'deep/er/a'\n");
    assert_eq!(fs::read(stage.path("deep/er/a")).unwrap(), b"from \xff stdin");
    assert_eq!(stage.run(&["fs", "write", "b", "--content", "--dashes"]).code, 0);
    assert_eq!(stage.text("b"), "--dashes");
    assert_eq!(stage.run(&["fs", "write", "b", "--content", "", "--sync"]).code, 0);
    assert_eq!(stage.text("b"), "");
}

#[test]
fn write_as_json_says_what_is_there_now() {
    let stage = Stage::new();
    let written = stage.json(&["fs", "write", "a", "--content", "four", "--json"]);
    let stat = stage.json(&["fs", "stat", "a", "--json"]);
    assert_eq!((&written["path"], &written["size"]), (&json!("a"), &json!(4)));
    assert_eq!(written["version"], stat["version"]);
}

#[test]
fn write_can_insist_on_a_new_file_or_a_version() {
    let stage = Stage::with(&[("a", "old")]);
    let ran = stage.run(&["fs", "write", "a", "--content", "x", "--create-new"]);
    ran.expect_error(1, "'a'");
    let before = version(&stage, "a");
    let write =
        |content| stage.run(&["fs", "write", "a", "--content", content, "--expect", &before]);
    assert_eq!(write("new").code, 0);
    let ran = write("newer");
    ran.expect_error(1, "version");
    assert_eq!(stage.text("a"), "new");
    let ran = stage.run(&["fs", "write", "a", "--content", "x", "--expect", &before, "--json"]);
    assert_eq!((ran.code, ran.error()["code"].clone()), (1, json!("CONFLICT")));
    let ran = stage.run(&["fs", "write", "a", "--content", "x", "--expect", "latest"]);
    ran.expect_error(2, "32 hexadecimal digits");
    assert_eq!(stage.names("."), ["a"]);
}

#[test]
fn edit_prints_the_change_as_a_diff() {
    let stage = Stage::with(&[("a.txt", "one\ntwo\nthree\n")]);
    let ran = stage.run(&["fs", "edit", "a.txt", "--old", "two", "--new", "2 $1"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let diff = ran.text();
    assert!(diff.contains("\n-two\n+2 $1\n three\n"), "{diff}");
    assert_eq!(ran.err, "note: replaced 1 occurrence in 'a.txt'\n");
    assert_eq!(stage.text("a.txt"), "one\n2 $1\nthree\n");
}

#[test]
fn edit_wants_one_occurrence_unless_told() {
    let stage = Stage::with(&[("a", "x x x")]);
    let edit = |more: &[&str]| {
        let fixed = ["fs", "edit", "a", "--old", "x", "--new", "y"];
        stage.run(&[&fixed[..], more].concat())
    };
    edit(&[]).expect_error(1, "3");
    let ran = edit(&["--json"]);
    assert_eq!((ran.code, ran.error()["kind"].clone()), (1, json!("ambiguous")));
    assert_eq!(stage.text("a"), "x x x");
    assert_eq!(edit(&["--first", "--dry-run"]).err, "note: would replace 1 occurrence in 'a'\n");
    assert_eq!(stage.text("a"), "x x x");
    assert_eq!(edit(&["--first"]).code, 0);
    assert_eq!(stage.text("a"), "y x x");
    let ran = edit(&["--all", "--json"]);
    let value = ran.value();
    assert_eq!((ran.code, stage.text("a").as_str()), (0, "y y y"));
    assert_eq!(
        value,
        json!({
            "path": "a",
            "replaced": 2,
            "dry_run": false,
            "diff": value["diff"],
            "version": version(&stage, "a"),
        })
    );
    let ran = edit(&["--json"]);
    assert_eq!((ran.code, ran.error()["kind"].clone()), (1, json!("no_match")));
    edit(&["--all", "--first"]).expect_error(2, "cannot be used with");
}

#[test]
fn edit_takes_several_edits_all_or_none() {
    let stage = Stage::with(&[("a", "one two two")]);
    let edits = r#"[{"old":"one","new":"1"},{"old":"two","new":"2","all":true}]"#;
    fs::write(stage.outside("edits.json"), edits).unwrap();
    let file = stage.outside("edits.json").into_os_string().into_string().unwrap();
    let preview = stage.run(&["fs", "edit", "a", "--edits", &file, "--dry-run", "--json"]).value();
    assert_eq!(
        (&preview["replaced"], &preview["dry_run"], &preview["version"]),
        (&json!(3), &json!(true), &json!(null))
    );
    assert_eq!(stage.run(&["fs", "edit", "a", "--edits", &file]).code, 0);
    assert_eq!(stage.text("a"), "1 2 2");
    let failing = br#"[{"old":"1","new":"one"},{"old":"three","new":"3"}]"#;
    let ran = stage.run_with(&["fs", "edit", "a", "--edits", "-"], failing);
    ran.expect_error(1, "edit 2 of 2");
    assert_eq!(stage.text("a"), "1 2 2");
    stage.run_with(&["fs", "edit", "a", "--edits", "-"], b"{}").expect_error(2, "not an array");
    stage.run(&["fs", "edit", "a", "--edits", "gone.json"]).expect_error(1, "gone.json");
    stage.run(&["fs", "edit", "a", "--old", "x"]).expect_error(2, "--new");
    stage.run(&["fs", "edit", "a"]).expect_error(2, "--old");
}

#[test]
fn edit_can_insist_on_a_version() {
    let stage = Stage::with(&[("a", "x")]);
    let before = version(&stage, "a");
    assert_eq!(stage.run(&["fs", "write", "a", "--content", "x y"]).code, 0);
    let ran =
        stage.run(&["fs", "edit", "a", "--old", "x", "--new", "z", "--expect", &before, "--json"]);
    assert_eq!((ran.code, ran.error()["kind"].clone()), (1, json!("conflict")));
    assert_eq!(stage.text("a"), "x y");
}

#[test]
fn rm_removes_what_it_is_told() {
    let stage = Stage::with(&[("a", ""), ("b", ""), ("d/e/f", "")]);
    let ran = stage.run(&["fs", "rm", "a", "b"]);
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (0, "", ""));
    let ran = stage.run(&["fs", "rm", "d"]);
    ran.expect_error(1, "'d'");
    assert!(
        ran.err.contains("hint: to remove it with its content, pass --recursive"),
        "{}",
        ran.err
    );
    stage.run(&["fs", "rm", "a"]).expect_error(1, "'a'");
    assert_eq!(stage.json(&["fs", "rm", "-f", "a", "--json"]), json!({"path": "a", "removed": 0}));
    let ran = stage.run(&["fs", "rm", "-r", "d"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "note: removed 'd': 3 entries\n"));
    assert!(stage.names(".").is_empty());
}

#[test]
fn rm_as_json_lists_what_worked() {
    let stage = Stage::with(&[("a", ""), ("c", "")]);
    let ran = stage.run(&["fs", "rm", "a", "b", "c", "--json"]);
    assert_eq!(ran.code, 1);
    let expect = json!([{"path": "a", "removed": 1}, {"path": "c", "removed": 1}]);
    assert_eq!(ran.value(), expect);
    assert_eq!(ran.error()["path"], "b");
}

#[test]
fn mv_moves_and_replaces_only_when_told() {
    let stage = Stage::with(&[("a", "A"), ("b", "B")]);
    let ran = stage.run(&["fs", "mv", "a", "b"]);
    ran.expect_error(1, "'b'");
    assert!(ran.err.contains("hint: to replace it, pass --force"), "{}", ran.err);
    assert_eq!(
        stage.json(&["fs", "mv", "a", "b", "--force", "--json"]),
        json!({ "from": "a", "to": "b", "atomic": true })
    );
    assert_eq!(stage.text("b"), "A");
    assert_eq!(stage.run(&["fs", "mkdir", "d"]).code, 0);
    assert_eq!(stage.run(&["fs", "mv", "b", "d/c"]).code, 0);
    assert_eq!((stage.names("."), stage.text("d/c").as_str()), (vec!["d".to_owned()], "A"));
    stage.run(&["fs", "mv", "nothing", "x"]).expect_error(1, "'nothing'");
}

#[test]
fn a_move_that_meets_something_says_what_would_help() {
    let stage = Stage::with(&[("a", "A"), ("d/x", "X"), ("e/y", "Y")]);
    for (words, hint) in [
        (["fs", "mv", "a", "d"], "to move it into the directory, name the full new path"),
        (
            ["fs", "mv", "d", "e"],
            "name a path inside it, or pass --force to replace it if it is empty",
        ),
        (["fs", "mv", "d", "a"], "a directory cannot replace a file"),
    ] {
        for force in [None, Some("--force")] {
            let words: Vec<&str> = words.into_iter().chain(force).collect();
            let ran = stage.run(&words);
            assert_eq!(ran.code, 1, "{words:?}");
            let is_full = force.is_some() && ran.err.contains("is not empty");
            assert!(is_full || ran.err.contains(hint), "{words:?}: {}", ran.err);
        }
    }
    assert_eq!((stage.text("a"), stage.text("d/x")), ("A".to_owned(), "X".to_owned()));
}

#[test]
fn mkdir_and_touch_make_what_is_missing() {
    let stage = Stage::with(&[("a", "stays")]);
    assert_eq!(stage.run(&["fs", "mkdir", "x/y", "x"]).code, 0);
    assert_eq!(stage.run(&["fs", "touch", "x/y/z", "a"]).code, 0);
    assert_eq!((stage.text("x/y/z").as_str(), stage.text("a").as_str()), ("", "stays"));
    let expect = json!([{ "path": "p" }, { "path": "q/r" }]);
    assert_eq!(stage.json(&["fs", "mkdir", "p", "q/r", "--json"]), expect);
    let touched = stage.json(&["fs", "touch", "new", "--json"]);
    assert_eq!((&touched["kind"], &touched["size"]), (&json!("file"), &json!(0)));
    stage.run(&["fs", "mkdir", "a/b"]).expect_error(1, "'a/b'");
    let ran = stage.run(&["fs", "mkdir", "a", "ok"]);
    assert_eq!((ran.code, stage.path("ok").is_dir()), (1, true));
}
