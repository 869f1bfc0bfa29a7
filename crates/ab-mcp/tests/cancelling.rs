//! Calls over HTTP whose callers cancel them or leave: their commands end, and nobody else's.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use ab_core::ScopeOptions;
use http::{HeaderValue, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::caller::Place;
use crate::port::{Got, Port, call, initialize, modern};

fn port() -> Arc<Port> {
    Arc::new(Port::over(Place::local()))
}

/// A command that says on a pipe that it has begun; the pipe ends when it does.
async fn command(port: &Port, pipe: &str) -> Value {
    let made = call(0, "exec", json!({ "command": format!("mkfifo {pipe}") }));
    let made = port.post(made).await.json();
    assert_eq!(made["result"]["structuredContent"]["exitCode"], 0, "{made}");
    json!({ "command": format!("exec 3>{pipe}; echo begun >&3; sleep 1000"), "timeout": 1000 })
}

/// Waits until the command has begun.
async fn begun(port: &Port, pipe: &str) -> BufReader<File> {
    let pipe = port.place.keep.as_ref().unwrap().path().join(pipe);
    let opened = spawn_blocking(move || {
        let mut pipe = BufReader::new(File::open(pipe).unwrap());
        let mut line = String::new();
        pipe.read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        pipe
    });
    opened.await.unwrap()
}

/// Waits until the command has ended.
async fn ended(mut pipe: BufReader<File>) {
    let read = spawn_blocking(move || pipe.read(&mut [0]).unwrap());
    assert_eq!(read.await.unwrap(), 0);
}

fn cancel(id: impl Into<Value>) -> Value {
    let params = json!({ "requestId": id.into(), "reason": "enough" });
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })
}

fn sent(port: &Arc<Port>, message: Value, name: Option<&str>) -> JoinHandle<Got> {
    let port = port.clone();
    let mut request = Port::request(message.to_string());
    if let Some(name) = name {
        request.headers_mut().insert("mcp-session-id", HeaderValue::from_str(name).unwrap());
    }
    tokio::spawn(async move { port.send(request).await })
}

/// A client that has shaken hands, outside of a session; the name that it was given.
async fn client(port: &Port) -> String {
    port.post(initialize("2025-11-25")).await.session.unwrap()
}

#[track_caller]
fn says_that_it_was_cancelled(got: &Got) {
    let last = match got.kind.as_str() {
        "application/json" => got.json(),
        _ => got.events().last().cloned().unwrap_or_default(),
    };
    assert_eq!(last["error"]["message"], "the call was cancelled", "{last}");
}

#[tokio::test]
async fn a_cancellation_by_another_request_ends_the_command() {
    let port = port();
    let mut with_progress = call(7, "exec", Value::Null);
    with_progress["params"]["_meta"] = json!({ "progressToken": "p" });
    for (pipe, message) in [("plain", call(7, "exec", Value::Null)), ("progress", with_progress)] {
        let mut message = message;
        message["params"]["arguments"] = command(&port, pipe).await;
        let calling = sent(&port, message, None);
        let pipe = begun(&port, pipe).await;
        // The ids of others, and of another type.
        for other in [json!(8), json!("7")] {
            assert_eq!(port.post(cancel(other)).await.status, 202);
        }
        assert!(!calling.is_finished());
        assert_eq!(port.post(cancel(7)).await.status, 202);
        ended(pipe).await;
        says_that_it_was_cancelled(&calling.await.unwrap());
    }
}

#[tokio::test]
async fn a_cancellation_in_a_batch_and_of_a_batch_ends_the_command() {
    let port = port();
    let batch =
        json!([call(1, "exec", command(&port, "one").await), call(2, "process_list", json!({}))]);
    let calling = sent(&port, batch, None);
    let pipe = begun(&port, "one").await;
    // The second call waits for the first, so it is cancelled before that one lets it begin.
    assert_eq!(port.post(json!([cancel(2), cancel(1)])).await.status, 202);
    ended(pipe).await;
    let answers = calling.await.unwrap().json();
    let errors: Vec<&Value> =
        answers.as_array().unwrap().iter().map(|one| &one["error"]["message"]).collect();
    assert_eq!(errors, ["the call was cancelled", "the call was cancelled"], "{answers}");
}

