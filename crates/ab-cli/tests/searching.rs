//! `glob` and `grep`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::stage::{Ran, Stage};

fn project() -> Stage {
    Stage::with(&[
        (".env", "secret needle\n"),
        (".gitignore", "target\n"),
        ("README.md", "# Needle\n\nA needle in a haystack.\n"),
        ("src/lib.rs", "one\ntwo\nneedle 3\nfour\nfive\nsix\nneedle 7\n"),
        ("src/deep/er.rs", "no hay\n"),
        ("target/out.rs", "needle\n"),
    ])
}

/// An answer of no: nothing at all is said.
#[track_caller]
fn expect_no(ran: &Ran) {
    assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (1, "", ""));
}

fn glob(stage: &Stage, arguments: &[&str]) -> Vec<String> {
    let out = stage.out(&[&["fs", "glob"], arguments].concat());
    out.lines().map(str::to_owned).collect()
}

#[test]
fn a_match_over_lines_is_found_when_asked() {
    let stage = Stage::with(&[("a.rs", "fn a(\n  b: u8,\n) {}\n")]);
    assert_eq!(stage.run(&["fs", "grep", "-e", r"a\(.*\)"]).code, 1);
    let found = stage.out(&["fs", "grep", "-U", "-e", r"a\(.*\)"]);
    assert_eq!(found, "a.rs:1:fn a(\na.rs:2:  b: u8,\na.rs:3:) {}\n");
}

#[test]
fn glob_finds_names_from_the_root_of_the_workspace() {
    let stage = project();
    let all = ["src/deep/er.rs", "src/lib.rs", "target/out.rs"];
    assert_eq!(glob(&stage, &["*.rs", "--no-ignore"]), all);
    assert_eq!(glob(&stage, &["*.rs", "src"]), ["src/deep/er.rs", "src/lib.rs"]);
    assert_eq!(glob(&stage, &["/*.rs", "src"]), ["src/lib.rs"]);
    assert_eq!(glob(&stage, &["src/*.{rs,md}"]), ["src/lib.rs"]);
    expect_no(&stage.run(&["fs", "glob", "*.py", "--no-ignore"]));
    symlink("nowhere", stage.path("src/dangling.rs")).unwrap();
    assert_eq!(glob(&stage, &["dang*"]), ["src/dangling.rs"]);
}

#[test]
fn glob_options_choose_what_is_looked_at() {
    let stage = project();
    let all = ["README.md", "src/", "src/deep/", "src/deep/er.rs", "src/lib.rs"];
    assert_eq!(glob(&stage, &["**", "--all-kinds", "--exclude", "target"]), all);
    assert_eq!(glob(&stage, &["**", "--all-kinds"]), all);
    assert_eq!(glob(&stage, &["**", "--all-kinds", "--gitignore"]), all);
    let few = ["**", "--exclude", "target", "--exclude", "*.md"];
    assert_eq!(glob(&stage, &few), ["src/deep/er.rs", "src/lib.rs"]);
    assert_eq!(glob(&stage, &["*", "--hidden"])[..2], [".env", ".gitignore"]);
    assert_eq!(glob(&stage, &[".e*"]), [".env"]);
    assert_eq!(stage.out(&["fs", "glob", "-0", "*.rs", "src"]), "src/deep/er.rs\0src/lib.rs\0");
    assert_eq!(stage.out(&["fs", "glob", "--null", "de*", "--all-kinds"]), "src/deep/\0");
}

#[test]
fn glob_says_when_it_cut() {
    let stage = project();
    let ran = stage.run(&["fs", "glob", "*.rs", "--limit", "1"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "src/deep/er.rs\n"));
    assert_eq!(ran.err, "note: stopped after 1 name; to see more, raise --limit\n");
    let ran = stage.run(&["fs", "glob", "*.rs", "--time", "0.000000001"]);
    assert_eq!((ran.code, ran.text().as_str()), (4, ""), "the answer is not known");
    assert_eq!(ran.err, "note: stopped after 0 names; to see more, raise --time\n");
    assert_eq!(glob(&stage, &["*.md", "--time", "1e3"]), ["README.md"]);
}

