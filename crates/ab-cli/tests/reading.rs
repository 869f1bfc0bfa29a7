//! `ls`, `tree`, `cat` and `stat`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::stage::Stage;

fn project() -> Stage {
    Stage::with(&[("README.md", "# Hi\n"), ("src/main.rs", "fn main() {}\n"), ("src/a/b.txt", "b")])
}

/// Sets what would differ from run to run.
fn settle(stage: &Stage, path: &str) {
    let file = fs::File::open(stage.path(path)).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::new(1_700_000_000, 500_000_000)).unwrap();
}

#[test]
fn ls_names_what_a_directory_holds() {
    let stage = project();
    assert_eq!(stage.out(&["fs", "ls"]), "README.md\nsrc/\n");
    assert_eq!(stage.out(&["fs", "ls", "src"]), "a/\nmain.rs\n");
    assert_eq!(stage.out(&["fs", "ls", "src", "--depth", "2"]), "a/\na/b.txt\nmain.rs\n");
    fs::create_dir(stage.path("empty")).unwrap();
    assert_eq!(stage.out(&["fs", "ls", "empty"]), "");
}

#[test]
fn ls_says_when_it_cut() {
    let stage = project();
    let ran = stage.run(&["fs", "ls", "--limit", "1"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "README.md\n"));
    assert!(ran.err.contains("stopped after 1 entry;"), "{}", ran.err);
    let value = stage.json(&["fs", "ls", "--limit", "1", "--json"]);
    assert_eq!(value["truncated"], "count");
}

