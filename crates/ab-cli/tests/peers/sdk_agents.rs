//! Agents written with the published libraries of ACP, one with the npm package and one with the crate: as agents of
//! sessions, and through the gateway.

use std::env;
use std::fs;
use std::path::PathBuf;

use ab_testkit::peers::ThirdPartyPrograms;
use serde_json::{Value, json};

use super::script;
use crate::escapes::stands;
use crate::real_agents::over_http::AgentOverHttp;
use crate::serve::{self, Server};
use crate::stage::Stage;

const PROMPT: &str = "Written with a library\n";

/// An agent of the configuration.
struct SdkAgent {
    id: &'static str,
    argv: Vec<String>,
    /// The directories that the sandbox has to show.
    toolchains: Vec<PathBuf>,
}

impl SdkAgent {
    fn of_npm(peers: &ThirdPartyPrograms) -> SdkAgent {
        let (modules, script) = (peers.node_modules_dir(), script("npm_agent.mjs"));
        let argv = ["node", script.to_str().unwrap(), modules.to_str().unwrap()];
        let toolchains = vec![modules.clone(), script.parent().unwrap().to_owned()];
        SdkAgent { id: "npm", argv: argv.map(str::to_owned).to_vec(), toolchains }
    }

    /// The example `crate_agent`, which is built with the tests.
    fn of_crate(stage: &Stage) -> SdkAgent {
        let test = env::current_exe().unwrap();
        let example = test.parent().unwrap().parent().unwrap().join("examples/crate_agent");
        let programs = stage.outside("programs");
        fs::create_dir(&programs).unwrap();
        let program = programs.join("crate_agent");
        fs::copy(&example, &program).unwrap();
        let argv = vec![program.to_str().unwrap().to_owned()];
        SdkAgent { id: "crate", argv, toolchains: vec![programs] }
    }

    /// Its entry in the configuration.
    fn entry(&self) -> String {
        let (argv, toolchains) = (json!(self.argv), json!(self.toolchains));
        format!("[[agents]]\nid = \"{}\"\nargv = {argv}\ntoolchains = {toolchains}\n", self.id)
    }
}

/// A session asks before it writes, and its edit is on the delivered branch.
fn works_as_agent_of_a_session(stage: &Stage, agent: &'static str) {
    let given = ["task", PROMPT, "--agent", agent, "--follow", "--approve", "always"];
    let followed = serve::client(stage, &given);
    let shown = followed.text();
    assert_eq!(followed.code, 0, "{agent}: {shown}\n{}", followed.err);
    for expect in
        ["? the agent asks: Write MADE.md", "✓ approved", "● It is written.", "✓ completed"]
    {
        assert!(shown.contains(expect), "{agent}: no {expect:?} in\n{shown}");
    }
    let listed = serve::client(stage, &["session", "list", "--json"]).value();
    let id = listed["items"][0]["id"].as_str().unwrap();
    let events = serve::client(stage, &["session", "events", id, "--json"]).text();
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let delivery = events.rev().find(|event| event["type"] == "delivery").unwrap();
    let branch = delivery["branch"].as_str().unwrap();
    assert_eq!(serve::git(&stage.root(), &["show", &format!("{branch}:MADE.md")]), PROMPT);

    // A no is an answer too.
    let given = ["task", PROMPT, "--agent", agent, "--follow", "--approve", "never"];
    let followed = serve::client(stage, &given);
    assert!(followed.text().contains("● Then not."), "{agent}: {followed:?}");
}

fn works_through_the_gateway(stage: &Stage, server: &Server, agent: &'static str) {
    let token = fs::read_to_string(stage.outside("data/token")).unwrap().trim().to_owned();
    let address = server.url().strip_prefix("http://").unwrap().to_owned();
    let over_http = AgentOverHttp { address, token, agent };
    let root = stage.root();
    let root = root.to_str().unwrap();
    assert_eq!(over_http.clone().turn(root, None, PROMPT), "end_turn");
    assert_eq!(stage.text("MADE.md"), PROMPT);
    fs::remove_file(stage.path("MADE.md")).unwrap();
    assert_eq!(over_http.cancelled_turn(root, "hang"), "cancelled");
}

#[track_caller]
fn works_everywhere(stage: &Stage, agent: &SdkAgent) {
    let config = stage.outside("config.toml");
    fs::write(&config, agent.entry()).unwrap();
    let root = stage.root();
    let flags = ["--config", config.to_str().unwrap(), "--root", root.to_str().unwrap()];
    let server = Server::start_with(stage, &flags);
    works_as_agent_of_a_session(stage, agent.id);
    works_through_the_gateway(stage, &server, agent.id);
    let (code, said) = server.end();
    assert_eq!(code, 0, "{said}");
}

#[test]
fn agent_written_with_the_npm_package_works_in_sessions_and_through_the_gateway() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("@agentclientprotocol/sdk") else { return };
    if stands("bwrap") {
        works_everywhere(&serve::repository(), &SdkAgent::of_npm(&peers));
    }
}

#[test]
fn agent_written_with_the_crate_works_in_sessions_and_through_the_gateway() {
    let stage = serve::repository();
    if stands("bwrap") {
        works_everywhere(&stage, &SdkAgent::of_crate(&stage));
    }
}
