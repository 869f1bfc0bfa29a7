//! Coding agents of vendors, installed by our own code and taken through a whole turn inside bwrap against a scripted
//! model: once by `task`, once through the gateway.

pub(crate) mod over_http;
mod vendors;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::time::{Duration, Instant};

use ab_acp::agent_readiness::HostEnvironment;
use ab_acp::catalog::AgentCatalog;
use ab_acp::install::{AgentInstallDir, Reinstall};
use ab_testkit::peers::ThirdPartyPrograms;
use ab_testkit::scripted_model::{LanguageModelStep, ScriptedLanguageModel};
use serde_json::Value;

use self::over_http::AgentOverHttp;
use self::vendors::{VENDORS, Vendor, vendor};
use crate::escapes::stands;
use crate::peers::sandbox_agent::{Gateway, TOKEN};
use crate::stage::{BINARY, Stage, run};
use crate::{serve, sessions};

const KEY: &str = "sk-the-key-of-this-test";
const PROMPT: &str = "Make the file";
/// The agents of `cargo xtask soak agents`, with commas between them.
const SOAKED: &str = "AB_SOAK_AGENTS";

/// An installed agent, and a model that lets it make a file with its shell and print its key.
struct Fixture {
    vendor: Vendor,
    peers: ThirdPartyPrograms,
    model: ScriptedLanguageModel,
    version: String,
    auth_method: Option<String>,
}

impl Fixture {
    /// Nothing where the peers or bwrap are missing.
    async fn new(agent: &str) -> Option<Fixture> {
        let vendor = vendor(agent);
        let peers = ThirdPartyPrograms::find_or_skip(agent)?;
        if !stands("bwrap") {
            return None;
        }
        let catalog = AgentCatalog::default();
        let entry = catalog.find(agent).unwrap();
        let agents = AgentInstallDir::new(peers.agents_dir());
        let host = HostEnvironment::new(std::env::vars_os());
        let installed = agents.install(entry, &host, Reinstall::No, &mut |_| {}).await.unwrap();
        let command =
            format!("printf 'made by {agent}\\n' > MADE.md; echo \"the key is ${}\"", vendor.key);
        let steps =
            vec![LanguageModelStep::Run(command), LanguageModelStep::Say("It is made.".to_owned())];
        let model = ScriptedLanguageModel::start(steps).await;
        let auth_method = entry.auth_method.clone();
        Some(Fixture { vendor, peers, model, version: installed.agent.version, auth_method })
    }

    fn content(&self) -> String {
        format!("made by {}\n", self.vendor.agent)
    }

    /// The variables of the agent but its key.
    fn variables(&self) -> Vec<(&'static str, String)> {
        (self.vendor.variables)(&self.model.url())
    }

    /// A repository, and the installed agents in the data directory `data` beside it.
    fn stage(&self, data: &str) -> Stage {
        let stage = serve::repository();
        for name in [data, "home"] {
            // A data directory is the user's alone.
            let mut directories = fs::DirBuilder::new();
            directories.recursive(true).mode(0o700).create(stage.outside(name)).unwrap();
        }
        symlink(self.peers.agents_dir(), stage.outside(data).join("agents")).unwrap();
        stage
    }

