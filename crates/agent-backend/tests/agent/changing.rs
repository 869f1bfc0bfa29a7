//! Files are read before they are changed, and parallel changes lose nothing.

use agent_backend::agent::{FilesystemToolset, SessionOptions};
use serde_json::{Value, json};

use super::{call, failed, local, session, worked};

fn writing() -> FilesystemToolset {
    FilesystemToolset::new().allow_writes()
}

fn write(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": content })
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({ "path": path, "edits": [{ "oldText": old, "newText": new }] })
}

fn read(path: &str) -> Value {
    json!({ "path": path })
}

#[tokio::test]
async fn a_file_must_be_read_before_it_is_overwritten_or_edited() {
    let backend = agent_backend::memory();
    backend.write("a.txt", "old\n").await.unwrap();
    let (_session, tools) = session(&backend, writing()).await;
    for (name, arguments) in
        [("write_file", write("a.txt", "new")), ("edit_file", edit("a.txt", "old", "new"))]
    {
        let text = failed(call(&tools, name, arguments).await, "was not read in this session");
        assert!(text.contains("read_text_file"), "{text}");
    }
    assert_eq!(backend.read_text("a.txt").await.unwrap(), "old\n");
    worked(call(&tools, "read_text_file", read("/a.txt")).await);
    worked(call(&tools, "edit_file", edit("a.txt", "old", "new")).await);
    // What the session wrote itself, it knows.
    worked(call(&tools, "edit_file", edit("a.txt", "new", "newer")).await);
    worked(call(&tools, "write_file", write("a.txt", "whole\n")).await);
    worked(call(&tools, "edit_file", edit("a.txt", "whole", "part")).await);
    assert_eq!(backend.read_text("a.txt").await.unwrap(), "part\n");
    // A new file needs no read; a missing one is told as missing.
    worked(call(&tools, "write_file", write("new/b.txt", "b")).await);
    failed(call(&tools, "edit_file", edit("none.txt", "a", "b")).await, "none.txt");
    // A dry run changes nothing and needs none either.
    backend.write("c.txt", "c").await.unwrap();
    let dry =
        json!({ "path": "c.txt", "edits": [{ "oldText": "c", "newText": "d" }], "dryRun": true });
    worked(call(&tools, "edit_file", dry).await);
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_read_is_stale() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a.txt"), "one\n").unwrap();
    let backend = local(root.path());
    let (_session, tools) = session(&backend, writing()).await;
    for (name, arguments) in
        [("write_file", write("a.txt", "mine")), ("edit_file", edit("a.txt", "o", "0"))]
    {
        worked(call(&tools, "read_text_file", read("a.txt")).await);
        // Somebody else, outside of all tools.
        std::fs::write(root.path().join("a.txt"), "two of another length\n").unwrap();
        let text = failed(call(&tools, name, arguments.clone()).await, "changed since it was read");
        assert!(text.contains("read it again"), "{text}");
        let now = std::fs::read_to_string(root.path().join("a.txt")).unwrap();
        assert_eq!(now, "two of another length\n");
        // It stays refused until it is read.
        failed(call(&tools, name, arguments).await, "was not read");
        std::fs::write(root.path().join("a.txt"), "one\n").unwrap();
    }
}

#[tokio::test]
async fn what_was_read_is_remembered_for_the_session_and_for_no_other() {
    let backend = agent_backend::memory();
    backend.write("a.txt", "a").await.unwrap();
    let (first, tools) = session(&backend, writing()).await;
    worked(call(&tools, "read_multiple_files", json!({ "paths": ["a.txt"] })).await);
    // The tools may be listed again.
    let again = first.tools().await.unwrap();
    worked(call(&again, "write_file", write("a.txt", "b")).await);
    let (_second, others) = session(&backend, writing()).await;
    failed(call(&others, "write_file", write("a.txt", "c")).await, "was not read");
    // Looked at as a picture, it was seen as well; moved, it is the same file.
    worked(call(&others, "read_media_file", read("a.txt")).await);
    worked(call(&others, "write_file", write("a.txt", "c")).await);
    worked(call(&others, "move_file", json!({ "source": "a.txt", "destination": "b.txt" })).await);
    worked(call(&others, "write_file", write("b.txt", "d")).await);
    worked(call(&others, "delete", read("b.txt")).await);
    // Another file in its place was not read.
    backend.write("b.txt", "of another").await.unwrap();
    failed(call(&others, "write_file", write("b.txt", "e")).await, "was not read");
}

