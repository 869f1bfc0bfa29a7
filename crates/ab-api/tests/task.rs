//! Checks of the task request.

use std::collections::BTreeMap;

use ab_api::{
    AgentSetting, AgentSettingKind, ApprovalDecision, ApproveOrDeny, ContinueRequest, DeliveryMode,
    FieldViolations, NetworkMode, PromptRequest, RuntimeType, SnapshotProvider, Task,
    TaskCapabilities, TaskRequest, UNAVAILABLE_TASK_FIELDS, agent_settings_schema,
};
use serde_json::{Value, json};

fn offers() -> TaskCapabilities {
    TaskCapabilities {
        agents: BTreeMap::from([("scripted".to_owned(), vec!["1.0.0".to_owned()])]),
        agent_aliases: BTreeMap::from([("mock".to_owned(), "scripted".to_owned())]),
        executors: vec!["local".to_owned()],
        snapshot_providers: vec![SnapshotProvider::Git, SnapshotProvider::Copy],
        runtimes: Vec::new(),
        enforces_resource_limits: true,
        allows_local_repositories: true,
        ..TaskCapabilities::default()
    }
}

fn minimal() -> Value {
    json!({
        "prompt": "Fix it.",
        "repo": { "url": "https://git.example/shop.git" },
        "agent": { "type": "scripted" },
    })
}

/// The minimal task with the member at `path` set to `value`.
fn with(path: &str, value: Value) -> Value {
    let mut task = minimal();
    let mut at = &mut task;
    for part in path.split('.') {
        at = &mut at[part];
    }
    *at = value;
    task
}

fn check(task: &Value, offers: &TaskCapabilities) -> Result<Task, FieldViolations> {
    TaskRequest::parse(task.to_string().as_bytes(), offers)
}

/// The fields that are wrong with `task`, and the status.
fn wrong(task: &Value) -> (Vec<String>, u16) {
    let violations = check(task, &offers()).expect_err("the task is not acceptable");
    (violations.messages_by_field().into_keys().collect(), violations.http_status())
}

#[test]
fn a_minimal_task_gets_defaults() {
    let task = check(&minimal(), &offers()).expect("valid");
    assert_eq!(task.runtime.kind, RuntimeType::Local);
    assert_eq!(task.delivery.mode, DeliveryMode::Branch);
    assert_eq!(task.agents[0].version.as_deref(), Some("latest"));
    assert!(!task.keep_open);
}

#[test]
fn an_alias_names_its_agent() {
    let task = check(&with("agent.type", json!("mock")), &offers()).expect("valid");
    assert_eq!(task.agents[0].kind, "scripted");
}

#[test]
fn all_problems_are_found_at_once() {
    let task = json!({
        "prompt": 7,
        "repo": { "mode": "git", "branch": "a b", "commit": "xyz", "depth": 1 },
        "runtime": { "type": "vm", "resources": { "cpu": -1, "memoryMiB": 1.5 } },
        "workspace": { "snapshotPreference": ["copy", "tape"] },
        "agent": {},
        "labels": { "a b": "x", "n": 1 },
        "keepOpen": "yes",
        "dryRun": true,
    });
    let (fields, status) = wrong(&task);
    assert_eq!(
        fields,
        [
            "agent.type",
            "dryRun",
            "keepOpen",
            "labels.a b",
            "labels.n",
            "prompt",
            "repo.branch",
            "repo.commit",
            "repo.depth",
            "repo.url",
            "runtime.resources.cpu",
            "runtime.resources.memoryMiB",
            "runtime.type",
            "workspace.snapshotPreference.1",
        ]
    );
    assert_eq!(status, 400);
}

#[test]
fn a_body_that_is_no_object_has_one_problem() {
    for body in ["", "{", "[]", "null", "\"x\""] {
        let violations = TaskRequest::parse(body.as_bytes(), &offers()).expect_err(body);
        assert_eq!(violations.iter().count(), 1, "{body}");
        assert_eq!(violations.http_status(), 400, "{body}");
    }
}

