//! Paths that models slip on: absolute ones outside the workspace, and the home directory.

use serde_json::{Value, json};

use crate::caller::{Place, text};

#[tokio::test]
async fn every_answer_names_the_path_that_was_used_and_how_commands_see_it() {
    let place = Place::local();
    let root = place.keep.as_ref().unwrap().path().to_str().unwrap().to_owned();
    let caller = place.call().await;
    let edits = json!([{ "oldText": "b", "newText": "c" }]);
    for (tool, arguments, says, path) in [
        (
            "write_file",
            json!({ "path": "/tmp/x.py", "content": "a\nb\n" }),
            "Successfully wrote to tmp/x.py",
            "tmp/x.py",
        ),
        (
            "create_directory",
            json!({ "path": "/data/d" }),
            "Successfully created directory data/d",
            "data/d",
        ),
        ("edit_file", json!({ "path": "/tmp/x.py", "edits": edits }), "tmp/x.py", "tmp/x.py"),
        ("read_text_file", json!({ "path": "/tmp/x.py" }), "a\nc\n", "tmp/x.py"),
        ("read_multiple_files", json!({ "paths": ["/tmp/x.py"] }), "a\nc\n", "tmp/x.py"),
        ("read_media_file", json!({ "path": "/tmp/x.py" }), "", "tmp/x.py"),
        ("list_directory", json!({ "path": "/tmp" }), "[FILE] x.py", "tmp"),
        ("list_directory_with_sizes", json!({ "path": "/tmp" }), "x.py", "tmp"),
        ("directory_tree", json!({ "path": "/tmp" }), "x.py", "tmp"),
        ("get_file_info", json!({ "path": "/tmp/x.py" }), "path: tmp/x.py", "tmp/x.py"),
        ("search_files", json!({ "path": "/tmp", "pattern": "*.py" }), "tmp/x.py", "tmp"),
        ("grep", json!({ "path": "/tmp", "pattern": "c" }), "tmp/x.py:2:c", "tmp"),
        ("exec", json!({ "command": "cat x.py", "cwd": "/tmp" }), "a\nc", "tmp"),
        (
            "move_file",
            json!({ "source": "/tmp/x.py", "destination": "/tmp/y.py" }),
            "Successfully moved tmp/x.py to tmp/y.py",
            "tmp/y.py",
        ),
        ("delete", json!({ "path": "/tmp/y.py" }), "Successfully deleted tmp/y.py", "tmp/y.py"),
    ] {
        let result = caller.result(tool, arguments.clone()).await;
        let text = text(&result);
        assert_ne!(result.is_error, Some(true), "{tool}: {text}");
        assert!(text.contains(says), "{tool}: {text}");
        let note = format!("was taken as '{path}' of the workspace");
        let seen = format!("commands find it at '{root}/{path}'");
        assert!(text.contains(&note) && text.contains(&seen), "{tool}: {text}");
    }
}

#[tokio::test]
async fn the_home_directory_is_the_root_and_no_directory_of_that_name_is_made() {
    let place = Place::local();
    let caller = place.call().await;
    for (given, path) in
        [("~/n", "n"), ("~/d/m", "d/m"), ("$HOME/o", "o"), ("${HOME}/p", "p"), ("~//q", "q")]
    {
        let arguments = json!({ "path": given, "content": given });
        let value = caller.value("write_file", arguments).await;
        assert_eq!(value["content"], format!("Successfully wrote to {path}"));
        assert_eq!(value["path"], path);
        let note = value["note"].as_str().unwrap();
        assert!(note.contains("~ is the workspace root") && note.contains(given), "{note}");
        assert_eq!(place.backend.read_text(path).await.unwrap(), given);
    }
    let listed = caller.text("list_directory", json!({ "path": "~" })).await;
    assert!(listed.starts_with("[DIR] d\n[FILE] n\n[FILE] o\n[FILE] p\n[FILE] q\n["), "{listed}");
    // One that is there can still be named.
    let arguments = json!({ "path": "./~/x", "content": "" });
    assert_eq!(caller.text("write_file", arguments).await, "Successfully wrote to ~/x");
}

#[tokio::test]
async fn paths_below_the_root_are_answered_without_a_note() {
    let place = Place::local();
    let root = place.keep.as_ref().unwrap().path().to_str().unwrap().to_owned();
    let caller = place.call().await;
    for (given, path) in [
        ("a.txt".to_owned(), "a.txt"),
        ("./b/../a.txt".to_owned(), "a.txt"),
        (format!("{root}/a.txt"), "a.txt"),
    ] {
        let value = caller.value("write_file", json!({ "path": given, "content": "" })).await;
        let expect = json!({
            "content": format!("Successfully wrote to {path}"),
            "path": path,
            "commandPath": format!("{root}/{path}"),
        });
        assert_eq!(value, expect);
    }
}

#[tokio::test]
async fn a_missing_file_outside_the_workspace_is_told_as_such() {
    let place = Place::local();
    let caller = place.call().await;
    let refusal = caller.refusal("read_text_file", json!({ "path": "/tmp/out.log" })).await;
    assert!(refusal.starts_with("read 'tmp/out.log': "), "{refusal}");
    assert!(refusal.contains("'/tmp/out.log' is not below the workspace root"), "{refusal}");
    let memory = Place::memory().call().await;
    let refusal = memory.refusal("read_text_file", json!({ "path": "/tmp/out.log" })).await;
    assert!(!refusal.contains("workspace root"), "its root is /: {refusal}");
}

#[tokio::test]
async fn bytes_of_a_file_are_sent_once() {
    let place = Place::memory();
    place.fill(&[("a.png", "pixels")]).await;
    let caller = place.call().await;
    let result = caller.result("read_media_file", json!({ "path": "a.png" })).await;
    let value = serde_json::to_value(&result).unwrap();
    assert_eq!(value["content"][0]["data"], "cGl4ZWxz");
    assert_eq!(value.to_string().matches("cGl4ZWxz").count(), 1, "{value}");
    assert_eq!(value["structuredContent"], Value::Null);
    let tool = caller.tools().await.into_iter().find(|tool| tool.name == "read_media_file");
    assert_eq!(tool.unwrap().output_schema, None);
}
