//! What the built server answers about a real session and about itself: every field that the REST service promises.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fixture::{Fixture, Story, task};
use crate::stage::{BINARY, run};

/// An agent that makes an event of every kind that one can make.
const TELLER: &str = r#"[[turn]]
steps = [
    { think = "I look.\n" },
    { plan = ["Look", "Write"] },
    { run = "ls" },
    { done = 1 },
    { ask = { title = "Write it" } },
    { write = { path = "made.txt", text = "one\ntwo\n" } },
    { usage = { used = 50, size = 100, cost = 0.5 } },
    { say = "Done.\n" },
]
"#;

/// The members of an object that are there and are not null.
#[track_caller]
fn members(value: &Value) -> BTreeSet<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("no object: {value}"));
    object.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str()).collect()
}

#[track_caller]
fn assert_has(value: &Value, names: &str) {
    let has = members(value);
    for name in names.split_whitespace() {
        assert!(has.contains(name), "no {name} in {value:#}");
    }
}

/// Exactly these, so that a new member is written down here and in the documentation.
#[track_caller]
fn assert_is(value: &Value, names: &str) {
    assert_eq!(members(value), names.split_whitespace().collect(), "{value:#}");
}

/// The fields of every session.
const SESSION: &str = "id status prompt repo runtime agent delivery createdAt updatedAt recent_events \
                       tenantId projectId task workspace vcs startedAt links labels keepOpen";

#[test]
fn answers_about_a_session_have_every_field() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("teller", TELLER.to_owned())], "");
    let server = fixture.start(&[]);
    let mut asked = task(&fixture.source(), "Tell me");
    asked["agent"]["type"] = "teller".into();
    asked["tenantId"] = "acme".into();
    asked["projectId"] = "storefront".into();
    asked["labels"] = json!({ "priority": "p2" });
    let answer = server.ask("POST", "/api/v1/tasks", &asked.to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
    let made = answer.json();
    assert_is(&made, "id session_ids status links");
    let id = made["id"].as_str().unwrap().to_owned();
    let this = format!("/api/v1/sessions/{id}");
    assert_eq!(made["status"], "queued");
    assert_eq!(made["links"]["self"], this);
    assert_eq!(made["links"]["events"], format!("{this}/events"));
    assert_eq!(made["links"]["logs"], format!("{this}/logs"));

    server.event(&id, |event| event["type"] == "approvalRequested");
    let waits = |session: &Value| session["activity"] == "awaitingApproval";
    let session = server.reaches(&id, "the question", waits);
    assert_has(&session, SESSION);
    assert_eq!((&session["status"], &session["openApprovals"]), (&json!("running"), &json!(1)));
    assert_eq!(
        (&session["tenantId"], &session["projectId"]),
        (&json!("acme"), &json!("storefront"))
    );
    assert_eq!(
        (&session["prompt"], &session["task"]["prompt"]),
        (&json!("Tell me"), &json!("Tell me"))
    );
    assert_is(&session["task"], "prompt attachments labels");
    assert_eq!(session["task"]["labels"], json!({ "priority": "p2" }));
    assert_has(&session["agent"], "type version");
    assert_has(&session["runtime"], "type");
    assert_has(&session["repo"], "mode url");
    assert_has(&session["workspace"], "snapshotProvider mountPath host");
    assert_eq!(session["workspace"]["snapshotProvider"], "git");
    assert_eq!(session["workspace"]["host"], "local");
    let mounted = session["workspace"]["mountPath"].as_str().unwrap();
    assert!(std::path::Path::new(mounted).join("README.md").is_file(), "{mounted}");
    assert_has(&session["vcs"], "repo delivery baseCommit");
    assert_eq!(session["vcs"]["baseCommit"], fixture.git(&["rev-parse", "HEAD"]).trim());
    assert_is(&session["links"], "self events logs ide tui");
    assert!(session["endedAt"].is_null() && session["endReason"].is_null(), "{session:#}");
    // The recent events are the last ones of the story, in its format.
    let mut headers = server.operator();
    headers.push(("accept", "application/json"));
    let events = server.try_ask("GET", &format!("{this}/events"), &headers, "").unwrap().json();
    let events = events["items"].as_array().unwrap();
    assert_eq!(session["recent_events"], json!(events[events.len() - 3..]));
    let listed = server.get("/api/v1/sessions?status=running&projectId=storefront");
    assert_is(&listed, "items total page perPage");
    assert_eq!((&listed["total"], &listed["items"]), (&json!(1), &json!([session])));

    let info = server.get(&format!("{this}/info"));
    assert_is(&info, "id status fleet endpoints");
    assert_eq!((&info["id"], &info["status"]), (&json!(id), &json!("running")));
    assert_eq!(info["fleet"], json!({ "leader": "local", "followers": [] }));
    assert_eq!(info["endpoints"], json!({ "events": format!("{this}/events") }));

    server.approve_all(&id);
    let (session, story) = server.ended(&id);
    assert_has(&session, &format!("{SESSION} endedAt endReason changes"));
    assert_eq!((&session["status"], &session["endReason"]), (&json!("completed"), &json!("done")));
    assert_eq!((&session["recent_events"], &session["activity"]), (&json!([]), &Value::Null));
    assert_eq!(session["changes"]["files_changed"], 1);
    assert_eq!(fixture.branches(), [session["vcs"]["deliveredBranch"].as_str().unwrap()]);
    assert_story(&story);

    // The helper of the links is a command that works as it is.
    let helper = session["links"]["tui"].as_str().unwrap();
    let Some(("agent-backend", arguments)) = helper.split_once(' ') else { panic!("{helper}") };
    let mut command = fixture.stage.command(BINARY);
    command.args(arguments.split(' ')).arg("--data-dir").arg(fixture.data());
    let ran = run(command, b"");
    assert!(ran.code == 0 && ran.text().contains("completed"), "{}{}", ran.text(), ran.err);

    // One line, and it is the last one.
    let all = server.get(&format!("{this}/logs"));
    let all = all["items"].as_array().unwrap();
    assert!(all.len() > 2, "{all:#?}");
    let last = server.get(&format!("{this}/logs?tail=1"));
    assert_eq!(last["items"], json!(all[all.len() - 1..]));
    assert_has(&last["items"][0], "type level message ts source");
    server.end();
}

