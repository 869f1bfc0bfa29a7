//! The tools in the words of others: OpenAI, Anthropic and MCP.

use std::time::Duration;

use agent_backend::agent::{
    AgentDefinition, AgentTool, AgentTools, FilesystemToolset, ModelEndpoint, SessionOptions,
    ToolContent, ToolResult,
};
use agent_backend::{ErrorKind, memory};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::session;

/// A picture of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn tools() -> AgentTools {
    let backend = memory();
    backend.write("a.txt", "hello\n").await.unwrap();
    backend.write("a.png", STANDARD.decode(PIXEL).unwrap()).await.unwrap();
    let (_session, tools) = session(&backend, FilesystemToolset::new().allow_writes()).await;
    tools
}

#[tokio::test]
async fn every_tool_has_a_schema_in_both_dialects() {
    let tools = tools().await;
    let (openai, anthropic) = (tools.openai_tools(), tools.anthropic_tools());
    for (index, tool) in tools.all_tools().iter().enumerate() {
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
    let answers = tools.answer_openai_tool_calls(&message).await;
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
    assert_eq!(*url, format!("data:image/png;base64,{PIXEL}"));
    assert_eq!(
        tools.answer_openai_tool_calls(&json!({ "content": "done" })).await,
        [Value::Null; 0]
    );
}

#[tokio::test]
async fn calls_of_an_anthropic_message_are_answered_in_one() {
    let tools = tools().await;
    let content = json!([
        { "type": "text", "text": "I look." },
        { "type": "tool_use", "id": "t1", "name": "read_media_file", "input": { "path": "a.png" } },
        { "type": "tool_use", "id": "t2", "name": "read_text_file", "input": { "path": "none" } },
    ]);
    let answer = tools.answer_anthropic_tool_uses(&content).await;
    assert_eq!(answer["role"], "user");
    let [picture, missing] = answer["content"].as_array().unwrap().as_slice() else {
        panic!("{answer}")
    };
    assert_eq!((&picture["tool_use_id"], &picture["is_error"]), (&json!("t1"), &json!(false)));
    let source = json!({ "type": "base64", "media_type": "image/png", "data": PIXEL });
    assert_eq!(picture["content"][0], json!({ "type": "image", "source": source }));
    assert_eq!((&missing["tool_use_id"], &missing["is_error"]), (&json!("t2"), &json!(true)));
    assert_eq!(missing["content"][0]["type"], "text");
    let nothing =
        tools.answer_anthropic_tool_uses(&json!([{ "type": "text", "text": "done" }])).await;
    assert_eq!(nothing, Value::Null);
}

/// A tool that returns what it is made with.
fn returning(name: &str, result: ToolResult) -> AgentTool {
    AgentTool::new(name, "Returns it", json!({ "type": "object" }), move |_| {
        std::future::ready(result.clone())
    })
}

fn media(mime_type: &str, base64: impl Into<String>) -> ToolContent {
    ToolContent::Media { mime_type: mime_type.to_owned(), base64: base64.into() }
}

/// The content of the answers to a call of each tool, in both dialects.
async fn in_both_dialects(results: Vec<ToolResult>) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
    let mut builder = AgentDefinition::builder();
    let names: Vec<String> = (0..results.len()).map(|index| format!("t{index}")).collect();
    for (name, result) in names.iter().zip(results) {
        builder = builder.tool(returning(name, result));
    }
    let session = builder.build().start(SessionOptions::default()).await.unwrap();
    let tools = session.tools().await.unwrap();
    let calls: Value = names
        .iter()
        .map(|name| json!({ "type": "tool_use", "id": name, "name": name, "input": {} }))
        .collect();
    let answer = tools.answer_anthropic_tool_uses(&calls).await;
    let anthropic = answer["content"].as_array().unwrap().iter();
    let anthropic = anthropic.map(|block| block["content"].clone()).collect();
    let calls: Vec<Value> = names.iter().map(|name| openai_call(name, name, "{}")).collect();
    let mut openai = tools.answer_openai_tool_calls(&json!({ "tool_calls": calls })).await;
    let pictures = openai.split_off(names.len());
    (anthropic, openai.iter().map(|message| message["content"].clone()).collect(), pictures)
}

