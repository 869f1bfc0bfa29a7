//! What a session of the built server begins with: setup commands, templates, and a task in which every field is wrong.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::approvals::exec_at;
use super::fixture::{Fixture, Server, task};
use crate::outliving::comes;
use crate::stage::{BINARY, run};

const WORKER: &str =
    "[[turn]]\nsteps = [{ run = \"cat setup.txt\" }, { say = \"saw {output}\\n\" }]";

/// A source whose setup script has this text.
fn with_script(script: &str, sessions: &str) -> Fixture {
    let fixture = Fixture::with_agents(&[("worker", WORKER.to_owned())], sessions);
    fs::create_dir(fixture.stage.path(".agent-backend")).unwrap();
    fs::write(fixture.stage.path(".agent-backend/setup.sh"), script).unwrap();
    fixture.git(&["add", ".agent-backend"]);
    fixture.git(&["commit", "-q", "-m", "Setup"]);
    fixture
}

#[test]
fn setup_commands_run_in_the_sandbox_before_the_agent() {
    if !Fixture::can_run() {
        return;
    }
    let setup = "setup = [\"echo configured > setup.txt\", \"test -f setup.txt\"]";
    let fixture = with_script("exit 1\n", setup);
    // The script of a repository is as little trusted as an agent.
    let script = format!(
        "echo repository >> setup.txt\n\
         if cat {}; then echo LEAK; else echo safe; fi\n\
         echo told >&2\n",
        fixture.data().join("token").display()
    );
    fs::write(fixture.stage.path(".agent-backend/setup.sh"), script).unwrap();
    fixture.git(&["commit", "-q", "-m", "Another setup", ".agent-backend"]);
    let server = fixture.start(&[]);
    let id = server.create_with(&fixture, "worker");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    let messages: Vec<&str> =
        story.events.iter().filter_map(|(_, event)| event["message"].as_str()).collect();
    for expect in [
        "Setup: echo configured > setup.txt",
        "Setup: test -f setup.txt",
        "Setup: .agent-backend/setup.sh",
        "safe",
        "told",
    ] {
        assert!(messages.contains(&expect), "{expect}: {messages:#?}");
    }
    assert!(!messages.contains(&"LEAK"), "{messages:#?}");
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "").body;
    assert!(diff.contains("+configured") && diff.contains("+repository"), "{diff}");
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}

/// Prints what it has of the flags of `serve`, and works until it is stopped.
const TELLING: &str = "[[turn]]\nsteps = [{ run = \"echo agent $WHO; cat \\\"$DOCS\\\"/note\" }, \
     { say = \"has {output}\\n\" }, { hang = \"until_cancelled\" }]";

