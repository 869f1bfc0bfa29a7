//! Settings of agents: their schema, what a task gives, and what reaches the agent.

use std::fs;

use crate::serve::{Server, client, repository};
use crate::stage::{BINARY, run};

const SCENARIO: &str =
    "[[turn]]\nsteps = [{ write = { path = \"set.txt\", text = \"by a setting\\n\" } }]";

#[test]
fn settings_of_a_task_reach_its_agent() {
    let stage = repository();
    let path = stage.outside("config.toml");
    let text = "[[agents]]\nid = \"mine\"\nargv = [\"{self}\", \"agent\", \"script\"]\n\
                settings = { play = \"SCRIPTED_AGENT_SCENARIO\", fast = { variable = \"FAST\", type = \"flag\" } }\n";
    fs::write(&path, text).unwrap();
    let config = path.to_str().unwrap();
    let server = Server::start_with(&stage, &["--config", config]);
    for (agent, name) in [("scripted", "scenario"), ("mine", "play")] {
        let set = format!("{name}={SCENARIO}");
        let task =
            ["task", "x", "--agent", agent, "--set", &set, "--follow", "--approve", "always"];
        let done = client(&stage, &task);
        assert_eq!(done.code, 0, "{}\n{}", done.text(), done.err);
        let diff = client(&stage, &["session", "diff"]).text();
        assert!(diff.contains("+by a setting") && !diff.contains("NOTES.md"), "{diff}");
    }
    let kept = client(&stage, &["session", "list", "--json"]).value();
    assert_eq!(kept["items"][0]["agent"]["settings"]["play"], SCENARIO);
    for (set, says) in [
        (
            "colour=red",
            "agent.settings.colour is unknown: the settings of this agent are fast, play",
        ),
        ("fast=often", "agent.settings.fast must be true or false (at /agent/settings/fast)"),
        ("play=", "agent.settings.play must be a string of 1 to 4096 bytes"),
        ("play", "must be KEY=VALUE"),
    ] {
        let refused = client(&stage, &["task", "x", "--agent", "mine", "--set", set]);
        assert!(refused.code != 0 && refused.err.contains(says), "{set}: {}", refused.err);
    }
    let listed = client(&stage, &["remote", "agents", "--json"]).value();
    let agents = listed.as_array().unwrap();
    let mine = agents.iter().find(|agent| agent["type"] == "mine").unwrap();
    assert_eq!(mine["settingsSchemaRef"], "/api/v1/schemas/agents/mine.json");

    let show = |agent: &str| {
        let mut command = stage.command(BINARY);
        command.args(["agent", "show", agent, "--config", config]);
        run(command, b"").text()
    };
    assert!(
        show("mine").contains("setting      play: sets SCRIPTED_AGENT_SCENARIO"),
        "{}",
        show("mine")
    );
    assert!(show("claude").contains("setting      model: The model"), "{}", show("claude"));
    assert_eq!(server.end().0, 0);

    let text = "[[agents]]\nid = \"x\"\nargv = [\"x\"]\nsettings = { token = \"AGENT_BACKEND_AUTH_TOKEN\" }\n";
    fs::write(&path, text).unwrap();
    let refused = client(&stage, &["serve", "--port", "0", "--config", config]);
    refused.expect_error(2, "AGENT_BACKEND_AUTH_TOKEN is a variable of the server itself");
}