#[tokio::test]
async fn an_ambiguous_edit_is_refused_and_says_how_often_the_text_occurs() {
    let backend = agent_backend::memory();
    backend.write("a.txt", "x = 1\nx = 1\n").await.unwrap();
    let (_session, tools) = session(&backend, writing()).await;
    worked(call(&tools, "read_text_file", read("a.txt")).await);
    let text = failed(call(&tools, "edit_file", edit("a.txt", "x = 1", "x = 2")).await, "2");
    assert!(text.contains("replaceAll"), "{text}");
    assert_eq!(backend.read_text("a.txt").await.unwrap(), "x = 1\nx = 1\n");
    let all = json!({ "oldText": "x = 1", "newText": "x = 2", "replaceAll": true });
    worked(call(&tools, "edit_file", json!({ "path": "a.txt", "edits": [all] })).await);
    assert_eq!(backend.read_text("a.txt").await.unwrap(), "x = 2\nx = 2\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_edits_of_one_file_all_take_effect() {
    let root = tempfile::tempdir().unwrap();
    let before: String = (0..32).map(|line| format!("line {line} old\n")).collect();
    std::fs::write(root.path().join("a.txt"), before).unwrap();
    let backend = local(root.path());
    let (_session, tools) = session(&backend, writing()).await;
    worked(call(&tools, "read_text_file", read("a.txt")).await);
    let calls = (0..32).map(|line| {
        let tools = tools.clone();
        let (old, new) = (format!("line {line} old\n"), format!("line {line} new\n"));
        tokio::spawn(async move { call(&tools, "edit_file", edit("a.txt", &old, &new)).await })
    });
    for edited in calls.collect::<Vec<_>>() {
        worked(edited.await.unwrap());
    }
    let expect: String = (0..32).map(|line| format!("line {line} new\n")).collect();
    assert_eq!(std::fs::read_to_string(root.path().join("a.txt")).unwrap(), expect);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_parallel_writes_of_a_new_file_by_two_sessions_one_is_told() {
    let backend = agent_backend::memory();
    let definition = agent_backend::agent::AgentDefinition::builder()
        .backend(backend.clone())
        .toolset(writing())
        .build();
    let mut calls = Vec::new();
    for number in 0..8 {
        let session = definition.start(SessionOptions::default()).await.unwrap();
        let tools = session.tools().await.unwrap();
        calls.push(tokio::spawn(async move {
            call(&tools, "write_file", write("a.txt", &number.to_string())).await.is_error
        }));
    }
    let mut refused = 0;
    for call in calls {
        refused += usize::from(call.await.unwrap());
    }
    assert_eq!(refused, 7, "one made the file, the others had not read it");
}

#[tokio::test]
async fn a_file_that_was_read_through_a_link_is_known_by_its_own_path() {
    use std::os::unix::fs::symlink;

    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    std::fs::create_dir(at("real")).unwrap();
    std::fs::write(at("real/a"), "a").unwrap();
    std::fs::write(at("real/b"), "b").unwrap();
    symlink("./real", at("link")).unwrap();
    symlink("../link/a", at("real/deep")).unwrap();
    let backend = local(root.path());
    let (_session, tools) = session(&backend, writing()).await;
    worked(call(&tools, "read_text_file", read("link/a")).await);
    worked(call(&tools, "edit_file", edit("real/a", "a", "one")).await);
    // Both paths are known now, and stay so whichever is written.
    worked(call(&tools, "read_text_file", read("real/a")).await);
    worked(call(&tools, "write_file", write("link/a", "two")).await);
    worked(call(&tools, "edit_file", edit("real/a", "two", "three")).await);
    worked(call(&tools, "edit_file", edit("real/deep", "three", "four")).await);
    assert_eq!(std::fs::read(at("real/a")).unwrap(), b"four");
    failed(call(&tools, "write_file", write("link/b", "x")).await, "was not read");
}

#[tokio::test]
async fn what_was_read_follows_a_directory_that_is_moved() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("d/deep")).unwrap();
    std::fs::write(root.path().join("d/deep/a"), "a").unwrap();
    let backend = local(root.path());
    let (_session, tools) = session(&backend, writing()).await;
    worked(call(&tools, "read_text_file", read("d/deep/a")).await);
    worked(call(&tools, "move_file", json!({ "source": "d", "destination": "e" })).await);
    worked(call(&tools, "write_file", write("e/deep/a", "b")).await);
    let file = json!({ "source": "e/deep/a", "destination": "a" });
    worked(call(&tools, "move_file", file).await);
    worked(call(&tools, "edit_file", edit("a", "b", "c")).await);
    worked(call(&tools, "move_file", json!({ "source": "a", "destination": "e/deep/a" })).await);
    worked(call(&tools, "delete", json!({ "path": "e", "recursive": true })).await);
    backend.write("e/deep/a", "of another").await.unwrap();
    failed(call(&tools, "write_file", write("e/deep/a", "d")).await, "was not read");
}
