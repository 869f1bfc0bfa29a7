//! API keys, lists with filters, drafts and catalogues of a server, by the built binary.

use std::fs;

use serde_json::Value;

use crate::serve::{Server, client, repository};
use crate::stage::{BINARY, Ran, Stage, run};

/// A client command that knows only the URL of the server and a token.
fn with_token(stage: &Stage, server: &Server, token: &str, arguments: &[&str]) -> Ran {
    let mut command = stage.command(BINARY);
    command.args(arguments).args(["--server", &server.url()]);
    command.env("AGENT_BACKEND_AUTH_TOKEN", token);
    run(command, b"")
}

#[test]
fn api_keys_are_shown_once_and_revoked_at_once() {
    let stage = repository();
    let server = Server::start(&stage);
    let made = client(&stage, &["key", "create", "ci"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let secret = made.text().trim().to_owned();
    assert!(secret.starts_with("abk_") && secret.len() == 68, "{secret}");
    assert_eq!(with_token(&stage, &server, &secret, &["session", "list"]).code, 0);
    let taken = client(&stage, &["key", "create", "ci"]);
    assert!(taken.code != 0 && taken.err.contains("revoke it first"), "{}", taken.err);
    for name in ["admin", "", "a b", "ü"] {
        assert_ne!(client(&stage, &["key", "create", name]).code, 0, "{name:?}");
    }

    // A key makes and revokes no keys.
    for arguments in [["key", "create", "more"], ["key", "revoke", "ci"]] {
        let refused = with_token(&stage, &server, &secret, &arguments);
        assert!(
            refused.code != 0 && refused.err.contains("token of the server"),
            "{}",
            refused.err
        );
    }

    let listed = client(&stage, &["key", "list"]);
    assert!(listed.text().contains("NAME  STATE  AGE"), "{}", listed.text());
    assert!(!listed.text().contains(&secret));
    assert_eq!(client(&stage, &["key", "revoke", "ci"]).code, 0);
    let refused = with_token(&stage, &server, &secret, &["session", "list"]);
    assert_ne!(refused.code, 0);
    let keys = client(&stage, &["key", "list", "--json"]).value();
    assert!(keys[0]["revokedAt"].is_string(), "{keys}");
    let data = fs::read(stage.outside("data").join("state.db")).unwrap();
    assert!(!data.windows(secret.len()).any(|window| window == secret.as_bytes()));
}

#[test]
fn sessions_are_listed_by_label_project_agent_and_repository() {
    let stage = repository();
    let _server = Server::start(&stage);
    let task = |label: &str, project: &str| {
        let arguments = ["task", "Look", "--label", label, "--project", project, "--json"];
        let made = client(&stage, &arguments);
        assert_eq!(made.code, 0, "{}", made.err);
        made.value()["sessionId"].as_str().unwrap().to_owned()
    };
    let first = task("team=a", "shop");
    let second = task("team=b", "bank");
    let ids = |filter: &[&str]| {
        let listed = client(&stage, &[&["session", "list", "--json"], filter].concat()).value();
        assert_eq!(listed["total"], listed["items"].as_array().unwrap().len(), "{listed}");
        let items = listed["items"].as_array().unwrap().iter();
        items.map(|it| it["id"].as_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    let root = stage.root().canonicalize().unwrap();
    let both = [second, first.clone()];
    assert_eq!(ids(&["--label", "team=a"]), both[1..]);
    assert_eq!(ids(&["--project", "bank"]), both[..1]);
    assert_eq!(ids(&["--agent", "scripted"]), both);
    assert_eq!(ids(&["--repo", root.to_str().unwrap()]), both);
    assert_eq!(ids(&["--agent", "scripted", "--label", "team=b"]), both[..1]);
    assert_eq!(ids(&["--agent", "other"]), [""; 0]);
    let shown = client(&stage, &["session", "get", &first]).text();
    assert!(shown.contains("labels      team=a"), "{shown}");
    let wrong = client(&stage, &["session", "list", "--label", "team"]);
    assert!(wrong.code != 0 && wrong.err.contains("name=value"), "{}", wrong.err);
    let value: Value = client(&stage, &["session", "list", "--json", "--label", "team=a"]).value();
    assert_eq!(value["items"][0]["labels"]["team"], "a");
}
