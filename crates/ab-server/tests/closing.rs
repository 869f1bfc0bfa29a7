//! The end of a port: what is being answered is, what hangs is cut off, and then nothing is left.

use std::time::Duration;

use ab_server::{HttpAccessPolicy, HttpServerLimits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::caller::{call, local, memory, open, open_within, parse, post_head, serves};

async fn ask(address: std::net::SocketAddr, command: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = call("exec", json!({ "command": command })).to_string();
    let request = format!("{}\r\ncontent-length: {}\r\n\r\n{body}", post_head(&[]), body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn what_is_being_answered_comes_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let backend = local(directory.path());
    let port = open(serves(&backend), HttpAccessPolicy::default()).await;
    let command = "touch begun; while ! test -e go; do sleep 0.01; done; echo done";
    let mut stream = ask(port.address(), command).await;
    while !backend.exists("begun").await.unwrap() {
        tokio::task::yield_now().await;
    }
    let address = port.address();
    let closing = tokio::spawn(port.shutdown());
    // No more are taken.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    backend.write("go", "").await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(parse(&bytes).json()["result"]["structuredContent"]["stdout"], "done\n");
    closing.await.unwrap();
}

#[tokio::test]
async fn what_hangs_is_cut_off_after_the_grace() {
    let directory = tempfile::tempdir().unwrap();
    let backend = local(directory.path());
    let bounds = HttpServerLimits {
        shutdown_grace: Duration::from_millis(100),
        ..HttpServerLimits::default()
    };
    let port = open_within(serves(&backend), HttpAccessPolicy::default(), bounds).await;
    let mut stream = ask(port.address(), "echo $$ > pid; sleep 1000").await;
    let pid = loop {
        let said = backend.read_text("pid").await.unwrap_or_default();
        if said.ends_with('\n') {
            break said.trim().to_owned();
        }
        tokio::task::yield_now().await;
    };
    port.shutdown().await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert!(bytes.is_empty(), "{}", bytes.escape_ascii());
    let place = std::path::PathBuf::from(format!("/proc/{pid}"));
    while place.exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn idle_connections_do_not_hold_it_up() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    let mut idle = TcpStream::connect(port.address()).await.unwrap();
    idle.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut start = [0; 12];
    idle.read_exact(&mut start).await.unwrap();
    port.shutdown().await;
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
}
