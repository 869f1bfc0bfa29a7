//! What a connection costs the daemon that is logged in and does nothing.

use std::sync::Arc;

use ab_remote::websocket::WebSocketByteStream;
use futures_util::stream::{self, StreamExt};
use russh::client::{Config, Handle, Handler, connect_stream};
use russh::keys::PublicKeyOrCertificate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::Fixture;
use crate::measure::{Bar, ROUNDS, Table};
use crate::our_daemon;
use crate::programs::Daemon;

const CONNECTIONS: usize = 1000;
/// Those that the daemon meets before it is looked at, so that what it keeps once is not counted.
const FIRST: usize = 16;
/// Log in at a time.
const TOGETHER: usize = 16;

pub(crate) fn run(table: &mut Table, fixture: &Fixture) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let daemon = Daemon::start(our_daemon(&fixture.root(), fixture));
        let first = runtime.block_on(log_in(daemon.port, FIRST));
        let before = daemon.memory();
        let crowd = runtime.block_on(log_in(daemon.port, CONNECTIONS));
        let grown = daemon.memory() - before;
        costs.push(grown * 1024.0 / CONNECTIONS as f64);
        assert!(first.iter().chain(&crowd).all(|handle| !handle.is_closed()), "some are gone");
    }
    let what = format!("memory of a connection, {CONNECTIONS} idle");
    table.alone(&what, "KiB", Bar::AtMost(80.0), &costs);
}

/// Connections that have logged in, and go on for as long as they are kept.
async fn log_in(port: u16, count: usize) -> Vec<Handle<Trusting>> {
    let clients = stream::iter(0..count).map(|_| client(port));
    clients.buffer_unordered(TOGETHER).collect().await
}

async fn client(port: u16) -> Handle<Trusting> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!(
        "GET /ssh HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    let stream = WebSocketByteStream::new_client(stream);
    let mut handle = connect_stream(Arc::new(Config::default()), stream, Trusting).await.unwrap();
    assert!(handle.authenticate_none("agent").await.unwrap().success());
    handle
}

struct Trusting;

impl Handler for Trusting {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}
