//! Bytes on the scripted agent's input, and the lines that it answers.

use ab_acp::scripted_agent::{
    AgentScenario, ScriptedAgentExit, ScriptedAgentSettings, run_scripted_agent,
};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::task::JoinHandle;

use crate::stage::Place;

/// The longest message that the agent reads.
const LIMIT: usize = 32 * 1024 * 1024;

struct Raw {
    to_agent: WriteHalf<DuplexStream>,
    from_agent: BufReader<ReadHalf<DuplexStream>>,
    agent: JoinHandle<ScriptedAgentExit>,
}

impl Raw {
    fn start(place: &Place, scenario: &str) -> Raw {
        let scenario = AgentScenario::parse(scenario).unwrap();
        let script = ScriptedAgentSettings { scenario, home: place.home() };
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(theirs);
        let agent = tokio::spawn(run_scripted_agent(input, output, script));
        let (from_agent, to_agent) = tokio::io::split(ours);
        Raw { to_agent, from_agent: BufReader::new(from_agent), agent }
    }

    async fn send(&mut self, message: Value) {
        self.to_agent.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let mut line = String::new();
        self.from_agent.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Writes the last bytes and ends the input: the remaining lines, and how the agent ended.
    async fn end(self, last: Vec<u8>) -> (Vec<Value>, ScriptedAgentExit) {
        let Raw { mut to_agent, mut from_agent, agent } = self;
        let writing = async {
            // An agent that has ended does not read the rest.
            let _ = to_agent.write_all(&last).await;
            let _ = to_agent.shutdown().await;
        };
        let mut text = String::new();
        let (_, read) = tokio::join!(writing, from_agent.read_to_string(&mut text));
        read.unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines, agent.await.unwrap())
    }
}

fn initialize(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": { "protocolVersion": 1 } })
}

#[tokio::test]
async fn replies_are_written_before_the_agent_ends() {
    let place = Place::new();
    let scenario = "[[turn]]\nsteps = [{ delay = 50 }, { say = \"done\" }]\n";
    // The last line has no newline.
    let last = format!("{}\n{}", initialize(1), initialize(2)).into_bytes();
    let (lines, exit) = Raw::start(&place, scenario).end(last).await;
    assert_eq!(exit, ScriptedAgentExit::Finished);
    let ids: Vec<&Value> = lines.iter().map(|line| &line["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!(2)], "{lines:?}");

    // A turn that runs when the input ends is answered too.
    let mut raw = Raw::start(&place, scenario);
    raw.send(initialize(1)).await;
    raw.next().await;
    let params = json!({ "cwd": place.cwd(), "mcpServers": [] });
    raw.send(json!({ "id": 2, "method": "session/new", "params": params })).await;
    let session = raw.next().await["result"]["sessionId"].clone();
    let prompt = json!([{ "type": "text", "text": "go" }]);
    let params = json!({ "sessionId": session, "prompt": prompt });
    let last = json!({ "id": 3, "method": "session/prompt", "params": params }).to_string();
    let (lines, exit) = raw.end(last.into_bytes()).await;
    assert_eq!(exit, ScriptedAgentExit::Finished);
    let answer = lines.last().unwrap();
    assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&json!(3), &json!("end_turn")));
}

#[tokio::test]
async fn lines_that_cannot_be_parsed_are_answered() {
    let place = Place::new();
    let mut raw = Raw::start(&place, "[[turn]]\nsteps = []\n");
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (line, id) in [
        ("not a message".to_owned(), Value::Null),
        ("[]".to_owned(), Value::Null),
        ("{}".to_owned(), Value::Null),
        (r#"{"id":7,"method":"initialize","params":1e999}"#.to_owned(), json!(7)),
        (format!(r#"{{"id":"x","method":"initialize","params":{deep}}}"#), json!("x")),
    ] {
        raw.to_agent.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let answer = raw.next().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32700)), "{answer}");
    }
    // A notification has no answer.
    raw.to_agent.write_all(b"{\"method\":\"x\",\"params\":1e999}\n").await.unwrap();
    raw.send(initialize(8)).await;
    assert_eq!(raw.next().await["id"], 8);
}

#[tokio::test]
async fn messages_up_to_the_limit_of_the_gateway_are_read() {
    let place = Place::new();
    let scenario = "[[turn]]\nsteps = []\n";
    let padded = |length: usize| {
        let message = r#"{"id":1,"method":"initialize","params":{"pad":""#;
        let pad = "x".repeat(length - message.len() - 3);
        format!("{message}{pad}\"}}}}\n").into_bytes()
    };
    let (lines, exit) = Raw::start(&place, scenario).end(padded(LIMIT)).await;
    assert_eq!((lines.len(), exit), (1, ScriptedAgentExit::Finished));
    let mut input = format!("{}\n", initialize(1)).into_bytes();
    input.extend(padded(LIMIT + 1));
    let (lines, exit) = Raw::start(&place, scenario).end(input).await;
    assert_eq!((lines.len(), exit), (1, ScriptedAgentExit::MessageTooLong { limit: LIMIT }));
}
