//! The MCP endpoint of a session: its agent works through it, the policy judges it, and its token opens nothing else.

use ab_acp::catalog::AgentCatalogEntry;
use ab_api::{
    ApprovalDecider, ApprovalDecision, ApprovalId, ApproveOrDeny, DeciderKind, EventKind,
    SessionId, SessionStatus,
};
use ab_policy::PolicyRuleFile;
use ab_testkit::http_remote::HttpRemote;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sessions::{ADMIN, Server, git};

/// Everything that the agent said.
pub(crate) async fn said(server: &Server, id: SessionId) -> String {
    let messages = server.events(id).await.into_iter().filter_map(|event| match event {
        EventKind::Log { message, .. } => Some(message),
        _ => None,
    });
    messages.collect::<Vec<_>>().join("\n")
}

/// The status and the body of an answer.
pub(crate) async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let body = body.to_string();
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\n{token}Connection: close\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Streams of events do not end: the head is enough.
    while !answer.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{method} {path}");
    }
    let is_stream = String::from_utf8_lossy(&answer).contains("text/event-stream");
    if !is_stream {
        stream.read_to_end(&mut answer).await.unwrap();
    }
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn tool_call(tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

fn endpoint(id: SessionId) -> String {
    format!("/api/v1/sessions/{id}/mcp")
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_works_through_its_endpoint_and_the_policy_judges_it() {
    let steps = r#"[[turn]]
        steps = [
            { call = { tool = "exec", arguments = { command = "sudo ls" } } },
            { say = "denied: {output}\n" },
            { run = "echo \"$HOME\"; pwd" },
            { say = "home: {output}\n" },
            { write = { path = "made.txt", text = "made\n" } },
        ]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let id = server.create("scenario").await;
    let session = server.ended(id).await;
    let (story, said) = (server.story(id).await, said(&server, id).await);
    assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
    assert!(said.contains("privilege.sudo"), "{said}");
    let home = said.lines().find_map(|line| line.strip_prefix("home: ")).unwrap();
    let tree = session.workspace.mount_path.unwrap();
    assert!(home.ends_with("/home") && !home.starts_with(&tree), "{said}");
    assert!(said.contains(&format!("{home}\n{tree}")), "{said}");
    let edits = server.events(id).await;
    let edits = edits.iter().filter(|event| matches!(event, EventKind::FileEdit { .. }));
    assert_eq!(edits.count(), 1, "an edit is one event: {story:#?}");
    assert_eq!(server.branches().len(), 1);
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_without_http_works_through_a_socket() {
    let steps = r#"
        [agent]
        mcp_http = false
        [[turn]]
        steps = [
            { call = { tool = "exec", arguments = { command = "sudo ls" } } },
            { say = "denied: {output}\n" },
            { run = "pwd" },
            { say = "in: {output}\n" },
            { write = { path = "made.txt", text = "made\n" } },
        ]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    for network in ["shared", "none"] {
        let runtime = json!({ "type": "local", "network": network });
        let id = server.create_with("scenario", runtime).await;
        let session = server.ended(id).await;
        let (story, said) = (server.story(id).await, said(&server, id).await);
        assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
        if said.contains("cannot reach the MCP endpoint") {
            ab_testkit::host::report_skip("an endpoint over a socket", "there is no bwrap");
            continue;
        }
        // The policy of the endpoint judges, as it does over HTTP.
        assert!(said.contains("privilege.sudo"), "{network}: {said}");
        assert!(said.contains(&format!("in: {}", session.workspace.mount_path.unwrap())), "{said}");
    }
    assert_eq!(server.branches().len(), 2);
    server.assert_clean(0).await;
}

/// An MCP server: it tells of its variable, its directory and the first process that it sees.
const GREETER: &str = r#"while IFS= read -r line; do
    id=${line#*'"id":'}; id=${id%%[,\}]*}
    case "$line" in
        *'"method":"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"g","version":"1"}}' ;;
        *'"method":"tools/call"'*)
            read -r first < /proc/1/comm
            result="{\"content\":[{\"type\":\"text\",\"text\":\"$GREETING in $PWD below $first\"}]}" ;;
        *) continue ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done"#;

/// A repository whose tag `v1` has the skill `lint` in the directory `skills`: its URL.
fn skill_repository(parent: &std::path::Path) {
    let root = parent.join("skill-repository");
    let skill = root.join("skills/lint");
    std::fs::create_dir_all(skill.join("bin")).unwrap();
    std::fs::write(skill.join("SKILL.md"), "lint it\n").unwrap();
    std::fs::write(skill.join("bin/run"), "#!/bin/sh\necho linted\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(skill.join("bin/run"), executable).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", skill.join("link")).unwrap();
    std::fs::create_dir_all(root.join("skills/none")).unwrap();
    std::fs::write(root.join("skills/none/README.md"), "no skill\n").unwrap();
    git(&root, &["init", "-q", "-b", "main"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "A skill"]);
    git(&root, &["tag", "-a", "v1", "-m", "The first"]);
    std::fs::write(skill.join("SKILL.md"), "changed later\n").unwrap();
    git(&root, &["commit", "-q", "-a", "-m", "Later"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_configures_the_agents_of_its_sessions() {
    let steps = r#"[[turn]]
        steps = [
            { call = { server = "greeter", tool = "greet" } },
            { say = "greeted: {output}\n" },
            { call = { server = "off", tool = "greet" } },
            { say = "off: {output}\n" },
            { run = "cat \"$HOME/.agents/skills/review/SKILL.md\" && \"$HOME/.agents/skills/review/bin/check\"" },
            { say = "skill: {output}\n" },
            { run = "cat \"$HOME/.agents/skills/lint/SKILL.md\" && \"$HOME/.agents/skills/lint/bin/run\"" },
            { say = "fetched: {output}\n" },
            { run = "ls \"$HOME/.agents/skills\" | xargs" },
            { say = "skills: {output}\n" },
            { run = "ls \"$HOME/.agents/skills/lint\" | xargs" },
            { say = "files: {output}\n" },
            { write = { path = "made.txt", text = "made\n" } },
        ]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let source = server.source();
    let config = source.join(".sandbox-agent/config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(source.join(".git/info/exclude"), ".sandbox-agent\n").unwrap();
    let greeter = json!({
        "type": "local", "command": ["sh", "-c", GREETER], "env": { "GREETING": "hello" },
    });
    let mut off = greeter.clone();
    off["enabled"] = false.into();
    let remote = json!({ "type": "remote", "url": "http://x", "bearerTokenEnvVar": "PATH" });
    let servers = json!({
        "greeter": greeter, "off": off, "workspace": greeter, "remote": remote, "odd": { "type": "x" },
    });
    std::fs::write(config.join("mcp.json"), servers.to_string()).unwrap();
    let skill = config.join("skills/review");
    std::fs::create_dir_all(skill.join("bin")).unwrap();
    std::fs::write(skill.join("SKILL.md"), "review with care\n").unwrap();
    std::fs::write(skill.join("bin/check"), "#!/bin/sh\necho checked\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(skill.join("bin/check"), executable).unwrap();
    let beside = source.parent().unwrap();
    skill_repository(beside);
    let remote = HttpRemote::open(beside);
    let repository = remote.url("skill-repository/.git");
    let of_repository = |member: &str, value: &str| {
        let mut source = json!({ "type": "git", "source": repository, "subpath": "skills" });
        source[member] = value.into();
        json!({ "sources": [source] })
    };
    let local = json!({ "type": "local", "source": ".sandbox-agent/config/skills" });
    let skills = json!({
        "own": { "sources": [local] },
        "fetched": of_repository("ref", "v1"),
        "branch": of_repository("ref", "no-such"),
        "below": of_repository("subpath", "../source"),
        "unreachable": of_repository("source", "http://127.0.0.1:1/x.git"),
        "private": of_repository("source", &format!("file://{}/skill-repository", beside.display())),
        "far": { "sources": [{ "type": "svn", "source": "owner/repo" }] },
        "odd": { "sources": [{ "type": "github", "source": "repo" }] },
        "outside": { "sources": [{ "type": "local", "source": "/etc" }] },
    });
    std::fs::write(config.join("skills.json"), skills.to_string()).unwrap();

    let id = server.create("scenario").await;
    let session = server.ended(id).await;
    let (story, said) = (server.story(id).await, said(&server, id).await);
    assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
    let tree = session.workspace.mount_path.unwrap();
    assert!(said.contains(&format!("greeted: hello in {tree} below ")), "{said}");
    assert!(said.contains("no MCP server \"off\""), "{said}");
    assert!(said.contains("skill: review with care\nchecked"), "{said}");
    // The link is not part of it, and neither is what came after the tag.
    assert!(said.contains("fetched: lint it\nlinted"), "{said}");
    assert!(said.contains("skills: lint review\n"), "{said}");
    assert!(said.contains("files: SKILL.md bin"), "{said}");
    if !said.contains("cannot reach the MCP endpoint") {
        let greeted = said.lines().find(|line| line.starts_with("greeted: ")).unwrap();
        assert!(greeted.ends_with("bwrap"), "{said}");
    }
    for note in [
        "\"workspace\" is left out: the session's own server has this name",
        "\"remote\" is left out: the agent has no variable PATH",
        "the entry \"odd\" is left out",
        "Skills \"far\" of \"owner/repo\" are left out: the type \"svn\" is none of",
        "Skills \"odd\" of \"repo\" are left out: it must be OWNER/REPOSITORY",
        "are left out: the repository has no branch or tag no-such",
        "are left out: invalid directory \"../source\"",
        "are left out: cannot read http://127.0.0.1:1/x.git: ",
        "Skills \"outside\" of \"/etc\" are left out: they lie outside of the directory",
    ] {
        assert!(said.contains(note), "{note}: {said}");
    }
    server.assert_clean(0).await;
}

/// The approval that the session asked for as number `index`.
async fn approval(server: &Server, id: SessionId, index: usize) -> ApprovalId {
    let seen = std::cell::Cell::new(0);
    let nth = |kind: &EventKind| match kind {
        EventKind::ApprovalRequested { approval_id, .. } => {
            seen.set(seen.get() + 1);
            (seen.get() == index + 1).then_some(*approval_id)
        }
        _ => None,
    };
    server.event(id, nth).await
}

#[tokio::test(flavor = "multi_thread")]
async fn question_of_the_policy_is_an_approval_of_the_session() {
    let rules = r#"
        [[rule]]
        id = "own.touch"
        category = "destructive"
        verdict = "ask"
        command = ["touch"]
        reason = "it makes a file"
    "#;
    let steps = r#"[[turn]]
        steps = [
            { run = "touch first" }, { say = "first: {output}\n" },
            { run = "touch second" }, { say = "second: {output}\n" },
        ]"#;
    let change = |settings: &mut ab_executor::ExecutorSettings| {
        settings.extra_policy_rules = PolicyRuleFile::parse(rules).unwrap();
    };
    let Some(server) = Server::start_with(Some(steps), change).await else { return };
    let id = server.create("scenario").await;
    let first = approval(&server, id, 0).await;
    let stored = server.control.store().get_approval(first).await.unwrap();
    assert_eq!(stored.subject.title, "Run touch first");
    assert_eq!(stored.subject.digest.as_ref().map(String::len), Some(64));
    let detail = stored.subject.detail.unwrap();
    assert!(detail.contains("it makes a file (rule own.touch)"), "{detail}");
    server.decide(first, ApproveOrDeny::Approve).await;
    let second = approval(&server, id, 1).await;
    let by = ApprovalDecider { kind: DeciderKind::Person, name: "ann".to_owned(), via: None };
    let decision =
        ApprovalDecision { reason: Some("not today".to_owned()), ..ApproveOrDeny::Deny.into() };
    server.control.decide_approval(second, decision, by).await.unwrap();
    let session = server.ended(id).await;
    let (story, said) = (server.story(id).await, said(&server, id).await);
    assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
    assert!(said.contains("not approved by person:ann (not today)"), "{said}");
    let diff = server.control.store().get_session_artifact(id, "diff").await.unwrap();
    assert!(diff.contains("first") && !diff.contains("second"), "{diff}");
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn login_of_an_agent_is_hidden_in_questions_events_and_diffs() {
    const LOGIN: &str = "token-of-the-vendor-0123456789";
    const RENEWED: &str = "token-that-the-agent-renewed";
    let rules = r#"
        [[rule]]
        id = "own.touch"
        category = "destructive"
        verdict = "ask"
        command = ["touch"]
        reason = "it makes a file"
    "#;
    let steps = format!(
        r#"[[turn]]
        steps = [
            {{ say = "my login is {LOGIN}\n" }},
            {{ run = "touch made-{LOGIN}" }},
            {{ run = "echo {RENEWED} > ~/.vendor/login" }},
            {{ write = {{ path = "leaked.txt", text = "{LOGIN} {RENEWED}\n" }} }},
            {{ say = "my login is {LOGIN}\n" }},
        ]"#
    );
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".vendor")).unwrap();
    std::fs::write(home.path().join(".vendor/login"), LOGIN).unwrap();
    let change = |settings: &mut ab_executor::ExecutorSettings| {
        settings.extra_policy_rules = PolicyRuleFile::parse(rules).unwrap();
        settings.environment.push(("HOME".into(), home.path().into()));
        let login_files = vec![".vendor/login".to_owned()];
        let entry = AgentCatalogEntry {
            id: "scenario".to_owned(),
            login_files,
            ..AgentCatalogEntry::default()
        };
        settings.catalog.add_or_change(entry).unwrap();
    };
    let Some(server) = Server::start_with(Some(&steps), change).await else { return };
    let id = server.create("scenario").await;
    let asked = approval(&server, id, 0).await;
    let stored = server.control.store().get_approval(asked).await.unwrap();
    assert_eq!(stored.subject.title, "Run touch made-[credential]");
    assert!(!format!("{stored:?}").contains(LOGIN), "{stored:?}");
    server.decide(asked, ApproveOrDeny::Approve).await;
    let session = server.ended(id).await;
    let story = server.story(id).await;
    assert_eq!(session.status, SessionStatus::Completed, "{story:#?}");
    let events = format!("{:?}", server.events(id).await);
    assert!(events.contains("my login is [credential]") && !events.contains(LOGIN), "{events}");
    let diff = server.control.store().get_session_artifact(id, "diff").await.unwrap();
    assert!(diff.contains("+[credential] [credential]"), "{diff}");
    assert!(!diff.contains(LOGIN) && !diff.contains(RENEWED), "{diff}");
    // The branch is the agent's work as it is.
    let branches = server.branches();
    let leaked = server.on_branch(&branches[0], "leaked.txt");
    assert_eq!(leaked, format!("{LOGIN} {RENEWED}"));
    server.assert_clean(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_session_opens_its_endpoint_alone() {
    let steps = r#"[[turn]]
        steps = [{ say = "ready\n" }, { hang = "until_cancelled" }]"#;
    let Some(server) = Server::start(Some(steps)).await else { return };
    let (own, other) = (server.create("scenario").await, server.create("scenario").await);
    let token = "a-token-of-the-first-session";
    server.control.store().add_session_token(own, token).await.unwrap();
    server.said(own, "ready").await;
    server.said(other, "ready").await;

    let read = tool_call("read_text_file", json!({ "path": "README.md" }));
    let (status, body) = ask(&server, "POST", &endpoint(own), Some(token), &read).await;
    assert_eq!((status, body.contains("first")), (200, true), "{body}");
    assert_eq!(ask(&server, "POST", &endpoint(own), Some(ADMIN), &read).await.0, 200);
    assert_eq!(ask(&server, "POST", &endpoint(own), None, &read).await.0, 401);
    assert_eq!(ask(&server, "POST", &endpoint(own), Some("wrong"), &read).await.0, 401);
    assert_eq!(ask(&server, "POST", &endpoint(other), Some(token), &read).await.0, 403);
    let unknown = endpoint(SessionId::generate());
    assert_eq!(ask(&server, "POST", &unknown, Some(ADMIN), &read).await.0, 404);

    let description = serde_json::to_value(ab_server::openapi_description()).unwrap();
    let mut seen = 0;
    for (template, item) in description["paths"].as_object().unwrap() {
        if template == "/api/v1/sessions/{id}/mcp" {
            continue;
        }
        let path = template.replace("{id}", &own.to_string());
        for (method, operation) in item.as_object().unwrap() {
            if operation["security"] == json!([{}]) {
                continue;
            }
            let method = method.to_uppercase();
            let (status, body) = ask(&server, &method, &path, Some(token), &json!({})).await;
            assert_eq!(status, 403, "{method} {path}: {body}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");

    server.control.cancel_session(own).await.unwrap();
    server.ended(own).await;
    assert_eq!(ask(&server, "POST", &endpoint(own), Some(ADMIN), &read).await.0, 410);
    assert_eq!(ask(&server, "POST", &endpoint(own), Some(token), &read).await.0, 401);
    server.control.cancel_session(other).await.unwrap();
    server.ended(other).await;
    server.assert_clean(0).await;
}
