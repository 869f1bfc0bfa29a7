//! `examples/agent.rs` as a process, against a scripted model over HTTP that chooses its tool calls.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use ab_testkit::host::report_optional_program_missing;
use ab_testkit::scripted_model::{LanguageModelStep, ScriptedLanguageModel};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// An example of this package, which cargo builds beside its tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples").join(name)
}

const SKILL: &str = "---\nname: house-style\ndescription: How functions are written here\n---\n\
                     Functions end with a comment that says checked.\n";

/// A project with a bug, a test and a skill.
fn project(root: &Path) {
    std::fs::create_dir_all(root.join("skills/house-style")).unwrap();
    std::fs::write(root.join("skills/house-style/SKILL.md"), SKILL).unwrap();
    std::fs::write(root.join("add.sh"), "echo $(($1 - $2))\n").unwrap();
    std::fs::write(root.join("test.sh"), "test \"$(sh add.sh 2 3)\" = 5 && echo passed\n").unwrap();
}

fn call(tool: &str, arguments: Value) -> LanguageModelStep {
    LanguageModelStep::Call(tool.to_owned(), arguments)
}

/// What the agent printed, and whether it ended well.
async fn agent(model: &ScriptedLanguageModel, root: &Path, answers: &str) -> (String, bool) {
    run(&example("agent"), model, root, answers).await
}

async fn run(
    program: &Path,
    model: &ScriptedLanguageModel,
    root: &Path,
    answers: &str,
) -> (String, bool) {
    let mut command = Command::new(program);
    command.arg(root).arg("Mend add.sh").env_clear().kill_on_drop(true);
    command.env("OPENAI_BASE_URL", format!("{}/v1", model.url())).env("OPENAI_MODEL", "scripted");
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(answers.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[tokio::test]
async fn the_example_edits_a_project_runs_its_tests_uses_a_skill_and_asks_once() {
    let root = tempfile::tempdir().unwrap();
    project(root.path());
    let fixed = json!([{ "oldText": "$1 - $2))", "newText": "$1 + $2)) # checked" }]);
    let model = ScriptedLanguageModel::start(vec![
        call("use_skill", json!({ "skillName": "house-style" })),
        // Models forget to read first; the answer tells them.
        call("edit_file", json!({ "path": "add.sh", "edits": fixed })),
        call("read_text_file", json!({ "path": "add.sh" })),
        call("edit_file", json!({ "path": "add.sh", "edits": fixed })),
        call("exec", json!({ "command": "sh test.sh" })),
        LanguageModelStep::Say("The test passes.".to_owned()),
    ])
    .await;
    let (printed, succeeded) = agent(&model, root.path(), "y\n").await;
    assert!(succeeded, "{printed}");
    let text = std::fs::read_to_string(root.path().join("add.sh")).unwrap();
    assert_eq!(text, "echo $(($1 + $2)) # checked\n");
    assert_eq!(printed.matches("[y/N]").count(), 1, "{printed}");
    assert!(printed.contains(r#"? exec {"command":"sh test.sh"} [y/N]"#), "{printed}");
    assert!(printed.ends_with("The test passes.\n"), "{printed}");
    // What the model was told, by the model's own account.
    let conversation = model.last_request();
    let messages = conversation["messages"].as_array().unwrap();
    let system = messages[0]["content"].as_str().unwrap();
    assert!(system.contains("- house-style: How functions are written here"), "{system}");
    let results: Vec<&str> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    let [skill, refused, read, edited, ran] = results.as_slice() else { panic!("{results:?}") };
    assert!(skill.contains("a comment that says checked"), "{skill}");
    assert!(refused.contains("was not read in this session"), "{refused}");
    assert!(read.contains("$1 - $2"), "{read}");
    assert!(edited.contains("+echo $(($1 + $2)) # checked"), "{edited}");
    assert_eq!(*ran, "passed");
    assert_eq!(model.requests().len(), 6);
}

#[tokio::test]
async fn a_command_that_is_not_approved_does_not_run_and_the_model_is_told() {
    let root = tempfile::tempdir().unwrap();
    project(root.path());
    let model = ScriptedLanguageModel::start(vec![
        call("exec", json!({ "command": "touch ran" })),
        LanguageModelStep::Say("Then not.".to_owned()),
    ])
    .await;
    // An answer that is no yes, and no answer at all.
    for answers in ["n\n", ""] {
        let (printed, succeeded) = agent(&model, root.path(), answers).await;
        assert!(succeeded && printed.ends_with("Then not.\n"), "{printed}");
        assert!(!root.path().join("ran").exists());
        let conversation = model.last_request();
        let told = conversation["messages"][3]["content"].as_str().unwrap().to_owned();
        assert!(told.contains("said no"), "{told}");
    }
}

#[tokio::test]
async fn the_example_of_a_provider_finds_its_machine_again() {
    let output = Command::new(example("sandbox_provider")).output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "create a machine for chat-7\nstart it\nfrom the first turn\n");
}

/// `cargo xtask soak rig` builds the example, which is no part of the workspace, and names it by the variable.
#[tokio::test]
async fn slow_the_rig_example_does_a_task_with_our_tools() {
    let Some(program) = std::env::var_os("AB_RIG_AGENT") else {
        return report_optional_program_missing("the example for rig");
    };
    let root = tempfile::tempdir().unwrap();
    project(root.path());
    let fixed = json!([{ "oldText": "$1 - $2))", "newText": "$1 + $2))" }]);
    let model = ScriptedLanguageModel::start(vec![
        call("edit_file", json!({ "path": "add.sh", "edits": fixed })),
        call("read_text_file", json!({ "path": "add.sh" })),
        call("edit_file", json!({ "path": "add.sh", "edits": fixed })),
        call("exec", json!({ "command": "sh test.sh" })),
        LanguageModelStep::Say("The test passes.".to_owned()),
    ])
    .await;
    let (printed, succeeded) = run(Path::new(&program), &model, root.path(), "").await;
    assert!(succeeded, "{printed}");
    assert!(printed.ends_with("The test passes.\n"), "{printed}");
    let text = std::fs::read_to_string(root.path().join("add.sh")).unwrap();
    assert_eq!(text, "echo $(($1 + $2))\n");
    let told = model.last_request()["messages"].to_string();
    assert!(told.contains("was not read in this session"), "a failed call is an answer: {told}");
    assert!(told.contains("passed"), "{told}");
}

/// The README shows the loop of the example in 25 lines.
#[test]
fn the_readme_shows_the_example_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## Your own agent\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let block = section.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(block.lines().count() <= 25, "{}", block.lines().count());
    let example = include_str!("../../examples/agent.rs");
    let lines: Vec<&str> = example.lines().map(str::trim).collect();
    for line in block.lines().map(str::trim).filter(|line| !line.is_empty()) {
        assert!(lines.contains(&line), "{line:?} is not in examples/agent.rs");
    }
}