#[test]
fn flags_of_exec_apply_to_sessions_and_to_the_served_directory() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("telling", TELLING.to_owned())], "open-files = 90");
    let (docs, root) = (fixture.stage.outside("docs"), fixture.stage.outside("served"));
    fs::create_dir(&docs).unwrap();
    fs::create_dir_all(root.join("kept")).unwrap();
    fs::write(root.join("secret"), "hidden text").unwrap();
    fs::write(docs.join("note"), "bound\n").unwrap();
    let (docs, root) = (docs.to_str().unwrap(), root.to_str().unwrap());
    let variable = format!("DOCS={docs}");
    let flags = ["--env", "WHO=me", "--env", &variable, "--bind", docs, "--file-size", "64K"];
    let flags = [&flags[..], &["--timeout", "5s", "--memory", "700M", "--root", root]].concat();
    let flags = [&flags[..], &["--hide", "secret", "--read-only", "kept"]].concat();
    let server = fixture.start(&flags);
    let id = server.create_with(&fixture, "telling");
    let said = server.event(&id, |event| {
        event["message"].as_str().is_some_and(|message| message.starts_with("has "))
    });
    assert!(said["message"].as_str().unwrap().starts_with("has agent me"), "{said:#}");
    // A host without control groups enforces no limit on a session.
    let limits = server.reaches(&id, "its limits", |session| session["limits"].is_object());
    let memory = &limits["limits"]["memoryMiB"];
    assert!(memory.is_null() || *memory == 700, "{limits:#}");
    let session = format!("/api/v1/sessions/{id}/mcp");
    let look = "echo $WHO; cat $DOCS/note; ulimit -n; touch $DOCS/mine 2>/dev/null || echo kept";
    for endpoint in [session.as_str(), "/mcp"] {
        let text = |command: &str| exec_at(&server, endpoint, command).to_string();
        let shown = text(look);
        assert!(shown.contains("me\\nbound\\n90\\nkept"), "{endpoint}: {shown}");
        let large = text("head -c 100000 /dev/zero > large; wc -c < large");
        assert!(large.contains("65536"), "{endpoint}: {large}");
        let late = text("sleep 100");
        assert!(late.contains("by the time limit of this workspace"), "{endpoint}: {late}");
    }
    let restricted =
        exec_at(&server, "/mcp", "cat secret; touch kept/a || echo refused").to_string();
    assert!(restricted.contains("refused"), "{restricted}");
    assert!(!restricted.contains("hidden text"), "{restricted}");
    server.delete(&id);
    server.end();
    for (flag, says) in [
        (["--bind", "/no/such"], "invalid --bind: '/no/such': "),
        (["--bind", "/"], "would show the data directory"),
        (["--env", "WHO"], "must be KEY=VALUE"),
    ] {
        let mut command = fixture.stage.command(BINARY);
        command.args(["serve", "--port", "0", "--data-dir"]).arg(fixture.data()).args(flag);
        let refused = run(command, b"");
        assert_eq!(refused.code, 2, "{flag:?}: {}", refused.err);
        assert!(refused.err.contains(says), "{flag:?}: {}", refused.err);
    }
}

#[test]
fn setup_script_that_is_a_link_is_not_run_and_the_log_says_so() {
    if !Fixture::can_run() {
        return;
    }
    for target in ["/etc/profile", "nothing"] {
        let fixture = with_script("", "setup = [\"touch setup.txt\"]");
        let script = fixture.stage.path(".agent-backend/setup.sh");
        fs::remove_file(&script).unwrap();
        symlink(target, &script).unwrap();
        fixture.git(&["commit", "-q", "-m", "A link", ".agent-backend"]);
        let server = fixture.start(&[]);
        let (session, story) = server.ended(&server.create_with(&fixture, "worker"));
        assert_eq!(session["status"], "completed", "{story:#?}");
        assert!(story.says(".agent-backend/setup.sh is not run: "), "{target}: {story:#?}");
        server.end();
    }
}

#[test]
fn setup_that_fails_or_hangs_ends_the_session() {
    if !Fixture::can_run() {
        return;
    }
    for (script, sessions, expect) in [
        (
            "echo broken >&2\nexit 3\n",
            "",
            "setup: .agent-backend/setup.sh ended with exit code 3: broken",
        ),
        (
            "sleep 1000 & sleep 1000\n",
            "setup-timeout = \"1s\"",
            "setup: .agent-backend/setup.sh did not end within 1 s",
        ),
    ] {
        let fixture = with_script(script, sessions);
        let server = fixture.start(&[]);
        let id = server.create_with(&fixture, "worker");
        let (session, story) = server.ended(&id);
        assert_eq!(session["status"], "failed", "{session:#}\n{story:#?}");
        assert_eq!(
            (&session["endReason"], &session["endDetail"]),
            (&json!("launch"), &json!(expect))
        );
        assert_eq!(story.count("prompt"), 0, "{story:#?}");
        server.delete(&id);
        let pid = server.pid();
        server.end();
        fixture.assert_nothing_left(&[pid]);
    }
    // A hung setup does not delay a delete.
    let fixture = with_script("echo hanging\nsleep 1000\n", "");
    let server = fixture.start(&[]);
    let id = server.create_with(&fixture, "worker");
    server.event(&id, |event| event["message"] == "hanging");
    assert_eq!(server.delete(&id)["status"], "cancelled");
    comes("the end of the workspace", || fixture.workspaces() == 0);
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}

