//! Runs: operations in order, one event each.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ab_core::process::OutputChannel;
use ab_core::{ApprovalRequest, NoApprover};
use ab_policy::PolicyDocument;
use ab_spaces::{
    MessageStatus, Operation, OperationApprovalDecision, ProtocolEvent, RunObserver,
    SpaceWorkspace, run_operations_message,
};
use ab_testkit::operations::{OperationsCase, without_times};
use serde_json::{Value, json};

use crate::stage::{Decider, Stage, document, is_empty, run};

/// Runs the operations of a case and checks their events.
async fn check(case: OperationsCase, stage: &Stage) {
    (case.plant)(stage.root.path());
    let message = stage.run((case.operations)()).await;
    assert_eq!(message.status, MessageStatus::Completed);
    assert_eq!(message.protocol_version, "1.0");
    let events: Vec<Value> = message.events.iter().map(|event| json!(event)).collect();
    (case.check)(&events);
}

#[tokio::test]
async fn operations_run_in_order_and_each_yields_one_event() {
    check(OperationsCase::CONTENTS, &Stage::permissive()).await;
}

#[tokio::test]
async fn output_is_whole_however_the_command_writes_it() {
    let stage = Stage::permissive();
    // Characters of two bytes, in writes that cut them, on both channels in turn.
    let command = "i=0; while [ $i -lt 3000 ]; do printf '\\303'; printf '\\274 %s\\n' $i; \
                   printf '\\342\\202' >&2; printf '\\254%s\\n' $i >&2; i=$((i+1)); done";
    let events = stage.events(json!([{ "type": "shell", "command": command }])).await;
    let lines =
        |mark: &str| (0..3000).map(|number| format!("{mark}{number}\n")).collect::<String>();
    assert_eq!(events[0]["stdout"], lines("ü "), "stdout");
    assert_eq!(events[0]["stderr"], lines("€"), "stderr");
}

#[tokio::test]
async fn failures_say_why_and_do_not_stop_the_run() {
    let stage = Stage::permissive();
    check(OperationsCase::FAILURES, &stage).await;
    assert!(stage.path("dir").is_dir());
    assert_eq!(fs::read_to_string(stage.path("text")).expect("text"), "new");
}

#[tokio::test]
async fn an_edit_replaces_the_first_occurrence_and_takes_texts_as_they_are() {
    let stage = Stage::permissive();
    fs::write(stage.path("text"), "aXbX").expect("a file");
    let edit = json!([{ "type": "editFile", "path": "text",
        "edits": [{ "oldContent": "X", "newContent": "$& $1" }] }]);
    assert_eq!(stage.events(edit).await[0]["editsApplied"], 1);
    assert_eq!(fs::read_to_string(stage.path("text")).expect("text"), "a$& $1bX");
}

#[tokio::test]
async fn commands_report_exit_code_output_and_duration() {
    let space_env = BTreeMap::from([("FROM_SPACE".to_owned(), "s".to_owned())]);
    let policy = document(json!("permissive"), json!({ "network": { "enabled": false } }));
    let stage = Stage::with_env(policy, space_env);
    check(OperationsCase::COMMANDS, &stage).await;
    let both =
        json!([{ "type": "shell", "command": "echo $FROM_SPACE$OWN", "env": { "OWN": "o" } }]);
    assert_eq!(stage.events(both).await[0]["stdout"], "so\n");
}

#[tokio::test]
async fn command_in_a_missing_directory_names_the_directory() {
    let stage = Stage::permissive();
    fs::write(stage.path("file"), "").expect("a file");
    for cwd in ["missing", "file"] {
        let events = stage.events(json!([{ "type": "shell", "command": "ls", "cwd": cwd }])).await;
        let error = events[0]["error"].as_str().expect("an error");
        assert!(error.starts_with(&format!("cwd \"{cwd}\": ")), "{error}");
    }
}

#[tokio::test]
async fn long_output_is_cut_and_ends_with_a_note() {
    const KEPT: usize = 1024 * 1024;
    let line = "head -c 1048577 /dev/zero | tr '\\0' x";
    let command = format!("{line}; {line} >&2; echo end >&2");
    let stage = Stage::permissive();
    let event = stage.events(json!([{ "type": "shell", "command": command }])).await.remove(0);
    for (channel, total) in [("stdout", KEPT + 1), ("stderr", KEPT + 5)] {
        let (kept, note) = event[channel].as_str().expect("text").split_at(KEPT);
        assert!(kept.bytes().all(|byte| byte == b'x'), "{channel}");
        let expect = format!("\n[output truncated: the first {KEPT} of {total} bytes]\n");
        assert_eq!(note, expect, "{channel}");
    }
}

