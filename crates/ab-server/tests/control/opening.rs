//! Where the workspace of a session is, and the schemas of agents' settings.

use serde_json::json;

use super::fake::{JSON, Script, TASK, serve};

#[tokio::test]
async fn workspace_is_opened_by_path_here_and_by_ssh_elsewhere() {
    let served = serve(Script::Silence).await;
    let session = served.create().await;
    super::follow(served.address(), &format!("{session}/events"), "hm").await;
    let links = served.json(&session).await["links"].clone();
    let path = format!("{session}/open/ide");
    assert_eq!(links["ide"], json!(path));
    let here = served.ask("POST", &path, r#"{"ide":"vscode"}"#).await;
    assert_eq!(here.status, 200, "{here:?}");
    let here = here.json();
    let command = json!(["code", "/workspaces/fake"]);
    assert_eq!((&here["local"]["path"], &here["local"]["command"]), (&command[1], &command));
    assert!(here["notYet"][0].as_str().unwrap().contains("port forwarding"), "{here}");
    // Behind a proxy the caller is on another machine.
    let headers = [JSON, ("x-forwarded-for", "192.0.2.1"), ("x-forwarded-proto", "https")];
    let away = served.ask_with("POST", &path, &headers, "{}").await.json();
    assert_eq!(away.get("local"), None, "{away}");
    for (body, status, field) in [
        (r#"{"ide":"notepad"}"#, 422, "ide"),
        (r#"{"ide":5}"#, 400, "ide"),
        (r#"{"editor":"vim"}"#, 400, "editor"),
    ] {
        let got = served.ask("POST", &path, body).await;
        assert_eq!(got.status, status, "{got:?}");
        assert!(got.json()["errors"][field].is_array(), "{got:?}");
    }
    assert_eq!(served.ask("DELETE", &session, "").await.status, 202);
    served.events(&session, &[]).await;
    loop {
        let got = served.ask("POST", &path, "").await;
        // The workspace is removed after the last event.
        if got.status == 410 {
            break;
        }
        assert_eq!(got.status, 200, "{got:?}");
    }
    let unknown = "/api/v1/sessions/01HVZ6K9T1N8S6M3V3Q3F0X5B7/open/ide";
    assert_eq!(served.ask("POST", unknown, "").await.status, 404);
}

#[tokio::test]
async fn settings_of_an_agent_have_a_schema_that_tasks_are_checked_by() {
    let served = serve(Script::Silence).await;
    let got = served.ask("GET", "/api/v1/schemas/agents/a.json", "").await;
    assert_eq!(got.header("content-type"), Some("application/schema+json"), "{got:?}");
    let schema = got.json();
    assert_eq!(schema["$id"], "/api/v1/schemas/agents/a.json");
    assert_eq!(schema["properties"]["model"]["type"], "string");
    for path in ["/api/v1/schemas/agents/a", "/api/v1/schemas/agents/b.json"] {
        assert_eq!(served.ask("GET", path, "").await.status, 404, "{path}");
    }
    let with = |settings: &str| TASK.replace(r#""type":"a""#, &format!(r#""type":"a",{settings}"#));
    let wrong = with(r#""settings":{"model":5,"colour":"red"}"#);
    let got = served.ask("POST", "/api/v1/tasks", &wrong).await;
    assert_eq!(got.status, 422, "{got:?}");
    let errors = got.json()["errors"].clone();
    for (field, pointer) in [
        ("agent.settings.model", "(at /agent/settings/model)"),
        ("agent.settings.colour", "(at /agent/settings/colour)"),
    ] {
        assert!(errors[field][0].as_str().unwrap().ends_with(pointer), "{errors}");
    }
    let right = with(r#""settings":{"model":"m"}"#);
    let made = served.ask("POST", "/api/v1/tasks", &right).await;
    let session = served.json(made.header("location").unwrap()).await;
    assert_eq!(session["agent"]["settings"], json!({ "model": "m" }));
}