#[test]
fn every_unavailable_field_is_refused_by_name() {
    for entry in UNAVAILABLE_TASK_FIELDS {
        let value = match (entry.field, entry.value) {
            (_, Some(value)) => json!(value),
            ("runtime.devcontainerPath", None) => json!("x.json"),
            (_, None) => json!([{}]),
        };
        let (fields, status) = wrong(&with(entry.field, value));
        assert_eq!((fields, status), (vec![entry.field.to_owned()], 422), "{entry:?}");
    }
}

#[test]
fn what_the_server_lacks_is_unprocessable() {
    let table = [
        ("workspace.executionHostId", json!("elsewhere")),
        ("workspace.snapshotPreference", json!(["zfs", "btrfs"])),
        ("runtime.type", json!("disabled")),
        ("agent.type", json!("unheard-of")),
        ("agent.version", json!("9.9.9")),
    ];
    for (field, value) in table {
        assert_eq!(wrong(&with(field, value)), (vec![field.to_owned()], 422));
    }
    let preference = with("workspace.snapshotPreference", json!(["zfs", "copy"]));
    check(&preference, &offers()).expect("one available provider is enough");
    let allowed = TaskCapabilities { runtimes: vec![RuntimeType::Disabled], ..offers() };
    check(&with("runtime.type", json!("disabled")), &allowed).expect("configured");
}

#[test]
fn limits_that_no_executor_enforces_are_refused() {
    let limited = with("runtime.resources", json!({ "cpu": 2, "memoryMiB": 512 }));
    let task = check(&limited, &offers()).expect("enforced");
    let limits = task.runtime.resources.expect("limits");
    assert_eq!((limits.cpu, limits.memory_mib), (Some(2.0), Some(512)));
    let without = TaskCapabilities { enforces_resource_limits: false, ..offers() };
    let violations = check(&limited, &without).expect_err("not enforced");
    assert_eq!(violations.http_status(), 422);
    assert_eq!(violations.to_string(), "runtime.resources is not available yet");
    check(&with("runtime.resources", json!({})), &without).expect("no limit asked for");
}

#[test]
fn null_and_empty_values_ask_for_nothing() {
    for field in ["webhooks", "attachments", "agents"] {
        check(&with(field, json!([])), &offers()).expect(field);
        check(&with(field, Value::Null), &offers()).expect(field);
    }
    check(&with("repo.commit", Value::Null), &offers()).expect("no commit");
}

#[test]
fn repository_addresses() {
    let good = [
        "https://host/x.git",
        "ssh://git@host:22/x",
        "git@host:a/b.git",
        "host:x",
        "/srv/x",
        "file:///srv/x",
    ];
    for url in good {
        check(&with("repo.url", json!(url)), &offers()).expect(url);
    }
    let bad = [
        "",
        "x",
        "../x",
        "--upload-pack=touch x",
        "ext::sh -c touch% x",
        "ftp://host/x",
        "https://",
        "ssh://-oProxyCommand=x/y",
        "host:-x",
        "a\nb:c",
        "a/b:c",
        "https://ada:lace@host/x.git",
    ];
    for url in bad {
        assert_eq!(wrong(&with("repo.url", json!(url))), (vec!["repo.url".to_owned()], 400));
    }
}

#[test]
fn server_decides_what_a_task_leaves_open() {
    let network = |task: &Task| task.runtime.network;
    let task = check(&minimal(), &offers()).expect("a task");
    assert_eq!((network(&task), task.keep_open), (Some(NetworkMode::Shared), false));
    let other = TaskCapabilities {
        default_network: NetworkMode::None,
        default_keep_open: true,
        ..offers()
    };
    let task = check(&minimal(), &other).expect("a task");
    assert_eq!((network(&task), task.keep_open), (Some(NetworkMode::None), true));
    let said = with("keepOpen", json!(false));
    assert!(!check(&said, &other).expect("a task").keep_open);
}

