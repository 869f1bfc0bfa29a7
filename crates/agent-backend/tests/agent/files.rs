//! The filesystem toolset: where its paths count from, and what it answers.

use std::os::unix::fs::symlink;

use ab_testkit::expect::expect_error;
use agent_backend::ErrorKind;
use agent_backend::agent::{
    AgentDefinition, FilesystemToolset, MemoryPerSession, SessionOptions, ToolContent,
};
use serde_json::json;

use super::{call, failed, local, session, worked};

fn reading() -> FilesystemToolset {
    FilesystemToolset::new()
}

#[tokio::test]
async fn the_root_of_the_toolset_counts_from_the_backend() {
    let foo = tempfile::tempdir().unwrap();
    std::fs::create_dir(foo.path().join("tmp")).unwrap();
    std::fs::write(foo.path().join("tmp/a.txt"), "below foo\n").unwrap();
    std::fs::write(foo.path().join("secret.txt"), "above").unwrap();
    let backend = local(foo.path());
    for root in ["/tmp", "tmp", "./tmp/", "sub/../tmp"] {
        let (_session, tools) = session(&backend, reading().rooted_at(root)).await;
        for path in ["a.txt", "/a.txt"] {
            let read = call(&tools, "read_text_file", json!({ "path": path })).await;
            assert!(worked(read).starts_with("below foo\n"), "{root} {path}");
        }
        // Said, not silent: the directory counts from the backend.
        assert!(tools.instructions().contains("the directory 'tmp'"), "{}", tools.instructions());
        for path in ["../secret.txt", "x/../../secret.txt"] {
            failed(call(&tools, "read_text_file", json!({ "path": path })).await, "leave");
        }
    }
    // Another absolute path is not that of the host, and the answer says so.
    let (_session, tools) = session(&backend, reading()).await;
    let read = call(&tools, "read_text_file", json!({ "path": "/tmp/a.txt" })).await;
    let text = worked(read);
    assert!(text.contains("below foo") && text.contains("was taken as 'tmp/a.txt'"), "{text}");
}

#[tokio::test]
async fn a_root_outside_the_backend_is_refused_when_tools_are_listed() {
    let definition = AgentDefinition::builder()
        .backend(MemoryPerSession)
        .toolset(reading().rooted_at("../elsewhere"))
        .build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    expect_error(session.tools().await, ErrorKind::PathEscape);
}

#[tokio::test]
async fn a_drive_letter_does_not_lead_out_of_the_backend() {
    let foo = tempfile::tempdir().unwrap();
    let backend = local(foo.path());
    // On this system a drive letter and a backslash are characters of a name.
    let rooted = FilesystemToolset::new().allow_writes().rooted_at("C:\\tmp");
    let (_session, tools) = session(&backend, rooted).await;
    worked(call(&tools, "write_file", json!({ "path": "D:\\b.txt", "content": "x" })).await);
    assert_eq!(std::fs::read(foo.path().join("C:\\tmp/D:\\b.txt")).unwrap(), b"x");
    assert_eq!(worked(call(&tools, "read_text_file", json!({ "path": "D:\\b.txt" })).await), "x");
}

#[tokio::test]
async fn an_empty_file_is_a_valid_result() {
    let backend = agent_backend::memory();
    backend.write("empty.txt", "").await.unwrap();
    backend.write("empty.png", "").await.unwrap();
    let (_session, tools) = session(&backend, reading()).await;
    let read = call(&tools, "read_text_file", json!({ "path": "empty.txt" })).await;
    assert_eq!(read.data.as_ref().unwrap()["content"], "");
    worked(read);
    let picture = call(&tools, "read_media_file", json!({ "path": "empty.png" })).await;
    let expect = ToolContent::Media { mime_type: "image/png".to_owned(), base64: String::new() };
    assert_eq!(picture.content[0], expect);
}

#[tokio::test]
async fn a_link_out_of_the_root_is_refused_and_one_inside_is_followed() {
    let foo = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "s3cret").unwrap();
    std::fs::create_dir(foo.path().join("tmp")).unwrap();
    std::fs::write(foo.path().join("above.txt"), "above").unwrap();
    std::fs::write(foo.path().join("tmp/real.txt"), "real").unwrap();
    symlink(outside.path(), foo.path().join("tmp/out")).unwrap();
    symlink("../above.txt", foo.path().join("tmp/up.txt")).unwrap();
    symlink("real.txt", foo.path().join("tmp/link.txt")).unwrap();
    let backend = local(foo.path());
    let (_session, tools) = session(&backend, reading().allow_writes().rooted_at("tmp")).await;
    for path in ["out/secret", "up.txt"] {
        let text = failed(call(&tools, "read_text_file", json!({ "path": path })).await, "");
        assert!(!text.contains("s3cret") && !text.contains("above\n"), "{text}");
        let write = json!({ "path": path, "content": "changed" });
        failed(call(&tools, "write_file", write).await, "");
    }
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"s3cret");
    assert_eq!(std::fs::read(foo.path().join("above.txt")).unwrap(), b"above");
    let read = call(&tools, "read_text_file", json!({ "path": "link.txt" })).await;
    assert!(worked(read).starts_with("real"));
}

#[tokio::test]
async fn a_binary_file_is_named_not_decoded_as_text() {
    let backend = agent_backend::memory();
    let bytes: Vec<u8> = (0..=255).collect();
    backend.write("data.bin", bytes.clone()).await.unwrap();
    let (_session, tools) = session(&backend, reading()).await;
    let text =
        failed(call(&tools, "read_text_file", json!({ "path": "data.bin" })).await, "binary");
    assert!(text.contains("read_media_file") && !text.contains('\u{fffd}'), "{text}");
    // All bytes come as they are: a backend takes and gives more than text.
    let media = call(&tools, "read_media_file", json!({ "path": "data.bin" })).await;
    let [ToolContent::Media { mime_type, base64 }] = media.content.as_slice() else {
        panic!("{media:?}")
    };
    assert_eq!(mime_type, "application/octet-stream");
    assert_eq!(base64.len(), bytes.len().div_ceil(3) * 4);
    assert!(base64.starts_with("AAECAwQFBgc"), "{base64}");
}

