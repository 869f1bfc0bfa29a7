//! A session as a newcomer would have it, from an empty directory on.

use serde_json::json;

use crate::stage::Stage;

#[test]
fn a_first_session() {
    let stage = Stage::new();
    let content = "# Plan\n\nLook around.\n";
    let ran = stage.run_with(&["fs", "write", "notes/plan.md"], content.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(stage.out(&["fs", "ls"]), "notes/\n");
    assert_eq!(stage.out(&["fs", "cat", "notes/plan.md"]), content);

    let ran =
        stage.run(&["fs", "edit", "notes/plan.md", "--old", "Look around.", "--new", "Build."]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.text().contains("-Look around.\n+Build.\n"), "{}", ran.text());

    let read = stage.json(&["fs", "cat", "notes/plan.md", "--json"]);
    assert_eq!(read["text"], "# Plan\n\nBuild.\n");
    let version = read["version"].as_str().unwrap();
    let write = ["fs", "write", "notes/plan.md", "--content", "mine\n", "--expect", version];
    assert_eq!(stage.run(&write).code, 0);
    let late = stage.run(&[&write[..], &["--json"]].concat());
    assert_eq!((late.code, late.error()["code"].clone()), (1, json!("CONFLICT")));

    assert_eq!(stage.run(&["fs", "mkdir", "src"]).code, 0);
    assert_eq!(stage.run(&["fs", "mv", "notes/plan.md", "src/plan.md"]).code, 0);
    assert_eq!(stage.out(&["fs", "tree"]), ".\n├── notes/\n└── src/\n    └── plan.md\n");
    assert_eq!(stage.out(&["fs", "cat", "plan.md", "--scope", "src"]), "mine\n");
    stage.run(&["fs", "cat", "../notes", "--scope", "src"]).expect_error(3, "leaves");
    assert_eq!(stage.run(&["fs", "rm", "-r", "src", "notes"]).code, 0);
    assert_eq!(stage.out(&["fs", "ls"]), "");
}
