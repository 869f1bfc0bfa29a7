//! Sessions: had by asking, kept to what they were begun with, ended once.

use ab_core::{NarrowOptions, Principal, PrincipalKind, ScopeOptions};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::caller::Place;
use crate::port::{Port, call, initialize};

fn read(id: u64) -> Value {
    call(id, "read_text_file", json!({ "path": "a.txt" }))
}

/// Begins a session, and makes requests of it.
async fn begun(port: &Port) -> impl Fn(Value) -> Request<Full<bytes::Bytes>> + use<> {
    let mut first = Port::request(initialize("2025-11-25").to_string());
    *first.uri_mut() = http::Uri::from_static("http://localhost/mcp?session=true");
    let session = HeaderValue::from_str(&port.send(first).await.session.unwrap()).unwrap();
    let within = move |message: Value| {
        let mut request = Port::request(message.to_string());
        request.headers_mut().insert("mcp-session-id", session.clone());
        request
    };
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(port.send(within(note)).await.status, StatusCode::ACCEPTED);
    within
}

#[tokio::test]
async fn a_session_is_had_by_asking_for_it() {
    let port = Port::memory().await;
    let mut first = Port::request(initialize("2025-11-25").to_string());
    *first.uri_mut() = http::Uri::from_static("http://localhost/mcp?session=true");
    let got = port.send(first).await;
    assert_eq!(got.events().last().unwrap()["result"]["protocolVersion"], "2025-11-25");
    let session = HeaderValue::from_str(&got.session.unwrap()).unwrap();
    let within = |message: Value| {
        let mut request = Port::request(message.to_string());
        request.headers_mut().insert("mcp-session-id", session.clone());
        request
    };
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(port.send(within(note)).await.status, StatusCode::ACCEPTED);
    let got = port.send(within(read(1))).await;
    let result = got.events().last().unwrap()["result"]["content"][0]["text"].clone();
    assert_eq!(result, "one\ntwo\n");
    let end = || {
        let mut end = within(Value::Null);
        *end.method_mut() = Method::DELETE;
        end
    };
    assert_eq!(port.send(end()).await.status, StatusCode::ACCEPTED);
    assert_eq!(port.send(within(read(2))).await.status, StatusCode::NOT_FOUND);
    assert_eq!(port.send(end()).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn in_a_session_an_answer_outlives_its_connection() {
    let port = Port::over(Place::local());
    let within = begun(&port).await;
    let command = "touch begun; while ! test -e go; do sleep 0.01; done; echo done";
    let asked = within(call(1, "exec", json!({ "command": command })));
    let answer = port.endpoint.handle_request(port.place.backend.clone(), asked).await;
    let mut body = answer.into_body();
    let start = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let start = String::from_utf8_lossy(&start).into_owned();
    let id = start.lines().find_map(|line| line.strip_prefix("id:")).unwrap().trim().to_owned();
    while !port.place.backend.exists("begun").await.unwrap() {
        tokio::task::yield_now().await;
    }
    // The connection is gone, and the command goes on.
    drop(body);
    port.place.backend.write("go", "").await.unwrap();
    let mut again = within(Value::Null);
    *again.method_mut() = Method::GET;
    let last = HeaderValue::from_str(&id).unwrap();
    again.headers_mut().insert("last-event-id", last);
    let got = port.send(again).await;
    let last = got.events().last().cloned().unwrap_or_default();
    assert_eq!(last["result"]["structuredContent"]["stdout"], "done\n", "{:?}", got.body);
}

#[tokio::test]
async fn an_id_that_waits_for_its_answer_cannot_be_used_again() {
    let port = Port::over(Place::local());
    let within = begun(&port).await;
    let command = "touch begun; while ! test -e go; do sleep 0.01; done; echo first";
    let first = within(call(1, "exec", json!({ "command": command })));
    let first = port.endpoint.handle_request(port.place.backend.clone(), first).await;
    while !port.place.backend.exists("begun").await.unwrap() {
        tokio::task::yield_now().await;
    }
    let second = port.send(within(call(1, "exec", json!({ "command": "echo second" })))).await;
    let (status, code, why) = second.error();
    assert_eq!((status, code), (StatusCode::CONFLICT, -32600));
    assert_eq!(
        (why.as_str(), &second.json()["id"]),
        ("a call with this id is not answered yet", &json!(1))
    );
    port.place.backend.write("go", "").await.unwrap();
    let answer = first.into_body().collect().await.unwrap().to_bytes();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains("first"), "{answer}");
    // Once it is answered it is free, and so is the id of another session.
    for within in [within, begun(&port).await] {
        let again = port.send(within(call(1, "exec", json!({ "command": "echo third" })))).await;
        let last = again.events().last().cloned().unwrap_or_default();
        assert_eq!(last["result"]["structuredContent"]["stdout"], "third\n", "{:?}", again.body);
    }
}

#[tokio::test]
async fn a_session_stays_in_the_scope_it_was_begun_in() {
    let port = Port::memory().await;
    port.place.fill(&[("tenants/a/a.txt", "theirs")]).await;
    let scope = || port.place.backend.scope("tenants/a", ScopeOptions::default()).unwrap();
    let within = begun(&port).await;
    let mut listen = within(Value::Null);
    *listen.method_mut() = Method::GET;
    let mut end = within(Value::Null);
    *end.method_mut() = Method::DELETE;
    for request in [within(read(1)), within(json!([read(1)])), listen, end] {
        let (status, _, why) = port.send_about(scope(), request).await.error();
        let expect = "this session was begun in another scope: begin one in each";
        assert_eq!((status, why.as_str()), (StatusCode::BAD_REQUEST, expect));
    }
    let got = port.send(within(read(1))).await;
    assert_eq!(got.events().last().unwrap()["result"]["content"][0]["text"], "one\ntwo\n");
}

#[tokio::test]
async fn a_session_exists_only_for_the_actor_that_began_it() {
    let port = Port::memory().await;
    let handle = |id: &str| {
        let principal = Principal::new(PrincipalKind::ApiKey, id);
        port.place.backend.narrow(NarrowOptions::for_actor(principal)).unwrap()
    };
    let mut first = Port::request(initialize("2025-11-25").to_string());
    *first.uri_mut() = http::Uri::from_static("http://localhost/mcp?session=true");
    let session = port.send_about(handle("mine"), first).await.session.unwrap();
    let session = HeaderValue::from_str(&session).unwrap();
    let within = |method: Method, message: Value| {
        let mut request = Port::request(message.to_string());
        *request.method_mut() = method;
        request.headers_mut().insert("mcp-session-id", session.clone());
        request
    };
    for (method, message) in [
        (Method::POST, read(1)),
        (Method::POST, json!([read(1)])),
        (Method::GET, Value::Null),
        (Method::DELETE, Value::Null),
    ] {
        let got = port.send_about(handle("other"), within(method.clone(), message)).await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{method}: {:?}", got.body);
    }
    let got = port.send_about(handle("mine"), within(Method::POST, read(1))).await;
    assert_eq!(got.events().last().unwrap()["result"]["content"][0]["text"], "one\ntwo\n");
    let ended = port.send_about(handle("mine"), within(Method::DELETE, Value::Null)).await;
    assert_eq!(ended.status, StatusCode::ACCEPTED);
}
