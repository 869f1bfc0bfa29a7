//! Many, slow and broken callers: each gets its end, and the port goes on.

use std::time::Duration;

use ab_server::{HttpAccessPolicy, HttpServerLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::caller::{call, get, local, memory, open, open_within, parse, post_head, send, serves};

#[tokio::test]
async fn ten_thousand_pipelined_calls_are_answered_in_order() {
    const CALLS: usize = 10_000;
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    let stream = TcpStream::connect(port.address()).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let sending = tokio::spawn(async move {
        for number in 0..CALLS {
            let mut message = call("read_text_file", json!({ "path": "a.txt" }));
            message["id"] = json!(number);
            let body = message.to_string();
            let last = number + 1 == CALLS;
            let connection = if last { "close" } else { "keep-alive" };
            let head = post_head(&[("connection", connection)]);
            let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            writing.write_all(request.as_bytes()).await.unwrap();
        }
        writing
    });
    let mut text = Vec::new();
    reading.read_to_end(&mut text).await.unwrap();
    sending.await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let ids: Vec<usize> = text
        .split("\"jsonrpc\":\"2.0\",\"id\":")
        .skip(1)
        .map(|rest| rest.split(',').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(ids, (0..CALLS).collect::<Vec<_>>());
}

#[tokio::test]
async fn half_a_request_is_waited_for_no_longer_than_said() {
    let bounds = HttpServerLimits {
        handshake_timeout: Duration::from_millis(200),
        ..HttpServerLimits::default()
    };
    let port = open_within(serves(&memory().await), HttpAccessPolicy::default(), bounds).await;
    for start in ["", "POST /mcp HT", "POST /mcp HTTP/1.1\r\nhost: localhost\r\n"] {
        let mut stream = TcpStream::connect(port.address()).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // It is closed, with or without a word.
        let _ = stream.read_to_end(&mut rest).await;
    }
    assert_eq!(get(port.address(), "/health", &[]).await.status, 200);
}

#[tokio::test]
async fn garbage_is_answered_or_cut_off() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    for garbage in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    ] {
        let mut stream = TcpStream::connect(port.address()).await.unwrap();
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        let told = String::from_utf8_lossy(&rest).into_owned();
        let refused = told.is_empty() || told.starts_with("HTTP/1.1 4");
        assert!(refused, "{}: {told}", garbage.escape_ascii());
    }
    let endless = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}", "y".repeat(1 << 20));
    let got = send(port.address(), &endless, "").await;
    assert_eq!(got.status, 431, "{got:?}");
    assert_eq!(get(port.address(), "/health", &[]).await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    let mut stream = TcpStream::connect(port.address()).await.unwrap();
    let head = format!("{}\r\ncontent-length: 100000000\r\n\r\n", post_head(&[]));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut told = vec![0; 12];
    stream.read_exact(&mut told).await.unwrap();
    assert_eq!(told, b"HTTP/1.1 413");
}

#[tokio::test]
async fn more_callers_than_there_is_room_for_wait_their_turn() {
    let bounds = HttpServerLimits { max_connections: 2, ..HttpServerLimits::default() };
    let port = open_within(serves(&memory().await), HttpAccessPolicy::default(), bounds).await;
    let held: Vec<TcpStream> = vec![
        TcpStream::connect(port.address()).await.unwrap(),
        TcpStream::connect(port.address()).await.unwrap(),
    ];
    // Both have to be taken before the third comes.
    for mut stream in held {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        let waiting = tokio::spawn({
            let address = port.address();
            async move { get(address, "/health", &[]).await.status }
        });
        drop(stream);
        assert_eq!(waiting.await.unwrap(), 200);
    }
}

/// Bounds for callers that leave.
fn hasty() -> HttpServerLimits {
    HttpServerLimits {
        half_closed_timeout: Duration::from_millis(50),
        ..HttpServerLimits::default()
    }
}

