//! The tools that change files.

use serde_json::json;

use crate::caller::Place;

#[tokio::test]
async fn files_are_written_whole() {
    for place in Place::each(&[("a", "old")]).await {
        let caller = place.call().await;
        for (path, content) in [("a", "new"), ("deep/er/b", "ä\r\n$& $1"), ("empty", "")] {
            let text = caller.text("write_file", json!({ "path": path, "content": content })).await;
            assert_eq!(text, format!("Successfully wrote to {path}"));
            assert_eq!(place.backend.read_text(path).await.unwrap(), content);
        }
    }
}

#[tokio::test]
async fn edits_are_exact_and_all_or_none() {
    for place in Place::each(&[("a.rs", "let a = 1;\r\nlet b = 1;\r\n")]).await {
        let caller = place.call().await;
        let edits = json!([{ "oldText": "a = 1", "newText": "a = $&" }]);
        let dry = json!({ "path": "a.rs", "edits": edits, "dryRun": true });
        let text = caller.text("edit_file", dry).await;
        assert!(text.starts_with("```diff\n--- "), "{text}");
        assert!(
            text.ends_with("1 occurrence replaced; nothing was written: this was a dry run"),
            "{text}"
        );
        assert_eq!(place.backend.read_text("a.rs").await.unwrap(), "let a = 1;\r\nlet b = 1;\r\n");

        let value = caller.value("edit_file", json!({ "path": "a.rs", "edits": edits })).await;
        assert_eq!(value["replaced"], 1);
        assert!(value["content"].as_str().unwrap().contains("+let a = $&;"), "{value}");
        assert_eq!(place.backend.read_text("a.rs").await.unwrap(), "let a = $&;\r\nlet b = 1;\r\n");

        let all = json!([{ "oldText": "let ", "newText": "", "replaceAll": true }]);
        let text = caller.text("edit_file", json!({ "path": "a.rs", "edits": all })).await;
        assert!(text.ends_with("2 occurrences replaced; written"), "{text}");

        let second_fails = json!([
            { "oldText": "a = $&", "newText": "c" },
            { "oldText": "nowhere", "newText": "d" },
        ]);
        caller.refusal("edit_file", json!({ "path": "a.rs", "edits": second_fails })).await;
        assert_eq!(place.backend.read_text("a.rs").await.unwrap(), "a = $&;\r\nb = 1;\r\n");
    }
}

#[tokio::test]
async fn concurrent_edits_lose_nothing() {
    let content: String = (0..40).map(|n| format!("<{n}>\n")).collect();
    for place in Place::each(&[("f", &content)]).await {
        let caller = place.call().await;
        let edits = (0..40).map(|n| {
            let edits = json!([{ "oldText": format!("<{n}>"), "newText": format!("({n})") }]);
            caller.text("edit_file", json!({ "path": "f", "edits": edits }))
        });
        futures_util::future::join_all(edits).await;
        let expect: String = (0..40).map(|n| format!("({n})\n")).collect();
        assert_eq!(place.backend.read_text("f").await.unwrap(), expect);
    }
}

#[tokio::test]
async fn directories_are_made_things_moved_and_deleted() {
    for place in Place::each(&[("a", "A"), ("d/x", "X"), ("d/e/y", "Y")]).await {
        let caller = place.call().await;
        let made = caller.text("create_directory", json!({ "path": "n/e/w" })).await;
        assert_eq!(made, "Successfully created directory n/e/w");
        let moved = json!({ "source": "a", "destination": "m/b" });
        let moved = caller.text("move_file", moved).await;
        assert_eq!(moved, "Successfully moved a to m/b");
        assert_eq!(place.backend.read_text("m/b").await.unwrap(), "A");
        let deleted = caller.text("delete", json!({ "path": "m/b" })).await;
        assert_eq!(deleted, "Successfully deleted m/b");
        let value = caller.value("delete", json!({ "path": "d", "recursive": true })).await;
        assert!(value["removed"].as_u64().unwrap() >= 2, "{value}");
        assert!(!place.backend.exists("d/e/y").await.unwrap());
    }
    let place = Place::local();
    let caller = place.call().await;
    caller.text("create_directory", json!({ "path": "empty" })).await;
    assert!(place.backend.stat("empty").await.unwrap().kind.is_dir());
}
