//! The tools that run commands.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ab_mcp::DEFAULT_MAX_RESULT_BYTES;
use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequestParams, CancelledNotificationParam, ClientRequest, NumberOrString,
    ProgressNotificationParam, ProgressToken, Request, RequestMetaObject,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RoleClient, ServiceExt};
use serde_json::json;

use crate::caller::{Caller, Place, params};

#[tokio::test]
async fn commands_are_listed_only_where_they_can_run() {
    let names = |tools: Vec<rmcp::model::Tool>| -> Vec<String> {
        tools.into_iter().map(|tool| tool.name.into_owned()).collect()
    };
    let local = names(Place::local().call().await.tools().await);
    let memory = names(Place::memory().call().await.tools().await);
    let commands = ["exec", "process_output", "process_input", "process_kill", "process_list"];
    for tool in commands {
        assert!(local.iter().any(|name| name == tool), "{tool}");
        assert!(!memory.iter().any(|name| name == tool), "{tool}");
    }
    assert_eq!((local.len(), memory.len()), (21, 16));
}

#[tokio::test]
async fn commands_answer_with_what_they_say() {
    let place = Place::local();
    place.fill(&[("d/f", "inside\n")]).await;
    let caller = place.call().await;
    for (arguments, expect) in [
        (json!({ "command": "echo hi; echo oops >&2" }), "hi\n[stderr]\noops"),
        (json!({ "command": "cat f", "cwd": "d" }), "inside"),
        (json!({ "command": "echo $A", "env": { "A": "b c" } }), "b c"),
        (json!({ "command": "true" }), "[no output]"),
        (json!({ "command": "cat", "timeout": 30 }), "[no output]"),
    ] {
        assert_eq!(caller.text("exec", arguments.clone()).await, expect, "{arguments}");
    }
    let value = caller.value("exec", json!({ "command": "printf x" })).await;
    assert_eq!(
        value,
        json!({
            "stdout": "x", "stderr": "", "exitCode": 0,
            "timedOut": false, "truncated": false,
        })
    );
}

#[tokio::test]
async fn long_output_keeps_both_ends() {
    let place = Place::local();
    let caller = place.call().await;
    let command = "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last";
    let text = caller.text("exec", json!({ "command": command })).await;
    assert!(text.len() < DEFAULT_MAX_RESULT_BYTES + 1000, "{}", text.len());
    assert!(text.starts_with("first\nx") && text.contains("bytes left out"));
    assert!(text.contains("x\nlast\n[the output was cut: "));
}

#[tokio::test]
async fn background_processes_are_heard_told_and_ended() {
    let place = Place::local();
    let caller = place.call().await;
    assert_eq!(caller.text("process_list", json!({})).await, "No background processes");
    let command = json!({ "command": "while read line; do echo \"got $line\"; done; echo bye", "background": true });
    let id = caller.value("exec", command).await["processId"].as_str().unwrap().to_owned();
    let list = caller.text("process_list", json!({})).await;
    assert!(list.starts_with(&format!("{id} [running] while read line")), "{list}");

    let told = caller.text("process_input", json!({ "processId": id, "input": "one\n" })).await;
    assert_eq!(told, format!("Sent 4 bytes to process {id}"));
    let heard = caller.value("process_output", json!({ "processId": id, "wait": 30 })).await;
    assert_eq!((&heard["content"], &heard["running"]), (&json!("got one\n"), &json!(true)));
    let cursor = heard["nextCursor"].as_u64().unwrap();
    assert_eq!(cursor, 8);

    caller.text("process_input", json!({ "processId": id, "input": "two\n", "end": true })).await;
    let mut rest = String::new();
    let mut cursor = cursor;
    let ended = loop {
        let ask = json!({ "processId": id, "cursor": cursor, "wait": 30 });
        let heard = caller.value("process_output", ask).await;
        rest.push_str(heard["content"].as_str().unwrap());
        cursor = heard["nextCursor"].as_u64().unwrap();
        if heard["running"] == json!(false) {
            break heard;
        }
    };
    assert_eq!(rest, "got two\nbye\n");
    assert_eq!((&ended["exitCode"], &ended["lost"]), (&json!(0), &json!(0)));
    let late = json!({ "processId": id, "input": "three\n" });
    let refusal = caller.refusal("process_input", late).await;
    assert!(refusal.contains("its standard input is closed"), "{refusal}");

    let sleeper = json!({ "command": "sleep 1000", "background": true });
    let id = caller.value("exec", sleeper).await["processId"].as_str().unwrap().to_owned();
    let kill = caller.text("process_kill", json!({ "processId": id })).await;
    assert!(kill.starts_with(&format!("Process {id}: ")), "{kill}");
    let list = caller.value("process_list", json!({})).await;
    let states: Vec<&serde_json::Value> =
        list["processes"].as_array().unwrap().iter().map(|process| &process["running"]).collect();
    assert_eq!(states, [&json!(false), &json!(false)]);
    place.backend.destroy().await.unwrap();
}