#[tokio::test]
async fn clients_cancel_only_their_own_calls_though_ids_are_the_same() {
    let port = port();
    let (one, other) = (client(&port).await, client(&port).await);
    assert_ne!(one, other);
    let first = call(1, "exec", command(&port, "one").await);
    let second = call(1, "exec", command(&port, "other").await);
    let (first, second) = (sent(&port, first, Some(&one)), sent(&port, second, Some(&other)));
    let (pipe, others) = (begun(&port, "one").await, begun(&port, "other").await);
    // Somebody who never shook hands is neither of them.
    assert_eq!(port.post(cancel(1)).await.status, 202);
    assert_eq!(sent(&port, cancel(1), Some(&one)).await.unwrap().status, 202);
    ended(pipe).await;
    says_that_it_was_cancelled(&first.await.unwrap());
    assert!(!second.is_finished());
    assert_eq!(sent(&port, cancel(1), Some(&other)).await.unwrap().status, 202);
    ended(others).await;
    says_that_it_was_cancelled(&second.await.unwrap());
}

#[tokio::test]
async fn a_cancellation_from_another_scope_is_of_another_call() {
    let port = port();
    let calling = sent(&port, call(1, "exec", command(&port, "pipe").await), None);
    let pipe = begun(&port, "pipe").await;
    let scope = port.place.backend.scope("inner", ScopeOptions::default()).unwrap();
    port.send_about(scope, Port::request(cancel(1).to_string())).await;
    assert!(!calling.is_finished());
    port.post(cancel(1)).await;
    ended(pipe).await;
    says_that_it_was_cancelled(&calling.await.unwrap());
}

#[tokio::test]
async fn a_closed_request_ends_its_command_in_both_eras() {
    let port = port();
    let plain = call(1, "exec", command(&port, "plain").await);
    let mut progress = call(1, "exec", command(&port, "progress").await);
    progress["params"]["_meta"] = json!({ "progressToken": "p" });
    let stateless = modern(call(1, "exec", command(&port, "stateless").await));
    let stateless = Port::modern_request(&stateless);
    for (pipe, request) in [
        ("plain", Port::request(plain.to_string())),
        ("progress", Port::request(progress.to_string())),
        ("stateless", stateless),
    ] {
        let calling = {
            let port = port.clone();
            tokio::spawn(async move { port.send(request).await.status })
        };
        let pipe = begun(&port, pipe).await;
        calling.abort();
        ended(pipe).await;
    }
}

/// A session, and the name of it.
async fn session(port: &Port) -> String {
    let mut first = Port::request(initialize("2025-11-25").to_string());
    *first.uri_mut() = http::Uri::from_static("http://localhost/mcp?session=true");
    port.send(first).await.session.unwrap()
}

#[tokio::test]
async fn in_a_session_a_cancellation_or_its_end_ends_the_command() {
    let port = port();
    for (pipe, ends) in [("cancelled", false), ("deleted", true)] {
        let name = session(&port).await;
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        sent(&port, note, Some(&name)).await.unwrap();
        let calling = sent(&port, call(1, "exec", command(&port, pipe).await), Some(&name));
        let pipe = begun(&port, pipe).await;
        let mut last = Port::request(cancel(1).to_string());
        last.headers_mut().insert("mcp-session-id", HeaderValue::from_str(&name).unwrap());
        if ends {
            *last.method_mut() = Method::DELETE;
        }
        assert_eq!(port.send(last).await.status, 202);
        ended(pipe).await;
        calling.abort();
    }
}

/// Time is virtual once the command runs: no test waits for the timeouts of real clients.
#[tokio::test]
async fn in_a_session_a_call_whose_client_does_not_come_back_ends() {
    let port = port();
    let name = session(&port).await;
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    sent(&port, note, Some(&name)).await.unwrap();
    let mut asked = Port::request(call(1, "exec", command(&port, "pipe").await).to_string());
    asked.headers_mut().insert("mcp-session-id", HeaderValue::from_str(&name).unwrap());
    let answer = port.endpoint.handle_request(port.place.backend.clone(), asked).await;
    let mut body = answer.into_body();
    let _first = body.frame().await;
    let pipe = begun(&port, "pipe").await;
    tokio::time::pause();
    drop(body);
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
    ended(pipe).await;
}

#[tokio::test]
async fn the_name_of_a_client_is_no_session() {
    let port = Port::memory().await;
    let name = client(&port).await;
    let named = |message: Value| {
        let mut request = Port::request(message.to_string());
        request.headers_mut().insert("mcp-session-id", HeaderValue::from_str(&name).unwrap());
        request
    };
    let read = || call(1, "read_text_file", json!({ "path": "a.txt" }));
    for _ in 0..2 {
        let got = port.send(named(read())).await;
        assert_eq!(got.json()["result"]["content"][0]["text"], "one\ntwo\n");
        assert_eq!(got.session, None);
    }
    for method in [Method::GET, Method::DELETE] {
        let mut request = named(Value::Null);
        *request.method_mut() = method;
        assert_eq!(port.send(request).await.status, 405);
    }
    // Another server, or the same one after a restart, knows no more and no less of it.
    let successor = Port::memory().await;
    assert_eq!(successor.send(named(read())).await.status, 200);
}
