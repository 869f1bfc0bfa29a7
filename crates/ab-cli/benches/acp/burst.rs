//! A burst of events while the only reader sleeps.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::echo::{BURST, EVENT, EVENTS};
use crate::gateway::{Fixture, Gateway, Who};
use crate::measure::{Bar, Table};
use crate::programs::Peers;
use crate::requests::post;

/// A stream without events for so long has none left.
const SILENCE: Duration = Duration::from_secs(3);

pub(crate) fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let ours = lost(&Gateway::start(peers, Who::Ours, fixture));
    let peer = lost(&Gateway::start(peers, Who::Peer, fixture));
    let what = format!("lost of {EVENTS} events, sleeping reader");
    table.alone(&what, "", Bar::AtMost(0.0), &[f64::from(ours)]);
    println!("  the peer lost {peer}");
}

/// How many events a reader does not get that begins to read after the burst.
fn lost(gateway: &Gateway) -> u32 {
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, gateway.port)).unwrap();
    // The first request starts the agent.
    exchange(connect(), &post(gateway.port, "burst", "bench/echo"));
    let mut reader = connect();
    // A client of HTTP/1.0 gets a stream without chunks.
    let request = format!(
        "GET /v1/acp/burst HTTP/1.0\r\nHost: 127.0.0.1:{}\r\nAccept: text/event-stream\r\n\r\n",
        gateway.port
    );
    reader.write_all(request.as_bytes()).unwrap();
    reader.set_read_timeout(Some(SILENCE)).unwrap();
    let mut lines = BufReader::new(reader).lines();
    let head = lines.next().unwrap().unwrap();
    assert!(head.contains(" 200 "), "{head}");
    exchange(connect(), &post(gateway.port, "burst", BURST));
    let last = format!("\"n\":{}", EVENTS - 1);
    let mut seen = 0;
    // The read times out when the peer has lost the last event.
    for line in lines.map_while(Result::ok) {
        if line.starts_with("data:") && line.contains(EVENT) {
            seen += 1;
            if line.contains(&last) {
                break;
            }
        }
    }
    u32::try_from(EVENTS).unwrap() - seen
}

/// Sends a request and reads the beginning of its answer.
fn exchange(mut stream: TcpStream, request: &[u8]) {
    stream.write_all(request).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}
