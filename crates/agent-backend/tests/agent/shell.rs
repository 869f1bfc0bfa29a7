//! The shell toolset: only where the backend can execute, with long output kept in a file.

use agent_backend::agent::{
    AgentDefinition, FilesystemToolset, OUTPUT_DIRECTORY, SessionOptions, ShellToolset,
};
use serde_json::json;

use super::{call, failed, local, session, worked};

#[tokio::test]
async fn a_backend_that_cannot_execute_has_no_shell_tools() {
    let (_session, tools) = session(&agent_backend::memory(), ShellToolset::new()).await;
    assert!(tools.list().is_empty(), "{tools:?}");
}

#[tokio::test]
async fn commands_run_in_the_backend_of_the_session() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("sub")).unwrap();
    std::fs::write(root.path().join("a.txt"), "hello\n").unwrap();
    let backend = local(root.path());
    let (_session, tools) = session(&backend, ShellToolset::new()).await;
    let names: Vec<&str> = tools.list().iter().map(|tool| tool.name()).collect();
    let expect = ["exec", "process_output", "process_input", "process_kill", "process_list"];
    assert_eq!(names, expect);
    assert_eq!(worked(call(&tools, "exec", json!({ "command": "cat a.txt" })).await), "hello");
    let text = failed(call(&tools, "exec", json!({ "command": "echo no >&2; exit 3" })).await, "3");
    assert!(text.contains("no"), "{text}");
    let (_session, tools) = session(&backend, ShellToolset::new().rooted_at("sub")).await;
    worked(call(&tools, "exec", json!({ "command": "echo x > made" })).await);
    assert_eq!(std::fs::read(root.path().join("sub/made")).unwrap(), b"x\n");
}

#[tokio::test]
async fn long_output_goes_to_a_file_and_the_model_gets_both_ends_and_the_path() {
    let root = tempfile::tempdir().unwrap();
    let backend = local(root.path());
    let definition = AgentDefinition::builder()
        .backend(backend)
        .toolset(ShellToolset::new())
        .toolset(FilesystemToolset::new())
        .build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    let tools = session.tools().await.unwrap();
    let command = "i=0; while [ $i -lt 20000 ]; do echo \"number $i\"; i=$((i+1)); done";
    let result = call(&tools, "exec", json!({ "command": command })).await;
    let path = result.data.as_ref().unwrap()["outputPath"].as_str().unwrap().to_owned();
    assert!(path.starts_with(&format!("{OUTPUT_DIRECTORY}/exec-")), "{path}");
    let text = worked(result);
    assert!(text.starts_with("number 0\n") && text.contains("number 19999\n"), "both ends");
    assert!(text.len() < 110 * 1024, "{}", text.len());
    assert!(text.contains(&format!("in '{path}'")), "{}", &text[text.len() - 300..]);
    let all = std::fs::read_to_string(root.path().join(&path)).unwrap();
    assert_eq!(all.lines().count(), 20_000);
    let part = json!({ "path": path, "offset": 10_001, "limit": 1 });
    assert!(worked(call(&tools, "read_text_file", part).await).starts_with("number 10000\n"));
    // Version control does not take it for work.
    let ignore = root.path().join(OUTPUT_DIRECTORY).join(".gitignore");
    assert_eq!(std::fs::read(ignore).unwrap(), b"*\n");
    // Short output makes no file.
    let short = call(&tools, "exec", json!({ "command": "echo short" })).await;
    assert_eq!(short.data.unwrap().get("outputPath"), None);
}