/// Sends what `requests` makes of an exec, waits until it runs, leaves, and waits for its end.
async fn leave_during_an_exec(requests: impl Fn(String) -> String) {
    let directory = tempfile::tempdir().unwrap();
    let backend = local(directory.path());
    let port = open_within(serves(&backend), HttpAccessPolicy::default(), hasty()).await;
    let mut stream = TcpStream::connect(port.address()).await.unwrap();
    let exec = request(&call("exec", json!({ "command": "echo $$ > pid; sleep 1000" })));
    stream.write_all(requests(exec).as_bytes()).await.unwrap();
    let pid = loop {
        let said = backend.read_text("pid").await.unwrap_or_default();
        if said.ends_with('\n') {
            break said.trim().to_owned();
        }
        tokio::task::yield_now().await;
    };
    drop(stream);
    let place = std::path::PathBuf::from(format!("/proc/{pid}"));
    while place.exists() {
        tokio::task::yield_now().await;
    }
}

fn request(message: &serde_json::Value) -> String {
    let body = message.to_string();
    format!("{}\r\ncontent-length: {}\r\n\r\n{body}", post_head(&[]), body.len())
}

#[tokio::test]
async fn a_caller_that_dies_ends_its_command() {
    leave_during_an_exec(|exec| exec).await;
}

#[tokio::test]
async fn a_caller_that_dies_with_more_to_ask_ends_its_command() {
    let more = request(&call("read_text_file", json!({ "path": "pid" })));
    leave_during_an_exec(|exec| format!("{exec}{more}")).await;
    // More than is read ahead, and no more than the kernel keeps.
    leave_during_an_exec(|exec| format!("{exec}{}", more.repeat(100))).await;
}

#[tokio::test]
async fn a_caller_that_has_nothing_more_to_ask_gets_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let backend = local(directory.path());
    let port = open(serves(&backend), HttpAccessPolicy::default()).await;
    let mut stream = TcpStream::connect(port.address()).await.unwrap();
    let command = "touch begun; while ! test -e go; do sleep 0.01; done; echo done";
    let exec = request(&call("exec", json!({ "command": command })));
    stream.write_all(exec.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    while !backend.exists("begun").await.unwrap() {
        tokio::task::yield_now().await;
    }
    backend.write("go", "").await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(parse(&bytes).json()["result"]["structuredContent"]["stdout"], "done\n");
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_let_go_of() {
    let backend = memory().await;
    backend.write("big.png", vec![1; 16 << 20]).await.unwrap();
    let bounds = HttpServerLimits {
        max_connections: 1,
        write_timeout: Duration::from_millis(200),
        ..HttpServerLimits::default()
    };
    let port = open_within(serves(&backend), HttpAccessPolicy::default(), bounds).await;
    let mut slow = TcpStream::connect(port.address()).await.unwrap();
    let read = request(&call("read_media_file", json!({ "path": "big.png" })));
    slow.write_all(read.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    slow.read_exact(&mut start).await.unwrap();
    // There is room for one, so that this is answered when the other has gone.
    assert_eq!(get(port.address(), "/health", &[]).await.status, 200);
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(rest.len() < 16 << 20, "{}", rest.len());
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_nobody_else() {
    let backend = memory().await;
    backend.write("big.txt", "line of text\n".repeat(60_000)).await.unwrap();
    let port = open(serves(&backend), HttpAccessPolicy::default()).await;
    let mut slow = TcpStream::connect(port.address()).await.unwrap();
    let arguments = json!({ "path": "big.txt", "limit": 60_000 });
    let body = call("read_text_file", arguments).to_string();
    let request = format!("{}\r\ncontent-length: {}\r\n\r\n{body}", post_head(&[]), body.len());
    for _ in 0..50 {
        slow.write_all(request.as_bytes()).await.unwrap();
    }
    for _ in 0..20 {
        assert_eq!(get(port.address(), "/health", &[]).await.status, 200);
    }
    drop(slow);
    port.shutdown().await;
}
