//! The tools that find.

use std::time::{Duration, SystemTime};

use ab_core::options::AttributeChanges;
use serde_json::json;

use crate::caller::Place;

const FILES: [(&str, &str); 4] = [
    ("src/main.rs", "fn main() {\n    helper();\n}\n"),
    ("src/lib/helper.rs", "pub fn helper() {}\n"),
    ("README.md", "Call Helper.\n"),
    (".hidden/x.rs", "helper\n"),
];

#[tokio::test]
async fn names_are_found_by_glob() {
    for place in Place::each(&FILES).await {
        let caller = place.call().await;
        for (arguments, expect) in [
            (
                json!({ "path": ".", "pattern": "*.rs" }),
                ".hidden/x.rs\nsrc/lib/helper.rs\nsrc/main.rs",
            ),
            (
                json!({ "path": "src", "pattern": "*.rs", "excludePatterns": ["lib"] }),
                "src/main.rs",
            ),
            (json!({ "path": ".", "pattern": "lib" }), "src/lib"),
            (json!({ "path": ".", "pattern": "*.toml" }), "No matches found"),
            (
                json!({ "path": ".", "pattern": "*.rs", "limit": 1 }),
                ".hidden/x.rs\n[1-1 of more; go on with offset 2]",
            ),
            (
                json!({ "path": ".", "pattern": "*.rs", "limit": 1, "offset": 3 }),
                "src/main.rs\n[3-3 of 3]",
            ),
        ] {
            assert_eq!(caller.text("search_files", arguments.clone()).await, expect, "{arguments}");
        }
    }
}

#[tokio::test]
async fn the_newest_names_come_first() {
    let place = Place::local();
    place.fill(&FILES).await;
    for (path, age) in [("src/main.rs", 30), ("src/lib/helper.rs", 10), (".hidden/x.rs", 20)] {
        let modified = Some(SystemTime::now() - Duration::from_secs(age));
        let attributes = AttributeChanges { modified, ..AttributeChanges::default() };
        place.backend.set_attributes(path, attributes).await.unwrap();
    }
    let arguments = json!({ "path": ".", "pattern": "*.rs", "sortBy": "mtime" });
    let text = place.call().await.text("search_files", arguments).await;
    assert_eq!(text, "src/lib/helper.rs\n.hidden/x.rs\nsrc/main.rs");
}

#[tokio::test]
async fn text_is_found_in_files() {
    for place in Place::each(&FILES).await {
        place.backend.write("blob.bin", &b"helper\0"[..]).await.unwrap();
        let caller = place.call().await;
        let skipped = "[1 binary file was not searched]";
        for (arguments, expect) in [
            (
                json!({ "pattern": "helper" }),
                format!("src/lib/helper.rs:1:pub fn helper() {{}}\nsrc/main.rs:2:    helper();\n{skipped}"),
            ),
            (
                json!({ "pattern": "^helper|main\\(", "path": "src", "contextAfter": 1 }),
                "src/main.rs:1:fn main() {\nsrc/main.rs-2-    helper();".to_owned(),
            ),
            (
                json!({ "pattern": "HELPER", "caseInsensitive": true, "outputMode": "files_with_matches", "glob": "*.md" }),
                "README.md".to_owned(),
            ),
            (
                json!({ "pattern": "e", "path": "src", "outputMode": "count" }),
                "src/lib/helper.rs:1\nsrc/main.rs:1".to_owned(),
            ),
            (
                json!({ "pattern": "()", "literal": true, "path": "src/main.rs", "lineNumbers": false, "headLimit": 1 }),
                "src/main.rs:fn main() {\n[the first 1 match; raise headLimit, or narrow the path or the glob]".to_owned(),
            ),
            (json!({ "pattern": "nowhere", "path": "src" }), "No matches found".to_owned()),
        ] {
            assert_eq!(caller.text("grep", arguments.clone()).await, expect, "{arguments}");
        }
    }
}

#[tokio::test]
async fn matches_over_lines_and_files_of_a_type_are_found_when_asked() {
    for place in Place::each(&FILES).await {
        let caller = place.call().await;
        for (arguments, expect) in [
            (
                json!({ "pattern": "main.*helper", "multiline": true }),
                "src/main.rs:1:fn main() {\nsrc/main.rs:2:    helper();",
            ),
            (json!({ "pattern": "(?i)helper", "type": "md" }), "README.md:1:Call Helper."),
            (
                json!({ "pattern": "main.*helper", "multiline": true, "outputMode": "count" }),
                "src/main.rs:1",
            ),
        ] {
            assert_eq!(caller.text("grep", arguments.clone()).await, expect, "{arguments}");
        }
        for (arguments, says) in [
            (
                json!({ "pattern": "x", "type": "nope" }),
                "no such type of files: 'nope'; choose files with glob",
            ),
            (json!({ "pattern": "x", "type": "md", "glob": "*" }), "give glob or type, not both"),
        ] {
            assert_eq!(caller.refusal("grep", arguments).await, says);
        }
    }
}

#[tokio::test]
async fn what_is_ignored_is_left_out_and_counted_unless_asked_for() {
    let mut files: Vec<(String, &str)> =
        (0..300).map(|n| (format!("node_modules/m{n}/index.js"), "needle\n")).collect();
    for (path, content) in [
        (".gitignore", "*.log\n/out/\n"),
        ("src/app.js", "needle\n"),
        ("src/.gitignore", "made.js\n"),
        ("src/made.js", "needle\n"),
        ("debug.log", "needle\n"),
        ("out/app.js", "needle\n"),
        ("pkg/dist/app.js", "needle\n"),
    ] {
        files.push((path.to_owned(), content));
    }
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, content)| (path.as_str(), *content)).collect();
    for place in Place::each(&files).await {
        let caller = place.call().await;
        let left_out = "[left out 3 directories and 2 files that .gitignore or the usual ignores \
                        name, such as node_modules; includeIgnored: true searches them too]";
        let grep = caller.text("grep", json!({ "pattern": "needle" })).await;
        assert_eq!(grep, format!("src/app.js:1:needle\n{left_out}"));
        let names = caller.text("search_files", json!({ "path": ".", "pattern": "*.js" })).await;
        let left_out = left_out.replace("2 files", "1 file");
        assert_eq!(names, format!("src/app.js\n{left_out}"));
        let all = json!({ "pattern": "needle", "includeIgnored": true, "headLimit": 1000 });
        assert_eq!(caller.text("grep", all).await.lines().count(), 305);
        let all = json!({ "path": ".", "pattern": "*.js", "includeIgnored": true });
        assert_eq!(caller.text("search_files", all).await.lines().count(), 304);
        // An ignored directory that is named as the start of the search is searched.
        let inside = json!({ "pattern": "needle", "path": "node_modules/m7" });
        assert_eq!(caller.text("grep", inside).await, "node_modules/m7/index.js:1:needle");
        let none = caller.text("grep", json!({ "pattern": "needle", "glob": "out/*.js" })).await;
        assert!(none.starts_with("No matches found\n[left out 1 directory that"), "{none}");
    }
}
