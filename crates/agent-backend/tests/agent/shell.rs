//! The shell toolset: only where the backend can execute, with long output kept in a file.

use agent_backend::agent::{
    AgentDefinition, FilesystemToolset, LONG_OUTPUT_DIRECTORY, SessionOptions, ShellToolset,
    SkillsToolset,
};
use serde_json::json;

use super::{call, failed, local, session, worked};

#[tokio::test]
async fn a_backend_that_cannot_execute_has_no_shell_tools() {
    let (_session, tools) = session(&agent_backend::memory(), ShellToolset::new()).await;
    assert!(tools.all_tools().is_empty(), "{tools:?}");
}

#[tokio::test]
async fn commands_run_in_the_backend_of_the_session() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("sub")).unwrap();
    std::fs::write(root.path().join("a.txt"), "hello\n").unwrap();
    let backend = local(root.path());
    let (_session, tools) = session(&backend, ShellToolset::new()).await;
    let names: Vec<&str> = tools.all_tools().iter().map(|tool| tool.name()).collect();
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
    assert!(path.starts_with(&format!("{LONG_OUTPUT_DIRECTORY}/exec-")), "{path}");
    let text = worked(result);
    assert!(text.starts_with("number 0\n") && text.contains("number 19999\n"), "both ends");
    assert!(text.len() < 110 * 1024, "{}", text.len());
    assert!(text.contains(&format!("in '{path}'")), "{}", &text[text.len() - 300..]);
    let all = std::fs::read_to_string(root.path().join(&path)).unwrap();
    assert_eq!(all.lines().count(), 20_000);
    let part = json!({ "path": path, "offset": 10_001, "limit": 1 });
    assert!(worked(call(&tools, "read_text_file", part).await).starts_with("number 10000\n"));
    // Version control does not take it for work.
    let ignore = root.path().join(LONG_OUTPUT_DIRECTORY).join(".gitignore");
    assert_eq!(std::fs::read(ignore).unwrap(), b"*\n");
    // Short output makes no file.
    let short = call(&tools, "exec", json!({ "command": "echo short" })).await;
    assert_eq!(short.data.unwrap().get("outputPath"), None);
}

#[tokio::test]
async fn paths_that_a_model_is_told_are_right_for_its_tools_whatever_their_roots() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("sub")).unwrap();
    let skill = root.path().join("skills/long");
    std::fs::create_dir_all(&skill).unwrap();
    let body = "a line of a skill\n".repeat(10_000);
    let text = format!("---\nname: long\ndescription: Long\n---\n{body}");
    std::fs::write(skill.join("SKILL.md"), text).unwrap();
    std::fs::write(skill.join("run.sh"), "echo ran").unwrap();
    let start = |files: Option<FilesystemToolset>, shell: Option<ShellToolset>| {
        let backend = local(root.path());
        async move {
            let mut builder = AgentDefinition::builder().backend(backend);
            if let Some(shell) = shell {
                builder = builder.toolset(shell);
            }
            if let Some(files) = files {
                builder = builder.toolset(files);
            }
            let definition = builder.toolset(SkillsToolset::new()).build();
            let session = definition.start(SessionOptions::default()).await.unwrap();
            session.tools().await.unwrap()
        }
    };
    let long = json!({ "command": "yes line | head -n 100000" });
    let skill = json!({ "skillName": "long" });
    let files = || FilesystemToolset::new().name_prefix("fs_");

    let shell = ShellToolset::new().rooted_at("sub");
    let tools = start(Some(files()), Some(shell.clone())).await;
    assert!(tools.instructions().contains("Commands work in the directory 'sub'"));
    let text = worked(call(&tools, "exec", long.clone()).await);
    assert!(text.contains("'; fs_read_text_file and fs_grep show more of it"), "{}", end(&text));
    let (_, path) = text.rsplit_once("are in '").unwrap();
    let (path, _) = path.split_once('\'').unwrap();
    assert!(path.starts_with("sub/.agent-output/"), "{path}");
    worked(call(&tools, "fs_read_text_file", json!({ "path": path })).await);
    // Commands of `sub` do not see the skill.
    let text = worked(call(&tools, "use_skill", skill.clone()).await);
    assert!(text.contains("fs_read_text_file with path 'skills/long/SKILL.md'"), "{}", end(&text));
    assert!(text.ends_with("[files of this skill are in 'skills/long': skills/long/run.sh]"));

    let tools = start(Some(files().rooted_at("skills")), Some(ShellToolset::new())).await;
    let text = worked(call(&tools, "use_skill", skill.clone()).await);
    assert!(text.contains("fs_read_text_file with path 'long/SKILL.md'"), "{}", end(&text));
    assert!(text.contains("are in 'long', which commands find at '/"), "{}", end(&text));
    assert!(text.ends_with("/skills/long': long/run.sh]"), "{}", end(&text));
    let (_, at) = text.rsplit_once("find at '").unwrap();
    let command = format!("sh {}/run.sh", at.split_once('\'').unwrap().0);
    assert_eq!(worked(call(&tools, "exec", json!({ "command": command })).await), "ran");
    let text = worked(call(&tools, "exec", long.clone()).await);
    let (_, path) = text.rsplit_once("are in '").unwrap();
    let (path, rest) = path.split_once('\'').unwrap();
    assert!(path.starts_with('/') && rest.starts_with(", where commands find it"), "{path}{rest}");
    worked(call(&tools, "exec", json!({ "command": format!("test -s {path}") })).await);

    let tools = start(None, None).await;
    let text = worked(call(&tools, "use_skill", skill).await);
    assert!(text.contains("no tool of this session shows the rest"), "{}", end(&text));
    assert!(text.ends_with("in 'skills/long', cannot be read by other tools: run.sh]"));
}

fn end(text: &str) -> &str {
    &text[text.len().saturating_sub(300)..]
}

#[tokio::test]
async fn hints_name_tools_with_their_prefix() {
    let backend = agent_backend::memory();
    backend.write("a.txt", "old\n").await.unwrap();
    backend.write("a.bin", vec![0_u8; 10]).await.unwrap();
    let files = FilesystemToolset::new().allow_writes().name_prefix("fs_");
    let (_session, tools) = session(&backend, files).await;
    let write = json!({ "path": "a.txt", "content": "new" });
    failed(call(&tools, "fs_write_file", write).await, "read it with fs_read_text_file first");
    let read = call(&tools, "fs_read_text_file", json!({ "path": "a.bin" })).await;
    failed(read, "fs_read_media_file returns its bytes");
    let several = json!({ "paths": ["a.bin"] });
    let text = worked(call(&tools, "fs_read_multiple_files", several).await);
    assert!(text.contains("fs_read_media_file returns its bytes"), "{text}");
    // No description names a tool that the model does not have.
    for tool in tools.all_tools() {
        let texts = format!("{} {}", tool.description(), tool.input_schema());
        for other in tools.all_tools() {
            let plain = other.name().strip_prefix("fs_").unwrap();
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let named = texts.split(|c| !is_word(c)).any(|word| word == plain);
            assert!(!named || ["delete", "exec"].contains(&plain), "{}: {plain}", tool.name());
        }
    }
}
