//! The tools in the words of others: OpenAI, Anthropic and MCP.

use std::time::Duration;

use agent_backend::agent::{AgentTools, FilesystemToolset, ModelEndpoint};
use agent_backend::{ErrorKind, memory};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::session;

async fn tools() -> AgentTools {
    let backend = memory();
    backend.write("a.txt", "hello\n").await.unwrap();
    backend.write("a.png", vec![0_u8, 1, 2]).await.unwrap();
    let (_session, tools) = session(&backend, FilesystemToolset::new().allow_writes()).await;
    tools
}

#[tokio::test]
async fn every_tool_has_a_schema_in_both_dialects() {
    let tools = tools().await;
    let (openai, anthropic) = (tools.openai_tools(), tools.anthropic_tools());
    for (index, tool) in tools.list().iter().enumerate() {
        let function = &openai[index]["function"];
        assert_eq!(openai[index]["type"], "function");
        for schema in [&function["parameters"], &anthropic[index]["input_schema"]] {
            assert_eq!(schema["type"], "object", "{}", tool.name());
            assert!(schema["properties"].is_object(), "{}", tool.name());
        }
        for (name, description) in [
            (&function["name"], &function["description"]),
            (&anthropic[index]["name"], &anthropic[index]["description"]),
        ] {
            assert_eq!(name, tool.name());
            assert!(description.as_str().is_some_and(|text| text.len() > 20), "{description}");
        }
    }
}

fn openai_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
}

#[tokio::test]
async fn calls_of_an_openai_message_are_answered_in_their_order() {
    let tools = tools().await;
    let calls = [
        openai_call("1", "read_text_file", r#"{"path":"a.txt"}"#),
        openai_call("2", "read_text_file", "{not json"),
        openai_call("3", "read_media_file", r#"{"path":"a.png"}"#),
        openai_call("4", "list_allowed_directories", ""),
        openai_call("5", "no_such_tool", "{}"),
    ];
    let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let answers = tools.answer_openai(&message).await;
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["tool_call_id"]).collect();
    assert_eq!(ids[..5], ["1", "2", "3", "4", "5"].map(Value::from).iter().collect::<Vec<_>>());
    let said = |index: usize| answers[index]["content"].as_str().unwrap();
    assert_eq!(said(0), "hello\n");
    assert!(said(1).contains("are not JSON"), "{}", said(1));
    assert!(said(2).contains("image/png"), "{}", said(2));
    assert!(said(3).starts_with("Allowed directories"), "{}", said(3));
    assert!(said(4).contains("there is no tool"), "{}", said(4));
    // A picture follows as what the model can see.
    assert_eq!(answers.len(), 6);
    assert_eq!(answers[5]["role"], "user");
    let url = &answers[5]["content"][0]["image_url"]["url"];
    assert_eq!(url, "data:image/png;base64,AAEC");
    assert_eq!(tools.answer_openai(&json!({ "content": "done" })).await, [Value::Null; 0]);
}

#[tokio::test]
async fn calls_of_an_anthropic_message_are_answered_in_one() {
    let tools = tools().await;
    let content = json!([
        { "type": "text", "text": "I look." },
        { "type": "tool_use", "id": "t1", "name": "read_media_file", "input": { "path": "a.png" } },
        { "type": "tool_use", "id": "t2", "name": "read_text_file", "input": { "path": "none" } },
    ]);
    let answer = tools.answer_anthropic(&content).await;
    assert_eq!(answer["role"], "user");
    let [picture, missing] = answer["content"].as_array().unwrap().as_slice() else {
        panic!("{answer}")
    };
    assert_eq!((&picture["tool_use_id"], &picture["is_error"]), (&json!("t1"), &json!(false)));
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "AAEC" });
    assert_eq!(picture["content"][0], json!({ "type": "image", "source": source }));
    assert_eq!((&missing["tool_use_id"], &missing["is_error"]), (&json!("t2"), &json!(true)));
    assert_eq!(missing["content"][0]["type"], "text");
    let nothing = tools.answer_anthropic(&json!([{ "type": "text", "text": "done" }])).await;
    assert_eq!(nothing, Value::Null);
}

#[tokio::test]
async fn an_mcp_client_has_the_tools_of_the_session() {
    let tools = tools().await;
    let (here, there) = tokio::io::duplex(64 * 1024);
    let served = tools.clone();
    let serving = tokio::spawn(async move {
        let (input, output) = tokio::io::split(there);
        served.serve_mcp(input, output).await
    });
    let client = agent_backend::mcp::Client::connect(here, Duration::from_secs(10)).await.unwrap();
    let listed: Vec<String> =
        client.tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
    let expect: Vec<&str> = tools.list().iter().map(|tool| tool.name()).collect();
    assert_eq!(listed, expect);
    let read = client.call("read_text_file", json!({ "path": "a.txt" })).await.unwrap();
    assert_eq!(read.content[0].as_text().unwrap().text, "hello\n");
    // The rules of the session hold for it: what was read may be written, nothing else.
    let write = json!({ "path": "a.txt", "content": "x" });
    assert_ne!(client.call("write_file", write).await.unwrap().is_error, Some(true));
    let write = json!({ "path": "a.png", "content": "x" });
    assert_eq!(client.call("write_file", write).await.unwrap().is_error, Some(true));
    client.close().await;
    serving.await.unwrap().unwrap();
}

/// The endpoint of a server that answers one request with this.
async fn answering(status: &str, body: &str) -> ModelEndpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    ModelEndpoint::new(&url, "m", Some("key")).unwrap()
}

#[tokio::test]
async fn what_a_model_server_refuses_is_an_error_with_its_words() {
    let tools = tools().await;
    for (status, body, kind, says) in [
        ("401 Unauthorized", r#"{"error":"bad key"}"#, ErrorKind::Denied, "bad key"),
        ("429 Too Many Requests", "slow down", ErrorKind::Unavailable, "slow down"),
        ("200 OK", "{}", ErrorKind::Unsupported, "without a message"),
        ("200 OK", "<html>", ErrorKind::Unsupported, "without a message"),
    ] {
        let error = answering(status, body).await.next_message(&[], &tools).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(says), "{error}");
    }
    for url in ["ws://h/v1", "nonsense", "http://h/v1?x=1"] {
        assert_eq!(ModelEndpoint::new(url, "m", None).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let clear = ModelEndpoint::new("http://box.example/v1", "m", Some("key")).unwrap_err();
    assert_eq!(clear.kind(), ErrorKind::Invalid, "a key does not leave the machine without TLS");
}
