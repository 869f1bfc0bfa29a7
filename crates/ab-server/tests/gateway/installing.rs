//! Agents from a registry: installed on request, and before the first message to them. npm is a shell script.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use ab_acp::agent_readiness::HostEnvironment;
use ab_acp::gateway::{AgentGatewaySettings, InstallPolicy};
use ab_acp::install::AgentInstallDir;
use ab_server::HttpAccessPolicy;
use serde_json::json;
use tokio::time::timeout;

use super::fixture::{ECHO, Fixture};

/// The program of the agent `goose` below its package.
const PROGRAM: &str = "node_modules/@aaif/goose-binary-linux-x64/bin";
const INSTALL: &str = "/v1/agents/goose/install";

/// A gateway with the agent `goose`, which the npm of this machine installs as `script` says.
struct Machine {
    fixture: Fixture,
    place: PathBuf,
}

/// Counts the run, waits until a line is written into `gate`, and installs the agent `echo` as goose.
fn filling() -> String {
    format!(
        "echo x >> \"$PLACE/runs\"; [ -p \"$PLACE/gate\" ] && read -r _ < \"$PLACE/gate\"\n\
         mkdir -p {PROGRAM}; cp \"$PLACE/echo\" {PROGRAM}/goose"
    )
}

impl Machine {
    async fn start(npm: &str, change: impl FnOnce(&mut AgentGatewaySettings)) -> Machine {
        let keep = tempfile::tempdir().unwrap().keep();
        let place = keep.clone();
        let program = |name: &str, text: &str| {
            let path = keep.join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        program("npm", npm);
        program("echo", ECHO);
        let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
            let agents = &mut settings.agents;
            let mut goose = agents.catalog.find("goose").unwrap().clone();
            goose.package.as_mut().unwrap().platforms.clear();
            goose.argv[0] = format!("{{agent}}/{PROGRAM}/goose");
            agents.catalog.add_or_change(goose).unwrap();
            agents.install_dir = Some(AgentInstallDir::new(keep.join("agents")));
            let path = format!("{}:/usr/bin:/bin", keep.display());
            let variables = [("PATH", path), ("PLACE", keep.display().to_string())];
            agents.host =
                HostEnvironment::new(variables.map(|(name, value)| (name.into(), value.into())));
            change(settings);
        })
        .await;
        Machine { fixture, place }
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.place.join("runs")).unwrap_or_default().lines().count()
    }

    /// What is in the directory of agents, beside its lock.
    fn agents(&self) -> Vec<String> {
        let Ok(entries) = self.place.join("agents").read_dir() else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect()
    }

    /// npm waits until the gate is opened.
    fn close_gate(&self) {
        let made = std::process::Command::new("mkfifo").arg(self.place.join("gate")).status();
        assert!(made.unwrap().success());
    }

    async fn open_gate(&self) {
        tokio::fs::write(self.place.join("gate"), "go\n").await.unwrap();
        fs::remove_file(self.place.join("gate")).unwrap();
    }

    async fn installed(&self) -> serde_json::Value {
        self.fixture.ask("GET", "/v1/agents/goose", "").await.json()["installed"].clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place);
    }
}

#[tokio::test]
async fn missing_agent_is_installed_by_the_first_message() {
    let machine = Machine::start(&filling(), |settings| {
        settings.request_timeout = Duration::from_secs(1);
    })
    .await;
    machine.close_gate();
    assert_eq!(machine.installed().await, false);
    let fixture = &machine.fixture;
    let mut first = Box::pin(fixture.request("a?agent=goose", json!(1), "ping"));
    // The clock of the request does not run while the agent is installed.
    timeout(Duration::from_millis(1500), &mut first).await.unwrap_err();
    assert_eq!(fixture.servers().await, [("a".to_owned(), "starting".to_owned())]);
    let second = fixture.request("b?agent=goose", json!(2), "ping");
    let (first, second, ()) = tokio::join!(first, second, machine.open_gate());
    assert_eq!((&first["id"], &second["id"]), (&json!(1), &json!(2)));
    assert_eq!((machine.runs(), machine.agents()), (1, vec!["goose".to_owned()]));
    assert_eq!(machine.installed().await, true);
}

