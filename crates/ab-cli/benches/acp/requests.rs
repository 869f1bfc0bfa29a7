//! Requests a second through many servers at a time, one in flight on each.

use std::time::{Duration, Instant};

use crate::gateway::{AGENT, Fixture, Gateway, Who};
use crate::http::{Connection, succeeded};
use crate::measure::{Bar, Pair, ROUNDS, Table};
use crate::programs::Peers;

const TIME: Duration = Duration::from_millis(1500);

pub(crate) async fn run(table: &mut Table, peers: &Peers, fixture: &Fixture) {
    let ours = Gateway::start(peers, Who::Ours, fixture);
    let peer = Gateway::start(peers, Who::Peer, fixture);
    for count in [8, 64] {
        let mut pair = Pair::default();
        for _ in 0..ROUNDS {
            pair.ours.push(rate(&ours, count).await);
            pair.peer.push(rate(&peer, count).await);
        }
        let what = format!("requests, {count} servers");
        table.compare(&what, "/s", Bar::AtLeast(2.0), &pair);
    }
}

/// Requests a second.
async fn rate(gateway: &Gateway, count: usize) -> f64 {
    let servers = open(gateway, count).await;
    let begun = Instant::now();
    let drivers: Vec<_> = servers
        .into_iter()
        .map(|mut server| {
            tokio::spawn(async move {
                let mut asked = 0_u32;
                while begun.elapsed() < TIME {
                    server.ask().await;
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    let mut asked = 0;
    for driver in drivers {
        asked += driver.await.unwrap();
    }
    f64::from(asked) / begun.elapsed().as_secs_f64()
}

/// An agent behind the gateway, and a connection of its own.
#[derive(Debug)]
pub(crate) struct Server {
    connection: Connection,
    request: Vec<u8>,
}

impl Server {
    pub(crate) async fn ask(&mut self) {
        succeeded(self.connection.ask(&self.request).await);
    }
}

/// Servers whose agents run. They stay when their connections are dropped, and are found again.
pub(crate) async fn open(gateway: &Gateway, count: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for number in 0..count {
        let connection = Connection::open(gateway.port).await;
        let request = post(gateway.port, &format!("s{number}"), "bench/echo");
        let mut server = Server { connection, request };
        server.ask().await;
        servers.push(server);
    }
    servers
}

/// A request to an agent as bytes.
pub(crate) fn post(port: u16, server: &str, method: &str) -> Vec<u8> {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
    let head = format!(
        "POST /v1/acp/{server}?agent={AGENT} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}