#[test]
fn glob_as_json_is_a_listing() {
    let stage = project();
    assert_eq!(
        stage.json(&["fs", "glob", "{deep,er.rs}", "src", "--all-kinds", "--json"]),
        json!({
            "path": "src",
            "entries": [
                { "path": "src/deep", "name": "deep", "kind": "directory" },
                { "path": "src/deep/er.rs", "name": "er.rs", "kind": "file" },
            ],
            "truncated": null,
            "left_out": { "directories": 0, "files": 0 },
            "problems": [],
        })
    );
    let ran = stage.run(&["fs", "glob", "*.py", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(ran.value()["entries"], json!([]));
    let cut = stage.json(&["fs", "glob", "*", "--limit", "1", "--json"]);
    assert_eq!(cut["truncated"], "count");
}

#[test]
fn grep_prints_path_line_and_text() {
    let stage = project();
    assert_eq!(
        stage.out(&["fs", "grep", "needle", "--no-ignore"]),
        "README.md:3:A needle in a haystack.\n\
         src/lib.rs:3:needle 3\n\
         src/lib.rs:7:needle 7\n\
         target/out.rs:1:needle\n"
    );
    assert_eq!(stage.out(&["fs", "grep", "needle 7", "src/lib.rs"]), "src/lib.rs:7:needle 7\n");
    expect_no(&stage.run(&["fs", "grep", "thimble", "--no-ignore"]));
    expect_no(&stage.run(&["fs", "grep", "needle .", "src"]));
    let ran = stage.run(&["fs", "grep", "--no-ignore", "--", "-x"]);
    expect_no(&ran);
}

#[test]
fn grep_options_choose_what_matches() {
    let stage = project();
    let regex = "src/lib.rs:3:needle 3\nsrc/lib.rs:7:needle 7\n";
    assert_eq!(stage.out(&["fs", "grep", "-e", r"n\w+ \d"]), regex);
    assert_eq!(stage.out(&["fs", "grep", "--regex", "needle .", "src"]), regex);
    let any_case = "README.md:1:# Needle\nREADME.md:3:A needle in a haystack.\n";
    assert_eq!(stage.out(&["fs", "grep", "-i", "NEEDLE", "README.md"]), any_case);
    assert_eq!(stage.out(&["fs", "grep", "--ignore-case", "NEEDLE", "README.md"]), any_case);
}

#[test]
fn grep_options_choose_where_to_look() {
    let stage = project();
    let files = |arguments: &[&str]| {
        let out = stage.out(&[&["fs", "grep", "-l", "needle"], arguments].concat());
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(files(&[]), ["README.md", "src/lib.rs"]);
    assert_eq!(files(&["--no-ignore"]), ["README.md", "src/lib.rs", "target/out.rs"]);
    assert_eq!(files(&["--gitignore"]), ["README.md", "src/lib.rs"]);
    assert_eq!(files(&["--exclude", "target", "--exclude", "*.md"]), ["src/lib.rs"]);
    assert_eq!(files(&["--include", "*.md"]), ["README.md"]);
    assert_eq!(files(&["--include", "*.md", "--include", "src/*"]), ["README.md", "src/lib.rs"]);
    assert_eq!(files(&["--hidden", "--exclude", "[!.]*"]), [".env"]);
    assert_eq!(files(&["src"]), ["src/lib.rs"]);
    let short = stage.out(&["fs", "grep", "-c", "needle", "--no-ignore"]);
    assert_eq!(short, "README.md:1\nsrc/lib.rs:2\ntarget/out.rs:1\n");
    assert_eq!(stage.out(&["fs", "grep", "--count", "needle", "src"]), "src/lib.rs:2\n");
    let long = stage.out(&["fs", "grep", "--files-with-matches", "needle", "src"]);
    assert_eq!(long, "src/lib.rs\n");
    stage.run(&["fs", "grep", "-l", "-c", "x"]).expect_error(2, "cannot be used with");
}

#[test]
fn grep_selects_lines_as_grep_does() {
    let stage = project();
    let grep = |arguments: &[&str]| {
        let ran = stage.run(&[&["fs", "grep"], arguments, &["src"]].concat());
        assert!(ran.err.is_empty(), "{arguments:?}: {}", ran.err);
        (ran.code, ran.text())
    };
    let some = |text: &str| (0, text.to_owned());
    let none = || (1, String::new());
    let others = "src/deep/er.rs:1:no hay\nsrc/lib.rs:1:one\n";
    assert_eq!(grep(&["-v", "-e", "needle|t|f|s"]), some(others));
    assert_eq!(grep(&["--invert-match", "-c", "needle"]), some("src/deep/er.rs:1\nsrc/lib.rs:5\n"));
    assert_eq!(grep(&["-vl", "needle"]), some("src/deep/er.rs\nsrc/lib.rs\n"));
    assert_eq!(grep(&["-L", "needle"]), some("src/deep/er.rs\n"));
    assert_eq!(grep(&["--files-without-match", "-e", "."]), none());
    let parts = "src/lib.rs:3:needle 3\nsrc/lib.rs:7:needle 7\n";
    assert_eq!(grep(&["-o", "-e", r"n\w+ \d"]), some(parts));
    assert_eq!(grep(&["-o", "-E", "e"]).1.lines().count(), 8);
    assert_eq!(grep(&["--only-matching", "-i", "NEEDLE", "-m1"]), some("src/lib.rs:3:needle\n"));
    assert_eq!(grep(&["-o", "thimble"]), none());
    assert_eq!(grep(&["-m", "1", "needle"]), some("src/lib.rs:3:needle 3\n"));
    assert_eq!(grep(&["-m1", "-c", "needle"]), some("src/lib.rs:1\n"));
    assert_eq!(grep(&["-x", "needle"]), none());
    assert_eq!(grep(&["-x", "needle 3"]), some("src/lib.rs:3:needle 3\n"));
    assert_eq!(grep(&["-S", "NEEDLE"]), none());
    assert_eq!(grep(&["-S", "needle 3"]), some("src/lib.rs:3:needle 3\n"));
    let readme = stage.out(&["fs", "grep", "-S", "needle", "README.md"]);
    assert_eq!(readme.lines().count(), 2, "without capitals, case is ignored: {readme}");
    for contradiction in [["-o", "-v"], ["-o", "-C1"], ["-L", "-l"], ["-L", "-c"], ["-x", "-w"]] {
        let ran = stage.run(&[&["fs", "grep", "x"], &contradiction[..]].concat());
        ran.expect_error(2, "cannot be used with");
    }
}

#[test]
fn silent_grep_answers_by_its_exit_code() {
    let stage = project();
    for (arguments, code) in [
        (&["needle"][..], 0),
        (&["-v", "needle"], 0),
        (&["-c", "needle"], 0),
        (&["thimble"], 1),
        (&["-v", "-e", "."], 1),
        (&["-L", "-e", "."], 1),
        (&["-L", "needle"], 0),
        (&["--silent", "needle"], 0),
        (&["needle", "--time", "0.000000001"], 4),
    ] {
        let silent: &[&str] = if arguments[0] == "--silent" { &[] } else { &["-q"] };
        let ran = stage.run(&[&["fs", "grep"], silent, arguments, &["src"]].concat());
        let said = (ran.code, ran.text(), ran.err);
        assert_eq!(said, (code, String::new(), String::new()), "{arguments:?}");
    }
    stage.run(&["fs", "grep", "-q", "-e", "("]).expect_error(2, "unclosed group");
    // What could not be searched may contain it.
    fs::write(stage.root().join(OsStr::from_bytes(b"bad\xff")), "").unwrap();
    let ran = stage.run(&["fs", "grep", "-q", "thimble"]);
    assert!(ran.code == 4 && ran.err.starts_with("warning: "), "{} {}", ran.code, ran.err);
    assert_eq!(stage.run(&["fs", "grep", "-q", "needle"]).code, 0);
}

#[test]
fn grep_shows_lines_around_as_grep_does() {
    let stage = project();
    let grep =
        |arguments: &[&str]| stage.out(&[&["fs", "grep", "needle", "src"], arguments].concat());
    let both = "src/lib.rs-2-two\nsrc/lib.rs:3:needle 3\nsrc/lib.rs-4-four\n\
                --\nsrc/lib.rs-6-six\nsrc/lib.rs:7:needle 7\n";
    assert_eq!(grep(&["-C", "1"]), both);
    assert_eq!(grep(&["--context", "1"]), both);
    let after = "src/lib.rs:3:needle 3\nsrc/lib.rs-4-four\n--\nsrc/lib.rs:7:needle 7\n";
    assert_eq!(grep(&["-A", "1"]), after);
    assert_eq!(grep(&["-C1", "-B0"]), after);
    assert_eq!(grep(&["--after-context", "1"]), after);
    let before = "src/lib.rs-2-two\nsrc/lib.rs:3:needle 3\n\
                  --\nsrc/lib.rs-6-six\nsrc/lib.rs:7:needle 7\n";
    assert_eq!(grep(&["--before-context", "1"]), before);
    assert_eq!(grep(&["-C", "3"]).lines().count(), 7, "one group has no gap");
    let files = stage.out(&["fs", "grep", "needle", "-C", "0", "--exclude", "src", "--no-ignore"]);
    assert_eq!(files, "README.md:3:A needle in a haystack.\ntarget/out.rs:1:needle\n");
    let files = stage.out(&["fs", "grep", "needle", "-A", "1", "--exclude", "src", "--no-ignore"]);
    assert_eq!(files, "README.md:3:A needle in a haystack.\n--\ntarget/out.rs:1:needle\n");
    stage.run(&["fs", "grep", "x", "-C", "1001"]).expect_error(2, "at most 1000");
}

#[test]
fn grep_says_what_it_did_not_show() {
    let stage = project();
    let ran = stage.run(&["fs", "grep", "needle", "--limit", "2", "--no-ignore"]);
    assert_eq!((ran.code, ran.text().lines().count()), (0, 2));
    assert_eq!(ran.err, "note: stopped after 2 matches; to see more, raise --limit\n");
    let ran = stage.run(&["fs", "grep", "-l", "needle", "--limit", "1", "--no-ignore"]);
    assert_eq!(ran.err, "note: stopped after 1 file; to see more, raise --limit\n");
    let ran = stage.run(&["fs", "grep", "needle", "src", "--bytes", "20"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "src/lib.rs:3:needle 3\n"));
    assert_eq!(ran.err, "note: stopped after 1 match; to see more, raise --bytes\n");
    let ran = stage.run(&["fs", "grep", "needle", "--bytes", "1"]);
    assert_eq!((ran.code, ran.text().as_str()), (4, ""), "found, and nothing of it fits");
    let ran = stage.run(&["fs", "grep", "needle", "--time", "0.000000001"]);
    assert_eq!((ran.code, ran.text().as_str()), (4, ""), "the answer is not known");
    assert!(ran.err.contains("to see more, raise --time"), "{}", ran.err);
}

#[test]
fn grep_counts_binary_files_and_cut_lines() {
    let stage = Stage::with(&[("blob", "x\0needle"), ("other", "\0"), ("text", "needle\n")]);
    let ran = stage.run(&["fs", "grep", "needle"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "text:1:needle\n"));
    assert_eq!(ran.err, "note: 2 binary files were not searched\n");
    let ran = stage.run(&["fs", "grep", "needle", "blob"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""));
    assert_eq!(ran.err, "note: 1 binary file was not searched\n");
    fs::write(stage.path("long"), format!("needle{}", "x".repeat(10_000))).unwrap();
    let ran = stage.run(&["fs", "grep", "needle", "long"]);
    assert_eq!(ran.text().len(), "long:1:\n".len() + 8192);
    assert_eq!(ran.err, "note: 1 line was cut after 8192 bytes\n");
    let value = stage.json(&["fs", "grep", "needle", "long", "--json"]);
    assert_eq!(value["matches"][0]["cut"], 10_006);
}

#[test]
fn grep_as_json_is_one_object() {
    let stage = project();
    let line = |line: u64, text: &str, role: &str| {
        let path = "src/lib.rs";
        json!({ "path": path, "line": line, "text": text, "role": role, "cut": null })
    };
    assert_eq!(
        stage.json(&["fs", "grep", "needle 3", "src", "-B", "1", "--json"]),
        json!({
            "path": "src",
            "matches": [line(2, "two", "context"), line(3, "needle 3", "match")],
            "truncated": null,
            "searched": 2,
            "skipped_binary": 0,
            "left_out": { "directories": 0, "files": 0 },
            "problems": [],
        })
    );
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let files = stage.json(&["fs", "grep", "needle", "-l", "--json"]);
    assert_eq!(files["matches"][1], json!({ "path": "src/lib.rs" }));
    let counts = stage.json(&["fs", "grep", "needle", "-c", "--json"]);
    assert_eq!(counts["matches"][1], json!({ "path": "src/lib.rs", "lines": 2 }));
    assert_eq!(keys(&files), keys(&counts));
    let ran = stage.run(&["fs", "grep", "thimble", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(
        (ran.value()["matches"].clone(), ran.value()["searched"].clone()),
        (json!([]), json!(3))
    );
    let cut = stage.json(&["fs", "grep", "needle", "--bytes", "40", "--json"]);
    assert_eq!(cut["truncated"], "bytes");
}

#[test]
fn a_search_stays_in_its_scope() {
    let stage = project();
    symlink("../README.md", stage.path("src/link.md")).unwrap();
    let scoped = |line: &[&str]| stage.run(&[&["fs", "--scope", "src"], line].concat());
    assert_eq!(scoped(&["grep", "needle"]).text(), "lib.rs:3:needle 3\nlib.rs:7:needle 7\n");
    assert_eq!(scoped(&["glob", "*.{rs,md}"]).text(), "deep/er.rs\nlib.rs\nlink.md\n");
    for line in [["grep", "needle", ".."], ["grep", "needle", "link.md"], ["glob", "*", "../src"]] {
        let ran = scoped(&line);
        assert_eq!((ran.code, ran.text().as_str()), (3, ""), "{line:?}: {}", ran.err);
    }
    let ran = scoped(&["glob", "../*"]);
    ran.expect_error(2, "must not contain '..'");
}

#[test]
fn senseless_patterns_are_refused() {
    let stage = project();
    let long = "x".repeat(100_000);
    let braces = "{a,b}".repeat(20);
    for (line, reason) in [
        (&["grep", ""][..], "it is empty"),
        (&["grep", "a\nb"], "line break"),
        (&["grep", &long], "longer than"),
        (&["grep", "-e", "("], "pattern '(': unclosed group\n"),
        (&["grep", "-e", "(a{1000}){1000}{1000}"], "size limit"),
        (&["grep", "x", "--include", "{a"], "a brace is not closed"),
        (&["grep", "x", "--exclude", "[z-a]"], "is reversed"),
        (&["glob", ""], "the pattern is empty"),
        (&["glob", "[a"], "a bracket is not closed"),
        (&["glob", "a/../b"], "must not contain '..'"),
        (&["glob", &long], "longer than"),
        (&["glob", &braces], "more than 1000"),
        (&["glob", "*", "--exclude", ""], "the pattern is empty"),
        (&["tree", "--exclude", "{a"], "a brace is not closed"),
    ] {
        let ran = stage.run(&[&["fs"], line].concat());
        ran.expect_error(2, reason);
        let error = stage.run(&[&["fs", "--json"], line].concat()).error();
        assert_eq!(error["kind"], "invalid", "{reason}");
    }
    let slow_elsewhere = "a".repeat(200_000);
    fs::write(stage.path("many"), slow_elsewhere).unwrap();
    expect_no(&stage.run(&["fs", "grep", "-e", "(a*)*b", "many"]));
}

#[test]
fn patterns_that_are_not_utf8_are_refused() {
    let stage = project();
    let broken = OsStr::from_bytes(b"caf\xe9");
    for line in [
        &["grep", "{}"][..],
        &["grep", "x", "--include", "{}"],
        &["grep", "x", "--exclude", "{}"],
        &["glob", "{}"],
        &["glob", "x", "--exclude", "{}"],
        &["tree", "--exclude", "{}"],
    ] {
        let word = |word: &'static str| if word == "{}" { broken } else { OsStr::new(word) };
        let words: Vec<&OsStr> =
            [OsStr::new("fs")].into_iter().chain(line.iter().copied().map(word)).collect();
        stage.run(&words).expect_error(2, "pattern 'caf\u{fffd}': not valid UTF-8");
    }
}

#[test]
fn numbers_that_make_no_sense_are_usage_errors() {
    let stage = project();
    for line in [
        &["glob", "*", "--limit", "0"][..],
        &["glob", "*", "--time", "0"],
        &["glob", "*", "--time", "soon"],
        &["glob", "*", "--time", "1e9"],
        &["glob"],
        &["grep", "x", "--bytes", "0"],
        &["grep", "x", "-A", "many"],
        &["grep"],
    ] {
        stage.run(&[&["fs"], line].concat()).expect_error(2, "error: ");
    }
}

#[test]
fn roots_that_are_not_there_are_named() {
    let stage = project();
    stage.run(&["fs", "grep", "x", "gone"]).expect_error(1, "'gone'");
    stage.run(&["fs", "glob", "x", "gone"]).expect_error(1, "'gone'");
    stage.run(&["fs", "glob", "x", "README.md"]).expect_error(1, "'README.md'");
}

#[test]
fn what_cannot_be_searched_is_told_and_hurts_nothing() {
    let stage = Stage::with(&[("good", "needle\n")]);
    fs::write(stage.root().join(OsStr::from_bytes(b"bad\xff")), "needle\n").unwrap();
    for (line, out) in [(&["glob", "*"][..], "good\n"), (&["grep", "needle"], "good:1:needle\n")] {
        let ran = stage.run(&[&["fs"], line].concat());
        assert_eq!((ran.code, ran.text().as_str()), (0, out));
        assert!(ran.err.starts_with("warning: ") && ran.err.contains("UTF-8"), "{}", ran.err);
        let value = stage.json(&[&["fs", "--json"], line].concat());
        assert_eq!(value["problems"][0]["error"]["code"], "INVALID_PATH", "{value}");
    }
}

#[test]
fn a_name_with_a_line_end_can_be_told_apart() {
    let stage = Stage::with(&[("a\nb", "x\n"), ("c", "")]);
    assert_eq!(stage.out(&["fs", "glob", "-0", "*"]), "a\nb\0c\0");
    let value = stage.json(&["fs", "grep", "x", "--json"]);
    assert_eq!(value["matches"][0]["path"], "a\nb");
}

#[test]
fn what_is_ignored_is_left_out_and_counted_unless_asked_for() {
    let stage = Stage::with(&[
        (".gitignore", "*.log\n"),
        ("src/app.js", "needle\n"),
        ("debug.log", "needle\n"),
        ("node_modules/a/index.js", "needle\n"),
        ("pkg/node_modules/b/index.js", "needle\n"),
        ("dist/app.js", "needle\n"),
    ]);
    let note = "note: skipped 3 directories and 1 file that are ignored; to include them, pass --no-ignore\n";
    for words in [["grep", "needle", "-l"], ["glob", "*.{js,log}", "."]] {
        let ran = stage.run(&[&["fs"], &words[..]].concat());
        assert_eq!((ran.code, ran.text().as_str(), ran.err.as_str()), (0, "src/app.js\n", note));
        let value = stage.json(&[&["fs", "--json"], &words[..]].concat());
        assert_eq!(value["left_out"], json!({ "directories": 3, "files": 1 }));
        let all = stage.run(&[&["fs", "--no-ignore"], &words[..]].concat());
        assert_eq!(all.code, 2, "it is a flag of searches");
        let all = stage.out(&[&["fs"], &words[..], &["--no-ignore"]].concat());
        assert_eq!(all.lines().count(), 5, "{all}");
    }
    let one = Stage::with(&[(".gitignore", "*.log\n"), ("debug.log", "needle\n")]);
    let note = "note: skipped 1 file that is ignored; to include it, pass --no-ignore\n";
    assert_eq!(one.run(&["fs", "grep", "needle"]).err, note);
    // An ignored directory that is named as the start of the search is searched.
    assert_eq!(stage.out(&["fs", "grep", "needle", "dist", "-l"]), "dist/app.js\n");
    stage.run(&["fs", "glob", "*", "--gitignore", "--no-ignore"]).expect_error(2, "cannot be used");
}
