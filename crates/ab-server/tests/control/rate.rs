//! The limit on new tasks of a caller and of a project.

use std::num::NonZeroU32;

use serde_json::json;

use super::fake::{JSON, Script, Served, TASK, serve_limited};
use crate::caller::{Got, head, send};

/// Creates an API key and returns its `Authorization`.
async fn key(served: &Served, name: &str) -> String {
    let made = served.ask("POST", "/api/v1/keys", &json!({ "name": name }).to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    format!("ApiKey {}", made.json()["secret"].as_str().unwrap())
}

fn assert_refused(got: &Got, whose: &str) {
    assert_eq!(got.status, 429, "{got:?}");
    assert_eq!(got.header("content-type"), Some("application/problem+json"));
    assert_eq!(got.json()["type"], "urn:agent-backend:error:rate_limited");
    let detail = got.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains(whose) && detail.contains("limits.tasks-per-minute"), "{detail}");
    let wait: u64 = got.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
}

#[tokio::test]
async fn tasks_beyond_the_limit_of_a_caller_or_a_project_get_429() {
    let served = serve_limited(Script::Silence, NonZeroU32::new(2).unwrap()).await;
    let in_project = TASK.replace("\"prompt\"", "\"projectId\":\"p\",\"prompt\"");
    let post = async |authorization: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let headers = [&[("authorization", authorization), JSON], headers].concat();
        send(served.address(), &head("POST", path, &headers), body).await
    };
    let (ana, bob) = (key(&served, "ana").await, key(&served, "bob").await);
    let tasks = "/api/v1/tasks";
    // Tasks that are no tasks are not counted.
    assert_eq!(post(&ana, tasks, &[], "{}").await.status, 400);
    let repeated = [("idempotency-key", "k")];
    assert_eq!(post(&ana, tasks, &repeated, &in_project).await.status, 201);
    assert_eq!(post(&ana, tasks, &[], &in_project).await.status, 201);
    assert_refused(&post(&ana, tasks, &[], TASK).await, "ana");
    assert_refused(&post(&bob, tasks, &[], &in_project).await, "the project p");
    // A repeated request makes no session and gets the first one.
    assert_eq!(post(&ana, tasks, &repeated, &in_project).await.status, 201);
    // The refused task counts for nothing: another caller has its whole minute.
    let first = post(&bob, tasks, &[], TASK).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert_eq!(post(&bob, tasks, &[], TASK).await.status, 201);
    assert_refused(&post(&bob, tasks, &[], TASK).await, "bob");

    // Continuing begins a session too.
    let session = first.header("location").unwrap();
    super::follow(served.address(), &format!("{session}/events"), "hm").await;
    assert_eq!(served.ask("POST", &format!("{session}/stop"), "").await.status, 202);
    served.events(session, &[]).await;
    let path = format!("{session}/continue");
    assert_refused(&post(&bob, &path, &[], "{}").await, "bob");
    let continued = served.ask("POST", &path, "{}").await;
    assert_eq!(continued.status, 201, "{continued:?}");
}