#[test]
fn template_is_copied_for_a_task_without_a_repository() {
    if !Fixture::can_run() {
        return;
    }
    let template = Fixture::new();
    let files = template.stage.outside("template");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("start.txt"), "from the template\n").unwrap();
    let fixture = Fixture::new();
    let worker =
        "[[turn]]\nsteps = [{ edit = { path = \"start.txt\", old = \"from\", new = \"after\" } }]";
    fs::write(files.join("worker.toml"), worker).unwrap();
    let config = format!(
        "[sessions]\ntemplates = [\"plain={}\"]\n[[agents]]\nid = \"worker\"\nargv = [\"{{self}}\", \"agent\", \"script\", \"worker.toml\"]\n",
        files.display()
    );
    fs::write(fixture.config(), config).unwrap();
    let server = fixture.start(&[]);
    let runtimes = server.get("/api/v1/runtimes");
    assert_eq!(runtimes["items"][0]["templates"], json!(["plain"]), "{runtimes:#}");
    let mut command = fixture.stage.command(BINARY);
    command.args(["task", "Work", "--template", "plain", "--agent", "worker"]);
    command.arg("--data-dir").arg(fixture.data());
    let ran = run(command, b"");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let id = ran.text().trim().to_owned();
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    let repo = &session["repo"];
    assert_eq!(
        (&repo["mode"], &repo["template"]),
        (&json!("none"), &json!("plain")),
        "{session:#}"
    );
    assert_eq!(session["delivery"]["mode"], "patch", "{session:#}");
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "").body;
    assert!(diff.contains("+after the template"), "{diff}");
    assert_eq!(fs::read_to_string(files.join("start.txt")).unwrap(), "from the template\n");
    for (repo, status, field) in [
        (json!({ "mode": "none" }), 400, "repo.template"),
        (json!({ "mode": "none", "template": "other" }), 422, "repo.template"),
        (json!({ "mode": "none", "template": 5 }), 400, "repo.template"),
        (json!({ "mode": "none", "template": "plain", "url": "/srv/x" }), 400, "repo.url"),
        (json!({ "mode": "none", "template": "plain", "branch": "x" }), 422, "repo.branch"),
        (json!({ "mode": "git", "template": "plain", "url": "/srv/x" }), 400, "repo.template"),
    ] {
        let body =
            json!({ "prompt": "x", "repo": repo, "agent": { "type": "worker" } }).to_string();
        let answer = server.ask("POST", "/api/v1/tasks", &body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.json()["errors"][field].is_array(), "{body}: {answer:?}");
    }
    server.end();
}

/// The fields of a task, and the kinds of JSON values that each takes.
const FIELDS: &[(&str, &str)] = &[
    ("tenantId", "text"),
    ("projectId", "text"),
    ("prompt", "text"),
    ("repo", "object"),
    ("repo.mode", "text"),
    ("repo.url", "text"),
    ("repo.branch", "text"),
    ("repo.commit", "text"),
    ("repo.template", "text"),
    ("repo.uploadId", "text"),
    ("runtime", "object"),
    ("runtime.type", "text"),
    ("runtime.devcontainerPath", "text"),
    ("runtime.network", "text"),
    ("runtime.resources", "object"),
    ("runtime.resources.cpu", "number"),
    ("runtime.resources.memoryMiB", "number"),
    ("workspace", "object"),
    ("workspace.snapshotPreference", "list"),
    ("workspace.executionHostId", "text"),
    ("agent", "object"),
    ("agent.type", "text"),
    ("agent.version", "text"),
    ("agent.settings", "object"),
    ("agents", "list"),
    ("budget", "object"),
    ("budget.turns", "number"),
    ("budget.wallSeconds", "number"),
    ("budget.tokens", "number"),
    ("budget.costUsd", "number"),
    ("delivery", "object"),
    ("delivery.mode", "text"),
    ("delivery.targetBranch", "text"),
    ("labels", "object"),
    ("keepOpen", "flag"),
    ("webhooks", "list"),
    ("attachments", "list"),
];

