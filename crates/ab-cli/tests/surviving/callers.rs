//! Callers of a server that have no business there, and requests that make no sense.

use serde_json::{Value, json};

use super::ground::{Ground, task};
use crate::stage::BINARY;

#[test]
fn strangers_get_nowhere() {
    let ground = Ground::new();
    let server = ground.start(&[]);
    let operator = ("authorization", server.token.clone());
    let operator = (operator.0, operator.1.as_str());
    let wrong = "0".repeat(64);
    let port = server.address.split(':').nth(1).unwrap();
    let rebound = format!("evil.example:{port}");
    for path in ["/api/v1/sessions", "/api/v1/events", "/v1/approvals", "/ui"] {
        for (headers, status) in [
            (vec![], 401),
            (vec![("authorization", wrong.as_str())], 401),
            (vec![operator, ("origin", "https://evil.example")], 403),
            (vec![operator, ("origin", "null")], 403),
            // A name that a stranger's DNS points at this machine.
            (vec![("host", rebound.as_str())], 403),
            (vec![("host", rebound.as_str()), ("cookie", "session=x")], 403),
        ] {
            let answer = server.try_ask("GET", path, &headers, "").unwrap();
            let is_refused = answer.status == status || (status == 403 && answer.status == 401);
            assert!(is_refused, "{path} {headers:?}: {answer:?}");
            assert!(!answer.body.contains("items"), "{answer:?}");
        }
    }
    assert_eq!(server.get("/api/v1/sessions")["total"], 0);

    // Its port and its data directory are taken.
    let data = ground.stage.outside("other");
    let data = data.to_str().unwrap();
    let mut second = ground.stage.command(BINARY);
    second.args(["serve", "--port", port, "--data-dir", data]);
    let ran = crate::stage::run(second, b"");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains(&format!("port {port}")) && ran.err.contains("--port"), "{}", ran.err);
    server.end();
}

#[test]
fn tasks_that_make_no_sense_are_refused_by_the_field() {
    let ground = Ground::new();
    let server = ground.start(&[]);
    let check = |body: &str, statuses: &[u16], field: &str| {
        let answer = server.ask("POST", "/api/v1/tasks", body);
        assert!(statuses.contains(&answer.status), "{field}: {answer:?}");
        assert!(answer.head.contains("application/problem+json"), "{}", answer.head);
        let problem = answer.json();
        let is_named = problem["errors"][field].is_array() || field.is_empty();
        assert!(is_named, "{field}: {problem:#}");
    };
    let sound = task(&ground.source(), "Work");
    for (field, value) in [
        ("prompt", json!(5)),
        ("prompt", json!("")),
        ("prompt", Value::Null),
        ("repo", json!([])),
        ("repo.url", json!(5)),
        ("repo.url", json!("")),
        ("repo.url", json!("ext::sh -c id")),
        ("repo.url", json!("-u")),
        ("repo.commit", json!("HEAD; id")),
        ("agent.type", json!("nonsense")),
        ("agent.type", json!({})),
        ("keepOpen", json!("yes")),
        ("delivery.mode", json!("post")),
        ("delivery.targetBranch", json!("a b")),
        ("labels", json!("x")),
        ("surprise", json!(true)),
        ("repo.surprise", json!(true)),
        ("agent.surprise", json!(true)),
    ] {
        let mut task = sound.clone();
        let pointer = format!("/{}", field.replace('.', "/"));
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = task.pointer(parent).cloned().unwrap_or_else(|| json!({}));
        let mut parent = if parent.is_null() { json!({}) } else { parent };
        parent[name] = value.clone();
        match field.split_once('.') {
            Some((first, _)) => task[first] = parent,
            None => task = parent,
        }
        check(&task.to_string(), &[400, 422], field);
    }
    for missing in ["prompt", "repo", "agent"] {
        let mut task = sound.clone();
        task.as_object_mut().unwrap().remove(missing);
        let answer = server.ask("POST", "/api/v1/tasks", &task.to_string());
        let errors = answer.json()["errors"].to_string();
        assert!(answer.status == 400 && errors.contains(missing), "{missing}: {answer:?}");
    }
    check("[]", &[400], "");
    check("{", &[400], "");
    let huge = json!({ "prompt": "x".repeat(3 << 20) }).to_string();
    check(&huge, &[413], "");
    assert_eq!(server.get("/api/v1/sessions")["total"], 0);
    server.end();
}
