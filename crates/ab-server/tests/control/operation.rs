//! Cleanup, metrics and the audit.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::fake::{JSON, SHOWN, Script, TASK, serve};
use crate::caller::{head, send};

/// The samples of a text by their names with labels.
fn samples(text: &str) -> HashMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

#[tokio::test]
async fn metrics_count_sessions_by_status_and_duration() {
    let served = serve(Script::Work).await;
    let open = send(served.address(), &head("GET", "/metrics", &[]), "").await;
    assert_eq!(open.status, 401, "{open:?}");
    let before = samples(&served.ask("GET", "/metrics", "").await.body);
    assert_eq!(before["agent_backend_sessions{status=\"completed\"}"], 0.0);
    assert_eq!(before["agent_backend_sessions_ended_total{status=\"failed\"}"], 0.0);
    let session = served.create().await;
    served.events(&session, &[]).await;
    // The end is counted when the task that follows the log has seen it.
    let text = loop {
        let got = served.ask("GET", "/metrics", "").await;
        assert_eq!(got.status, 200, "{got:?}");
        assert_eq!(got.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        if samples(&got.body)["agent_backend_sessions_ended_total{status=\"completed\"}"] == 1.0 {
            break got.body;
        }
    };
    let after = samples(&text);
    assert_eq!(after["agent_backend_sessions{status=\"completed\"}"], 1.0);
    for phase in ["queue", "provision", "run", "delivery", "session"] {
        let name = "agent_backend_session_duration_seconds";
        assert_eq!(after[&format!("{name}_count{{phase=\"{phase}\"}}")], 1.0, "{phase}: {text}");
        assert_eq!(after[&format!("{name}_bucket{{phase=\"{phase}\",le=\"+Inf\"}}")], 1.0);
    }
    let created =
        "agent_backend_http_requests_total{route=\"/api/v1/tasks\",method=\"POST\",status=\"201\"}";
    assert_eq!(after[created], 1.0, "{text}");
    assert!(
        after["agent_backend_events_total"] > 3.0 && after["agent_backend_database_bytes"] > 0.0
    );
    assert!(after["agent_backend_event_readers"] >= 1.0);
    let id = session.rsplit('/').next().unwrap();
    assert!(!text.contains(id), "no label names a session: {text}");
    // Unknown paths have one label.
    for path in ["/nowhere", "/nowhere/else"] {
        served.ask("GET", path, "").await;
    }
    let text = served.ask("GET", "/metrics", "").await.body;
    let other = "agent_backend_http_requests_total{route=\"other\",method=\"GET\",status=\"404\"}";
    assert_eq!(samples(&text)[other], 2.0, "{text}");
}

#[tokio::test]
async fn audit_names_who_did_what_also_if_it_was_refused() {
    let served = serve(Script::Ask).await;
    let session = served.create().await;
    let id = session.rsplit('/').next().unwrap();
    let approval = loop {
        let path = format!("/v1/approvals?status=pending&sessionId={id}");
        let listed = served.json(&path).await;
        if let Some(approval) = listed["items"][0]["id"].as_str() {
            break approval.to_owned();
        }
    };
    assert_eq!(served.ask("POST", &format!("{session}/resume"), "").await.status, 409);
    let decision = r#"{"decision":"approve"}"#;
    let path = format!("/v1/approvals/{approval}");
    assert_eq!(served.ask("POST", &path, decision).await.status, 200);
    served.events(&session, &[]).await;
    assert_eq!(served.ask("POST", &path, decision).await.status, 409);
    assert_eq!(served.ask("POST", &format!("{session}/stop"), "").await.status, 202);
    // A request without the token does not act, and is not recorded.
    let headers = [("content-type", "application/json")];
    let stop = head("POST", &format!("{session}/stop"), &headers);
    assert_eq!(send(served.address(), &stop, "").await.status, 401);

    let audit = served.json(&format!("{session}/audit")).await;
    let entry = |item: &Value| {
        (item["action"].as_str().unwrap().to_owned(), item["success"].as_bool().unwrap())
    };
    let entries: Vec<_> = audit["items"].as_array().unwrap().iter().map(entry).collect();
    let expect =
        [("create", true), ("resume", false), ("approve", true), ("decide", false), ("stop", true)];
    assert_eq!(entries, expect.map(|(action, success)| (action.to_owned(), success)), "{audit}");
    let items = audit["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["source"] == "request"), "{audit}");
    assert!(items.iter().all(|item| item["actor"].as_str().unwrap().contains("admin")), "{audit}");
    assert!(items[2]["subject"].as_str().unwrap().starts_with(&approval), "{audit}");
    assert_eq!(items[1]["detail"], "answered with 409");
    let page = served.json(&format!("{session}/audit?page=2&perPage=2")).await;
    assert_eq!((&page["total"], &page["items"][0]["action"]), (&json!(5), &json!("approve")));
    let unknown = "/api/v1/sessions/01HVZ6K9T1N8S6M3V3Q3F0X5B7/audit";
    assert_eq!(served.ask("GET", unknown, "").await.status, 404);

    // The page is another way in, and one task may make several sessions.
    let two = TASK.replace(r#""agent":{"type":"a"}"#, r#""agents":[{"type":"a","count":2}]"#);
    let made = served.ask("POST", "/api/v1/tasks", &two).await;
    assert_eq!(made.status, 201, "{made:?}");
    for id in made.json()["session_ids"].as_array().unwrap() {
        let path = format!("/api/v1/sessions/{}/audit", id.as_str().unwrap());
        assert_eq!(served.json(&path).await["items"][0]["action"], "create");
    }
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let form = [SHOWN, ("content-type", "application/x-www-form-urlencoded")];
    let cancel = head("POST", &format!("/ui/sessions/{id}/cancel"), &form);
    assert_eq!(send(served.address(), &cancel, "").await.status, 303);
    let audit = served.json(&format!("/api/v1/sessions/{id}/audit")).await;
    assert_eq!(audit["items"][1]["action"], "cancel", "{audit}");
}

#[tokio::test]
async fn cleanup_reports_what_it_does() {
    let served = serve(Script::Silence).await;
    let session = served.create().await;
    let report = served.ask("POST", "/api/v1/cleanup", "").await;
    assert_eq!(report.status, 200, "{report:?}");
    let report = report.json();
    assert_eq!((&report["dryRun"], &report["sessions"]), (&json!(false), &json!(0)), "{report}");
    assert!(report["storage"]["databaseBytes"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["storage"]["limitBytes"], Value::Null);
    let dry = served.ask("POST", "/api/v1/cleanup?dryRun=true", "").await.json();
    assert_eq!(dry["dryRun"], true);
    for query in ["dryRun=perhaps", "dryRun="] {
        let got = served.ask_with("POST", &format!("/api/v1/cleanup?{query}"), &[JSON], "").await;
        assert_eq!(got.status, 400, "{query}: {got:?}");
    }
    assert_eq!(served.ask("DELETE", &session, "").await.status, 202);
}
