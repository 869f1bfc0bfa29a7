//! The official conformance suite for servers, against the port of the daemon with what the suite
//! calls by name: the requirements of both eras, as they were frozen. There is no list of failures
//! that are expected.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ab_conformance::ConformanceExtension;
use ab_mcp::McpHttpSettings;
use ab_server::{DaemonRoutes, HttpAccessPolicy, HttpApp, HttpServer, RunningHttpServer};
use ab_testkit::peers::ThirdPartyPrograms;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::stage::{Ran, Stage, run};

const PACKAGE: &str = "@modelcontextprotocol/conformance";

/// Not required by either revision, and passed: it should stay so.
const BEYOND: [&str; 4] = [
    "http-custom-header-server-validation",
    "http-header-validation",
    "json-schema-2020-12",
    "server-session-lifecycle",
];

/// The scenarios for servers that a revision requires.
fn required(package: &Path, revision: &str) -> Vec<String> {
    let list = fs::read_to_string(package.join(format!("requirements/{revision}.yaml"))).unwrap();
    let section = list.lines().skip_while(|line| *line != "server:").skip(1);
    let items = section.map_while(|line| line.strip_prefix("  - "));
    items.map(str::to_owned).collect()
}

/// What is wrong, by scenario; those without an entry did not run.
fn complaints(results: &Path) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for folder in fs::read_dir(results).unwrap() {
        let folder = folder.unwrap();
        let checks = fs::read(folder.path().join("checks.json")).unwrap();
        let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
        let word = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let well = |check: &&Value| matches!(word(check, "status").as_str(), "SUCCESS" | "INFO");
        let bad = checks.iter().filter(|check| !well(check));
        let mut bad: Vec<String> = bad
            .map(|check| {
                let (status, why) = (word(check, "status"), word(check, "errorMessage"));
                format!("{status} {}: {why}", word(check, "id"))
            })
            .collect();
        if !checks.iter().any(|check| check["status"] == "SUCCESS") {
            bad.push("nothing was checked".to_owned());
        }
        // server-SCENARIO-2026-11-16T04-00-02-399Z
        let name = folder.file_name().into_string().unwrap();
        let name = name.strip_prefix("server-").unwrap().rsplitn(7, '-').last().unwrap();
        all.insert(name.to_owned(), bad);
    }
    all
}

/// A port as the daemon opens it, with the fixtures of the suite beside the tools.
async fn open(root: &Path) -> (RunningHttpServer, String) {
    let backend = agent_backend::local(root).unwrap();
    let extension = Some(Arc::new(ConformanceExtension::new()) as Arc<_>);
    let settings = McpHttpSettings { extension, ..McpHttpSettings::default() };
    let served = DaemonRoutes::new(backend, root.to_string_lossy(), &settings);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    (
        HttpServer::new(HttpApp::new(HttpAccessPolicy::default()).with_daemon_routes(served))
            .start(listener)
            .unwrap(),
        url,
    )
}

/// Runs what `revision` requires; all of it has to pass but the scenarios in `but`, which must not.
#[track_caller]
fn passes(revision: &str, scenarios: usize, query: &str, but: &[&str]) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the conformance suite") else { return };
    let package = peers.node_package_dir(PACKAGE);
    let required = required(&package, revision);
    assert_eq!(required.len(), scenarios, "{required:?}");
    let stage = Stage::with(&[("a.txt", "untouched")]);
    let runtime = Runtime::new().unwrap();
    let (port, url) = runtime.block_on(open(&stage.root()));
    let results = stage.outside("results");
    let mut suite = peers.bundled_node_command(&package.join("dist/index.js"));
    suite.args(["server", "--requirements", revision, "--url"]);
    suite.arg(format!("{url}{query}")).arg("--output-dir").arg(&results);
    let Ran { code, out, err } = run(suite, b"");
    let mut complaints = complaints(&results);
    for name in but {
        assert_ne!(complaints.get(*name), Some(&vec![]), "{name} passes");
        complaints.insert((*name).to_owned(), vec![]);
    }
    let beyond = BEYOND.iter().map(|name| (*name).to_owned());
    let beyond = beyond.filter(|name| complaints.contains_key(name));
    let mut failed = String::new();
    for name in required.iter().cloned().chain(beyond).collect::<Vec<_>>() {
        for complaint in complaints.remove(&name).unwrap_or(vec!["did not run".to_owned()]) {
            failed += &format!("{name}: {complaint}\n");
        }
    }
    assert!(failed.is_empty(), "of revision {revision}:\n{failed}");
    assert_eq!(code == 0, but.is_empty(), "{}{err}", String::from_utf8_lossy(&out));
    assert_eq!(stage.names("."), ["a.txt"]);
    runtime.block_on(port.shutdown());
}

#[test]
fn the_conformance_suite_passes_for_2025_11_25() {
    // The server asks its client, which takes a session.
    passes("2025-11-25", 30, "?session=true", &[]);
}

#[test]
fn the_conformance_suite_passes_for_2026_07_28() {
    passes("2026-07-28", 37, "", &[]);
}

#[test]
fn without_a_session_only_what_needs_one_is_missing() {
    let questions = [
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "tools-call-elicitation",
        "tools-call-sampling",
    ];
    let about_sessions = ["server-session-lifecycle"];
    passes("2025-11-25", 30, "", &[&questions[..], &about_sessions].concat());
}
