//! Requests of a port, without the port: what each is answered.

use std::convert::Infallible;

use ab_core::{ErrorKind, ScopeOptions};
use bytes::Bytes;
use http::header::ALLOW;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};

use crate::caller::Place;
use crate::port::{Port, call, initialize, modern};

fn read(id: u64) -> Value {
    call(id, "read_text_file", json!({ "path": "a.txt" }))
}

#[tokio::test]
async fn a_call_needs_no_handshake_and_is_answered_in_json() {
    let port = Port::memory().await;
    for revision in ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let got = port.post_as(revision, read(7)).await;
        assert_eq!((got.status, got.kind.as_str()), (StatusCode::OK, "application/json"));
        let value = got.json();
        assert_eq!((&value["id"], &value["jsonrpc"]), (&json!(7), &json!("2.0")), "{value}");
        assert_eq!(value["result"]["content"][0]["text"], "one\ntwo\n", "{value}");
        assert_eq!(got.session, None);
    }
    assert_eq!(port.post(read(1)).await.json()["result"]["content"][0]["text"], "one\ntwo\n");
    let listed =
        port.post(json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/list" })).await.json();
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 10, "{listed}");
}

#[tokio::test]
async fn both_eras_are_served_at_one_address() {
    let port = Port::memory().await;
    for revision in ["2024-10-07", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let value = port.post_as(revision, initialize(revision)).await.json();
        assert_eq!(value["result"]["protocolVersion"], revision, "{value}");
        let value = port.post(initialize(revision)).await.json();
        assert_eq!(value["result"]["protocolVersion"], revision, "{value}");
        assert_eq!(value["result"]["serverInfo"]["name"], "agent-backend");
    }
    let discover = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {} });
    let value = port.post_modern(modern(discover)).await.json();
    let versions = value["result"]["supportedVersions"].to_string();
    assert!(versions.contains("2026-07-28") && versions.contains("2025-11-25"), "{value}");
    let got = port.post_modern(modern(read(2))).await;
    assert_eq!((got.status, got.session.clone()), (StatusCode::OK, None));
    assert_eq!(got.json()["result"]["content"][0]["text"], "one\ntwo\n", "{:?}", got.body);
}

#[tokio::test]
async fn the_short_way_answers_what_the_long_way_does() {
    let port = Port::memory().await;
    for (tool, arguments) in [
        ("read_text_file", json!({ "path": "a.txt" })),
        ("read_text_file", json!({ "path": "missing" })),
        ("read_text_file", json!({ "path": 5 })),
        ("read_text_file", json!({})),
        ("list_directory", json!({ "path": "." })),
        ("read_media_file", json!({ "path": "a.txt" })),
        ("read_media_file", json!({ "path": "missing.png" })),
        ("no_such_tool", json!({})),
    ] {
        let short = call(1, tool, arguments.clone());
        let mut long = short.clone();
        // Anything said here sends a call the long way.
        long["params"]["_meta"] = json!({ "note": 1 });
        let (short, long) = (port.post(short).await, port.post(long).await);
        assert_eq!(short.json(), long.json(), "{tool} {arguments}");
        assert_eq!((short.status, &short.kind), (long.status, &long.kind), "{tool}");
    }
}

#[tokio::test]
async fn progress_comes_before_the_result_as_a_stream() {
    let port = Port::over(Place::local());
    let mut message = call(3, "exec", json!({ "command": "sleep 1.3; echo done" }));
    message["params"]["_meta"] = json!({ "progressToken": "p" });
    let got = port.post(message).await;
    assert_eq!(got.kind, "text/event-stream");
    let events = got.events();
    assert_eq!(events[0]["method"], "notifications/progress", "{events:?}");
    let last = events.last().unwrap();
    assert_eq!(last["result"]["structuredContent"]["stdout"], "done\n", "{last}");
}

#[tokio::test]
async fn notifications_are_accepted_without_an_answer() {
    let port = Port::memory().await;
    let notes = [
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 9 } }),
        // Nobody asked.
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -1, "message": "no" } }),
        json!([{ "jsonrpc": "2.0", "id": 1, "result": {} }]),
    ];
    for note in notes {
        let got = port.post(note).await;
        assert_eq!((got.status, got.body.len()), (StatusCode::ACCEPTED, 0));
    }
}

