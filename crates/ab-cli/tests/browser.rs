//! The page in Chromium, against the built binary. The scripts in `browser/` drive it with Playwright.

use std::fs;
use std::path::Path;
use std::process::Command;

use ab_testkit::host::report_skip;
use ab_testkit::peers::ThirdPartyPrograms;

use serde_json::json;

use crate::serve::{Server, client, git, waiting};
use crate::stage::{BINARY, Stage, run};

const WHAT: &str = "the page in a browser";

/// Where Debian installs Chromium.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Asks, then edits a file and reports.
const WORK: &str = r#"
[[turn]]
steps = [
    { think = "I look at the file.\n" },
    { plan = ["Ask", "Edit"] },
    { ask = { title = "Run the tests", kind = "execute", command = "make <test>", denied = [{ say = "Then not.\n" }] } },
    { run = "ls" },
    { edit = { path = "README.md", old = "A project", new = "A better project" } },
    { done = 2 },
    { say = "It is better now.\n" },
]
"#;

/// Two turns: the second answers a further prompt. The first waits for the reader.
const TURNS: &str = r#"
[[turn]]
steps = [
    { ask = { title = "Change the file", kind = "edit", command = "make it <so>" } },
    { write = { path = "first.txt", text = "first\n" } },
    { say = "The first is done.\n" },
]
[[turn]]
steps = [{ write = { path = "second.txt", text = "second\n" } }, { say = "The second is done.\n" }]
"#;

/// Works until it is stopped.
const HANG: &str = r#"
[[turn]]
steps = [{ say = "I wait.\n" }, { hang = "until_cancelled" }]
"#;

/// Says a line every few milliseconds, so that the connection can break in between.
fn counting() -> String {
    let lines: Vec<String> = (1..=300)
        .map(|number| format!("{{ say = \"line {number}\\n\" }}, {{ delay = 10 }}"))
        .collect();
    format!("[[turn]]\nsteps = [{}]\n", lines.join(", "))
}

/// Everything that an agent could try on the reader's browser.
const HOSTILE: &str = r#"
[[turn]]
steps = [
    { say = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\n" },
    { say = "\u001b[31mred\u001b[0m \u001b]0;owned\u0007 \u202egnp.exe\n" },
    { think = "<style>body{display:none}</style></li></ol><base href=//evil.example>\n" },
    { plan = ["<b>bold</b>"] },
    { write = { path = "<img src=x onerror=alert(1)>.html", text = "<script>alert(1)</script> \u202e\r\n" } },
    { tool = { title = "<svg onload=alert(1)>", output = "</pre><script>document.title='owned'</script>" } },
    { long_line = 1000000 },
    { say = "OVERFLOWING" },
    { flood = { pieces = 1000, bytes = 1000 } },
    { say = "\n" },
    { ask = { title = "<b>Approve</b>", kind = "execute", command = "<i>rm</i>" } },
    { say = "end\n" },
]
"#;

/// Runs a script of `browser/` on a server and a repository whose agent follows the scenario.
#[track_caller]
fn drive(script: &str, scenario: &str) {
    let Some(peers) = programs() else { return };
    let stage = repository(scenario);
    let server = Server::start(&stage);
    press(&peers, &stage, server, script, &[]);
}

/// Runs a script of `browser/` on a server, with further variables.
#[track_caller]
fn press(
    peers: &ThirdPartyPrograms,
    stage: &Stage,
    server: Server,
    script: &str,
    variables: &[(&str, &str)],
) {
    let link = server.notice.split_whitespace().find(|word| word.contains("/ui/login?"));
    let token = fs::read_to_string(stage.outside("data").join("token")).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser").join(script);
    let mut command: Command = peers.bundled_node_command(&path);
    command
        .env("PLAYWRIGHT", peers.node_package_dir("playwright-core").join("index.mjs"))
        .env("CHROMIUM", CHROMIUM)
        .env("LINK", link.unwrap())
        .env("TOKEN", token.trim())
        .env("REPOSITORY", stage.root())
        .env("BINARY", BINARY)
        .envs(variables.iter().copied());
    let ran = run(command, b"");
    assert_eq!((ran.code, ran.text().as_str()), (0, "passed\n"), "{}", ran.err);
    assert_eq!(server.end().0, 0);
}

/// The programs that a browser needs; `None` where they are missing.
fn programs() -> Option<ThirdPartyPrograms> {
    let peers = ThirdPartyPrograms::find_or_skip(WHAT)?;
    if !Path::new(CHROMIUM).exists() {
        report_skip(WHAT, &format!("{CHROMIUM} is missing; `cargo xtask test` installs it"));
        return None;
    }
    Some(peers)
}

/// A repository whose agent follows the scenario.
fn repository(scenario: &str) -> Stage {
    let files = [("README.md", "# A project\n"), (".agent-backend/scenario.toml", scenario)];
    let stage = Stage::with(&files);
    let root = stage.root();
    git(&root, &["init", "-q", "-b", "main"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "Start"]);
    stage
}

#[test]
fn a_task_is_given_watched_and_approved_in_the_page() {
    drive("work.mjs", WORK);
}

#[test]
fn an_agent_gets_a_further_prompt_in_the_page() {
    drive("prompt.mjs", TURNS);
}

#[test]
fn a_phone_stops_a_session() {
    drive("phone.mjs", HANG);
}

#[test]
fn hostile_output_stays_text_in_the_page() {
    drive("hostile.mjs", HOSTILE);
}

#[test]
fn the_page_works_without_scripts() {
    drive("plain.mjs", WORK);
}

#[test]
fn no_row_is_lost_when_the_connection_breaks() {
    drive("reconnect.mjs", &counting());
}

/// Asks, and then writes what it may.
const ASKING: &str = r#"
[[turn]]
steps = [
    { ask = { title = "Write the notes", kind = "edit", command = "notes <b>", denied = [{ say = "Then not.\n" }] } },
    { write = { path = "NOTES.md", text = "notes\n" } },
    { say = "It is written.\n" },
]
"#;

#[test]
fn questions_from_before_a_crash_are_approved_in_the_page() {
    let Some(peers) = programs() else { return };
    let stage = repository(ASKING);
    let server = Server::start(&stage);
    let session = waiting(&stage);
    let space = client(&stage, &["space", "create", "--name", "tidy up"]);
    let space = space.text().trim().to_owned();
    let operations = stage.outside("operations.json");
    let message = json!({ "protocolVersion": "1.0", "operations": [
        { "type": "createFile", "path": "data/x", "content": "x" },
        { "type": "shell", "command": "rm -rf data" },
        { "type": "createFile", "path": "after", "content": "y" },
    ] });
    fs::write(&operations, message.to_string()).unwrap();
    let ran = client(&stage, &["run", operations.to_str().unwrap(), "--space", &space, "--json"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    let run = ran.value()["runId"].as_str().unwrap().to_owned();
    server.kill();
    let server = Server::start(&stage);
    press(
        &peers,
        &stage,
        server,
        "restart.mjs",
        &[("SESSION", &session), ("RUN", &run), ("SPACE", &space)],
    );
    let root = stage.root();
    let branch = git(&root, &["for-each-ref", "--format=%(refname:short)", "refs/heads/ah"]);
    assert_eq!(git(&root, &["show", &format!("{}:NOTES.md", branch.trim())]), "notes\n");
}
