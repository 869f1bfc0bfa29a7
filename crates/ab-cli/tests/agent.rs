//! The scripted agent as a real process, driven by the ACP client.

use std::process::Stdio;
use std::time::Duration;

use ab_acp::{
    AcpClient, AcpClientSettings, AcpError, AcpSessionSetup, AgentEvent, AgentEventStream,
    PermissionAnswer, PromptPart, StopReason, TurnEnd,
};
use tokio::process::{Child, Command};

use crate::stage::{BINARY, Stage};

struct Started {
    client: AcpClient,
    events: AgentEventStream,
    child: Child,
}

fn start(stage: &Stage, scenario: Option<&str>) -> Started {
    let mut command = Command::from(stage.command(BINARY));
    command.args(["agent", "script"]).env("HOME", stage.outside("home"));
    if let Some(text) = scenario {
        let path = stage.outside("scenario.toml");
        std::fs::write(&path, text).unwrap();
        command.arg(path);
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let (input, output) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let (client, events) = AcpClient::connect(input, output, AcpClientSettings::default());
    Started { client, events, child }
}

impl Started {
    async fn turn(&mut self, stage: &Stage) -> Result<TurnEnd, AcpError> {
        self.client.initialize().await?;
        let cwd = stage.root().to_str().unwrap().to_owned();
        let setup = AcpSessionSetup { cwd, mcp_servers: Vec::new() };
        let session = self.client.new_session(&setup).await?;
        self.client.start_turn(&session, &[PromptPart::Text("tidy up".to_owned())]).await?;
        while let Some(event) = self.events.next().await {
            match event {
                AgentEvent::Permission(question) => {
                    assert!(question.answer(&PermissionAnswer::Allow));
                }
                AgentEvent::TurnEnded { result, .. } => return result,
                _ => {}
            }
        }
        panic!("the events ended without the end of the turn");
    }

    async fn exit_code(mut self) -> Option<i32> {
        self.client.close().await;
        let exited = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        exited.unwrap().unwrap().code()
    }
}

#[tokio::test]
async fn scripted_agent_works_as_a_process() {
    let stage = Stage::with(&[("a.txt", "a\n")]);
    let mut started = start(&stage, None);
    assert_eq!(started.turn(&stage).await.unwrap().stop_reason, StopReason::EndTurn);
    assert!(stage.text("NOTES.md").contains("tidy up"));
    assert_eq!(stage.names("."), ["NOTES.md", "a.txt"]);
    assert!(stage.outside("home/.agent-backend-script").is_dir());
    assert_eq!(started.exit_code().await, Some(0), "the agent ends with its input");
}

#[tokio::test]
async fn repository_brings_its_own_scenario() {
    let scenario = "[[turn]]\nsteps = [{ write = { path = \"made.txt\", text = \"{prompt}\" } }]";
    let stage = Stage::with(&[(".agent-backend/scenario.toml", scenario)]);
    let mut started = start(&stage, None);
    assert_eq!(started.turn(&stage).await.unwrap().stop_reason, StopReason::EndTurn);
    assert_eq!(stage.text("made.txt"), "tidy up");
    assert_eq!(started.exit_code().await, Some(0));
}

#[tokio::test]
async fn scripted_exit_code_is_the_exit_code_of_the_process() {
    let stage = Stage::new();
    for scenario in [
        "[[turn]]\nsteps = [{ say = \"a\" }, { exit = 9 }]",
        "[faults]\nexit_after_lines = 1\nexit_code = 9\n[[turn]]\nsteps = []",
        "[faults]\nexit_after_lines = 0\nexit_code = 9\n[[turn]]\nsteps = []",
    ] {
        let mut started = start(&stage, Some(scenario));
        let error = started.turn(&stage).await.unwrap_err();
        assert!(error.ends_connection(), "{error}");
        assert_eq!(started.exit_code().await, Some(9));
    }
}

#[tokio::test]
async fn long_line_of_a_process_ends_the_connection() {
    let stage = Stage::new();
    let mut started = start(&stage, Some("[[turn]]\nsteps = [{ long_line = 100_000_000 }]"));
    let error = started.turn(&stage).await.unwrap_err();
    assert!(matches!(error, AcpError::LineTooLong { .. }), "{error}");
    started.exit_code().await;
}

#[test]
fn broken_scenario_is_a_usage_error() {
    let stage = Stage::with(&[("bad.toml", "[[turn]]\nsteps = [{ shout = \"a\" }]")]);
    stage.run(&["agent", "script", "bad.toml"]).expect_error(2, "turn 1, step 1: shout");
    stage.run(&["agent", "script", "none.toml"]).expect_error(1, "none.toml");
}
