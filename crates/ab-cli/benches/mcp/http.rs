//! The load driver: connections that stay open, one request at a time on each, all on one thread.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::measure::median;

/// A `tools/call` as bytes, made before the clock runs.
pub(crate) fn request(port: u16, tool: &str, arguments: &Value) -> Vec<u8> {
    let params = json!({ "name": tool, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let body = body.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

#[derive(Debug)]
pub(crate) struct Connection {
    port: u16,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Connection {
        let buffer = Vec::with_capacity(64 * 1024);
        Connection { port, stream: connected(port).await, buffer }
    }

    /// The peer ends a connection that is idle for five seconds; the room for answers stays.
    pub(crate) async fn open_again(&mut self) {
        self.stream = connected(self.port).await;
    }

    /// Sends a request and reads its answer to the end; the body as it came.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).await.unwrap();
        self.buffer.clear();
        let (mut head, mut ending) = (0, None);
        loop {
            let count = self.stream.read_buf(&mut self.buffer).await.unwrap();
            assert!(count > 0, "the connection ended: {}", shown(&self.buffer));
            if ending.is_none() {
                let Some(end) = position(&self.buffer, b"\r\n\r\n") else { continue };
                head = end + 4;
                ending = Some(Ending::of(&self.buffer[..head]));
            }
            match ending {
                Some(Ending::Length(length)) if self.buffer.len() >= head + length => break,
                Some(Ending::Chunked) if self.buffer.ends_with(b"0\r\n\r\n") => break,
                _ => {}
            }
        }
        assert!(self.buffer.starts_with(b"HTTP/1.1 200 "), "{}", shown(&self.buffer));
        &self.buffer[head..]
    }
}

async fn connected(port: u16) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Where a body ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Length(usize),
    Chunked,
}

impl Ending {
    fn of(head: &[u8]) -> Ending {
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        match length {
            Some(length) => Ending::Length(length.trim().parse().unwrap()),
            None => Ending::Chunked,
        }
    }
}

/// What connections achieved together.
#[derive(Debug)]
pub(crate) struct Load {
    /// Answers a second.
    pub(crate) rate: f64,
    /// Milliseconds.
    pub(crate) p50: f64,
}

pub(crate) async fn load(port: u16, request: &[u8], connections: usize, time: Duration) -> Load {
    let request: std::sync::Arc<[u8]> = request.into();
    let mut opened = Vec::new();
    for _ in 0..connections {
        let mut connection = Connection::open(port).await;
        succeeded(connection.ask(&request).await);
        opened.push(connection);
    }
    let begun = Instant::now();
    let drivers: Vec<_> = opened
        .into_iter()
        .map(|mut connection| {
            let request = request.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                while begun.elapsed() < time {
                    let asked = Instant::now();
                    connection.ask(&request).await;
                    times.push(asked.elapsed().as_secs_f64() * 1000.0);
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for driver in drivers {
        times.extend(driver.await.unwrap());
    }
    Load { rate: times.len() as f64 / begun.elapsed().as_secs_f64(), p50: median(times) }
}

/// An answer that is an error would be quick for the wrong reason.
pub(crate) fn succeeded(body: &[u8]) {
    let result = position(body, b"\"result\"").is_some();
    assert!(result && position(body, b"\"isError\":true").is_none(), "{}", shown(body));
}

pub(crate) fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned()
}
