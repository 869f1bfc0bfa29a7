//! The examples of the specification, with our own values: operations, and the events that answer them.

use std::collections::BTreeMap;

use ab_policy::PolicyDocument;
use ab_spaces::{OperationApprovalDecision, parse_operation, validate_operations_message};
use ab_testkit::operations::{OperationsCase, without_times};
use serde_json::{Value, json};

use crate::stage::{Decider, Stage, document, run};

#[tokio::test]
async fn the_examples_are_accepted_and_answered_with_their_events() {
    let case = OperationsCase::EXAMPLES;
    let stage = Stage::permissive();
    (case.plant)(stage.root.path());
    assert!(validate_operations_message(&case.message()).success);
    for operation in (case.operations)().as_array().expect("a list") {
        let parsed = parse_operation(operation).expect("it is valid");
        assert_eq!(&json!(parsed), operation, "no field is lost");
    }
    let answer = stage.run((case.operations)()).await;
    let whole = json!(answer);
    assert_eq!((&whole["protocolVersion"], &whole["status"]), (&json!("1.0"), &json!("completed")));
    assert!(whole["runId"].as_str().is_some_and(|id| id.starts_with("run_")), "{whole}");
    let events: Vec<Value> = answer.events.iter().map(|event| json!(event)).collect();
    (case.check)(&events);
}

/// The examples of commands that are cut off, asked about and refused.
#[tokio::test]
async fn the_examples_of_limits_and_policies_are_answered_with_their_events() {
    let quick = document(
        json!("permissive"),
        json!({ "network": { "enabled": false }, "shell": { "timeout": 1000 } }),
    );
    let slow = json!([{ "type": "shell", "id": "slow", "command": "sleep 600" }]);
    let event = &Stage::with_env(quick, BTreeMap::new()).events(slow).await[0];
    let expect = [
        ("command", json!("sleep 600")),
        ("success", json!(false)),
        ("timedOut", json!(true)),
        ("exitCode", json!(124)),
    ];
    for (field, value) in expect {
        assert_eq!(event[field], value, "{event}");
    }
    assert!(event["durationMs"].as_u64().is_some_and(|it| it >= 1000), "{event}");

    let stage = Stage::new(PolicyDocument::preset("standard").expect("a preset"));
    let operations = json!([
        { "type": "shell", "id": "admin", "command": "sudo ls" },
        { "type": "shell", "id": "clear", "command": "rm -rf cache/" },
    ]);
    let answer =
        run(&stage.space, operations, &Decider::new(OperationApprovalDecision::LeavePending)).await;
    let whole = json!(answer);
    assert_eq!(whole["status"], "awaiting_approval");
    let [denied, asked]: [Value; 2] =
        serde_json::from_value(whole["events"].clone()).expect("two events");
    assert_eq!(
        (&denied["type"], &denied["operationType"]),
        (&json!("policyDenied"), &json!("shell"))
    );
    for field in ["reason", "suggestion"] {
        assert!(denied[field].as_str().is_some_and(|text| text.contains("sudo")), "{denied}");
    }
    let expect = json!({
        "type": "approvalRequired",
        "operationId": "clear",
        "operationType": "shell",
        "reason": "command 'rm -rf' requires approval",
        "details": { "command": "rm -rf cache/", "policy": "shell.approvalRequired" },
    });
    assert_eq!(without_times(&asked), expect);

    let stage = Stage::permissive();
    stage.space.backend().destroy().await.expect("destroyed");
    let gone = &stage.events(json!([{ "type": "readFile", "path": "a" }])).await[0];
    assert_eq!((&gone["type"], &gone["category"]), (&json!("error"), &json!("execution")));
    assert!(gone["message"].is_string() && gone["details"].is_object(), "{gone}");
}