#[test]
fn ls_long_shows_kind_mode_size_and_time() {
    let stage = project();
    settle(&stage, "README.md");
    symlink("README.md", stage.path("link")).unwrap();
    let out = stage.out(&["fs", "ls", "-l"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "-rw-r-----  5  2023-11-14 22:13:20Z  README.md");
    assert!(lines[1].starts_with("lrwxrwxrwx  9  "), "{out}");
    assert!(lines[1].ends_with("Z  link -> README.md"), "{out}");
    assert!(lines[2].starts_with("drwx") && lines[2].ends_with("  src/"), "{out}");
}

#[test]
fn ls_as_json_is_one_object() {
    let stage = project();
    assert_eq!(
        stage.json(&["fs", "ls", "src", "--depth", "2", "--json"]),
        json!({
            "path": "src",
            "entries": [
                { "path": "src/a", "name": "a", "kind": "directory" },
                { "path": "src/a/b.txt", "name": "b.txt", "kind": "file" },
                { "path": "src/main.rs", "name": "main.rs", "kind": "file" },
            ],
            "truncated": null,
            "problems": [],
        })
    );
}

#[test]
fn ls_long_as_json_holds_what_stat_says() {
    let stage = project();
    let listed = stage.json(&["fs", "ls", "-l", "--json", "src/a"]);
    let mut stat = stage.json(&["fs", "stat", "--json", "src/a/b.txt"]);
    let mut entry = listed["entries"][0].clone();
    assert_eq!(entry["name"], "b.txt");
    entry.as_object_mut().unwrap().remove("name");
    // Reading may touch the time of the last access.
    for value in [&mut entry, &mut stat] {
        value["accessed"] = Value::Null;
    }
    assert_eq!(entry, stat);
}

#[test]
fn tree_draws_on_stdout_and_counts_on_stderr() {
    let stage = project();
    let ran = stage.run(&["fs", "tree"]);
    let drawn = "\
.
├── README.md
└── src/
    ├── a/
    │   └── b.txt
    └── main.rs
";
    assert_eq!((ran.code, ran.text().as_str()), (0, drawn));
    assert_eq!(ran.err, "note: 2 directories, 3 files\n");
    assert_eq!(stage.out(&["fs", "tree", "src", "--depth", "1"]), "src\n├── a/\n└── main.rs\n");
    let value = stage.json(&["fs", "tree", "--json", "--limit", "2"]);
    assert_eq!(value["truncated"], "count");
    assert_eq!(value["entries"].as_array().unwrap().len(), 2);
}

#[test]
fn tree_leaves_out_what_it_is_told() {
    let stage = project();
    fs::write(stage.path(".hidden"), "").unwrap();
    let ran = stage.run(&["fs", "tree", "--exclude", "a", "--exclude", "*.md"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, ".\n├── .hidden\n└── src/\n    └── main.rs\n"));
    assert_eq!(ran.err, "note: 1 directory, 2 files\n");
    let value = stage.json(&["fs", "tree", "src", "--exclude", "*.rs", "--json"]);
    assert_eq!(
        value["entries"],
        json!([
            { "path": "src/a", "name": "a", "kind": "directory" },
            { "path": "src/a/b.txt", "name": "b.txt", "kind": "file" },
        ])
    );
    let shallow = stage.out(&["fs", "tree", "src", "--exclude", "*.rs", "--depth", "1"]);
    assert_eq!(shallow, "src\n└── a/\n");
}

#[test]
fn cat_passes_bytes_on() {
    let stage = project();
    let bytes: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    fs::write(stage.path("blob"), &bytes).unwrap();
    let ran = stage.run(&["fs", "cat", "blob", "README.md"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, [&bytes[..], b"# Hi\n"].concat());
}

#[test]
fn cat_numbers_and_picks_lines() {
    let stage = Stage::with(&[("a", "one\ntwo\nthree\n"), ("b", "x")]);
    assert_eq!(
        stage.out(&["fs", "cat", "-n", "a", "b"]),
        "     1\tone\n     2\ttwo\n     3\tthree\n     1\tx"
    );
    let ran = stage.run(&["fs", "cat", "a", "--offset", "1", "--limit", "1"]);
    assert_eq!((ran.code, ran.text().as_str()), (0, "two\n"));
    assert_eq!(ran.err, "note: there are more lines; to continue, pass --offset 2\n");
    let ran = stage.run(&["fs", "cat", "a", "--offset", "1", "-n"]);
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("     2\ttwo\n     3\tthree\n", ""));
    assert_eq!(stage.out(&["fs", "cat", "a", "--offset", "9"]), "");
}

#[test]
fn cat_as_json_has_text_and_version() {
    let stage = Stage::with(&[("a", "one\ntwo\n"), ("b", "x")]);
    let version = stage.json(&["fs", "stat", "--json", "a"])["version"].clone();
    assert_eq!(
        stage.json(&["fs", "cat", "--json", "a"]),
        json!({ "path": "a", "size": 8, "version": version, "text": "one\ntwo\n" })
    );
    assert_eq!(
        stage.json(&["fs", "cat", "--json", "a", "--limit", "1"]),
        json!({
            "path": "a",
            "first_line": 1,
            "last_line": 1,
            "total_lines": null,
            "next_offset": 1,
            "text": "one\n",
        })
    );
    let both = stage.json(&["fs", "cat", "--json", "a", "b"]);
    assert_eq!((&both[0]["path"], &both[1]["text"]), (&json!("a"), &json!("x")));
}

#[test]
fn cat_as_json_refuses_what_is_not_text() {
    let stage = Stage::new();
    fs::write(stage.path("blob"), b"ab\xff").unwrap();
    let ran = stage.run(&["fs", "cat", "blob", "--json"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""));
    let error = ran.error();
    assert_eq!((&error["kind"], &error["path"]), (&json!("invalid"), &json!("blob")));
    assert!(error["hint"].as_str().unwrap().contains("--json"), "{error}");
}

#[test]
fn cat_goes_on_after_a_failure() {
    let stage = Stage::with(&[("a", "A"), ("c", "C")]);
    let ran = stage.run(&["fs", "cat", "a", "b", "c"]);
    assert_eq!((ran.code, ran.text().as_str()), (1, "AC"));
    assert!(ran.err.starts_with("error: ") && ran.err.contains("'b'"), "{}", ran.err);
    let ran = stage.run(&["fs", "cat", "--json", "a", "b", "c"]);
    assert_eq!((ran.code, ran.value().as_array().unwrap().len()), (1, 2));
    assert_eq!(ran.error()["path"], "b");
}

#[test]
fn stat_says_all_that_is_known() {
    let stage = project();
    settle(&stage, "README.md");
    let value = stage.json(&["fs", "stat", "README.md", "--json"]);
    let version = value["version"].as_str().unwrap();
    assert!(version.len() == 32 && version.bytes().all(|byte| byte.is_ascii_hexdigit()));
    for time in ["accessed", "created"] {
        assert!(value[time].is_null() || value[time].as_str().unwrap().ends_with('Z'), "{value}");
    }
    assert_eq!(
        value,
        json!({
            "path": "README.md",
            "kind": "file",
            "size": 5,
            "mode": "0640",
            "modified": "2023-11-14T22:13:20.5Z",
            "accessed": value["accessed"],
            "created": value["created"],
            "version": value["version"],
        })
    );
    let text = stage.out(&["fs", "stat", "README.md"]);
    assert!(text.starts_with("path      README.md\nkind      file\nsize      5\n"), "{text}");
    assert!(text.contains("\nmode      0640\n"), "{text}");
}

#[test]
fn stat_follows_links_unless_told() {
    let stage = project();
    symlink("README.md", stage.path("link")).unwrap();
    let values = stage.json(&["fs", "stat", "--json", "link", "src"]);
    assert_eq!((&values[0]["kind"], &values[1]["kind"]), (&json!("file"), &json!("directory")));
    let link = stage.json(&["fs", "stat", "--json", "--no-follow", "link"]);
    assert_eq!((&link["kind"], &link["target"]), (&json!("symlink"), &json!("README.md")));
    stage.run(&["fs", "stat", "nothing"]).expect_error(1, "'nothing'");
}
