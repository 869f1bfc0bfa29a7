//! The tools that list and describe.

use ab_core::ScopeOptions;
use serde_json::{Value, json};

use crate::caller::{Caller, Place};

const FILES: [(&str, &str); 5] = [
    ("b.txt", "12345"),
    ("a/deep/f", "1"),
    ("a/g", "22"),
    ("node_modules/m/index.js", "x"),
    ("big", "0123456789"),
];

#[tokio::test]
async fn directories_are_listed_with_marks_and_sizes() {
    for place in Place::each(&FILES).await {
        let caller = place.call().await;
        let text = caller.text("list_directory", json!({ "path": "." })).await;
        assert_eq!(text, "[DIR] a\n[FILE] b.txt\n[FILE] big\n[DIR] node_modules");
        let text = caller.text("list_directory_with_sizes", json!({ "path": "." })).await;
        let file = |name: &str, size: &str| format!("[FILE] {name:<30} {size:>10}");
        let dir = |name: &str| format!("[DIR] {name:<30} ");
        let expect = format!(
            "{}\n{}\n{}\n{}\n\nTotal: 2 files, 2 directories\nCombined size: 15 B",
            dir("a"),
            file("b.txt", "5 B"),
            file("big", "10 B"),
            dir("node_modules")
        );
        assert_eq!(text, expect);
        let by_size = json!({ "path": ".", "sortBy": "size" });
        let text = caller.text("list_directory_with_sizes", by_size).await;
        let first: Vec<&str> = text.lines().take(2).map(|row| &row[7..10]).collect();
        assert_eq!(first, ["big", "b.t"]);
        let page = json!({ "path": ".", "offset": 2, "limit": 2 });
        let text = caller.text("list_directory", page).await;
        assert_eq!(text, "[FILE] b.txt\n[FILE] big\n[2-3 of 4; go on with offset 4]");
    }
}

#[tokio::test]
async fn large_directories_come_in_pages() {
    let place = Place::memory();
    for n in 0..1500 {
        place.backend.write(&format!("d/{n:04}"), "").await.unwrap();
    }
    let caller = place.call().await;
    let text = caller.text("list_directory", json!({ "path": "d" })).await;
    assert!(text.ends_with("[FILE] 0999\n[1-1,000 of 1,500; go on with offset 1001]"), "{text}");
    let text = caller.text("list_directory", json!({ "path": "d", "offset": 1001 })).await;
    assert!(text.starts_with("[FILE] 1000\n") && text.ends_with("[1,001-1,500 of 1,500]"));
}

#[tokio::test]
async fn trees_are_nested_json_without_clutter() {
    for place in Place::each(&FILES).await {
        let caller = place.call().await;
        let tree = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let file = |name: &str| json!({ "name": name, "type": "file" });
        let dir = |name: &str, children: Value| json!({ "name": name, "type": "directory", "children": children });
        let text = caller.text("directory_tree", json!({ "path": "." })).await;
        let a = dir("a", json!([dir("deep", json!([file("f")])), file("g")]));
        assert_eq!(tree(text), json!([a, file("b.txt"), file("big")]));
        let all = json!({ "path": ".", "includeDefaultExcludes": false, "excludePatterns": ["deep", "b*"] });
        let text = caller.text("directory_tree", all).await;
        let modules = dir("node_modules", json!([dir("m", json!([file("index.js")]))]));
        assert_eq!(tree(text), json!([dir("a", json!([file("g")])), modules]));
        let shallow = caller.text("directory_tree", json!({ "path": "a", "depth": 1 })).await;
        assert_eq!(tree(shallow), json!([dir("deep", json!([])), file("g")]));
    }
}

#[tokio::test]
async fn files_are_described() {
    for place in Place::each(&FILES).await {
        let caller = place.call().await;
        let text = caller.text("get_file_info", json!({ "path": "b.txt" })).await;
        for part in [
            "size: 5\n",
            "modified: 2",
            "isDirectory: false\n",
            "isFile: true\n",
            "type: file\n",
            "version: ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = caller.text("get_file_info", json!({ "path": "a" })).await;
        assert!(text.contains("isDirectory: true\nisFile: false"), "{text}");
    }
}

#[tokio::test]
async fn the_boundary_is_the_workspace_or_the_scope() {
    let place = Place::local();
    place.fill(&[("in/side", "x"), ("out", "y")]).await;
    let root = place.keep.as_ref().unwrap().path().canonicalize().unwrap();
    let text = place.call().await.text("list_allowed_directories", json!({})).await;
    assert_eq!(text, format!("Allowed directories:\n{}", root.display()));
    let scope = place.backend.scope("in", ScopeOptions::default()).unwrap();
    let caller = Caller::of(scope).await;
    let text = caller.text("list_allowed_directories", json!({})).await;
    assert_eq!(text, format!("Allowed directories:\n{}", root.join("in").display()));
    assert_eq!(caller.text("read_text_file", json!({ "path": "side" })).await, "x");
    let inside = root.join("in/side");
    assert_eq!(caller.text("read_text_file", json!({ "path": inside })).await, "x");
    let refusal = caller.refusal("read_text_file", json!({ "path": "../out" })).await;
    assert!(!refusal.contains(&*root.to_string_lossy()), "{refusal}");
}
