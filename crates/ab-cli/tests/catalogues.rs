//! API keys, lists with filters, drafts and catalogues of a server, by the built binary.

use std::fs;

use serde_json::Value;

use crate::outliving::comes;
use crate::serve::{Server, client, git, repository};
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
    assert!(wrong.code != 0 && wrong.err.contains("must be NAME=VALUE"), "{}", wrong.err);
    let value: Value = client(&stage, &["session", "list", "--json", "--label", "team=a"]).value();
    assert_eq!(value["items"][0]["labels"]["team"], "a");
}

#[test]
fn a_draft_becomes_a_task() {
    let stage = repository();
    let _server = Server::start(&stage);
    let root = stage.root();
    let made =
        client(&stage, &["draft", "create", "Look around", "--repo", root.to_str().unwrap()]);
    assert_eq!(made.code, 0, "{}", made.err);
    let id = made.text().trim().to_owned();
    let listed = client(&stage, &["draft", "list"]).text();
    assert!(listed.starts_with("DRAFT") && listed.contains("Look around"), "{listed}");
    let unknown = client(&stage, &["draft", "show", "draft-01ARZ3NDEKTSV4RRFFQ69G5FAV"]);
    assert!(unknown.code != 0 && unknown.err.contains("draft list"), "{}", unknown.err);
    let file = stage.outside("task.json");
    fs::write(&file, r#"{"labels":{"team":"a"},"promt":"x"}"#).unwrap();
    let update = ["draft", "update", &id, "--file", file.to_str().unwrap()];
    let wrong = client(&stage, &update);
    assert!(wrong.code != 0 && wrong.err.contains("promt"), "{}", wrong.err);
    fs::write(&file, r#"{"labels":{"team":"a"}}"#).unwrap();
    let updated = client(&stage, &[&update[..], &["--json"]].concat());
    assert_eq!(updated.value()["prompt"], "Look around", "{}", updated.err);
    let started = client(&stage, &["draft", "start", &id, "--json"]);
    assert_eq!(started.code, 0, "{}", started.err);
    let session = started.value()["sessionId"].as_str().unwrap().to_owned();
    let shown = client(&stage, &["session", "get", &session, "--json"]).value();
    assert_eq!((&shown["labels"]["team"], &shown["prompt"]), (&"a".into(), &"Look around".into()));
    assert_eq!(shown["agent"]["type"], "scripted", "the default, as for a task");
    assert_eq!(client(&stage, &["draft", "list", "--json"]).value(), Value::Array(Vec::new()));
    assert_ne!(client(&stage, &["draft", "rm", &id]).code, 0);
}

#[test]
fn remote_lists_what_the_server_has_in_columns() {
    let stage = repository();
    let _server = Server::start(&stage);
    let root = stage.root().canonicalize().unwrap();
    let made = client(&stage, &["task", "Look", "--keep", "--project", "shop", "--json"]);
    let id = made.value()["sessionId"].as_str().unwrap().to_owned();
    comes("the session runs", || {
        client(&stage, &["session", "get", &id, "--json"]).value()["status"] == "running"
    });
    let headings = |what: &[&str]| {
        let ran = client(&stage, &[&["remote"], what].concat());
        assert_eq!(ran.code, 0, "{what:?}: {}", ran.err);
        let text = ran.text();
        let first = text.lines().next().unwrap_or_default().to_owned();
        (first.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" "), text)
    };
    assert_eq!(headings(&["agents"]).0, "AGENT VERSIONS TITLE");
    assert_eq!(headings(&["runtimes"]).0, "RUNTIME PROFILES IMAGES");
    assert_eq!(headings(&["executors"]).0, "EXECUTOR HEALTH SYSTEM SNAPSHOTS");
    assert_eq!(headings(&["projects"]).0, "PROJECT TENANT SESSIONS USED");
    let (columns, repos) = headings(&["repos", "--project", "shop"]);
    assert_eq!(columns, "NAME PROVIDER BRANCH USED URL");
    assert!(repos.contains(root.to_str().unwrap()) && repos.contains("local"), "{repos}");
    let branches = headings(&["branches", root.to_str().unwrap()]).1;
    assert!(branches.contains("main") && branches.contains("default"), "{branches}");
    // The default branch is known now.
    let known = client(&stage, &["remote", "repos", "--json"]).value();
    assert_eq!(known[0]["defaultBranch"], "main", "{known}");
    assert_eq!(
        client(&stage, &["remote", "repos", "--tenant", "none", "--json"]).value(),
        Value::Array(Vec::new())
    );
    let (columns, workspaces) = headings(&["workspaces", "--status", "active"]);
    assert_eq!(columns, "WORKSPACE STATE EXECUTOR AGE REPOSITORY");
    assert!(workspaces.contains(&id), "{workspaces}");
    let shown = client(&stage, &["remote", "workspace", "show", &id, "--json"]).value();
    assert!(shown["storage"]["files"].as_u64().unwrap() > 0, "{shown}");
    assert!(shown["storage"]["bytes"].as_u64().unwrap() > 0, "{shown}");
    assert_eq!(shown["history"][0]["sessionId"], id.as_str(), "{shown}");
    let text = client(&stage, &["remote", "workspace", "show", &id]).text();
    assert!(text.contains("storage") && text.contains("SESSION"), "{text}");
    let wrong = client(&stage, &["remote", "workspaces", "--status", "asleep"]);
    assert!(wrong.code != 0 && wrong.err.contains("active, kept"), "{}", wrong.err);
}

#[test]
fn asking_a_hostile_repository_for_branches_runs_nothing_of_it() {
    let stage = repository();
    let _server = Server::start(&stage);
    let root = stage.root();
    let mark = stage.outside("ran");
    let script = stage.outside("evil.sh");
    fs::write(&script, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let evil = script.to_str().unwrap();
    for (key, value) in [
        ("core.fsmonitor", evil),
        ("core.sshCommand", evil),
        ("core.alternateRefsCommand", evil),
        ("uploadpack.packObjectsHook", evil),
        ("core.hooksPath", root.to_str().unwrap()),
        ("core.pager", evil),
        ("protocol.ext.allow", "always"),
    ] {
        git(&root, &["config", key, value]);
    }
    for hook in ["pre-upload", "post-checkout", "reference-transaction"] {
        fs::copy(&script, root.join(hook)).unwrap();
    }
    let asked = client(&stage, &["remote", "branches", root.to_str().unwrap(), "--json"]);
    assert_eq!(asked.code, 0, "{}", asked.err);
    assert_eq!(asked.value()["items"][0]["name"], "main");
    let imported = client(&stage, &["remote", "import", root.to_str().unwrap()]);
    assert!(imported.text().starts_with("repo-"), "{}", imported.err);
    assert!(!mark.exists(), "git ran a program of the repository");
}