#[test]
fn open_server_refuses_the_shared_network() {
    let open = TaskCapabilities { refuses_shared_network: true, ..offers() };
    for task in [minimal(), with("runtime.network", json!("shared"))] {
        let violations = check(&task, &open).expect_err("shared");
        assert_eq!(violations.http_status(), 422);
        let text = violations.to_string();
        assert!(text.contains("runtime.network") && text.contains("approve its own"), "{text}");
    }
    check(&with("runtime.network", json!("none")), &open).expect("no network");
    assert_eq!(wrong(&with("runtime.network", json!("lan"))).1, 400);
}

#[test]
fn continuation_has_an_optional_prompt() {
    for body in ["", " ", "{}", r#"{"prompt":null}"#] {
        assert_eq!(ContinueRequest::parse(body.as_bytes()).expect(body).prompt, None);
    }
    let prompt = ContinueRequest::parse(br#"{"prompt":"go on"}"#).expect("a prompt").prompt;
    assert_eq!(prompt.as_deref(), Some("go on"));
    let long = json!({ "prompt": "x".repeat(200_000) }).to_string();
    for body in ["[]", "{", r#"{"prompt":" "}"#, r#"{"prompt":1}"#, r#"{"promt":"x"}"#, &long] {
        assert_eq!(
            ContinueRequest::parse(body.as_bytes()).expect_err("refused").http_status(),
            400
        );
    }
}

#[test]
fn bodies_are_refused_in_our_words_by_the_field() {
    let decision =
        ApprovalDecision::parse(br#"{"decision":"deny","reason":"no"}"#).expect("a decision");
    assert_eq!((decision.decision, decision.reason.as_deref()), (ApproveOrDeny::Deny, Some("no")));
    for (body, expect) in [
        (r#"{"decision":"maybe"}"#, "decision must be one of: approve, deny"),
        (r#"{"decision":1}"#, "decision must be a string"),
        ("{}", "decision is required"),
        (r#"{"decision":"deny","why":"x"}"#, "why is not a known field"),
        (r#"{"decision":"deny","reason":5}"#, "reason must be a string"),
        ("[]", "the body must be a JSON object"),
        ("{", "the body is not valid JSON (line 1, column 1)"),
    ] {
        let told = ApprovalDecision::parse(body.as_bytes()).expect_err(body).to_string();
        assert!(told.contains(expect), "{body}: {told}");
    }
    for (body, expect) in [
        (r#"{"prompt":1}"#, "prompt must be a string"),
        (r#"{"promt":"x"}"#, "promt is not a known field"),
        ("{\n]", "the body is not valid JSON (line 2, column 1)"),
    ] {
        let told = ContinueRequest::parse(body.as_bytes()).expect_err(body).to_string();
        assert_eq!(told, expect, "{body}");
    }
}

#[test]
fn local_repositories_need_a_local_caller() {
    let elsewhere = TaskCapabilities { allows_local_repositories: false, ..offers() };
    for url in ["/srv/x", "file:///srv/x"] {
        let violations = check(&with("repo.url", json!(url)), &elsewhere).expect_err(url);
        assert_eq!(violations.http_status(), 422);
    }
}

#[test]
fn branch_names_follow_git() {
    for name in ["main", "a/b", "feature/x-1.2", "ünï"] {
        check(&with("repo.branch", json!(name)), &offers()).expect(name);
    }
    let bad = [
        "", "a b", "a..b", "-x", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "a.", "@", "HEAD",
        "a@{1}", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "a\u{7f}",
    ];
    for name in bad {
        for field in ["repo.branch", "delivery.targetBranch"] {
            assert_eq!(wrong(&with(field, json!(name))), (vec![field.to_owned()], 400), "{name:?}");
        }
    }
}

#[test]
fn violations_read_as_a_sentence() {
    let violations = check(&with("repo.url", Value::Null), &offers()).expect_err("no url");
    assert_eq!(violations.to_string(), "repo.url is required");
}

#[test]
fn follow_up_needs_a_prompt() {
    assert_eq!(PromptRequest::parse(br#"{"prompt":"go on"}"#).expect("a prompt").prompt, "go on");
    for body in ["", "{}", r#"{"prompt":" "}"#, r#"{"prompt":1}"#, r#"{"prompts":"x"}"#, "[]"] {
        let refused = PromptRequest::parse(body.as_bytes()).expect_err(body);
        assert_eq!(refused.http_status(), 400, "{body}");
    }
}

#[test]
fn several_agents_have_a_session_each() {
    let mut several = minimal();
    several.as_object_mut().expect("an object").remove("agent");
    several["agents"] = json!([{ "type": "scripted", "count": 2 }, { "type": "mock" }]);
    let task = check(&several, &offers()).expect("valid");
    assert_eq!(task.agents.iter().map(|it| it.kind.as_str()).collect::<Vec<_>>(), ["scripted"; 3]);
    let table = [
        (json!([5]), "agents.0", 400),
        (json!([{}]), "agents.0.type", 400),
        (json!([{ "type": "scripted", "count": 0 }]), "agents.0.count", 400),
        (json!([{ "type": "scripted", "count": 1.5 }]), "agents.0.count", 400),
        (json!([{ "type": "scripted", "count": "2" }]), "agents.0.count", 400),
        (json!([{ "type": "scripted", "count": 17 }]), "agents.0.count", 400),
        (json!([{ "type": "scripted", "number": 1 }]), "agents.0.number", 400),
        (json!([{ "type": "unheard-of" }]), "agents.0.type", 422),
        (json!([{ "type": "scripted", "settings": { "a": 1 } }]), "agents.0.settings.a", 422),
        (
            json!([{ "type": "scripted", "count": 9 }, { "type": "scripted", "count": 9 }]),
            "agents",
            400,
        ),
        (json!("scripted"), "agents", 400),
    ];
    for (agents, field, status) in table {
        several["agents"] = agents;
        let (fields, got) = wrong(&several);
        assert!(fields.contains(&field.to_owned()) && got == status, "{several}: {fields:?} {got}");
    }
    let both = with("agents", json!([{ "type": "scripted" }]));
    assert_eq!(wrong(&both), (vec!["agent".to_owned()], 400));
}

#[test]
fn budgets_are_positive() {
    let whole = json!({ "turns": 3, "wallSeconds": 600, "tokens": 1000, "costUsd": 0.5 });
    let budget = check(&with("budget", whole), &offers()).expect("valid").budget.expect("a budget");
    assert_eq!((budget.turns, budget.cost_usd), (Some(3), Some(0.5)));
    assert_eq!(check(&with("budget", json!({})), &offers()).expect("valid").budget, None);
    for field in ["turns", "wallSeconds", "tokens", "costUsd"] {
        for value in [json!(0), json!(-1), json!("1"), json!(1e300)] {
            let (fields, status) = wrong(&with(&format!("budget.{field}"), value));
            assert_eq!((fields, status), (vec![format!("budget.{field}")], 400));
        }
    }
    assert_eq!(wrong(&with("budget", json!(5))), (vec!["budget".to_owned()], 400));
    assert_eq!(wrong(&with("budget.money", json!(5))), (vec!["budget.money".to_owned()], 400));
}

#[test]
fn uploads_are_named_by_a_task() {
    let upload = "upload-01HVZ6K9T1N8S6M3V3Q3F0X5B7";
    let mut task = with("attachments", json!([{ "uploadId": upload }]));
    task["repo"] = json!({ "mode": "upload", "uploadId": upload });
    let parsed = check(&task, &offers()).expect("valid");
    assert_eq!(parsed.repo.upload_id.map(|id| id.to_string()).as_deref(), Some(upload));
    assert_eq!(parsed.attachments[0].upload_id.to_string(), upload);
    assert_eq!(parsed.delivery.mode, DeliveryMode::Patch);
    let many: Vec<Value> = (0..33).map(|_| json!({ "uploadId": upload })).collect();
    for (field, value, named) in [
        ("repo", json!({ "mode": "upload" }), "repo.uploadId"),
        ("repo", json!({ "mode": "upload", "uploadId": "x" }), "repo.uploadId"),
        ("repo", json!({ "mode": "upload", "uploadId": upload, "url": "/a" }), "repo.url"),
        ("repo", json!({ "url": "https://h/x", "uploadId": upload }), "repo.uploadId"),
        ("attachments", json!([{}]), "attachments.0.uploadId"),
        ("attachments", json!([{ "uploadId": "../x" }]), "attachments.0.uploadId"),
        ("attachments", json!([{ "uploadId": upload, "path": "/" }]), "attachments.0.path"),
        (
            "attachments",
            json!([{ "uploadId": upload }, { "uploadId": upload }]),
            "attachments.1.uploadId",
        ),
        ("attachments", json!(["x"]), "attachments.0"),
    ] {
        assert_eq!(wrong(&with(field, value)), (vec![named.to_owned()], 400), "{named}");
    }
    let (fields, status) = wrong(&with("attachments", json!(many)));
    assert!(fields.contains(&"attachments".to_owned()) && status == 400, "{fields:?}");
}

#[test]
fn settings_are_checked_by_the_schema_of_the_agent() {
    let setting = |name: &str, kind| AgentSetting {
        name: name.to_owned(),
        description: "Does it.".to_owned(),
        kind,
    };
    let values = ["low", "high"].map(str::to_owned).to_vec();
    let settings = vec![
        setting("model", AgentSettingKind::Text { max_bytes: 8 }),
        setting("effort", AgentSettingKind::Choice { values }),
        setting("fast", AgentSettingKind::Flag),
        setting("maxTokens", AgentSettingKind::Number { min: 1, max: 100 }),
    ];
    let schema = agent_settings_schema("scripted", "Scripted", "/x.json", &settings);
    assert_eq!(schema["properties"]["model"]["maxLength"], 8);
    assert_eq!(schema["properties"]["effort"]["enum"], json!(["low", "high"]));
    assert_eq!(schema["additionalProperties"], false);
    let kinds = BTreeMap::from([("scripted".to_owned(), settings)]);
    let offers = TaskCapabilities { agent_settings: kinds, ..offers() };
    let given = json!({ "model": "m", "effort": "low", "fast": true, "maxTokens": 5 });
    let task = check(&with("agent.settings", given.clone()), &offers).expect("valid");
    assert_eq!(Value::Object(task.agents[0].settings.clone()), given);
    check(&with("agent.settings", json!({ "model": null })), &offers).expect("null is absent");
    for (name, value, pointer) in [
        ("model", json!(1), "/agent/settings/model"),
        ("model", json!(""), "/agent/settings/model"),
        ("model", json!("a\0b"), "/agent/settings/model"),
        ("model", json!("too long!"), "/agent/settings/model"),
        ("effort", json!("medium"), "/agent/settings/effort"),
        ("fast", json!("yes"), "/agent/settings/fast"),
        ("maxTokens", json!(0), "/agent/settings/maxTokens"),
        ("maxTokens", json!(1.5), "/agent/settings/maxTokens"),
        ("maxTokens", json!(-1), "/agent/settings/maxTokens"),
        ("a/b~c", json!(1), "/agent/settings/a~1b~0c"),
    ] {
        let task = with("agent.settings", json!({ name: value }));
        let violations = check(&task, &offers).expect_err("not by the schema");
        assert_eq!(violations.http_status(), 422, "{name}");
        let errors = violations.messages_by_field();
        let message = &errors[&format!("agent.settings.{name}")][0];
        assert!(message.ends_with(&format!("(at {pointer})")), "{message}");
    }
    let mut several = minimal();
    several.as_object_mut().expect("an object").remove("agent");
    several["agents"] =
        json!([{ "type": "scripted" }, { "type": "scripted", "settings": { "model": 1 } }]);
    let violations = check(&several, &offers).expect_err("the second is wrong");
    let (field, messages) = violations.messages_by_field().pop_first().expect("one");
    assert_eq!(field, "agents.1.settings.model");
    assert!(messages[0].ends_with("(at /agents/1/settings/model)"), "{messages:?}");
}