#[tokio::test]
async fn batches_are_answered_in_order_where_the_revision_has_them() {
    let port = Port::memory().await;
    let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let odd = json!({ "jsonrpc": "1.0", "id": 4, "method": "ping" });
    let batch = json!([read(1), note, ping, odd, initialize("2025-03-26")]);
    let value = port.post(batch.clone()).await.json();
    let ids: Vec<&Value> = value.as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!(1), &json!("p"), &json!(4), &json!(0)], "{value}");
    assert_eq!(value[0]["result"]["content"][0]["text"], "one\ntwo\n");
    assert_eq!(value[1]["result"], json!({}));
    assert_eq!(value[2]["error"]["message"], "\"jsonrpc\" must be \"2.0\"");
    assert_eq!(value[3]["error"]["message"], "initialize cannot be part of a batch");
    let got = port.post(json!([note, note])).await;
    assert_eq!((got.status, got.body.len()), (StatusCode::ACCEPTED, 0));
    for (batch, why) in [
        (json!([]), "a batch has between 1 and 1000 messages"),
        (Value::Array(vec![json!({}); 1001]), "a batch has between 1 and 1000 messages"),
    ] {
        let (status, code, message) = port.post(batch).await.error();
        assert_eq!((status, code, message.as_str()), (StatusCode::BAD_REQUEST, -32600, why));
    }
    let (status, _, message) = port.post_as("2025-11-25", batch).await.error();
    let why = "there are no batches in revision 2025-11-25: send one message";
    assert_eq!((status, message.as_str()), (StatusCode::BAD_REQUEST, why));
}

#[tokio::test]
async fn a_batch_that_asks_for_too_much_gets_a_part_of_it() {
    let port = Port::memory().await;
    port.place.backend.write("large.png", vec![1; 18 << 20]).await.unwrap();
    let media = |id| call(id, "read_media_file", json!({ "path": "large.png" }));
    let value = port.post(json!([media(1), media(2), read(3)])).await.json();
    assert_eq!(value[0]["result"]["content"][0]["type"], "image");
    for (at, id) in [(1, 2), (2, 3)] {
        assert_eq!(value[at]["id"], id);
        let message = value[at]["error"]["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("the answers of this batch are over"), "{message}");
    }
}

#[tokio::test]
async fn there_is_nothing_to_listen_on_and_nothing_to_end() {
    let port = Port::memory().await;
    for method in [Method::GET, Method::DELETE, Method::PUT, Method::PATCH, Method::HEAD] {
        let mut request = Port::request("");
        *request.method_mut() = method.clone();
        let answer = port.endpoint.handle_request(port.place.backend.clone(), request).await;
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
        assert_eq!(answer.headers()[ALLOW], "POST");
    }
}

#[tokio::test]
async fn a_request_sees_the_workspace_it_came_for() {
    let port = Port::memory().await;
    port.place.fill(&[("tenants/a/a.txt", "theirs")]).await;
    let scope = port.place.backend.scope("tenants/a", ScopeOptions::default()).unwrap();
    // The short way, the long way, and a batch.
    let mut long = read(2);
    long["params"]["_meta"] = json!({ "note": 1 });
    for message in [read(1), long, json!([read(3)])] {
        let request = Port::request(message.to_string());
        let value = port.send_about(scope.clone(), request).await.json();
        let value = value.as_array().map_or(&value, |batch| &batch[0]);
        assert_eq!(value["result"]["content"][0]["text"], "theirs", "{value}");
    }
    assert_eq!(scope.read("../../a.txt").await.unwrap_err().kind(), ErrorKind::PathEscape);
}

#[tokio::test]
async fn nonsense_gets_the_error_of_the_protocol() {
    let port = Port::memory().await;
    for (body, code, why) in [
        ("", -32700, "no JSON"),
        ("{", -32700, "no JSON"),
        ("\u{0}", -32700, "no JSON"),
        ("[{", -32700, "no JSON"),
        ("{}", -32600, "\"jsonrpc\" must be \"2.0\""),
        ("5", -32600, "\"jsonrpc\" must be \"2.0\""),
        ("null", -32600, "\"jsonrpc\" must be \"2.0\""),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600, "\"jsonrpc\" must be \"2.0\""),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600, "\"method\" must be a string"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600, "\"id\" must be"),
    ] {
        let (status, got, message) = port.send(Port::request(body)).await.error();
        assert_eq!((status, got), (StatusCode::BAD_REQUEST, code), "{body}: {message}");
        assert!(message.starts_with(why), "{body}: {message}");
    }
    let (_, code, message) =
        port.post(json!({ "jsonrpc": "2.0", "id": 1, "method": "no/such" })).await.error();
    assert_eq!((code, message.as_str()), (-32601, "unknown method: no/such"));
    let (_, code, message) = port.post(call(1, "nope", json!({}))).await.error();
    assert_eq!((code, message.as_str()), (-32602, "unknown tool: nope"));
    let (status, code, message) = port.post_as("2020-01-01", read(1)).await.error();
    assert_eq!((status, code), (StatusCode::BAD_REQUEST, -32000));
    assert!(message.contains("2020-01-01"), "{message}");
}

