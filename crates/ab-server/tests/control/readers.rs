//! Many readers of one session, one of them asleep.

use std::net::SocketAddr;
use std::time::Duration;

use ab_server::HttpServerLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::fake::{FLOOD_BYTES, SHOWN, Script, serve_within};
use crate::caller::head;

const READERS: usize = 200;
/// Lines that every one of them gets.
const FLOOD: u64 = 500;
/// Lines that are more than the kernel keeps for a reader that takes nothing.
const LONG_FLOOD: u64 = 4000;
/// How long a reader may take nothing; 30 seconds outside of tests.
const STALL: Duration = Duration::from_millis(500);

/// Opens a stream. The small buffer of a reader that takes nothing is soon full.
async fn open(address: SocketAddr, session: &str, after: u64) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let path = format!("{session}/events?after={after}");
    // Otherwise the end of the connection comes long after the end of the stream.
    let headers = [SHOWN, ("Connection", "close")];
    let request = format!("{}\r\n\r\n", head("GET", &path, &headers));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The ids of the whole events in what a reader got.
fn ids(text: &str) -> Vec<u64> {
    let whole = text.rfind("\n\n").map_or("", |end| &text[..end]);
    let events = whole.split("\n\n").filter(|event| event.contains("data: "));
    // Chunks of HTTP may begin inside of an event, never inside of a line.
    events.map(|event| id(event).unwrap()).collect()
}

fn id(event: &str) -> Option<u64> {
    event.lines().find_map(|line| line.strip_prefix("id: ")?.parse().ok())
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    // A connection that is cut ends with an error.
    let _ = stream.read_to_end(&mut read).await;
    String::from_utf8(read).unwrap().replace("\r\n", "\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_readers_lose_nothing_and_a_sleeping_one_comes_back() {
    let bounds = HttpServerLimits { write_timeout: STALL, ..HttpServerLimits::default() };
    let served = serve_within(Script::Flood(FLOOD), bounds).await;
    let session = served.create().await;
    let sleeper = open(served.address(), &session, 0).await;
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let stream = open(served.address(), &session, 0).await;
        readers.spawn(read_to_end(stream));
    }
    served.release();
    let mut last = 0;
    while let Some(read) = readers.join_next().await {
        let text = read.unwrap();
        let ids = ids(&text);
        last = ids.len() as u64;
        assert!(last > FLOOD, "{last} events");
        assert_eq!(ids, (1..=last).collect::<Vec<_>>(), "an event is lost or repeated");
        assert!(text.contains("\"completed\""));
    }
    // The sleeper has what the kernel kept for it, and comes back by its cursor for the rest.
    let first = ids(&read_to_end(sleeper).await);
    let cursor = first.last().copied().unwrap_or_default();
    let rest = ids(&read_to_end(open(served.address(), &session, cursor).await).await);
    let all: Vec<u64> = first.into_iter().chain(rest).collect();
    assert_eq!(all, (1..=last).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_takes_nothing_is_cut_and_comes_back_by_its_cursor() {
    let bounds = HttpServerLimits {
        max_connections: 1,
        write_timeout: STALL,
        ..HttpServerLimits::default()
    };
    let served = serve_within(Script::Flood(LONG_FLOOD), bounds).await;
    let session = served.create().await;
    let sleeper = open(served.address(), &session, 0).await;
    served.release();
    // There is room for one connection: another one is served once the sleeper's was cut.
    let story = served.events(&session, &[]).await;
    let all = ids(&story.body.replace("\r\n", "\n"));
    assert_eq!(all, (1..=all.len() as u64).collect::<Vec<_>>());
    assert!(all.len() as u64 > LONG_FLOOD, "{} events", all.len());
    let got = read_to_end(sleeper).await;
    let first = ids(&got);
    assert!(got.len() < LONG_FLOOD as usize * FLOOD_BYTES, "the sleeper was not cut");
    let cursor = first.last().copied().unwrap_or_default();
    let rest = ids(&read_to_end(open(served.address(), &session, cursor).await).await);
    let both: Vec<u64> = first.into_iter().chain(rest).collect();
    assert_eq!(both, all);
}
