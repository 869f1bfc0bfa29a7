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
