//! Many readers of a long run of the built server, one of them asleep: none loses an event.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::fixture::Server;
use super::spaces::{fixture, operations, space};
use crate::outliving::comes;

const OPERATIONS: usize = 1000;
const READERS: usize = 200;
/// How much of the stream the reader that was asleep gets before its connection ends.
const BEFORE_THE_CUT: usize = 64 * 1024;

/// Opens the stream of a run after an event that was received before.
fn open(server: &Server, run: &str, last: u64) -> TcpStream {
    let mut stream = server.connect().unwrap();
    let (host, token) = (&server.address, &server.token);
    // HTTP/1.0: the end of the connection is the end of the stream.
    let request = format!(
        "GET /v1/runs/{run}/stream HTTP/1.0\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
         last-event-id: {last}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The ids of the whole frames in a text.
fn ids(text: &str) -> Vec<u64> {
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
    let ids = whole.lines().filter_map(|line| line.strip_prefix("id: "));
    ids.map(|id| id.parse().unwrap()).collect()
}

#[test]
fn two_hundred_readers_of_a_long_run_lose_nothing_and_a_sleeping_one_comes_back() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({ "policy": "permissive" }));
    // The run begins when every reader is there.
    let wait = "until [ -e go ]; do sleep 0.01; done";
    let wait = json!({ "type": "shell", "command": wait, "timeout": 300_000 });
    let file =
        |number| json!({ "type": "createFile", "path": format!("{number}"), "content": "x" });
    let all: Vec<Value> = std::iter::once(wait).chain((1..OPERATIONS).map(file)).collect();
    let mut headers = server.operator();
    headers.push(("prefer", "respond-async"));
    let runs = format!("/v1/spaces/{id}/runs");
    let made = server.try_ask("POST", &runs, &headers, &operations(json!(all))).unwrap();
    assert_eq!(made.status, 202, "{made:?}");
    let run = made.json()["data"]["runId"].as_str().unwrap().to_owned();

    let mut sleeper = open(&server, &run, 0);
    let present = AtomicUsize::new(0);
    let read = || {
        let mut reader = BufReader::new(open(&server, &run, 0));
        let mut text = String::new();
        // The record of the first operation.
        while !text.contains("\nid: 1\n") {
            assert_ne!(reader.read_line(&mut text).unwrap(), 0, "{text}");
        }
        present.fetch_add(1, Ordering::Relaxed);
        reader.read_to_string(&mut text).unwrap();
        text
    };
    let expect: Vec<u64> = (1..=2 * OPERATIONS as u64 + 1).collect();
    std::thread::scope(|threads| {
        let readers: Vec<_> = (0..READERS).map(|_| threads.spawn(read)).collect();
        comes("every reader", || present.load(Ordering::Relaxed) == READERS);
        assert_eq!(server.ask("PUT", &format!("/v1/spaces/{id}/files/go"), "").status, 200);
        for reader in readers {
            let text = reader.join().unwrap();
            assert_eq!(ids(&text), expect, "an event is lost or repeated");
            assert!(text.contains("\nevent: complete\n"));
        }
    });

    // The sleeper's connection ends when it has read a part. It comes back by the last event that it has.
    let mut first = vec![0; BEFORE_THE_CUT];
    sleeper.read_exact(&mut first).unwrap();
    drop(sleeper);
    let mut got = ids(&String::from_utf8_lossy(&first));
    let last = *got.last().unwrap();
    assert!((100..2000).contains(&last), "{last}");
    let mut rest = String::new();
    open(&server, &run, last).read_to_string(&mut rest).unwrap();
    got.extend(ids(&rest));
    assert_eq!(got, expect);
    // It has everything now.
    let mut over = String::new();
    open(&server, &run, expect.len() as u64).read_to_string(&mut over).unwrap();
    assert!(over.starts_with("HTTP/1.0 204") || over.starts_with("HTTP/1.1 204"), "{over}");
    server.end();
}
