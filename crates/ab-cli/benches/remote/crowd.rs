//! What a connection costs the daemon that is logged in and does nothing.

use std::sync::Arc;

use ab_remote::websocket::{Codec, FrameStream, Payload};
use futures_util::stream::{self, StreamExt};
use russh::client::{Config, Handle, Handler, connect_stream};
use russh::keys::PublicKeyOrCertificate;
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::ground::Ground;
use crate::measure::{Bar, ROUNDS, Table};
use crate::our_daemon;
use crate::programs::Daemon;

const CONNECTIONS: usize = 1000;
/// Those that the daemon meets before it is looked at, so that what it keeps once is not counted.
const FIRST: usize = 16;
/// Log in at a time.
const TOGETHER: usize = 16;
/// Buffers of the client, which has as many.
const BUFFER: usize = 4 * 1024;

pub(crate) fn run(table: &mut Table, ground: &Ground) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut costs = Vec::new();
    for _ in 0..ROUNDS {
        let daemon = Daemon::start(our_daemon(&ground.root(), ground));
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
    let config = WebSocketConfig::default().read_buffer_size(BUFFER).write_buffer_size(BUFFER);
    let url = format!("ws://127.0.0.1:{port}/ssh");
    let (socket, _) = connect_async_with_config(url, Some(config), true).await.unwrap();
    let stream = FrameStream::new(socket, CODEC);
    let mut handle = connect_stream(Arc::new(Config::default()), stream, Trusting).await.unwrap();
    assert!(handle.authenticate_none("agent").await.unwrap().success());
    handle
}

const CODEC: Codec<Message> = Codec {
    pack: Message::Binary,
    unpack: |message| match message {
        Message::Binary(bytes) => Payload::Bytes(bytes),
        Message::Close(_) => Payload::End,
        _ => Payload::Nothing,
    },
};

struct Trusting;

impl Handler for Trusting {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}
