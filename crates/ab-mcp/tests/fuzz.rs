//! Whatever the body of a request holds, there is an answer, in the protocol's own words, and the
//! workspace is touched by calls of tools only.

use ab_core::{Backend, MemoryDriver};
use ab_mcp::{McpHttpEndpoint, McpHttpSettings};
use ab_testkit::fuzz;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_assert, prop_oneof};
use proptest::sample::select;
use serde_json::{Value, json};

/// What messages are made of, and some things that they are not.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "1",
    "-1",
    "1e999",
    "1.5",
    "\"jsonrpc\"",
    "\"2.0\"",
    "\"1.0\"",
    "\"id\"",
    "\"method\"",
    "\"params\"",
    "\"tools/call\"",
    "\"tools/list\"",
    "\"initialize\"",
    "\"ping\"",
    "\"notifications/cancelled\"",
    "\"name\"",
    "\"arguments\"",
    "\"_meta\"",
    "\"progressToken\"",
    "\"read_text_file\"",
    "\"path\"",
    "\"a.txt\"",
    "\"../x\"",
    "\"result\"",
    "\"error\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\u{feff}",
    " ",
];

const METHODS: &[&str] = &[
    "tools/call",
    "tools/list",
    "initialize",
    "ping",
    "server/discover",
    "resources/list",
    "notifications/initialized",
    "notifications/cancelled",
    "logging/setLevel",
    "",
    "no/such",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| json!(number)),
        any::<bool>().prop_map(|flag| json!(flag)),
        ".{0,12}".prop_map(|text| json!(text)),
        select(vec!["a.txt", "../..", "/", "", "x\u{0}y"]).prop_map(|text| json!(text)),
        (0..1).prop_map(|_| Value::Null),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let keys = select(vec!["path", "name", "arguments", "_meta", "edits", "content", "k"]);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((keys, inner), 0..4).prop_map(|pairs| {
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

/// Something like a message.
fn message() -> impl Strategy<Value = Value> {
    let tools = select(vec!["read_text_file", "list_directory", "grep", "edit_file", "nope"]);
    (select(METHODS), option::of(value()), option::of(tools), option::of(value())).prop_map(
        |(method, id, tool, params)| {
            let mut message = json!({ "jsonrpc": "2.0", "method": method });
            if let Some(id) = id {
                message["id"] = id;
            }
            match (tool, params) {
                (Some(tool), arguments) => {
                    message["params"] = json!({ "name": tool, "arguments": arguments });
                }
                (None, Some(params)) => message["params"] = params,
                (None, None) => {}
            }
            message
        },
    )
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => message().prop_map(|message| message.to_string().into_bytes()),
        2 => vec(message(), 0..4).prop_map(|batch| Value::Array(batch).to_string().into_bytes()),
        2 => vec(select(PIECES), 0..40).prop_map(|pieces| pieces.concat().into_bytes()),
        1 => vec(any::<u8>(), 0..200),
    ]
}

fn revision() -> impl Strategy<Value = Option<&'static str>> {
    let named = vec!["2025-03-26", "2025-11-25", "2026-07-28", "1999-01-01", "x"];
    option::of(select(named))
}

#[test]
fn fuzz_http() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let backend = Backend::new(MemoryDriver::new());
    runtime.block_on(backend.write("a.txt", "one\n")).unwrap();
    let endpoint = McpHttpEndpoint::new(
        &backend,
        &McpHttpSettings { max_body_bytes: 4096, ..McpHttpSettings::default() },
    );
    fuzz::check_property("fuzz_http", (body(), revision()), |(body, revision)| {
        let mut request = Request::post("/mcp")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json");
        if let Some(revision) = revision {
            request = request.header("mcp-protocol-version", revision);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let (status, kind, text) = runtime.block_on(async {
            let answer = endpoint.handle_request(backend.clone(), request).await;
            let kind = answer.headers().get("content-type").cloned();
            let kind = kind.map(|kind| kind.to_str().unwrap_or_default().to_owned());
            let status = answer.status().as_u16();
            let text = answer.into_body().collect().await.unwrap().to_bytes();
            (status, kind.unwrap_or_default(), text)
        });
        prop_assert!(matches!(status, 200 | 202 | 400 | 404 | 413), "{status}");
        if kind == "application/json" {
            let value = serde_json::from_slice::<Value>(&text);
            prop_assert!(value.is_ok(), "{text:?}");
        }
        let kept = runtime.block_on(backend.read_text("a.txt")).unwrap_or_default();
        prop_assert!(kept == "one\n" || status == 200, "{kept}");
        Ok(())
    });
}
