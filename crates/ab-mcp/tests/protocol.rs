//! Raw lines: what is no message, and what is not as it should be.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::caller::Place;

/// Long enough for anything that works.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Line {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Line {
    fn open(place: &Place) -> Line {
        let (theirs, ours) = tokio::io::duplex(1024);
        let (input, output) = tokio::io::split(ours);
        let serving =
            tokio::spawn(ab_mcp::serve_mcp_over_streams(place.backend.clone(), input, output));
        let (output, input) = tokio::io::split(theirs);
        Line { input, output: BufReader::new(output).lines(), serving }
    }

    async fn begun(place: &Place) -> Line {
        let mut line = Line::open(place);
        let client = json!({ "name": "raw", "version": "0" });
        let params =
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        line.say(
            &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
                .to_string(),
        )
        .await;
        let answer = line.hear().await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
        assert_eq!(answer["result"]["serverInfo"]["name"], "agent-backend");
        line.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        line
    }

    async fn say(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = timeout(TIMEOUT, self.output.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, text: &str) -> Value {
        self.say(text).await;
        self.hear().await
    }
}

#[tokio::test]
async fn nonsense_gets_the_protocols_own_errors_and_the_server_goes_on() {
    let place = Place::memory();
    let mut line = Line::begun(&place).await;
    for (said, id, code, message) in [
        ("{", Value::Null, -32700, "no JSON"),
        ("nonsense", Value::Null, -32700, "no JSON"),
        ("\u{1}\u{2}", Value::Null, -32700, "no JSON"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping""#, json!(1), -32700, "no JSON"),
        (r#"{"jsonrpc":"1.0","id":2,"method":"ping"}"#, json!(2), -32600, "\"jsonrpc\" must be"),
        (r#"{"id":3,"method":"ping"}"#, json!(3), -32600, "\"jsonrpc\" must be"),
        (r#"[{"jsonrpc":"2.0","id":4,"method":"ping"}]"#, Value::Null, -32600, "no batches"),
        ("5", Value::Null, -32600, "\"jsonrpc\" must be"),
        (r#"{"jsonrpc":"2.0","id":5}"#, json!(5), -32600, "not a message"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Value::Null, -32600, "\"id\" must be"),
        (
            r#"{"jsonrpc":"2.0","id":6,"method":"no/such"}"#,
            json!(6),
            -32601,
            "unknown method: no/such",
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"no_such"}}"#,
            json!(7),
            -32602,
            "unknown tool: no_such",
        ),
        (
            r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":5}}"#,
            json!(8),
            -32602,
            "tools/call: 'params.name' must be a string, not the number 5",
        ),
        (
            r#"{"jsonrpc":"2.0","id":9,"method":"tools/call"}"#,
            json!(9),
            -32602,
            "tools/call: 'params' is missing: it must be an object",
        ),
        (
            r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"grep","arguments":[]}}"#,
            json!(10),
            -32602,
            "tools/call: 'params.arguments' must be an object, not an array",
        ),
        (
            r#"{"jsonrpc":"2.0","id":11,"method":"tools/call","params":{"arguments":{}}}"#,
            json!(11),
            -32602,
            "tools/call: 'params.name' is missing: it must be a string",
        ),
        (
            r#"{"jsonrpc":"2.0","id":12,"method":"tools/call","params":[]}"#,
            json!(12),
            -32600,
            "\"params\" must be an object",
        ),
    ] {
        let answer = line.ask(said).await;
        let error = &answer["error"];
        assert_eq!((&answer["id"], &error["code"]), (&id, &json!(code)), "{said}: {answer}");
        assert!(error["message"].as_str().unwrap().contains(message), "{said}: {answer}");
    }
    let answer = line.ask(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#).await;
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": "a", "result": {} }));
}

#[tokio::test]
async fn nothing_before_initialize_ends_the_server() {
    let place = Place::memory();
    let mut line = Line::open(&place);
    line.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    line.say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    line.say("").await;
    let answer = line.ask(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
    assert_eq!(answer["result"], json!({}));
    let answer = line.ask(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn the_newer_protocol_needs_no_handshake() {
    let place = Place::memory();
    place.fill(&[("a", "A")]).await;
    let mut line = Line::open(&place);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "read_text_file", "arguments": { "path": "a" }, "_meta": meta });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let answer = line.ask(&call.to_string()).await;
    assert_eq!(answer["result"]["content"][0]["text"], "A", "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete");
}

#[tokio::test]
async fn an_id_that_waits_for_its_answer_cannot_be_used_again() {
    let place = Place::local();
    let mut line = Line::begun(&place).await;
    let call = |command: &str| {
        let params = json!({ "name": "exec", "arguments": { "command": command } });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
    };
    line.say(&call("mkfifo pipe && cat pipe")).await;
    let answer = line.ask(&call("echo second")).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32600)), "{answer}");
    let free = json!({ "name": "exec", "arguments": { "command": "until test -p pipe; do :; done; echo first > pipe" } });
    let free = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": free });
    line.say(&free.to_string()).await;
    let mut answers = [line.hear().await, line.hear().await];
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["result"]["structuredContent"]["stdout"], "first\n", "{answers:?}");
    let again = line.ask(&call("echo third")).await;
    assert_eq!(again["result"]["structuredContent"]["stdout"], "third\n");
}