#[tokio::test]
async fn a_policy_shortens_the_time_of_commands() {
    let policy = document(
        json!("permissive"),
        json!({ "network": { "enabled": false }, "shell": { "timeout": 1000 } }),
    );
    let stage = Stage::new(policy);
    let events = stage.events(json!([{ "type": "shell", "command": "sleep 60" }])).await;
    assert_eq!(events[0]["timedOut"], true, "{}", events[0]);
}

#[tokio::test]
async fn a_message_that_is_not_valid_performs_nothing() {
    let stage = Stage::permissive();
    let message = stage
        .run(json!([
            { "type": "createFile", "path": "a", "content": "x" },
            { "type": "createFile", "path": "/b", "content": "x" },
        ]))
        .await;
    assert_eq!(message.status, MessageStatus::Error);
    let event = json!(message.events[0]);
    assert_eq!((&event["type"], &event["category"]), (&json!("error"), &json!("validation")));
    assert_eq!(event["details"]["issues"][0]["pointer"], "/operations/1/path");
    assert!(is_empty(stage.root.path()));
}

#[tokio::test]
async fn a_memory_space_has_files_and_says_that_it_has_no_commands() {
    let policy = document(json!("permissive"), json!({}));
    let space = SpaceWorkspace::open_memory(policy, BTreeMap::new(), Arc::new(NoApprover));
    let space = space.expect("a space");
    let operations = json!([
        { "type": "createFile", "path": "a", "content": "x" },
        { "type": "readFile", "path": "a" },
        { "type": "shell", "command": "ls" },
    ]);
    let message =
        run(&space, operations, &Decider::new(OperationApprovalDecision::LeavePending)).await;
    let events: Vec<Value> = message.events.iter().map(|event| json!(event)).collect();
    assert_eq!(events[1]["content"], "x");
    assert_eq!(events[2]["success"], false);
    let why = events[2]["error"].as_str().expect("a reason");
    assert!(why.contains("memory"), "{why}");
    assert_eq!(message.status, MessageStatus::Completed);
}

#[tokio::test]
async fn a_workspace_that_is_gone_ends_the_run_with_an_execution_error() {
    let stage = Stage::permissive();
    stage.space.backend().destroy().await.expect("destroyed");
    let message = stage
        .run(json!([{ "type": "readFile", "path": "a" }, { "type": "message", "content": "x" }]))
        .await;
    assert_eq!(message.status, MessageStatus::Error);
    let events = json!(message.events);
    assert_eq!(
        (&events[0]["type"], &events[0]["category"]),
        (&json!("error"), &json!("execution"))
    );
    assert_eq!(message.events.len(), 1);
}

#[tokio::test]
async fn an_approved_operation_runs_once_and_is_not_asked_about_again() {
    let stage = Stage::new(PolicyDocument::preset("standard").expect("a preset"));
    fs::create_dir(stage.path("data")).expect("a directory");
    let operations = json!([
        { "type": "shell", "command": "rm -rf data/" },
        { "type": "createFile", "path": "after", "content": "" },
    ]);
    let approving = Decider::new(OperationApprovalDecision::Approve);
    let message = run(&stage.space, operations.clone(), &approving).await;
    assert_eq!(approving.asked.load(Ordering::SeqCst), 1);
    assert_eq!(message.status, MessageStatus::Completed);
    let events = json!(message.events);
    assert_eq!((&events[0]["type"], &events[0]["exitCode"]), (&json!("shell"), &json!(0)));
    assert!(!stage.path("data").exists() && stage.path("after").exists());
}

#[tokio::test]
async fn a_denied_operation_is_told_and_the_rest_runs() {
    let stage = Stage::new(PolicyDocument::preset("standard").expect("a preset"));
    fs::create_dir(stage.path("data")).expect("a directory");
    let operations = json!([
        { "type": "shell", "id": "s", "command": "rm -rf data/" },
        { "type": "createFile", "path": "after", "content": "" },
    ]);
    let denying = Decider::new(OperationApprovalDecision::Deny("not today".to_owned()));
    let message = run(&stage.space, operations, &denying).await;
    let events = json!(message.events);
    assert_eq!(
        (&events[0]["type"], &events[0]["operationId"], &events[0]["reason"]),
        (&json!("policyDenied"), &json!("s"), &json!("not today"))
    );
    assert_eq!(message.status, MessageStatus::Completed);
    assert!(stage.path("data").exists() && stage.path("after").exists());
}