fn set(task: &mut Value, field: &str, value: Value) {
    let mut at = task;
    for part in field.split('.') {
        at = &mut at[part];
    }
    *at = value;
}

fn refused(server: &Server, body: &Value, field: &str) {
    let answer = server.ask("POST", "/api/v1/tasks", &body.to_string());
    assert!(matches!(answer.status, 400 | 422), "{field}: {body} {answer:?}");
    let problem = answer.json();
    let named = problem["errors"].as_object().unwrap().keys();
    let is_named = { named }.any(|name| name == field || name.starts_with(&format!("{field}.")));
    assert!(is_named, "{field}: {body} {problem:#}");
}

#[test]
fn every_field_of_a_task_that_is_wrong_is_named() {
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    let wrong = [
        ("number", json!(-5)),
        ("number", json!(1e300)),
        ("text", json!("\u{0}")),
        ("text", json!("no such \u{202e} value ".repeat(20_000))),
        ("flag", json!(true)),
        ("list", json!([[]])),
        ("list", json!([5, {}, "x"])),
        ("object", json!({ "surprise": 1 })),
    ];
    for (field, kind) in FIELDS {
        for (given, value) in &wrong {
            // Every text is a prompt, and every flag a flag.
            if (*field == "prompt"
                && given == kind
                && value.as_str().is_some_and(|it| it.len() < 9))
                || (given == kind && *given == "flag")
            {
                continue;
            }
            let mut body = task(&fixture.source(), "Work");
            set(&mut body, field, value.clone());
            refused(&server, &body, field);
        }
    }
    for field in ["prompt", "repo", "agent", "repo.url", "agent.type"] {
        let mut body = task(&fixture.source(), "Work");
        set(&mut body, field, Value::Null);
        refused(&server, &body, field);
    }
    assert_eq!(server.get("/api/v1/sessions")["total"], 0);
    server.end();
}

#[test]
fn task_beyond_the_configured_rate_is_told_when_to_try_again() {
    let fixture = Fixture::new();
    fs::write(fixture.config(), "[limits]\ntasks-per-minute = 1\n").unwrap();
    let server = fixture.start(&[]);
    let id = server.create(&fixture.source(), "Work");
    let body = task(&fixture.source(), "More work").to_string();
    let refused = server.ask("POST", "/api/v1/tasks", &body);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.head.to_lowercase().contains("retry-after: "), "{}", refused.head);
    let mut command = fixture.stage.command(BINARY);
    command.args(["task", "More work", "--data-dir"]).arg(fixture.data());
    let ran = run(command, b"");
    assert_eq!(ran.code, 4, "{}", ran.err);
    assert!(ran.err.contains("limits.tasks-per-minute"), "{}", ran.err);
    assert_eq!(server.get("/api/v1/sessions")["total"], 1);
    server.delete(&id);
    server.end();
}

#[test]
fn limits_of_the_command_line_are_those_of_the_session() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    let mut command = fixture.stage.command(BINARY);
    command.args(["task", "Work", "--cpu", "1", "--memory", "512"]);
    command.arg("--data-dir").arg(fixture.data());
    let ran = run(command, b"");
    if ran.code != 0 {
        ab_testkit::host::report_skip("limits of a session", &ran.err);
        return;
    }
    let id = ran.text().trim().to_owned();
    let (session, _) = server.ended(&id);
    let limits = &session["limits"];
    assert_eq!((limits["cpu"].as_f64(), limits["memoryMiB"].as_u64()), (Some(1.0), Some(512)));
    server.end();
}