#[tokio::test]
async fn pictures_of_every_usual_type_are_pictures() {
    let backend = agent_backend::memory();
    let (_session, tools) = session(&backend, reading()).await;
    for (name, mime) in [
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.jpeg", "image/jpeg"),
        ("a.gif", "image/gif"),
        ("a.webp", "image/webp"),
        ("a.svg", "image/svg+xml"),
        ("a.bmp", "image/bmp"),
        ("a.ico", "image/x-icon"),
    ] {
        backend.write(name, vec![0_u8, 1, 2]).await.unwrap();
        let media = call(&tools, "read_media_file", json!({ "path": name })).await;
        let expect = ToolContent::Media { mime_type: mime.to_owned(), base64: "AAEC".to_owned() };
        assert_eq!(media.content, [expect], "{name}");
    }
}

#[tokio::test]
async fn paths_in_answers_have_forward_slashes_and_are_accepted_again() {
    let backend = agent_backend::memory();
    backend.write("src/deep/a b.rs", "fn main() {}\n").await.unwrap();
    let (_session, tools) = session(&backend, reading()).await;
    let found = call(&tools, "search_files", json!({ "path": ".", "pattern": "*.rs" })).await;
    let path = worked(found);
    assert_eq!(path, "src/deep/a b.rs");
    let read = call(&tools, "read_text_file", json!({ "path": path })).await;
    assert_eq!(worked(read), "fn main() {}\n");
}

#[tokio::test]
async fn a_window_of_lines_says_where_it_is_and_how_to_go_on() {
    let backend = agent_backend::memory();
    let text: String = (1..=10).map(|line| format!("line {line}\n")).collect();
    backend.write("ten.txt", text).await.unwrap();
    let (_session, tools) = session(&backend, reading()).await;
    let window = json!({ "path": "ten.txt", "offset": 3, "limit": 2 });
    let read = call(&tools, "read_text_file", window).await;
    let data = read.data.clone().unwrap();
    assert_eq!(data["content"], "line 3\nline 4\n");
    let numbers = ["firstLine", "lastLine", "totalLines", "nextOffset"].map(|name| &data[name]);
    assert_eq!(numbers, [&json!(3), &json!(4), &json!(10), &json!(5)]);
    let last = json!({ "path": "ten.txt", "offset": 9 });
    let data = call(&tools, "read_text_file", last).await.data.unwrap();
    assert!(data.get("nextOffset").is_none(), "{data}");
}

#[tokio::test]
async fn wrong_arguments_are_an_answer_that_names_them() {
    let backend = agent_backend::memory();
    backend.write("a.txt", "one").await.unwrap();
    let (_session, tools) = session(&backend, reading().allow_writes()).await;
    for (name, arguments, says) in [
        ("read_text_file", json!({}), "needs 'path'"),
        ("read_text_file", json!({ "path": 7 }), "'path' must be a string"),
        ("read_text_file", json!({ "file": "a.txt" }), "has no argument 'file'"),
        ("read_text_file", json!({ "path": "a.txt", "limit": 0 }), "of at least 1"),
        ("read_text_file", json!("a.txt"), "must be a JSON object"),
        ("edit_file", json!({ "path": "a.txt", "edits": "no" }), "'edits' must be"),
        ("write_file", json!({ "path": "b.txt" }), "needs 'content'"),
        ("read_text_file", json!({ "path": "aa.txt" }), "a.txt"),
    ] {
        failed(call(&tools, name, arguments).await, says);
    }
    assert!(!backend.exists("b.txt").await.unwrap());
}

#[tokio::test]
async fn write_tools_are_there_only_when_they_are_allowed() {
    let backend = agent_backend::memory();
    let changing = ["write_file", "edit_file", "create_directory", "move_file", "delete"];
    let (_session, tools) = session(&backend, reading()).await;
    for name in changing {
        assert!(tools.find_tool(name).is_none(), "{name}");
        failed(
            call(&tools, name, json!({ "path": "a", "content": "b" })).await,
            "there is no tool",
        );
    }
    assert!(tools.find_tool("read_text_file").is_some() && tools.find_tool("grep").is_some());
    let (_session, tools) = session(&backend, reading().allow_writes()).await;
    for name in changing {
        assert!(tools.find_tool(name).is_some(), "{name}");
    }
    assert!(tools.find_tool("exec").is_none(), "commands are another toolset");
    assert_eq!(backend.readdir(".").await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn two_toolsets_have_two_roots_under_two_prefixes() {
    let backend = agent_backend::memory();
    backend.write("docs/a.txt", "doc").await.unwrap();
    let definition = AgentDefinition::builder()
        .backend(backend.clone())
        .toolset(reading().rooted_at("docs").name_prefix("docs_"))
        .toolset(reading().allow_writes().rooted_at("work"))
        .build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    let tools = session.tools().await.unwrap();
    let read = call(&tools, "docs_read_text_file", json!({ "path": "a.txt" })).await;
    assert_eq!(worked(read), "doc");
    // What was read as docs/a.txt is not work/a.txt.
    backend.write("work/a.txt", "other").await.unwrap();
    let write = json!({ "path": "a.txt", "content": "new" });
    failed(call(&tools, "write_file", write).await, "was not read");
    assert!(tools.find_tool("docs_write_file").is_none());
}
