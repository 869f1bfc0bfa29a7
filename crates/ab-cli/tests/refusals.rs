//! Paths and workspaces that are refused: nothing is touched, and the reason is told.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::stage::Stage;

/// Every command that takes a path, with `path` in its place.
fn commands(path: &OsStr) -> Vec<Vec<&OsStr>> {
    let lines: &[&[&str]] = &[
        &["ls", "{}"],
        &["tree", "{}"],
        &["tree", "{}", "--exclude", "x"],
        &["glob", "*", "{}"],
        &["grep", "secret", "{}"],
        &["cat", "{}"],
        &["cat", "{}", "--limit", "1"],
        &["write", "{}", "--content", "gotcha"],
        &["edit", "{}", "--old", "secret", "--new", "gotcha"],
        &["diff", "{}", "inside"],
        &["diff", "inside", "{}"],
        &["rm", "{}"],
        &["rm", "-r", "-f", "{}"],
        &["mv", "{}", "stolen"],
        &["mv", "inside", "{}", "--force"],
        &["mkdir", "{}"],
        &["stat", "{}"],
        &["touch", "{}"],
    ];
    let word = |word: &'static str| if word == "{}" { path } else { OsStr::new(word) };
    let line = |line: &&'static [&'static str]| {
        [OsStr::new("fs")].into_iter().chain(line.iter().copied().map(word)).collect()
    };
    lines.iter().map(line).collect()
}

fn hostile() -> Stage {
    let stage =
        Stage::with(&[("inside", "mine"), ("scope/own", "own"), ("other/theirs", "theirs")]);
    fs::write(stage.outside("secret"), "secret").unwrap();
    fs::create_dir(stage.outside("elsewhere")).unwrap();
    fs::write(stage.outside("elsewhere/secret"), "secret").unwrap();
    symlink("../secret", stage.path("link")).unwrap();
    symlink(stage.outside("secret"), stage.path("absolute")).unwrap();
    symlink("../elsewhere", stage.path("door")).unwrap();
    symlink("../other", stage.path("scope/sideways")).unwrap();
    stage
}

