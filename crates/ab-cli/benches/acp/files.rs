//! A file of 100 MB, up and down, and the memory of the server meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Instant;

use crate::gateway::{Fixture, Gateway, Who};
use crate::http::position;
use crate::measure::{Bar, Pair, ROUNDS, Table};
use crate::programs::Peers;

const MEGABYTES: usize = 100;
const PIECE: usize = 1024 * 1024;
/// Peak over what the server had before, in MB.
const FLAT: f64 = 16.0;

pub(crate) fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let ours = Gateway::start(peers, Who::Ours, fixture);
    let peer = Gateway::start(peers, Who::Peer, fixture);
    let (mut ups, mut downs) = (Vec::new(), Pair::default());
    let (mut up_growth, mut growth) = (Vec::new(), Pair::default());
    for _ in 0..ROUNDS {
        let (rate, grown) = watched(&ours, || {
            let (status, _) = put(&ours, MEGABYTES);
            assert_eq!(status, 200);
        });
        ups.push(rate);
        up_growth.push(grown);
        assert_eq!(
            fs::metadata(fixture.root().join("big")).unwrap().len(),
            (MEGABYTES * PIECE) as u64
        );
        for (gateway, rates, grown) in
            [(&ours, &mut downs.ours, &mut growth.ours), (&peer, &mut downs.peer, &mut growth.peer)]
        {
            let (rate, more) = watched(gateway, || {
                let (status, length) = get(gateway, fixture);
                assert_eq!((status, length), (200, MEGABYTES * PIECE));
            });
            rates.push(rate);
            grown.push(more);
        }
    }
    let (status, said) = put(&peer, MEGABYTES);
    table.alone("100 MB up", "MB/s", Bar::AtLeast(100.0), &ups);
    table.alone("  memory above rest", "MB", Bar::AtMost(FLAT), &up_growth);
    println!("  the peer answers {status}: {said}");
    table.compare("100 MB down", "MB/s", Bar::AtLeast(1.0), &downs);
    table.alone("  memory above rest", "MB", Bar::AtMost(FLAT), &growth.ours);
    println!("  the peer's: {:.0} MB", crate::measure::median(growth.peer));
}

/// Megabytes a second, and by how many the server's peak was above what it had before.
fn watched(gateway: &Gateway, transfer: impl FnOnce()) -> (f64, f64) {
    let before = gateway.status("VmRSS:");
    gateway.reset_peak();
    let begun = Instant::now();
    transfer();
    let rate = MEGABYTES as f64 / begun.elapsed().as_secs_f64();
    (rate, (gateway.status("VmHWM:") - before).max(0.0))
}

/// The status, and the beginning of the body.
fn put(gateway: &Gateway, megabytes: usize) -> (u16, String) {
    let mut stream = request(
        gateway,
        "PUT",
        "big",
        &format!(
            "Content-Type: application/octet-stream\r\nContent-Length: {}\r\n",
            megabytes * PIECE
        ),
    );
    let piece = vec![b'x'; PIECE];
    for _ in 0..megabytes {
        // A server that refuses the length need not read the rest.
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    // What was read before the connection was reset counts.
    let _ = stream.read_to_end(&mut answer);
    let (status, at) = head(&answer);
    (status, String::from_utf8_lossy(&answer[at..answer.len().min(at + 80)]).into_owned())
}

/// The status, and the length of the body.
fn get(gateway: &Gateway, fixture: &Fixture) -> (u16, usize) {
    let path = fixture.root().join("big");
    let mut stream = request(gateway, "GET", &path.to_string_lossy(), "");
    let mut piece = vec![0; PIECE];
    let read = stream.read(&mut piece).unwrap();
    let (status, at) = head(&piece[..read]);
    let mut length = read - at;
    loop {
        match stream.read(&mut piece).unwrap() {
            0 => return (status, length),
            read => length += read,
        }
    }
}

fn request(gateway: &Gateway, method: &str, path: &str, headers: &str) -> TcpStream {
    let port = gateway.port;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let request = format!(
        "{method} /v1/fs/file?path={path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The status of an answer, and where its body begins. An answer without a body may have been cut.
fn head(answer: &[u8]) -> (u16, usize) {
    let Some(end) = position(answer, b"\r\n\r\n") else { return (0, answer.len()) };
    let status = String::from_utf8_lossy(&answer[..end]).split(' ').nth(1).unwrap().parse();
    (status.unwrap(), end + 4)
}
