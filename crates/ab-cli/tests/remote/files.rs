//! The files of a workspace elsewhere are those of one here: the same words, the same answers.

use super::{Far, WAYS};
use crate::stage::Stage;

const FILES: [(&str, &str); 5] = [
    ("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n"),
    ("src/lib.rs", "pub fn answer() -> u32 {\n    42\n}\n"),
    ("notes/plan.md", "# Plan\n\nLook around.\n"),
    ("notes/plan2.md", "# Plan\n\nBuild.\n"),
    ("odd name.txt", "odd\n"),
];

#[test]
fn looking_is_the_same_as_here() {
    let stage = Stage::with(&FILES);
    let far = Far::start(&stage);
    for words in [
        &["fs", "ls"][..],
        &["fs", "ls", "src", "--json"],
        &["fs", "ls", "-l", "notes"],
        &["fs", "tree"],
        &["fs", "tree", "--json"],
        &["fs", "cat", "src/main.rs"],
        &["fs", "cat", "src/main.rs", "src/lib.rs", "-n"],
        &["fs", "cat", "src/lib.rs", "--offset", "1", "--limit", "1"],
        &["fs", "cat", "odd name.txt", "--json"],
        &["fs", "cat", "main.rs", "--scope", "src"],
        &["fs", "stat", "src/main.rs", "--json"],
        &["fs", "stat", "notes"],
        &["fs", "glob", "**/*.rs"],
        &["fs", "glob", "*.md", "notes", "--json"],
        &["fs", "grep", "fn \\w+"],
        &["fs", "grep", "Plan", "notes", "-C", "1"],
        &["fs", "grep", "nothing like it"],
        &["fs", "diff", "notes/plan.md", "notes/plan2.md"],
        &["fs", "diff", "src", "src", "--json"],
        &["fs", "cat", "no/such/file"],
        &["fs", "cat", "src"],
        &["fs", "cat", "../token"],
        &["fs", "stat", "no", "--json"],
        &["fs", "rm", "src"],
        &["fs", "mv", "no", "other"],
    ] {
        let here = stage.run(words);
        for way in WAYS {
            let there = far.run(&stage, way, words);
            let what = format!("{words:?} by {way:?}: {}", there.err);
            assert_eq!((there.code, there.text()), (here.code, here.text()), "{what}");
            assert_eq!(there.err, here.err, "{what}");
        }
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn changes_are_made_over_there() {
    for way in WAYS {
        let stage = Stage::new();
        let far = Far::start(&stage);
        let ran = far.run_with(&stage, way, &["fs", "write", "a/b.txt"], b"one\ntwo\n");
        assert_eq!((ran.code, ran.err.as_str()), (0, "note: wrote 8 bytes to 'a/b.txt'\n"));
        assert_eq!(stage.text("a/b.txt"), "one\ntwo\n");
        let edit = ["fs", "edit", "a/b.txt", "--old", "two", "--new", "three"];
        assert!(far.out(&stage, way, &edit).contains("-two\n+three\n"));
        assert_eq!(stage.text("a/b.txt"), "one\nthree\n");
        far.out(&stage, way, &["fs", "mkdir", "c/d"]);
        far.out(&stage, way, &["fs", "touch", "c/e"]);
        far.out(&stage, way, &["fs", "mv", "a/b.txt", "c/f"]);
        assert_eq!(stage.names("c"), ["d", "e", "f"]);
        let new = ["fs", "write", "c/f", "--content", "x", "--create-new"];
        far.run(&stage, way, &new).expect_error(1, "write 'c/f'");
        let version = stage.json(&["fs", "stat", "c/f", "--json"])["version"].clone();
        let expect =
            ["fs", "write", "c/f", "--content", "y", "--expect", version.as_str().unwrap()];
        far.out(&stage, way, &expect);
        let late = far.run(&stage, way, &expect);
        assert_eq!(late.code, 1, "{}", late.err);
        far.out(&stage, way, &["fs", "rm", "-r", "a", "c"]);
        assert!(stage.names("").is_empty());
        // Nothing of it was done where the commands ran.
        assert_eq!(std::fs::read_dir(&far.here).unwrap().count(), 0);
        assert_eq!(far.daemon.end().0, 0);
    }
}

#[test]
fn the_root_is_one_over_there() {
    let stage = Stage::with(&FILES);
    let far = Far::start(&stage);
    let (root, inner) = (stage.root(), stage.path("notes"));
    let (root, inner) = (root.to_str().unwrap(), inner.to_str().unwrap());
    for way in WAYS {
        let listed = far.out(&stage, way, &["fs", "ls", "--root", inner]);
        assert_eq!(listed, "plan.md\nplan2.md\n");
        let listed = far.out(&stage, way, &["fs", "ls", "--root", root, "--scope", "notes"]);
        assert_eq!(listed, "plan.md\nplan2.md\n");
        let read =
            far.out(&stage, way, &["fs", "cat", "--root", root, &format!("{inner}/plan.md")]);
        assert_eq!(read, FILES[2].1);
        let ran = far.run(&stage, way, &["fs", "ls", "--root", "/elsewhere"]);
        ran.expect_error(1, "serves");
        assert!(ran.err.contains("remove --root to use"), "{}", ran.err);
    }
    assert_eq!(far.daemon.end().0, 0);
}
