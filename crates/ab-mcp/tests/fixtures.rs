//! What the conformance suite calls by name: who may reach it, and what the suite itself does not
//! look at. That the suite passes is a test of ab-cli, with the port of the daemon.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ab_conformance::ConformanceExtension;
use ab_mcp::McpHttpSettings;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::caller::Place;
use crate::port::{Got, Port, call, initialize, modern};

/// Whoever waits longer waits for something that does not come.
const SOON: Duration = Duration::from_secs(20);

async fn with_fixtures() -> Port {
    let settings = McpHttpSettings {
        extension: Some(Arc::new(ConformanceExtension::new())),
        ..McpHttpSettings::default()
    };
    let port = Port::with(Place::memory(), &settings);
    port.place.fill(&[("a.txt", "one\n")]).await;
    port
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// The same call of a client that can answer everything.
fn able(message: Value) -> Value {
    let mut message = modern(message);
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({ "elicitation": {}, "sampling": {}, "roots": {} });
    message
}

async fn names(port: &Port, method: &str, kind: &str, key: &str) -> BTreeSet<String> {
    let listed = port.post(request(method, json!({}))).await.json();
    let items = listed["result"][kind].as_array().unwrap_or_else(|| panic!("{listed}"));
    items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

fn code(got: &Got) -> Value {
    got.json()["error"]["code"].clone()
}

#[tokio::test]
async fn nothing_of_it_can_be_reached_unless_it_was_asked_for() {
    let (without, with) = (Port::memory().await, with_fixtures().await);
    let ours = names(&without, "tools/list", "tools", "name").await;
    let both = names(&with, "tools/list", "tools", "name").await;
    assert!(ours.is_subset(&both));
    let fixtures: Vec<&String> = both.difference(&ours).collect();
    assert!(fixtures.len() > 20, "{fixtures:?}");
    for tool in fixtures {
        let got = without.post(call(1, tool, json!({}))).await;
        assert_eq!(got.error(), (StatusCode::OK, -32602, format!("unknown tool: {tool}")));
        let got = without.post_modern(able(call(1, tool, json!({})))).await;
        assert_eq!(code(&got), -32602, "{tool}: {:?}", got.body);
        let got = without.post(json!([call(1, tool, json!({}))])).await;
        assert_eq!(got.json()[0]["error"]["code"], -32602, "{tool}: {:?}", got.body);
    }
    for (method, kind, key) in [
        ("prompts/list", "prompts", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ] {
        assert_eq!(names(&without, method, kind, key).await, BTreeSet::new());
        assert_ne!(names(&with, method, kind, key).await, BTreeSet::new());
    }
    for (method, params) in [
        ("prompts/get", json!({ "name": "test_simple_prompt" })),
        ("resources/read", json!({ "uri": "test://static-text" })),
        ("resources/subscribe", json!({ "uri": "test://static-text" })),
        ("resources/unsubscribe", json!({ "uri": "test://static-text" })),
        ("logging/setLevel", json!({ "level": "debug" })),
    ] {
        assert_eq!(code(&without.post(request(method, params.clone())).await), -32601, "{method}");
        let got = with.post(request(method, params)).await;
        assert!(got.json()["result"].is_object(), "{method}: {:?}", got.body);
    }
    let listen = request("subscriptions/listen", json!({ "notifications": {} }));
    assert_eq!(code(&without.post_modern(modern(listen)).await), -32601);
    let told = without.post(initialize("2025-11-25")).await.json();
    let capabilities = told["result"]["capabilities"].as_object().unwrap();
    assert_eq!(capabilities.keys().collect::<Vec<_>>(), ["tools"]);
    assert_eq!(capabilities["tools"], json!({}));
}

#[tokio::test]
async fn the_workspace_is_still_there_beside_it() {
    let port = with_fixtures().await;
    let reading = call(1, "read_text_file", json!({ "path": "a.txt" }));
    let plain = port.post(reading.clone()).await.json();
    assert_eq!(plain["result"]["content"][0]["text"], "one\n", "{plain}");
    let modern = port.post_modern(modern(reading.clone())).await.json();
    assert_eq!(modern["result"]["content"][0]["text"], "one\n", "{modern}");
    let simple = call(2, "test_simple_text", json!({}));
    let said = "This is a simple text response for testing.";
    let got = port.post(simple.clone()).await.json();
    assert_eq!(got["result"]["content"][0]["text"], said, "{got}");
    let batch = port.post(json!([reading, simple])).await.json();
    assert_eq!(batch[0]["result"]["content"][0]["text"], "one\n", "{batch}");
    assert_eq!(batch[1]["result"]["content"][0]["text"], said, "{batch}");
}

#[tokio::test]
async fn a_question_that_nobody_can_answer_is_not_asked() {
    let port = with_fixtures().await;
    let questions = [
        call(1, "test_sampling", json!({ "prompt": "?" })),
        call(1, "test_elicitation", json!({ "message": "?" })),
        call(1, "test_elicitation_sep1330_enums", json!({})),
    ];
    for question in questions {
        // There is no way back for an answer.
        let got = timeout(SOON, port.post(question.clone())).await.unwrap();
        assert_eq!(code(&got), -32600, "{:?}", got.body);
        let got = timeout(SOON, port.post_modern(able(question.clone()))).await.unwrap();
        assert_eq!(code(&got), -32600, "{:?}", got.body);
        // There is, but the client said that it cannot.
        let mut begin = Port::request(initialize("2025-11-25").to_string());
        *begin.uri_mut() = "http://localhost/mcp?session=true".parse().unwrap();
        let session = port.send(begin).await.session.unwrap();
        let mut asking = Port::request(question.to_string());
        asking.headers_mut().insert("mcp-session-id", HeaderValue::from_str(&session).unwrap());
        let got = timeout(SOON, port.send(asking)).await.unwrap();
        let answer = got.events().pop().unwrap();
        assert_eq!(answer["error"]["code"], -32021, "{answer}");
    }
}

#[tokio::test]
async fn only_what_the_client_declared_is_asked_for() {
    let port = with_fixtures().await;
    for (tool, lacks) in [
        ("test_input_required_result_elicitation", "elicitation"),
        ("test_input_required_result_sampling", "sampling"),
        ("test_input_required_result_list_roots", "roots"),
        ("test_streaming_elicitation", "elicitation"),
        ("test_missing_capability", "sampling"),
    ] {
        let got = port.post_modern(modern(call(1, tool, json!({})))).await;
        assert_eq!((got.status, code(&got)), (StatusCode::BAD_REQUEST, json!(-32021)), "{tool}");
        let required = &got.json()["error"]["data"]["requiredCapabilities"];
        assert!(required[lacks].is_object(), "{tool}: {required}");
    }
    let nothing = modern(call(1, "test_input_required_result_capabilities", json!({})));
    let got = port.post_modern(nothing).await.json();
    assert_eq!(got["result"]["resultType"], "complete", "{got}");
}

#[tokio::test]
async fn a_state_is_good_for_one_tool_of_one_server() {
    const TOOL: &str = "test_input_required_result_request_state";
    let port = with_fixtures().await;
    let asked = port.post_modern(able(call(1, TOOL, json!({})))).await.json();
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    let again = |tool: &str, state: &str| {
        let mut message = able(call(2, tool, json!({})));
        message["params"]["requestState"] = json!(state);
        let answer = json!({ "action": "accept", "content": { "ok": true } });
        message["params"]["inputResponses"] = json!({ "confirm": answer });
        message
    };
    let got = port.post_modern(again(TOOL, &state)).await.json();
    assert_eq!(got["result"]["content"][0]["text"], "Confirmed: state-ok", "{got}");
    let other = "test_input_required_result_tampered_state";
    let got = port.post_modern(again(other, &state)).await;
    assert_eq!(code(&got), -32602, "{:?}", got.body);
    let got = with_fixtures().await.post_modern(again(TOOL, &state)).await;
    assert_eq!(code(&got), -32602, "{:?}", got.body);
    for at in 0..state.len() {
        let mut altered = state.clone().into_bytes();
        altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
        let altered = String::from_utf8(altered).unwrap();
        let got = port.post_modern(again(TOOL, &altered)).await;
        assert_eq!(code(&got), -32602, "{at}: {:?}", got.body);
    }
    // The answer without the state is no answer to anything.
    let mut stateless = again(TOOL, "");
    stateless["params"].as_object_mut().unwrap().remove("requestState");
    let got = port.post_modern(stateless).await.json();
    assert_eq!(got["result"]["resultType"], "input_required", "{got}");
}

#[tokio::test]
async fn what_is_asked_in_rounds_needs_the_new_era() {
    let port = with_fixtures().await;
    let got = port.post(call(1, "test_input_required_result_elicitation", json!({}))).await;
    assert!(got.json()["error"].is_object(), "{:?}", got.body);
}

#[tokio::test]
async fn logging_follows_the_level_of_the_session_or_of_the_request() {
    let port = with_fixtures().await;
    let logging = call(1, "test_tool_with_logging", json!({}));
    assert_eq!(port.post(logging.clone()).await.events().len(), 4);
    let quiet = request("logging/setLevel", json!({ "level": "error" }));
    assert_eq!(port.post(quiet.clone()).await.json()["result"], json!({}));
    let got = port.post(logging.clone()).await;
    assert_eq!(got.kind, "application/json", "{:?}", got.body);
    let mut wanted = modern(logging);
    assert_eq!(port.post_modern(wanted.clone()).await.kind, "application/json");
    wanted["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!("debug");
    assert_eq!(port.post_modern(wanted.clone()).await.events().len(), 4);
    wanted["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!("warning");
    assert_eq!(port.post_modern(wanted).await.kind, "application/json");
    let got = port.post_modern(modern(quiet)).await;
    assert_eq!((got.status, code(&got)), (StatusCode::NOT_FOUND, json!(-32601)));
}

#[tokio::test]
async fn what_is_not_there_is_named_in_the_error_of_the_era() {
    let port = with_fixtures().await;
    for uri in ["test://nowhere", "test://template//data", "test://template/a/b/data", "a.txt"] {
        let read = request("resources/read", json!({ "uri": uri }));
        let got = port.post(read.clone()).await.json();
        assert_eq!(
            (&got["error"]["code"], &got["error"]["data"]["uri"]),
            (&json!(-32002), &json!(uri))
        );
        let got = port.post_modern(modern(read)).await.json();
        assert_eq!(
            (&got["error"]["code"], &got["error"]["data"]["uri"]),
            (&json!(-32602), &json!(uri))
        );
    }
    for (name, arguments) in
        [("nobody", json!({})), ("test_prompt_with_arguments", json!({ "arg1": "x" }))]
    {
        let prompt = request("prompts/get", json!({ "name": name, "arguments": arguments }));
        assert_eq!(code(&port.post(prompt).await), -32602);
    }
}

#[tokio::test]
async fn who_listens_hears_of_changes_until_the_endpoint_closes() {
    let port = with_fixtures().await;
    let wants = json!({ "notifications": { "toolsListChanged": true } });
    let listen = modern(request("subscriptions/listen", wants));
    let listening = Port::modern_request(&listen);
    let answer = port.endpoint.handle_request(port.place.backend.clone(), listening).await;
    let mut body = answer.into_body();
    let mut heard = String::new();
    for (method, then) in [
        ("notifications/subscriptions/acknowledged", "test_trigger_prompt_change"),
        ("notifications/tools/list_changed", "test_simple_text"),
    ] {
        while !heard.contains(method) {
            let frame = timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
            heard += str::from_utf8(&frame.into_data().unwrap()).unwrap();
        }
        for tool in [then, "test_trigger_tool_change"] {
            let got = port.post_modern(modern(call(2, tool, json!({})))).await;
            assert_eq!(got.json()["result"]["isError"], false, "{:?}", got.body);
        }
    }
    port.endpoint.close();
    while let Some(frame) = timeout(SOON, body.frame()).await.unwrap() {
        heard += str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap();
    }
    assert!(!heard.contains("notifications/prompts"), "{heard}");
}
