//! API keys, filters of lists, drafts and catalogues.

use serde_json::json;

use super::fake::{JSON, Script, TASK, serve};
use crate::caller::{head, send};

#[tokio::test]
async fn api_keys_open_the_api_until_they_are_revoked() {
    let served = serve(Script::Silence).await;
    let made = served.ask("POST", "/api/v1/keys", r#"{"name":"ci"}"#).await;
    assert_eq!((made.status, made.header("cache-control")), (201, Some("no-store")), "{made:?}");
    let made = made.json();
    let (secret, id) = (made["secret"].as_str().unwrap(), made["id"].as_str().unwrap());
    let ask = async |scheme: &str, method: &str, path: &str, body: &str| {
        let shown = format!("{scheme} {secret}");
        let headers = [("authorization", shown.as_str()), JSON];
        send(served.address(), &head(method, path, &headers), body).await
    };
    for scheme in ["ApiKey", "Bearer", "apikey"] {
        assert_eq!(ask(scheme, "GET", "/api/v1/sessions", "").await.status, 200, "{scheme}");
    }
    assert_eq!(ask("Basic", "GET", "/api/v1/sessions", "").await.status, 401);
    assert_eq!(ask("ApiKey", "POST", "/api/v1/tasks", TASK).await.status, 201);
    // A key that made keys would outlive its revocation.
    let more = ask("ApiKey", "POST", "/api/v1/keys", r#"{"name":"more"}"#).await;
    assert_eq!(more.status, 403, "{more:?}");
    let path = format!("/api/v1/keys/{id}");
    assert_eq!(ask("ApiKey", "DELETE", &path, "").await.status, 403);

    let again = served.ask("POST", "/api/v1/keys", r#"{"name":"ci"}"#).await;
    assert_eq!(again.status, 409, "{again:?}");
    for body in ["{", "{}", r#"{"name":""}"#, r#"{"name":"admin"}"#, r#"{"name":"a","x":1}"#, "[]"]
    {
        let got = served.ask("POST", "/api/v1/keys", body).await;
        assert_eq!(got.status, 400, "{body}: {got:?}");
    }
    let listed = served.json("/api/v1/keys").await;
    assert_eq!((&listed["total"], &listed["items"][0]["name"]), (&json!(1), &json!("ci")));
    assert!(!listed.to_string().contains(secret), "{listed}");

    let revoked = served.ask("DELETE", &path, "").await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
    assert!(revoked.json()["revokedAt"].is_string(), "{revoked:?}");
    assert_eq!(ask("ApiKey", "GET", "/api/v1/sessions", "").await.status, 401);
    assert_eq!(ask("Bearer", "GET", "/api/v1/sessions", "").await.status, 401);
    let unknown = "/api/v1/keys/key_01HVZ6K9T1N8S6M3V3Q3F0X5B7";
    assert_eq!(served.ask("DELETE", unknown, "").await.status, 404);
    assert_eq!(served.ask("DELETE", "/api/v1/keys/ci", "").await.status, 400);
}

#[tokio::test]
async fn an_active_session_has_its_recent_events_in_lists() {
    let served = serve(Script::Silence).await;
    let session = served.create().await;
    // The thought is the last thing that the agent says before it hangs.
    super::follow(served.address(), &format!("{session}/events"), "hm").await;
    let listed = served.json("/api/v1/sessions?status=running").await;
    let recent = listed["items"][0]["recent_events"].as_array().unwrap();
    assert_eq!((recent.len(), &recent[2]["thought"]), (3, &json!("hm")), "{listed}");
    assert_eq!(served.ask("DELETE", &session, "").await.status, 202);
    served.events(&session, &[]).await;
    let ended = served.json("/api/v1/sessions?status=cancelled").await;
    assert_eq!(ended["items"][0]["recent_events"], json!([]), "{ended}");
}

#[tokio::test]
async fn drafts_are_saved_listed_changed_and_removed() {
    let served = serve(Script::Silence).await;
    let body = r#"{"prompt":"Implement login","repo":{"mode":"git"},"agent":{"type":"a"}}"#;
    let key = [JSON, ("idempotency-key", "d1")];
    let made = served.ask_with("POST", "/api/v1/drafts", &key, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = made.header("location").unwrap().to_owned();
    let made = made.json();
    assert!(made["id"].as_str().unwrap().starts_with("draft-"), "{made}");
    assert!(made["createdAt"].is_string() && made["updatedAt"].is_string(), "{made}");
    // The same request again makes no second draft; another one with its key is refused.
    let again = served.ask_with("POST", "/api/v1/drafts", &key, body).await;
    assert_eq!((again.status, again.json()), (201, made.clone()));
    assert_eq!(served.ask_with("POST", "/api/v1/drafts", &key, "{}").await.status, 422);
    let listed = served.json("/api/v1/drafts").await;
    assert_eq!(
        (&listed["total"], &listed["items"][0]["prompt"]),
        (&json!(1), &json!("Implement login"))
    );

    let changed = served.ask("PUT", &path, r#"{"prompt":"Implement logout"}"#).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    let changed = changed.json();
    assert_eq!((&changed["prompt"], &changed["agent"]), (&json!("Implement logout"), &json!(null)));
    assert_eq!(changed["createdAt"], made["createdAt"]);
    for body in [r#"{"promt":"x"}"#, r#"{"prompt":1}"#, r#"{"repo":"x"}"#, "[]", "{"] {
        let got = served.ask("PUT", &path, body).await;
        assert_eq!(got.status, 400, "{body}: {got:?}");
        assert_eq!(served.ask("POST", "/api/v1/drafts", body).await.status, 400, "{body}");
    }
    let large = json!({ "prompt": "x".repeat(600 * 1024) }).to_string();
    assert_eq!(served.ask("PUT", &path, &large).await.status, 413);

    // The drafts of another caller are not visible.
    let key = served.ask("POST", "/api/v1/keys", r#"{"name":"other"}"#).await.json();
    let shown = format!("ApiKey {}", key["secret"].as_str().unwrap());
    let headers = [("authorization", shown.as_str()), JSON];
    let others = send(served.address(), &head("GET", "/api/v1/drafts", &headers), "").await;
    assert_eq!(others.json()["total"], 0);
    for method in ["GET", "PUT", "DELETE"] {
        let got = send(served.address(), &head(method, &path, &headers), "{}").await;
        assert_eq!(got.status, 404, "{method}: {got:?}");
    }

    assert_eq!(served.ask("DELETE", &path, "").await.status, 204);
    assert_eq!(served.ask("DELETE", &path, "").await.status, 404);
    assert_eq!(served.ask("GET", "/api/v1/drafts/draft-x", "").await.status, 400);
}

#[tokio::test]
async fn projects_and_repositories_come_from_sessions_and_imports() {
    let served = serve(Script::Silence).await;
    for project in ["shop", "shop", "bank"] {
        let prompt = format!("\"projectId\":\"{project}\",\"prompt\"");
        let task = TASK.replace("\"prompt\"", &prompt);
        let task = task.replace("https://h/x", &format!("https://github.com/acme/{project}.git"));
        assert_eq!(served.ask("POST", "/api/v1/tasks", &task).await.status, 201);
    }
    let projects = served.json("/api/v1/projects").await;
    assert_eq!(projects["total"], 2, "{projects}");
    let second = &projects["items"][1];
    assert_eq!((&second["id"], &second["sessions"]), (&json!("shop"), &json!(2)), "{projects}");

    let import = r#"{"url":"git@gitlab.com:acme/api.git","projectId":"shop"}"#;
    for _ in 0..2 {
        let imported = served.ask("POST", "/api/v1/repos", import).await;
        assert_eq!(imported.status, 201, "{imported:?}");
        assert_eq!(imported.json()["defaultBranch"], "main");
    }
    let repos = served.json("/api/v1/repos?projectId=shop").await;
    assert_eq!(repos["total"], 2, "{repos}");
    let (used, imported) = (&repos["items"][0], &repos["items"][1]);
    assert_eq!(
        (&used["displayName"], &used["scmProvider"]),
        (&json!("acme/shop"), &json!("github"))
    );
    assert_eq!(used["remoteUrl"], "https://github.com/acme/shop.git");
    assert!(used["lastUsedAt"].is_string() && used["id"].is_string(), "{repos}");
    assert_eq!(
        (&imported["scmProvider"], &imported["lastUsedAt"]),
        (&json!("gitlab"), &json!(null))
    );
    assert_eq!(served.json("/api/v1/repos").await["total"], 3);
    assert_eq!(served.json("/api/v1/repos?tenantId=none").await["total"], 0);
    for body in [
        "{}",
        r#"{"url":"ext::sh -c id"}"#,
        r#"{"url":"--upload-pack=x"}"#,
        r#"{"url":"https://h/x","y":1}"#,
    ] {
        let got = served.ask("POST", "/api/v1/repos", body).await;
        assert_eq!(got.status, 400, "{body}: {got:?}");
    }
    let far = [JSON, ("x-forwarded-for", "192.0.2.1")];
    let local = r#"{"url":"/srv/repository"}"#;
    assert_eq!(served.ask_with("POST", "/api/v1/repos", &far, local).await.status, 422);
    let lost = r#"{"url":"https://unreachable/x"}"#;
    assert_eq!(served.ask("POST", "/api/v1/repos", lost).await.status, 502);
}

#[tokio::test]
async fn branches_are_cached_for_a_minute() {
    let served = serve(Script::Silence).await;
    let path = "/api/v1/git/refs?url=https://h/x";
    let first = served.json(path).await;
    assert_eq!(
        (&first["defaultBranch"], &first["items"][0]["name"]),
        (&json!("main"), &json!("main"))
    );
    // The second answer is the stored one, with the time of the first.
    assert_eq!(served.json(path).await, first);
    for (query, status) in [
        ("", 400),
        ("?url=", 400),
        ("?url=ext::sh", 400),
        ("?url=--upload-pack=touch", 400),
        ("?url=https://user:pass@h/x", 400),
        ("?url=https://unreachable/x", 502),
        ("?url=/unreachable", 422),
    ] {
        let got = served.ask("GET", &format!("/api/v1/git/refs{query}"), "").await;
        assert_eq!(got.status, status, "{query}: {got:?}");
    }
}

#[tokio::test]
async fn workspaces_have_their_storage_and_their_history() {
    let served = serve(Script::Silence).await;
    let session = served.create().await;
    super::follow(served.address(), &format!("{session}/events"), "hm").await;
    let id = session.rsplit('/').next().unwrap();
    let listed = served.json("/api/v1/workspaces?status=active").await;
    assert_eq!(listed["total"], 1, "{listed}");
    let item = &listed["items"][0];
    assert_eq!((&item["id"], &item["executor"]), (&json!(id), &json!("fake")), "{listed}");
    assert_eq!((&item["repoUrl"], &item["status"]), (&json!("https://h/x"), &json!("active")));
    assert_eq!(served.json("/api/v1/workspaces?status=kept").await["total"], 0);
    let shown = served.json(&format!("/api/v1/workspaces/{id}")).await;
    assert_eq!(
        (&shown["storage"]["bytes"], &shown["history"][0]["sessionId"]),
        (&json!(4096), &json!(id))
    );
    assert_eq!(served.ask("GET", "/api/v1/workspaces?status=x", "").await.status, 400);
    assert_eq!(served.ask("POST", &format!("{session}/stop"), "").await.status, 202);
    served.events(&session, &[]).await;
    assert_eq!(served.json("/api/v1/workspaces?status=kept").await["total"], 1);

    // A repeated request with the same key continues the session once.
    let key = [JSON, ("idempotency-key", "c1")];
    let path = format!("{session}/continue");
    let next = served.ask_with("POST", &path, &key, "{}").await;
    assert_eq!(next.status, 201, "{next:?}");
    let again = served.ask_with("POST", &path, &key, "{}").await;
    assert_eq!((again.status, again.json()["id"].clone()), (201, next.json()["id"].clone()));
    let other = served.ask_with("POST", &path, &key, r#"{"prompt":"x"}"#).await;
    assert_eq!(other.status, 422, "{other:?}");
    let shown = served.json(&format!("/api/v1/workspaces/{id}")).await;
    assert_eq!(shown["sessionId"], next.json()["id"], "{shown}");
    let history = shown["history"].as_array().unwrap();
    assert_eq!((history.len(), &history[0]["status"]), (2, &json!("stopped")), "{shown}");

    let next = next.header("location").unwrap().to_owned();
    assert_eq!(served.ask("DELETE", &next, "").await.status, 202);
    served.events(&next, &[]).await;
    let unknown = "/api/v1/workspaces/01HVZ6K9T1N8S6M3V3Q3F0X5B7";
    assert_eq!(served.ask("GET", unknown, "").await.status, 404);
}