/// A command that says on a pipe that it has begun; the pipe ends when it does.
async fn watched(place: &Place, caller: &Caller) -> (PathBuf, CallToolRequestParams) {
    caller.text("exec", json!({ "command": "mkfifo pipe" })).await;
    let pipe = place.keep.as_ref().unwrap().path().join("pipe");
    (pipe, params("exec", json!({ "command": "exec 3>pipe; echo begun >&3; sleep 1000" })))
}

fn opened(pipe: PathBuf) -> BufReader<File> {
    let mut pipe = BufReader::new(File::open(pipe).unwrap());
    let mut line = String::new();
    pipe.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    pipe
}

fn ended(mut pipe: BufReader<File>) {
    assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
}

#[tokio::test]
async fn a_cancelled_call_ends_its_process() {
    let place = Place::local();
    let caller = place.call().await;
    let (pipe, call) = watched(&place, &caller).await;
    let request = ClientRequest::CallToolRequest(Request::new(call));
    let options = PeerRequestOptions::no_options();
    let handle = caller.peer().send_cancellable_request(request, options).await.unwrap();
    let pipe = tokio::task::spawn_blocking(move || opened(pipe)).await.unwrap();
    let cancelled = CancelledNotificationParam::new(Some(handle.id.clone()), None);
    caller.peer().notify_cancelled(cancelled).await.unwrap();
    tokio::task::spawn_blocking(move || ended(pipe)).await.unwrap();
    assert_eq!(caller.text("exec", json!({ "command": "echo on" })).await, "on");
    caller.leave().await;
}

#[tokio::test]
async fn a_caller_that_vanishes_ends_its_process() {
    let place = Place::local();
    let caller = place.call().await;
    let (pipe, call) = watched(&place, &caller).await;
    let peer = caller.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool(call).await });
    let pipe = tokio::task::spawn_blocking(move || opened(pipe)).await.unwrap();
    caller.leave().await;
    tokio::task::spawn_blocking(move || ended(pipe)).await.unwrap();
    assert!(calling.await.unwrap().is_err());
}

#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<String>>>);

impl ClientHandler for Watcher {
    async fn on_progress(
        &self,
        note: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.0.lock().unwrap().extend(note.message);
    }
}

#[tokio::test]
async fn slow_commands_tell_their_progress() {
    let place = Place::local();
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(ours);
    let serving =
        tokio::spawn(ab_mcp::serve_mcp_over_streams(place.backend.clone(), input, output));
    let watcher = Watcher::default();
    let client = watcher.clone().serve(theirs).await.unwrap();
    let mut call = params("exec", json!({ "command": "printf 12345; sleep 1.5" }));
    let token = ProgressToken(NumberOrString::Number(7));
    call.meta = Some(RequestMetaObject::with_progress_token(token));
    client.call_tool(call).await.unwrap();
    client.cancel().await.unwrap();
    serving.await.unwrap().unwrap();
    let notes = watcher.0.lock().unwrap().clone();
    assert!(notes.contains(&"running for 1 s, 5 bytes said".to_owned()), "{notes:?}");
}