#[track_caller]
fn expect_untouched(stage: &Stage) {
    assert_eq!(fs::read_to_string(stage.outside("secret")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(stage.outside("elsewhere/secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(stage.outside("elsewhere")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(stage.outside("")).unwrap().count(), 3);
    assert_eq!(stage.text("inside"), "mine");
    assert_eq!(stage.text("other/theirs"), "theirs");
    let names = ["absolute", "door", "inside", "link", "other", "scope"];
    assert_eq!(stage.names("."), names);
    assert_eq!(stage.names("scope"), ["own", "sideways"]);
}

#[test]
fn paths_that_climb_out_are_refused_by_every_command() {
    let stage = hostile();
    for path in ["../secret", "../../etc/passwd", "scope/../../secret", "..", "door/../../secret"] {
        for line in commands(OsStr::new(path)) {
            let ran = stage.run(&line);
            assert_eq!((ran.code, ran.text().as_str()), (3, ""), "{line:?}: {}", ran.err);
            assert!(ran.err.contains("leaves the workspace"), "{line:?}: {}", ran.err);
        }
    }
    expect_untouched(&stage);
    let ran = stage.run(&["fs", "cat", "../secret", "--json"]);
    let error = ran.error();
    assert_eq!(
        (&error["code"], &error["kind"], &error["path"]),
        (&json!("PATH_ESCAPE_ATTEMPT"), &json!("escape"), &json!("../secret"))
    );
}

#[test]
fn links_that_leave_are_refused() {
    let stage = hostile();
    for path in ["link", "absolute", "door/secret", "door/new"] {
        for line in [
            vec!["fs", "cat", path],
            vec!["fs", "stat", path],
            vec!["fs", "grep", "secret", path],
            vec!["fs", "diff", path, "inside"],
            vec!["fs", "diff", "inside", path],
            vec!["fs", "edit", path, "--old", "secret", "--new", "x"],
            vec!["fs", "write", path, "--content", "x"],
            vec!["fs", "touch", path],
        ] {
            let ran = stage.run(&line);
            assert_eq!((ran.code, ran.text().as_str()), (3, ""), "{line:?}: {}", ran.err);
        }
    }
    for line in [
        &["fs", "ls", "door"][..],
        &["fs", "tree", "door"],
        &["fs", "glob", "*", "door"],
        &["fs", "grep", "secret", "door"],
        &["fs", "diff", "door", "scope"],
        &["fs", "mkdir", "door/new"],
    ] {
        assert_eq!(stage.run(line).code, 3, "{line:?}");
    }
    for line in [["fs", "grep", "secret"], ["fs", "grep", "theirs"]] {
        let out = stage.run(&line).text();
        assert!(!out.contains("secret:") && !out.contains("sideways"), "{out}");
    }
    expect_untouched(&stage);
    // A link may be removed, and what it leads to stays.
    assert_eq!(stage.run(&["fs", "rm", "-r", "door"]).code, 0);
    assert!(stage.outside("elsewhere/secret").exists());
}

#[test]
fn absolute_paths_are_taken_from_the_root() {
    let stage = hostile();
    let host = stage.path("inside").into_os_string();
    assert_eq!(stage.out(&[OsStr::new("fs"), OsStr::new("cat"), &host]), "mine");
    assert_eq!(stage.out(&["fs", "cat", "/inside"]), "mine");
    let secret = stage.outside("secret").into_os_string();
    let ran = stage.run(&[OsStr::new("fs"), OsStr::new("cat"), &secret]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""), "no such file inside: {}", ran.err);
}

#[test]
fn a_scope_is_all_there_is() {
    let stage = hostile();
    assert_eq!(stage.out(&["fs", "--scope", "scope", "cat", "own"]), "own");
    assert_eq!(stage.out(&["fs", "cat", "own", "--scope", "scope"]), "own");
    assert_eq!(stage.out(&["fs", "ls", "/", "--scope", "scope"]), "own\nsideways\n");
    for path in ["../inside", "../other/theirs", "sideways/theirs", "/../inside"] {
        let ran = stage.run(&["fs", "cat", "--scope", "scope", path]);
        assert_eq!((ran.code, ran.text().as_str()), (3, ""), "{path}: {}", ran.err);
    }
    for scope in ["..", "../elsewhere", "scope/../.."] {
        let ran = stage.run(&["fs", "ls", "--scope", scope]);
        assert_eq!((ran.code, ran.text().as_str()), (3, ""), "{scope}: {}", ran.err);
    }
    let ran = stage.run(&["fs", "ls", "--scope", "door"]);
    assert_eq!((ran.code, ran.text().as_str()), (3, ""), "{}", ran.err);
    expect_untouched(&stage);
    assert_eq!(stage.run(&["fs", "write", "a", "--content", "x", "--scope", "new/one"]).code, 0);
    assert_eq!(stage.text("new/one/a"), "x");
}

#[test]
fn paths_that_are_none_are_refused_by_every_command() {
    let stage = hostile();
    let long = "x".repeat(5000);
    let broken = OsStr::from_bytes(b"caf\xe9");
    for (path, reason) in [
        (OsStr::new(""), "empty"),
        (OsStr::new(&long), "longer than"),
        (OsStr::new(".ab-tmp-1"), "reserved"),
        (broken, "not valid UTF-8"),
    ] {
        for line in commands(path) {
            let ran = stage.run(&line);
            assert_eq!((ran.code, ran.text().as_str()), (3, ""), "{line:?}: {}", ran.err);
            assert!(ran.err.contains(reason), "{line:?}: {}", ran.err);
        }
    }
    let line = [OsStr::new("fs"), OsStr::new("cat"), OsStr::new("--json"), broken];
    let error = stage.run(&line).error();
    assert_eq!((&error["code"], &error["path"]), (&json!("INVALID_PATH"), &json!("caf\u{fffd}")));
    let line = [OsStr::new("fs"), OsStr::new("ls"), OsStr::new("--scope"), broken];
    stage.run(&line).expect_error(3, "not valid UTF-8");
    expect_untouched(&stage);
}

#[test]
fn a_name_that_is_not_utf8_is_reported_and_hurts_nothing() {
    let stage = Stage::with(&[("good", "")]);
    fs::write(stage.root().join(OsStr::from_bytes(b"bad\xff")), "").unwrap();
    let ran = stage.run(&["fs", "ls"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "good\n"));
    assert!(ran.err.starts_with("warning: "), "{}", ran.err);
    let value = stage.json(&["fs", "ls", "--json"]);
    assert_eq!(value["problems"].as_array().unwrap().len(), 1);
    assert_eq!(value["problems"][0]["error"]["code"], "INVALID_PATH", "{value}");
}

#[test]
fn a_missing_root_says_what_to_do() {
    let stage = Stage::new();
    let ran = stage.run(&["fs", "ls", "--root", "gone"]);
    ran.expect_error(1, "gone");
    assert!(ran.err.contains("hint: create the directory, or name another"), "{}", ran.err);
    let error = stage.run(&["fs", "ls", "--root", "gone", "--json"]).error();
    assert_eq!(error["code"], "INVALID_CONFIGURATION");
    fs::write(stage.path("file"), "").unwrap();
    let ran = stage.run(&["fs", "ls", "--root", "file"]);
    ran.expect_error(1, "file");
    assert!(ran.err.contains("hint: name a directory with --root"), "{}", ran.err);
    stage.run(&["fs", "ls", "--root", ""]).expect_error(2, "--root");
}

#[test]
fn the_root_comes_from_flag_then_environment_then_here() {
    let stage = Stage::with(&[("a/flag", ""), ("b/environment", "")]);
    let ls = |arguments: &[&str], variable: &str| {
        let mut command = stage.command(crate::stage::BINARY);
        command.args(["fs", "ls"]).args(arguments).env("AGENT_BACKEND_ROOT", variable);
        crate::stage::run(command, b"").text()
    };
    assert_eq!(ls(&["--root", "a"], "b"), "flag\n");
    assert_eq!(ls(&[], "b"), "environment\n");
    assert_eq!(ls(&[], ""), "a/\nb/\n");
    let root: OsString = stage.path("a").into();
    let line = [OsStr::new("fs"), OsStr::new("--root"), &root, OsStr::new("ls")];
    assert_eq!(stage.out(&line), "flag\n");
}

#[test]
fn a_root_that_is_not_utf8_works() {
    let stage = Stage::new();
    let root = stage.root().join(OsStr::from_bytes(b"caf\xe9"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a"), "x").unwrap();
    let line = [OsStr::new("fs"), OsStr::new("cat"), OsStr::new("a"), OsStr::new("--root")];
    let line = [&line[..], &[root.as_os_str()]].concat();
    assert_eq!(stage.out(&line), "x");
}
