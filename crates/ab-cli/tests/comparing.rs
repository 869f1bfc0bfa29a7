//! `diff`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::stage::Stage;

/// Two directories with one of each difference.
fn versions() -> Stage {
    let stage = Stage::with(&[
        ("a/blob", "\0one"),
        ("a/gone.txt", "gone\n"),
        ("a/kind/x", ""),
        ("a/same", "same\n"),
        ("a/src/main.rs", "one\ntwo\n"),
        ("b/blob", "\0two"),
        ("b/kind", ""),
        ("b/new/file.txt", "hello\n"),
        ("b/same", "same\n"),
        ("b/src/main.rs", "one\n2\nthree\n"),
    ]);
    symlink("x", stage.path("a/link")).unwrap();
    symlink("y", stage.path("b/link")).unwrap();
    stage
}

#[test]
fn two_files_are_compared_by_line() {
    let stage = versions();
    let ran = stage.run(&["fs", "diff", "a/src/main.rs", "b/src/main.rs"]);
    let diff = "--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+three\n";
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (1, diff, ""));
    let ran = stage.run(&["fs", "diff", "a/same", "b/same"]);
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (0, "", ""));
    let ran = stage.run(&["fs", "diff", "a/blob", "b/blob"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "changed a/blob → b/blob (binary)\n"));
    let ran = stage.run(&["fs", "diff", "a", "b/same"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "changed a → b/same (directory → file)\n"));
    let ran = stage.run(&["fs", "diff", "a/same", "b/blob", "--name-only"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "a/same → b/blob\n"));
}

#[test]
fn two_directories_are_compared_with_all_they_hold() {
    let stage = versions();
    let ran = stage.run(&["fs", "diff", "a", "b"]);
    let expect = "\
changed blob (binary)
removed gone.txt
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
changed kind (directory → file)
removed kind/x
changed link (link to x → link to y)
added new/
added new/file.txt
--- /dev/null
+++ b/new/file.txt
@@ -0,0 +1 @@
+hello
changed src/main.rs
--- a/src/main.rs
+++ b/src/main.rs
@@ -1,2 +1,3 @@
 one
-two
+2
+three
";
    assert_eq!((ran.code, ran.text().as_str()), (1, expect));
    assert_eq!(ran.err, "note: 2 added, 4 changed, 2 removed; lines +3 -2\n");
    let ran = stage.run(&["fs", "diff", "a", "/a/../a"]);
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (0, "", ""));
}

#[test]
fn a_diff_can_be_short() {
    let stage = versions();
    let ran = stage.run(&["fs", "diff", "a", "b", "--name-only"]);
    let names = "blob\ngone.txt\nkind\nkind/x\nlink\nnew/\nnew/file.txt\nsrc/main.rs\n";
    assert_eq!((ran.code, ran.text().as_str()), (1, names));
    assert_eq!(ran.err, "note: 2 added, 4 changed, 2 removed\n");
    let ran = stage.run(&["fs", "diff", "a", "b", "--stat"]);
    let expect = "\
changed  binary        blob
removed  +0 -1         gone.txt
changed  kind          kind
removed  +0 -0         kind/x
changed  symlink       link
added    directory     new/
added    +1 -0         new/file.txt
changed  +2 -1         src/main.rs
";
    assert_eq!((ran.code, ran.text().as_str()), (1, expect));
    stage.run(&["fs", "diff", "a", "b", "--stat", "--name-only"]).expect_error(2, "cannot be used");
}