    /// By `task`: the work shows in the diff and on the delivered branch, the key in no event.
    fn by_task(&self) -> Duration {
        let stage = self.stage("data");
        let mut server = stage.command(BINARY);
        server.env("HOME", stage.outside("home"));
        server.env(self.vendor.key, KEY).envs(self.variables());
        let data = stage.outside("data");
        let server = serve::Server::start_by(
            server,
            &["--isolation", "bwrap", "--data-dir", data.to_str().unwrap()],
        );
        let agent = self.vendor.agent;
        let started = Instant::now();
        let mut task = vec!["task", PROMPT, "--agent", agent, "--follow", "--approve", "always"];
        let model = self.vendor.asked_model.map(|model| format!("model={model}"));
        if let Some(model) = &model {
            task.extend(["--set", model]);
        }
        let followed = serve::client(&stage, &task);
        let took = started.elapsed();
        let (shown, asked) = (followed.text(), self.model.requests());
        assert_eq!(followed.code, 0, "{shown}\n{}\n{asked:?}", followed.err);
        if let Some(model) = self.vendor.asked_model {
            let last = self.model.last_request();
            let is_asked = asked.iter().any(|path| path.contains(model)) || last["model"] == model;
            assert!(is_asked, "no {model} in {asked:?} {last:#}");
        }

        let listed = serve::client(&stage, &["session", "list", "--json"]).value();
        let id = listed["items"][0]["id"].as_str().unwrap();
        let events = serve::client(&stage, &["session", "events", id, "--json"]).text();
        assert!(!events.contains(KEY), "{events}");
        let parsed = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let delivery = parsed.rev().find(|event| event["type"] == "delivery");
        let delivery = delivery.unwrap_or_else(|| panic!("{shown}\n{events}"));
        let branch = delivery["branch"].as_str().unwrap_or_else(|| panic!("{delivery}\n{shown}"));
        let made = serve::git(&stage.root(), &["show", &format!("{branch}:MADE.md")]);
        assert_eq!(made, self.content(), "{shown}");
        let changed = ["diff", "--name-only", "main", branch];
        assert_eq!(serve::git(&stage.root(), &changed), "MADE.md\n");
        let diff = serve::client(&stage, &["session", "diff"]).text();
        assert!(diff.contains(&format!("+made by {agent}")), "{diff}");
        let is_hidden = events.contains("the key is [credential]");
        assert_eq!(is_hidden, self.vendor.shows_key, "{events}");
        assert_eq!(server.end().0, 0);
        took
    }

