//! A client and a scripted agent, connected in memory.

use std::path::{Path, PathBuf};

use ab_acp::scripted_agent::{
    AgentScenario, ScriptedAgentExit, ScriptedAgentSettings, run_scripted_agent,
};
use ab_acp::session_update::SessionUpdate;
use ab_acp::tool_call::ToolCallTracker;
use ab_acp::{
    AcpClient, AcpClientSettings, AcpError, AcpSessionId, AcpSessionSetup, AgentEvent,
    AgentEventStream, PermissionAnswer, PromptPart, TurnEnd,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Bytes that may be on their way in memory: as many as fit into a pipe.
const PIPE: usize = 64 * 1024;

/// A home and a working directory that outlive an agent.
pub(crate) struct Place {
    keep: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place { keep: tempfile::tempdir().unwrap() };
        std::fs::create_dir(place.cwd()).unwrap();
        std::fs::create_dir(place.home()).unwrap();
        place
    }

    pub(crate) fn cwd(&self) -> PathBuf {
        self.keep.path().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.keep.path().join("home")
    }

    pub(crate) fn setup(&self) -> AcpSessionSetup {
        AcpSessionSetup { cwd: text(&self.cwd()), mcp_servers: Vec::new() }
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Both ends of a connection.
pub(crate) struct Stage {
    pub(crate) client: AcpClient,
    pub(crate) events: AgentEventStream,
    pub(crate) agent: JoinHandle<ScriptedAgentExit>,
}

/// Everything that happened in a turn.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) said: String,
    pub(crate) thought: String,
    pub(crate) updates: Vec<SessionUpdate>,
    pub(crate) calls: ToolCallTracker,
    pub(crate) asked: Vec<String>,
    pub(crate) noise: Vec<String>,
}

impl Stage {
    pub(crate) fn start(place: &Place, scenario: &str, settings: AcpClientSettings) -> Stage {
        let scenario = match scenario {
            "" => AgentScenario::built_in(),
            text => AgentScenario::parse(text),
        };
        let script = ScriptedAgentSettings { scenario: scenario.unwrap(), home: place.home() };
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let (input, output) = tokio::io::split(theirs);
        let agent = tokio::spawn(run_scripted_agent(input, output, script));
        let (input, output) = tokio::io::split(ours);
        let (client, events) = AcpClient::connect(input, output, settings);
        Stage { client, events, agent }
    }

    /// A session, opened.
    pub(crate) async fn open(&mut self, place: &Place) -> Result<AcpSessionId, AcpError> {
        self.client.initialize().await?;
        self.client.new_session(&place.setup()).await
    }

    /// Sends a prompt and reads events until the turn ends.
    pub(crate) async fn turn(
        &mut self,
        session: &AcpSessionId,
        prompt: &str,
        answer: PermissionAnswer,
    ) -> (Watched, Result<TurnEnd, AcpError>) {
        let mut watched = Watched::default();
        let sent = self.client.start_turn(session, &[PromptPart::Text(prompt.to_owned())]).await;
        if let Err(error) = sent {
            return (watched, Err(error));
        }
        let result = watch(&mut self.events, &mut watched, &answer).await;
        (watched, result)
    }
}

/// Reads events until a turn ends.
pub(crate) async fn watch(
    events: &mut AgentEventStream,
    watched: &mut Watched,
    answer: &PermissionAnswer,
) -> Result<TurnEnd, AcpError> {
    while let Some(event) = events.next().await {
        match event {
            AgentEvent::Update { update, .. } => watched.see(update),
            AgentEvent::Permission(question) => {
                watched.asked.push(question.call.title.clone().unwrap_or_default());
                assert!(question.answer(answer));
            }
            AgentEvent::TurnEnded { result, .. } => return result,
            AgentEvent::Notification { .. } => {}
            AgentEvent::InvalidLine(line) => watched.noise.push(line),
        }
    }
    panic!("the events ended without the end of the turn");
}

impl Watched {
    fn see(&mut self, update: SessionUpdate) {
        match &update {
            SessionUpdate::Message(chunk) => self.said.push_str(chunk.text().unwrap_or_default()),
            SessionUpdate::Thought(chunk) => {
                self.thought.push_str(chunk.text().unwrap_or_default())
            }
            SessionUpdate::ToolCall(change) => {
                self.calls.merge(change.clone());
            }
            _ => {}
        }
        self.updates.push(update);
    }
}