#[tokio::test]
async fn content_that_an_api_refuses_is_sent_as_text() {
    let pixel = STANDARD.decode(PIXEL).unwrap();
    let large = STANDARD.encode([pixel.clone(), vec![0; 4 * 1024 * 1024]].concat());
    let with = |content: Vec<ToolContent>| ToolResult { content, ..ToolResult::default() };
    let (anthropic, openai, pictures) = in_both_dialects(vec![
        ToolResult::text(""),
        ToolResult::text("\n"),
        with(vec![]),
        ToolResult { data: Some(json!({ "n": 1 })), ..ToolResult::default() },
        with(vec![media("image/svg+xml", STANDARD.encode("<svg/>"))]),
        with(vec![media("image/bmp", STANDARD.encode("BM"))]),
        with(vec![media("image/x-icon", STANDARD.encode("icon"))]),
        with(vec![media("image/png", STANDARD.encode("this is text"))]),
        with(vec![media("image/png", "%%%")]),
        with(vec![media("audio/wav", STANDARD.encode("RIFF"))]),
        with(vec![media("image/png", large)]),
        ToolResult { is_error: true, ..with(vec![media("image/png", PIXEL)]) },
        // The type of a picture is that of its bytes.
        with(vec![ToolContent::Text(String::new()), media("image/jpeg", PIXEL)]),
    ])
    .await;
    let expect = [
        "[the result is empty]",
        "[1 bytes of white space]",
        "[the result is empty]",
        "{\"n\":1}",
        "it is text, and can be read as such",
        "only PNG, JPEG, GIF and WebP",
        "only PNG, JPEG, GIF and WebP",
        "only PNG, JPEG, GIF and WebP",
        "not base64",
        "only pictures can be shown",
        "at most 3932160 bytes",
        "the call failed",
    ];
    for (index, says) in expect.iter().enumerate() {
        let [block] = anthropic[index].as_array().unwrap().as_slice() else {
            panic!("{}", anthropic[index])
        };
        assert_eq!(block["type"], "text", "{block}");
        assert!(block["text"].as_str().unwrap().contains(says), "{block} does not say {says}");
        // The limits of the other API are higher for large pictures.
        let text = openai[index].as_str().unwrap();
        assert!(text.contains(says) || says.contains("3932160"), "{text} does not say {says}");
    }
    let source = json!({ "type": "base64", "media_type": "image/png", "data": PIXEL });
    assert_eq!(anthropic[12], json!([{ "type": "image", "source": source }]));
    assert_eq!(pictures[0]["content"].as_array().unwrap().len(), 2, "the large one and the last");
}

#[tokio::test]
async fn the_pictures_of_one_message_fit_in_a_request_together() {
    let pixel = STANDARD.decode(PIXEL).unwrap();
    let large = STANDARD.encode([pixel, vec![0; 3 * 1024 * 1024]].concat());
    let result = ToolResult { content: vec![media("image/png", large)], ..ToolResult::default() };
    let (anthropic, _, _) = in_both_dialects(vec![result; 5]).await;
    let kinds: Vec<&Value> = anthropic.iter().map(|content| &content[0]["type"]).collect();
    assert_eq!(kinds, ["image", "image", "image", "text", "text"]);
    assert!(anthropic[4][0]["text"].as_str().unwrap().contains("too large together"));
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
        client.list_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
    let expect: Vec<&str> = tools.all_tools().iter().map(|tool| tool.name()).collect();
    assert_eq!(listed, expect);
    let read = client.call_tool("read_text_file", json!({ "path": "a.txt" })).await.unwrap();
    assert_eq!(read.content[0].as_text().unwrap().text, "hello\n");
    // The rules of the session hold for it: what was read may be written, nothing else.
    let write = json!({ "path": "a.txt", "content": "x" });
    assert_ne!(client.call_tool("write_file", write).await.unwrap().is_error, Some(true));
    let write = json!({ "path": "a.png", "content": "x" });
    assert_eq!(client.call_tool("write_file", write).await.unwrap().is_error, Some(true));
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
        ("401 Unauthorized", r#"{"error":"bad key"}"#, ErrorKind::DeniedByPolicy, "bad key"),
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