    /// Through the gateway.
    fn by_gateway(&self) -> Duration {
        let stage = self.stage("state/agent-backend");
        let mut command = stage.command(BINARY);
        command.env("XDG_STATE_HOME", stage.outside("state")).env(self.vendor.key, KEY);
        let mut flags = vec!["--isolation".to_owned(), "bwrap".to_owned()];
        for (name, value) in self.variables() {
            command.env(name, value);
            flags.extend(["--pass-env".to_owned(), name.to_owned()]);
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let gateway = Gateway::start_by(command, &stage, &flags);
        let started = Instant::now();
        let address = gateway.url.strip_prefix("http://").unwrap().to_owned();
        let agent = AgentOverHttp { address, token: TOKEN.to_owned(), agent: self.vendor.agent };
        let root = stage.root();
        let end = agent.turn(root.to_str().unwrap(), self.auth_method.as_deref(), PROMPT);
        let took = started.elapsed();
        assert_eq!((end.as_str(), stage.text("MADE.md")), ("end_turn", self.content()));
        gateway.end();
        took
    }
}

/// A line of the table in docs/verification.md.
#[expect(clippy::print_stderr, reason = "`cargo xtask soak agents` shows it")]
async fn edits_by_task_and_through_the_gateway(agent: &str) {
    let Some(fixture) = Fixture::new(agent).await else { return };
    let fixture = tokio::task::spawn_blocking(move || {
        let (gateway, task) = (fixture.by_gateway(), fixture.by_task());
        let (gateway, task) = (gateway.as_secs_f32(), task.as_secs_f32());
        eprintln!(
            "| `{}` | {} | {gateway:.1} s | {task:.1} s |",
            fixture.vendor.agent, fixture.version
        );
        fixture
    });
    let fixture = fixture.await.unwrap();
    let requests = fixture.model.requests();
    let api = fixture.vendor.api;
    assert!(requests.iter().any(|path| path.ends_with(api)), "no {api} in {requests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_goose_edits_by_task_and_through_the_gateway() {
    edits_by_task_and_through_the_gateway("goose").await;
}

/// Gemini in every run; the agents of a soak instead of it.
#[tokio::test(flavor = "multi_thread")]
async fn slow_vendor_agents_edit_by_task_and_through_the_gateway() {
    let agents = std::env::var(SOAKED).unwrap_or_else(|_| "gemini".to_owned());
    for agent in agents.split(',') {
        edits_by_task_and_through_the_gateway(agent).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_for_an_agent_that_is_not_installed_is_refused_and_says_how_to_install_it() {
    let server = sessions::Server::start_with(None, |settings| {
        settings.environment.push(("GEMINI_API_KEY".into(), KEY.into()));
    });
    let Some(server) = server.await else { return };
    for (agent, says) in [
        ("gemini", "is not installed: run `agent-backend agent install gemini`"),
        ("pi", "the program \"pi-acp\" was not found; to install it: npm install"),
    ] {
        let refused =
            server.try_create(agent, serde_json::json!({})).await.unwrap_err().to_string();
        assert!(refused.contains("agent.type") && refused.contains(says), "{refused}");
    }
}

#[test]
fn catalog_calls_the_agents_tested_that_these_tests_start() {
    let catalog = AgentCatalog::default();
    let tested = catalog.entries().iter().filter(|entry| entry.tested);
    let mut tested: Vec<&str> = tested.map(|entry| entry.id.as_str()).collect();
    let mut started = vec!["scripted"];
    started.extend(VENDORS.iter().map(|vendor| vendor.agent));
    tested.sort_unstable();
    started.sort_unstable();
    assert_eq!(tested, started);
}

#[test]
fn task_command_fails_for_an_agent_that_is_not_installed() {
    let stage = serve::repository();
    let server = serve::Server::start(&stage);
    let ran = serve::client(&stage, &["task", "Do it", "--agent", "goose"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    let says = "error: agent \"goose\" 1.52.0 is not installed on the server\n\
                hint: run this on the server's machine: agent-backend agent install goose";
    assert!(ran.err.contains(says), "{}", ran.err);
    let listed = serve::client(&stage, &["session", "list", "--json"]).value();
    assert_eq!(listed["items"].as_array().unwrap().len(), 0, "{listed}");
    assert_eq!(server.end().0, 0);
}

#[test]
fn task_command_fails_for_an_agent_without_its_credential() {
    let stage = serve::repository();
    let (path, data) = (stage.outside("config.toml"), stage.outside("data"));
    let text = "[[agents]]\nid = \"keyed\"\nargv = [\"{self}\", \"agent\", \"script\"]\n\
                credentials = [\"MY_KEY\", \"MY_OTHER_KEY\"]\nneeds-credential = true\n";
    fs::write(&path, text).unwrap();
    let flags = ["--data-dir", data.to_str().unwrap(), "--config", path.to_str().unwrap()];
    for key in [None, Some("")] {
        let mut command = stage.command(BINARY);
        if let Some(key) = key {
            command.env("MY_KEY", key);
        }
        let server = serve::Server::start_by(command, &flags);
        let ran = serve::client(&stage, &["task", "Do it", "--agent", "keyed"]);
        let says = "error: agent \"keyed\" has no credential: set MY_KEY or \
                    MY_OTHER_KEY";
        assert!(ran.code == 1 && ran.err.contains(says), "{ran:?}");
        let listed = serve::client(&stage, &["session", "list", "--json"]).value();
        assert_eq!(listed["items"].as_array().unwrap().len(), 0, "{listed}");
        assert_eq!(server.end().0, 0);
    }
}

#[test]
fn serve_starts_on_a_data_directory_that_an_installation_made() {
    let stage = serve::repository();
    let data = stage.outside("data");
    let data = data.to_str().unwrap();
    // Without npm the installation fails after it made the directory.
    let mut install = stage.command(BINARY);
    install.args(["agent", "install", "goose", "--data-dir", data]).env("PATH", "");
    assert_eq!(install.output().unwrap().status.code(), Some(4));
    let server = serve::Server::start_by(stage.command(BINARY), &["--data-dir", data]);
    assert_eq!(server.end().0, 0);
}

#[test]
fn list_and_show_say_what_agents_need() {
    let stage = Stage::new();
    let data = stage.outside("data");
    let data = data.to_str().unwrap();
    let listed = stage.json(&["agent", "list", "--json", "--data-dir", data]);
    let agents = listed["agents"].as_array().unwrap();
    let find = |id: &str| agents.iter().find(|agent| agent["id"] == id).unwrap().clone();
    assert_eq!(find("scripted")["ready"], true);
    let goose = find("goose");
    assert_eq!((&goose["ready"], &goose["installed"]), (&false.into(), &serde_json::Value::Null));
    assert!(goose["missing"].to_string().contains("agent install goose"), "{goose}");
    let text = stage.out(&["agent", "list", "--data-dir", data]);
    let row = format!(
        "no     goose      not installed: agent-backend agent install goose --data-dir {data}\n"
    );
    assert!(text.contains(&row), "{text}");
    let text = stage.out(&["agent", "show", "claude-code", "--data-dir", data]);
    assert!(text.contains("ANTHROPIC_API_KEY") && text.contains("22 or newer"), "{text}");
    stage.run(&["agent", "show", "nobody", "--data-dir", data]).expect_error(2, "known agents:");
    let refused = stage.run(&["agent", "install", "pi", "--data-dir", data]);
    refused.expect_error(4, "cannot be installed by agent-backend; to install it: npm install");
}

/// Agents that are installed, half installed and not installed, with and without a key or a login.
#[test]
fn doctor_names_the_program_node_key_or_login_that_an_agent_lacks() {
    let stage = Stage::new();
    let catalog = AgentCatalog::default();
    let install = |id: &str, node: Option<&str>| {
        let version = &catalog.find(id).unwrap().package.as_ref().unwrap().version;
        let directory = stage.outside("state/agent-backend/agents").join(id).join(version);
        fs::create_dir_all(&directory).unwrap();
        let stamp = serde_json::json!({ "version": version, "node": node });
        fs::write(directory.join("installed.json"), stamp.to_string()).unwrap();
    };
    install("claude", Some("/no/such/node"));
    install("codex", Some(BINARY));
    install("qwen", Some(BINARY));
    install("gemini", Some(BINARY));
    let login = stage.outside("home/.codex/auth.json");
    fs::create_dir_all(login.parent().unwrap()).unwrap();
    fs::write(&login, "{}").unwrap();
    // On the path of the user, in a directory that sandboxes do not show.
    let hidden = stage.outside("opt/bin/kimi");
    fs::create_dir_all(hidden.parent().unwrap()).unwrap();
    fs::write(&hidden, "").unwrap();
    let doctor = |flag: &[&str]| {
        let mut command = stage.command(BINARY);
        command.env_clear().arg("doctor").args(flag);
        command.env("HOME", stage.outside("home")).env("PATH", hidden.parent().unwrap());
        command.env("XDG_STATE_HOME", stage.outside("state")).env("GEMINI_API_KEY", KEY);
        let ran = run(command, b"");
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran
    };
    let value = doctor(&["--json"]).value();
    let text = doctor(&[]).text();
    assert!(!text.contains(KEY), "{text}");
    for (id, needs) in [
        ("scripted", &[][..]),
        ("codex", &[]),
        ("gemini", &[]),
        ("claude", &["the Node.js at /no/such/node no longer exists", "set ANTHROPIC_API_KEY or"]),
        ("qwen", &["has no credential: set OPENAI_API_KEY"]),
        (
            "goose",
            &[
                "is not installed: run `agent-backend agent install goose`",
                "npm was not found",
                "~/.config/goose",
            ],
        ),
        (
            "kimi",
            &["sandboxes do not show its program", "has no credential: set MOONSHOT_API_KEY or"],
        ),
        (
            "pi",
            &[
                "the program \"pi-acp\" was not found; to install it: npm install",
                "set ANTHROPIC_API_KEY or",
            ],
        ),
    ] {
        let agent = value["agents"].as_array().unwrap().iter().find(|agent| agent["id"] == id);
        let agent = agent.unwrap_or_else(|| panic!("no {id} in {value}"));
        assert_eq!(agent["ready"], needs.is_empty(), "{agent}");
        assert_eq!(agent["missing"].as_array().unwrap().len(), needs.len(), "{agent}");
        let word = if needs.is_empty() { "ready" } else { "no   " };
        let start = format!("agent  {word}  {id} ");
        let mut rows = text.lines().skip_while(|line| !format!("{line} ").starts_with(&start));
        for need in needs {
            assert!(
                agent["missing"].to_string().replace('\\', "").contains(need),
                "{need}: {agent}"
            );
            assert!(rows.next().unwrap().contains(need), "{id}: {need}\n{text}");
        }
    }
}