#[tokio::test]
async fn a_plain_call_that_is_cancelled_ends_and_is_not_answered() {
    let place = Place::local();
    let mut line = Line::begun(&place).await;
    let params = json!({ "name": "exec", "arguments": { "command": "echo $$ > pid; sleep 1000" } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    line.say(&call.to_string()).await;
    let pid = loop {
        let said = place.backend.read_text("pid").await.unwrap_or_default();
        if said.ends_with('\n') {
            break said.trim().to_owned();
        }
        tokio::task::yield_now().await;
    };
    let params = json!({ "requestId": 1 });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    line.say(&cancel.to_string()).await;
    let process = std::path::PathBuf::from(format!("/proc/{pid}"));
    while process.exists() {
        tokio::task::yield_now().await;
    }
    // The next thing heard is the answer to the next question, with an id that is free again.
    let answer = line.ask(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
}

#[tokio::test]
async fn ten_thousand_calls_in_a_row_are_all_answered() {
    let place = Place::memory();
    place.fill(&[("a", "A")]).await;
    let Line { mut input, mut output, serving } = Line::begun(&place).await;
    let writing = tokio::spawn(async move {
        for id in 1..=10_000 {
            let params = json!({ "name": "read_text_file", "arguments": { "path": "a" } });
            let call =
                json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
            input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
        }
        input.shutdown().await.unwrap();
    });
    let mut seen = vec![false; 10_001];
    for _ in 0..10_000 {
        let line = timeout(TIMEOUT, output.next_line()).await.unwrap().unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "A", "{answer}");
        let id = usize::try_from(answer["id"].as_u64().unwrap()).unwrap();
        assert!(!std::mem::replace(&mut seen[id], true), "{id} twice");
    }
    writing.await.unwrap();
    timeout(TIMEOUT, serving).await.unwrap().unwrap().unwrap();
    assert!(timeout(TIMEOUT, output.next_line()).await.unwrap().unwrap().is_none());
}

#[tokio::test]
async fn the_last_calls_are_answered_after_the_end_of_input() {
    let place = Place::memory();
    let mut line = Line::begun(&place).await;
    let params = json!({ "name": "write_file", "arguments": { "path": "a", "content": "x" } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    line.say(&call.to_string()).await;
    line.input.shutdown().await.unwrap();
    assert_eq!(line.hear().await["id"], 1);
    timeout(TIMEOUT, line.serving).await.unwrap().unwrap().unwrap();
    assert_eq!(place.backend.read_text("a").await.unwrap(), "x");
}

#[tokio::test]
async fn closed_pipes_end_the_server_quietly() {
    let place = Place::memory();
    for begun in [false, true] {
        let line = if begun { Line::begun(&place).await } else { Line::open(&place) };
        drop((line.input, line.output));
        timeout(TIMEOUT, line.serving).await.unwrap().unwrap().unwrap();
    }
}

/// Time is virtual: whoever waits for it waits no longer than anything else takes.
#[tokio::test(start_paused = true)]
async fn a_caller_that_never_reads_cannot_keep_the_server() {
    let place = Place::memory();
    let text = "x".repeat(50_000) + "\n";
    place.fill(&[("a", &text)]).await;
    let (mut input, ours) = tokio::io::duplex(1024);
    let (unread, output) = tokio::io::duplex(1024);
    let serving = tokio::spawn(ab_mcp::serve_mcp_over_streams(place.backend.clone(), ours, output));
    let client = json!({ "name": "raw", "version": "0" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    input.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    for id in 1..=10 {
        let params = json!({ "name": "read_text_file", "arguments": { "path": "a" } });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
    }
    drop(input);
    timeout(TIMEOUT, serving).await.unwrap().unwrap().unwrap();
    drop(unread);
}