#[tokio::test]
async fn headers_have_to_fit() {
    let port = Port::memory().await;
    for (name, value, status) in [
        ("accept", Some("application/json"), StatusCode::NOT_ACCEPTABLE),
        ("accept", Some("text/html"), StatusCode::NOT_ACCEPTABLE),
        ("accept", None, StatusCode::NOT_ACCEPTABLE),
        ("accept", Some("*/*"), StatusCode::OK),
        ("content-type", Some("text/plain"), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("content-type", Some("application/jsonx"), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("content-type", None, StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("content-type", Some("Application/JSON; charset=utf-8"), StatusCode::OK),
    ] {
        let mut request = Port::request(read(1).to_string());
        let name = http::HeaderName::from_static(name);
        match value {
            Some(value) => drop(
                request.headers_mut().insert(name.clone(), http::HeaderValue::from_static(value)),
            ),
            None => drop(request.headers_mut().remove(&name)),
        }
        assert_eq!(port.send(request).await.status, status, "{name}: {value:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() {
    let port = Port::memory().await;
    let large = call(1, "write_file", json!({ "path": "b", "content": "x".repeat(100_001) }));
    let why = "the body is too large: it may have up to 100000 bytes";
    let (status, code, message) = port.post(large.clone()).await.error();
    assert_eq!(
        (status, code, message.as_str()),
        (StatusCode::PAYLOAD_TOO_LARGE, -32600, why),
        "unannounced"
    );
    let mut announced = Port::request("{}");
    announced.headers_mut().insert("content-length", http::HeaderValue::from_static("100001"));
    let (status, _, message) = port.send(announced).await.error();
    assert_eq!((status, message.as_str()), (StatusCode::PAYLOAD_TOO_LARGE, why));
    assert!(!port.place.backend.exists("b").await.unwrap());
}

#[tokio::test]
async fn a_body_in_pieces_is_read_whole() {
    let port = Port::memory().await;
    let text = read(1).to_string();
    let pieces: Vec<Result<http_body::Frame<Bytes>, Infallible>> = text
        .as_bytes()
        .chunks(7)
        .map(|piece| Ok(http_body::Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    let body = StreamBody::new(futures_util::stream::iter(pieces));
    let request = Port::request("").map(|_| body);
    let answer = port.endpoint.handle_request(port.place.backend.clone(), request).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_command() {
    let port = Port::over(Place::local());
    for extra in [json!(null), json!({ "progressToken": 1 })] {
        let mut message = call(1, "exec", json!({ "command": "echo $$ > pid; sleep 1000" }));
        if !extra.is_null() {
            message["params"]["_meta"] = extra;
        }
        let endpoint = port.endpoint.clone();
        let backend = port.place.backend.clone();
        let request = Port::request(message.to_string());
        let calling = tokio::spawn(async move {
            let answer = endpoint.handle_request(backend, request).await;
            answer.into_body().collect().await
        });
        let pid = loop {
            let said = port.place.backend.read_text("pid").await.unwrap_or_default();
            if said.ends_with('\n') {
                break said.trim().to_owned();
            }
            tokio::task::yield_now().await;
        };
        calling.abort();
        let _ = calling.await;
        let place = std::path::PathBuf::from(format!("/proc/{pid}"));
        while place.exists() {
            tokio::task::yield_now().await;
        }
        port.place.backend.rm("pid", ab_core::options::RemoveOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn what_the_new_era_removed_is_unknown_to_it_however_it_is_asked() {
    let port = Port::memory().await;
    let ask = |method: &str| json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": {} });
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "made/up"] {
        let got = port.post_modern(modern(ask(method))).await;
        let (status, code, message) = got.error();
        assert_eq!((status, code), (StatusCode::NOT_FOUND, -32601), "{method}: {message}");
        assert_eq!(got.json()["id"], 5, "{method}");
    }
    // Where there is such a method, its params are what is wrong.
    assert_eq!(port.post(ask("initialize")).await.error().1, -32602);
    assert_eq!(port.post_modern(modern(ask("tools/call"))).await.error().1, -32602);
}