#[test]
fn a_diff_as_json_is_one_object() {
    let stage = versions();
    let ran = stage.run(&["fs", "diff", "a/src", "b/src", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let diff = "--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+three\n";
    assert_eq!(
        ran.value(),
        json!({
            "from": "a/src",
            "to": "b/src",
            "equal": false,
            "changes": [{
                "path": "main.rs",
                "change": "changed",
                "from": { "kind": "file", "size": 8, "target": null, "mode": null },
                "to": { "kind": "file", "size": 12, "target": null, "mode": null },
                "content": "text",
                "insertions": 2,
                "deletions": 1,
                "diff": diff,
            }],
            "truncated": null,
            "problems": [],
        })
    );
    let all = stage.run(&["fs", "diff", "a", "b", "--json"]).value();
    let of = |path: &str| {
        let changes = all["changes"].as_array().unwrap();
        changes.iter().find(|change| change["path"] == path).unwrap().clone()
    };
    assert_eq!((&of("blob")["content"], &of("blob")["diff"]), (&json!("binary"), &json!(null)));
    assert_eq!((&of("new")["change"], &of("new")["from"]), (&json!("added"), &json!(null)));
    assert_eq!(
        (&of("gone.txt")["change"], &of("gone.txt")["to"]),
        (&json!("removed"), &json!(null))
    );
    assert_eq!(
        of("link")["to"],
        json!({ "kind": "symlink", "size": 1, "target": "y", "mode": null })
    );
    let short = stage.run(&["fs", "diff", "a/src", "b/src", "--stat", "--json"]).value();
    let change = &short["changes"][0];
    assert_eq!((&change["insertions"], &change["diff"]), (&json!(2), &json!(null)));
    let file = stage.run(&["fs", "diff", "a/same", "b/blob", "--json"]).value();
    assert_eq!(file["changes"][0]["path"], ".");
    let same = stage.json(&["fs", "diff", "a/same", "b/same", "--json"]);
    assert_eq!((&same["equal"], &same["changes"]), (&json!(true), &json!([])));
}

#[test]
fn large_files_are_only_said_to_differ() {
    let stage = Stage::new();
    let text = "line\n".repeat(300_000);
    for name in ["a", "b", "c", "d"] {
        fs::write(stage.path(name), &text).unwrap();
    }
    fs::write(stage.path("c"), text.replacen("line", "lime", 1)).unwrap();
    fs::write(stage.path("d"), &text[1..]).unwrap();
    let diff = |other: &str| {
        let ran = stage.run(&["fs", "diff", "a", other]);
        assert_eq!(ran.err, "");
        (ran.code, ran.text())
    };
    assert_eq!(diff("b"), (0, String::new()));
    assert_eq!(diff("c"), (1, "changed a → c (larger than 1 MiB)\n".to_owned()));
    assert_eq!(diff("d"), (1, "changed a → d (larger than 1 MiB)\n".to_owned()));
    let limit = "x".repeat(1024 * 1024);
    fs::write(stage.path("e"), &limit).unwrap();
    fs::write(stage.path("f"), &limit[1..]).unwrap();
    assert!(stage.run(&["fs", "diff", "e", "f"]).text().starts_with("--- e\n+++ f\n"));
}

#[test]
fn a_diff_that_was_cut_says_so() {
    let stage = Stage::with(&[("a/1", ""), ("a/2", ""), ("b/1", ""), ("b/2", "x"), ("b/3", "y")]);
    let ran = stage.run(&["fs", "diff", "a", "b", "--limit", "1"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""), "nobody knows whether they are equal");
    assert_eq!(ran.err, "note: stopped after 1 entry; to compare more, raise --limit\n");
    let value = stage.run(&["fs", "diff", "a", "b", "--limit", "1", "--json"]).value();
    assert_eq!((&value["equal"], &value["truncated"]), (&json!(false), &json!("count")));
    let ran = stage.run(&["fs", "diff", "a", "b", "--bytes", "80"]);
    let text = ran.text();
    assert!(text.contains("\n+x\n") && text.contains("added 3 (diff left out)\n"), "{text}");
    assert!(
        ran.err.starts_with(
            "note: diffs after the first 80 bytes are omitted; to see more, raise --bytes"
        ),
        "{}",
        ran.err
    );
    let value = stage.run(&["fs", "diff", "a", "b", "--bytes", "80", "--json"]).value();
    assert_eq!(
        (&value["changes"][1]["content"], &value["truncated"]),
        (&json!("left_out"), &json!("bytes"))
    );
    stage.run(&["fs", "diff", "a", "b", "--limit", "0"]).expect_error(2, "at least 1");
}

#[test]
fn what_cannot_be_compared_is_told() {
    let stage = Stage::with(&[("a/x", ""), ("b/x", "")]);
    fs::write(stage.path("a").join(OsStr::from_bytes(b"bad\xff")), "").unwrap();
    let ran = stage.run(&["fs", "diff", "a", "b"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""));
    assert!(ran.err.starts_with("warning: ") && ran.err.contains("UTF-8"), "{}", ran.err);
    let fifo = |path: &str| {
        let made = std::process::Command::new("mkfifo").arg(stage.path(path)).status().unwrap();
        assert!(made.success());
    };
    fifo("p");
    fifo("q");
    let ran = stage.run(&["fs", "diff", "p", "q"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""));
    assert!(ran.err.starts_with("warning: read 'q': special files"), "{}", ran.err);
    let value = stage.run(&["fs", "diff", "p", "q", "--json"]).value();
    assert_eq!(value["problems"][0]["error"]["kind"], "special_file", "{value}");
}

#[test]
fn what_is_not_there_cannot_be_compared() {
    let stage = Stage::with(&[("a", "")]);
    stage.run(&["fs", "diff", "a", "gone"]).expect_error(1, "'gone'");
    stage.run(&["fs", "diff", "gone", "a"]).expect_error(1, "'gone'");
    stage.run(&["fs", "diff", "a"]).expect_error(2, "<TO>");
}

#[test]
fn a_name_cannot_forge_a_change() {
    let stage = Stage::with(&[("a/x", ""), ("b/x", ""), ("b/y\nremoved x", "1\n")]);
    let text = stage.run(&["fs", "diff", "a", "b"]).text();
    let head = "added y\\nremoved x\n--- /dev/null\n+++ \"b/y\\nremoved x\"\n";
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn links_are_compared_and_not_followed() {
    let stage = Stage::with(&[("a/x", "1"), ("b/x", "2")]);
    fs::write(stage.outside("secret"), "secret").unwrap();
    symlink("../../secret", stage.path("a/link")).unwrap();
    symlink("../../secret", stage.path("b/link")).unwrap();
    let ran = stage.run(&["fs", "diff", "a", "b", "--name-only"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "x\n"));
    symlink("a/x", stage.path("way")).unwrap();
    assert_eq!(stage.run(&["fs", "diff", "a/x", "way"]).code, 0, "the path itself is followed");
}

/// An upper directory beside the workspace, with one of each change.
fn overlaid() -> Stage {
    let stage = Stage::with(&[
        ("blob", "\0one"),
        ("gone.txt", "gone\n"),
        ("old/x", "x\n"),
        ("run.sh", "true\n"),
        ("same", "same\n"),
        ("src/main.rs", "one\ntwo\n"),
    ]);
    symlink("x", stage.path("link")).unwrap();
    let upper = stage.outside("upper");
    for directory in ["src", "new"] {
        fs::create_dir_all(upper.join(directory)).unwrap();
    }
    for (path, content) in [
        (".ab-wh-gone.txt", ""),
        (".ab-wh-old", ""),
        ("blob", "\0two"),
        ("new/file.txt", "hello\n"),
        ("run.sh", "true\n"),
        ("same", "same\n"),
        ("src/main.rs", "one\n2\nthree\n"),
    ] {
        fs::write(upper.join(path), content).unwrap();
    }
    symlink("y", upper.join("link")).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(upper.join("run.sh"), executable).unwrap();
    stage
}

#[test]
fn an_overlay_is_compared_with_what_is_below_it() {
    let stage = overlaid();
    let ran = stage.run(&["fs", "diff", "--upper", "../upper"]);
    let expect = "\
changed blob (binary)
removed gone.txt
--- gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
changed link (link to x → link to y)
added new/
added new/file.txt
--- /dev/null
+++ new/file.txt
@@ -0,0 +1 @@
+hello
removed old/
changed run.sh (mode 0644 → 0755)
changed src/main.rs
--- src/main.rs
+++ src/main.rs
@@ -1,2 +1,3 @@
 one
-two
+2
+three
";
    assert_eq!((ran.code, ran.text().as_str()), (1, expect));
    assert_eq!(ran.err, "note: 2 added, 4 changed, 2 removed; lines +3 -2\n");
    assert_eq!(stage.text("src/main.rs"), "one\ntwo\n", "nothing was written");
    let ran = stage.run(&["fs", "diff", "--upper", "../upper", "--stat"]);
    let expect = "\
changed  binary        blob
removed  +0 -1         gone.txt
changed  symlink       link
added    directory     new/
added    +1 -0         new/file.txt
removed  directory     old/
changed  mode          run.sh
changed  +2 -1         src/main.rs
";
    assert_eq!((ran.code, ran.text().as_str()), (1, expect));
    let ran = stage.run(&["fs", "diff", "--upper", "../upper", "--name-only", "--limit", "2"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "blob\ngone.txt\n"));
    assert!(
        ran.err.starts_with("note: stopped after 2 entries; to compare more, raise --limit"),
        "{}",
        ran.err
    );
}

#[test]
fn an_overlay_as_json_has_the_shape_of_a_diff() {
    let stage = overlaid();
    let value = stage.run(&["fs", "diff", "--upper", "../upper", "--json"]).value();
    assert_eq!((&value["from"], &value["to"]), (&json!("."), &json!(".")));
    let changes = value["changes"].as_array().unwrap();
    let of = |path: &str| changes.iter().find(|change| change["path"] == path).unwrap();
    assert_eq!(
        *of("run.sh"),
        json!({
            "path": "run.sh",
            "change": "changed",
            "from": { "kind": "file", "size": 5, "target": null, "mode": "0644" },
            "to": { "kind": "file", "size": 5, "target": null, "mode": "0755" },
            "content": null,
            "insertions": null,
            "deletions": null,
            "diff": null,
        })
    );
    assert_eq!((&of("old")["change"], &of("old")["to"]), (&json!("removed"), &json!(null)));
    assert_eq!(of("src/main.rs")["insertions"], 2);
    assert!(changes.iter().all(|change| change["path"] != "same"), "{value}");
    fs::create_dir(stage.outside("empty")).unwrap();
    let same = stage.json(&["fs", "diff", "--upper", "../empty", "--json"]);
    assert_eq!((&same["equal"], &same["changes"]), (&json!(true), &json!([])));
}

#[test]
fn an_upper_directory_belongs_to_the_scope() {
    let stage = overlaid();
    let upper = stage.outside("upper").join("src");
    let ran = stage.run(&[
        OsStr::new("fs"),
        OsStr::new("diff"),
        OsStr::new("--scope=src"),
        OsStr::new("--name-only"),
        OsStr::new("--upper"),
        upper.as_os_str(),
    ]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "main.rs\n"), "{}", ran.err);
}

#[test]
fn an_upper_directory_must_be_one() {
    let stage = overlaid();
    let ran = stage.run(&["fs", "diff", "--upper", "../none"]);
    ran.expect_error(1, "cannot open the workspace root ../none");
    assert!(ran.err.contains("name another with --upper"), "{}", ran.err);
    stage.run(&["fs", "diff", "--upper", "same"]).expect_error(1, "with --upper");
    stage.run(&["fs", "diff", "--upper", "../upper", "a"]).expect_error(2, "cannot be used with");
    stage.run(&["fs", "diff", "--upper", ""]).expect_error(2, "a value is required");
}