/// Every event that a session of this version makes, with its fields.
#[track_caller]
fn assert_story(story: &Story) {
    let expected = [
        ("status", "status"),
        ("log", "level message source"),
        ("prompt", "number prompt"),
        ("thought", "thought"),
        ("plan", "entries"),
        ("tool", "tool_execution_id tool_name tool_status"),
        ("approvalRequested", "approvalId title"),
        ("approvalDecided", "approvalId status decidedBy"),
        ("fileEdit", "file_path lines_added lines_removed"),
        ("usage", "contextTokens contextLimit costMicros"),
        ("diffStat", "files_changed lines_added lines_removed"),
        ("delivery", "mode branch commit baseCommit changed"),
    ];
    let told: BTreeSet<&str> =
        story.events.iter().filter_map(|(_, it)| it["type"].as_str()).collect();
    assert_eq!(told, expected.iter().map(|(kind, _)| *kind).collect(), "{story:#?}");
    for (kind, fields) in expected {
        for (_, event) in story.events.iter().filter(|(_, event)| event["type"] == kind) {
            assert_has(event, &format!("type ts {fields}"));
        }
    }
    let statuses = story.events.iter().filter(|(_, event)| event["type"] == "status");
    let mut statuses: Vec<&str> = statuses.filter_map(|(_, it)| it["status"].as_str()).collect();
    statuses.dedup();
    assert_eq!(statuses, ["queued", "provisioning", "running", "completed"], "{story:#?}");
    // A tool that ran says what it printed.
    let ran =
        |event: &&(u64, Value)| event.1["type"] == "tool" && event.1["tool_status"] == "success";
    let outputs: Vec<_> =
        story.events.iter().filter(ran).map(|(_, it)| &it["tool_output"]).collect();
    assert!(
        outputs.iter().any(|it| it.as_str().is_some_and(|it| it.contains("README.md"))),
        "{outputs:?}"
    );
    let edit = story.find("fileEdit").unwrap();
    assert_eq!(edit["file_path"], "made.txt");
    assert_eq!((&edit["lines_added"], &edit["lines_removed"]), (&json!(2), &json!(0)));
    let delivery = story.find("delivery").unwrap();
    assert_eq!((&delivery["mode"], &delivery["changed"]), (&json!("branch"), &json!(true)));
}

#[test]
fn answers_about_the_server_have_every_field() {
    let fixture = Fixture::with_agents(&[("teller", TELLER.to_owned())], "");
    let server = fixture.start(&[]);
    let agents = server.get("/api/v1/agents");
    let agents = agents["items"].as_array().unwrap();
    for agent in agents {
        assert_has(agent, "type title versions settingsSchemaRef");
        assert_eq!(agent["versions"][0], "latest", "{agent:#}");
        let schema = server.get(agent["settingsSchemaRef"].as_str().unwrap());
        assert_eq!(schema["type"], "object", "{agent:#}: {schema:#}");
    }
    let named = |kind: &str| agents.iter().find(|agent| agent["type"] == kind).unwrap();
    assert_eq!(named("scripted")["aliases"], json!(["mock"]));
    assert_eq!(named("scripted")["versions"], json!(["latest", env!("CARGO_PKG_VERSION")]));
    // The version of a vendor's program is not known.
    assert_eq!(named("codex")["versions"], json!(["latest"]));

    let runtimes = server.get("/api/v1/runtimes");
    let [local] = runtimes["items"].as_array().unwrap().as_slice() else { panic!("{runtimes:#}") };
    assert_has(local, "type sandboxProfiles");
    assert_eq!(local["type"], "local");
    assert!(!local["sandboxProfiles"].as_array().unwrap().is_empty(), "{local:#}");

    let executors = server.get("/api/v1/executors");
    let [executor] = executors["items"].as_array().unwrap().as_slice() else {
        panic!("{executors:#}")
    };
    let expect = json!({
        "id": "local",
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "snapshotCapabilities": ["git", "copy"],
        "health": "ok",
        // It is in the process of the server.
        "overlay": { "provider": null, "address": null, "magicName": null, "state": "none" },
        "controller": "server",
    });
    assert_eq!(*executor, expect);
    server.end();
}