#[tokio::test]
async fn agent_is_installed_on_request() {
    let machine = Machine::start(&filling(), |_| {}).await;
    let fixture = &machine.fixture;
    machine.close_gate();
    let (one, other, ()) = tokio::join!(
        fixture.ask("POST", INSTALL, "{}"),
        fixture.ask("POST", INSTALL, r#"{"agentVersion":"latest"}"#),
        machine.open_gate(),
    );
    assert_eq!((one.status, other.status), (200, 200), "{one:?} {other:?}");
    let mut had = [&one, &other].map(|got| got.json()["already_installed"].as_bool().unwrap());
    had.sort_unstable();
    assert_eq!((had, machine.runs()), ([false, true], 1));
    let artifact = &one.json()["artifacts"][0];
    assert_eq!(
        (&artifact["kind"], &artifact["source"]),
        (&"agent_process".into(), &"registry".into())
    );
    let version = artifact["version"].as_str().unwrap();
    assert!(artifact["path"].as_str().unwrap().contains(&format!("goose/{version}/{PROGRAM}")));
    assert_eq!(fixture.ask("GET", "/v1/agents/goose", "").await.json()["version"], version);
    let again = fixture.ask("POST", INSTALL, r#"{"reinstall":true}"#).await;
    assert_eq!((&again.json()["already_installed"], machine.runs()), (&false.into(), 2));
    for (path, body, status, says) in [
        (INSTALL, r#"{"agentVersion":"0.0.1"}"#, 400, "invalid agentVersion \"0.0.1\""),
        (INSTALL, r#"{"agentProcessVersion":"9"}"#, 400, "invalid agentProcessVersion \"9\""),
        ("/v1/agents/none/install", "{}", 400, "unknown agent"),
        (
            "/v1/agents/pi/install",
            "{}",
            500,
            "its program \"pi-acp\" was not found; to install it: npm",
        ),
    ] {
        let got = fixture.ask("POST", path, body).await;
        assert_eq!(got.status, status, "{got:?}");
        assert!(got.json()["detail"].as_str().unwrap().contains(says), "{got:?}");
    }
    let built_in = fixture.ask("POST", "/v1/agents/mock/install", "{}").await.json();
    assert_eq!(built_in["artifacts"][0]["source"], "builtin");
}

#[tokio::test]
async fn failed_installation_leaves_nothing_and_says_why() {
    let fails = "echo x >> \"$PLACE/runs\"; mkdir node_modules\n\
                 echo 'npm error code ECONNREFUSED' >&2; echo 'npm error at the registry' >&2; exit 1";
    let machine = Machine::start(fails, |_| {}).await;
    let fixture = &machine.fixture;
    let ping = json!({ "id": 1, "method": "ping" });
    for attempt in 1..=2 {
        let got = if attempt == 1 {
            fixture.post("a?agent=goose", &ping).await
        } else {
            fixture.ask("POST", INSTALL, "{}").await
        };
        let problem = got.json();
        assert_eq!(
            (got.status, &problem["type"], &problem["title"]),
            (500, &"urn:sandbox-agent:error:install_failed".into(), &"Install Failed".into())
        );
        assert_eq!(problem["details"]["stderr"], "at the registry");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("cannot be reached: at the registry"), "{detail}");
        assert_eq!((machine.runs(), machine.agents()), (attempt, Vec::new()));
        assert_eq!(fixture.servers().await, []);
    }
    // The next attempt may succeed.
    fs::write(machine.place.join("npm"), format!("#!/bin/sh\n{}", filling())).unwrap();
    fixture.request("a?agent=goose", json!(1), "ping").await;
}

#[tokio::test]
async fn agents_are_not_installed_where_they_must_be_there() {
    let machine = Machine::start(&filling(), |settings| {
        settings.agents.install_policy = InstallPolicy::Preinstalled;
    })
    .await;
    let ping = json!({ "id": 1, "method": "ping" });
    let got = machine.fixture.post("a?agent=goose", &ping).await;
    let problem = got.json();
    assert_eq!(
        (got.status, &problem["type"], &problem["agent"]),
        (404, &"urn:sandbox-agent:error:agent_not_installed".into(), &"goose".into())
    );
    assert!(problem["detail"].as_str().unwrap().contains("agent install goose"), "{problem}");
    assert_eq!((machine.runs(), machine.agents()), (0, Vec::new()));
    assert_eq!(machine.fixture.ask("POST", INSTALL, "{}").await.status, 200);
    machine.fixture.request("a?agent=goose", json!(1), "ping").await;
}

#[tokio::test]
async fn delete_ends_an_installation() {
    let machine = Machine::start(&filling(), |_| {}).await;
    machine.close_gate();
    let fixture = &machine.fixture;
    let ping = json!({ "id": 1, "method": "ping" });
    let mut waiting = Box::pin(fixture.post("a?agent=goose", &ping));
    timeout(Duration::from_millis(500), &mut waiting).await.unwrap_err();
    assert_eq!(fixture.delete("a").await, 204);
    assert_eq!(waiting.await.status, 502);
    assert_eq!((fixture.servers().await, machine.agents()), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn agent_gets_what_its_entry_names_and_nothing_else() {
    const SHOW: &str = r#"read -r l; printf '{"id":1,"result":{"key":"%s","model":"%s","token":"%s","other":"%s",
        "login":%s,"words":"%s"}}\n' "$GOOSE_KEY" "$GOOSE_MODEL" "$AGENT_BACKEND_AUTH_TOKEN" "$OTHER"
        "$(cat "$HOME/.goose/login.json")" "$(tr '\0' ' ' < /proc/$$/cmdline | tr -d '\n\\"')"; read -r l"#;
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".goose")).unwrap();
    fs::write(home.path().join(".goose/login.json"), "{\"login\":7}").unwrap();
    let area = tempfile::tempdir().unwrap();
    let (home_text, area_path) = (home.path().display().to_string(), area.path().to_owned());
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        super::fixture::add(settings, "shows", &SHOW.replace('\n', ""));
        let change = ab_acp::catalog::AgentCatalogEntry {
            id: "shows".to_owned(),
            inherit: vec!["GOOSE_MODEL".to_owned()],
            credentials: vec!["GOOSE_KEY".to_owned()],
            login_files: vec![".goose/login.json".to_owned()],
            needs_credential: Some(true),
            ..ab_acp::catalog::AgentCatalogEntry::default()
        };
        settings.agents.catalog.add_or_change(change).unwrap();
        let mut poor = settings.agents.catalog.find("shows").unwrap().clone();
        (poor.id, poor.credentials) = ("poor".to_owned(), vec!["NO_KEY".to_owned()]);
        poor.login_files = Vec::new();
        settings.agents.catalog.add_or_change(poor).unwrap();
        let variables = [
            ("GOOSE_KEY", "secret-of-goose"),
            ("GOOSE_MODEL", "m"),
            ("AGENT_BACKEND_AUTH_TOKEN", "t"),
            ("OTHER", "o"),
            ("HOME", &home_text),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        settings.agents.host = HostEnvironment::new(variables);
        settings.agents.env = BTreeMap::from([("TERM".to_owned(), "dumb".to_owned())]);
        settings.sandbox.servers_dir = Some(area_path);
    })
    .await;
    let shown = fixture.request("a?agent=shows", json!(1), "show").await["result"].clone();
    assert_eq!((&shown["key"], &shown["model"]), (&"secret-of-goose".into(), &"m".into()));
    assert_eq!((&shown["token"], &shown["other"]), (&"".into(), &"".into()));
    assert_eq!(shown["login"], json!({ "login": 7 }));
    assert!(!shown["words"].as_str().unwrap().contains("secret-of-goose"), "{shown}");
    // A missing credential is told of before the launch.
    let got = fixture.post("b?agent=poor", &json!({ "id": 1, "method": "show" })).await;
    assert_eq!(got.status, 502, "{got:?}");
    assert!(
        got.json()["detail"].as_str().unwrap().contains("no credential: set NO_KEY"),
        "{got:?}"
    );
}