#[tokio::test]
async fn a_question_that_nobody_answers_pauses_the_run() {
    let stage = Stage::new(PolicyDocument::preset("standard").expect("a preset"));
    fs::create_dir(stage.path("data")).expect("a directory");
    let message = stage
        .run(json!([
            { "type": "message", "content": "x" },
            { "type": "shell", "id": "shell-1", "command": "rm -rf data/" },
            { "type": "createFile", "path": "after", "content": "" },
        ]))
        .await;
    assert_eq!(message.status, MessageStatus::AwaitingApproval);
    let event = without_times(&json!(message.events[1]));
    let expect = json!({
        "type": "approvalRequired",
        "operationId": "shell-1",
        "operationType": "shell",
        "reason": "command 'rm -rf' requires approval",
        "details": { "command": "rm -rf data/", "policy": "shell.approvalRequired" },
    });
    assert_eq!(event, expect);
    assert!(stage.path("data").exists() && !stage.path("after").exists());
}

#[tokio::test]
async fn no_way_out_of_the_workspace_through_operations() {
    let stage = Stage::permissive();
    let outside = tempfile::tempdir().expect("a directory");
    let secret = outside.path().join("secret");
    fs::write(&secret, "top secret").expect("a file");
    std::os::unix::fs::symlink(&secret, stage.path("link")).expect("a link");
    std::os::unix::fs::symlink(outside.path(), stage.path("out")).expect("a link");
    std::os::unix::fs::symlink("../../../../../../etc", stage.path("up")).expect("a link");
    for path in ["link", "out/secret", "up/passwd", "out/new"] {
        let events = stage
            .events(json!([
                { "type": "readFile", "path": path },
                { "type": "createFile", "path": path, "content": "taken", "overwrite": true },
                { "type": "editFile", "path": path, "edits": [{ "oldContent": "top", "newContent": "no" }] },
            ]))
            .await;
        for event in &events {
            assert!(!event.to_string().contains("top secret"), "{event}");
        }
        assert_eq!(events[0]["success"], false, "{path}: {}", events[0]);
    }
    assert_eq!(fs::read_to_string(&secret).expect("the file"), "top secret");
    assert!(!outside.path().join("new").exists());
}

/// Points the link `d` elsewhere while a person decides, and approves.
struct LinkSwapper<'a> {
    stage: &'a Stage,
    shown: Mutex<String>,
}

#[async_trait::async_trait]
impl RunObserver for LinkSwapper<'_> {
    fn on_operation(&self, _: &Operation) {}

    fn on_output(&self, _: OutputChannel, _: &[u8]) {}

    fn on_event(&self, _: &ProtocolEvent) {}

    async fn decide_approval(
        &self,
        _: &Operation,
        asked: &ApprovalRequest,
    ) -> OperationApprovalDecision {
        *self.shown.lock().expect("a lock") = asked.describe();
        fs::remove_file(self.stage.path("d")).expect("the link");
        symlink("two", self.stage.path("d")).expect("a link");
        OperationApprovalDecision::Approve
    }
}

#[tokio::test]
async fn an_approval_holds_for_the_directory_that_was_shown() {
    let stage = Stage::permissive();
    for directory in ["one/build", "two/build"] {
        fs::create_dir_all(stage.path(directory)).expect("a directory");
    }
    symlink("./one", stage.path("d")).expect("a link");
    let observer = LinkSwapper { stage: &stage, shown: Mutex::default() };
    let operations = json!([{ "type": "shell", "command": "rm -r build", "cwd": "d" }]);
    let message = json!({ "protocolVersion": "1.0", "operations": operations }).to_string();
    let message = run_operations_message(&stage.space, message.as_bytes(), &observer).await;
    let shown = observer.shown.lock().expect("a lock").clone();
    assert!(shown.contains("directory: one\n"), "{shown}");
    let event = json!(message.events[0]);
    assert_eq!(
        (&event["type"], &event["category"]),
        (&json!("error"), &json!("policy")),
        "{event}"
    );
    assert!(stage.path("one/build").exists() && stage.path("two/build").exists());
    // A link that stays leads to the directory, and one that leads out is refused.
    symlink("/tmp", stage.path("absolute")).expect("a link");
    symlink("two/../..", stage.path("out")).expect("a link");
    for (cwd, expect) in
        [("d", Some("two\n")), ("d/build", Some("build\n")), ("absolute", None), ("out", None)]
    {
        let operation = json!({ "type": "shell", "command": "basename \"$(pwd -P)\"", "cwd": cwd });
        let event = stage.events(json!([operation])).await.remove(0);
        assert_eq!(event["stdout"].as_str(), expect, "{cwd}: {event}");
    }
}
