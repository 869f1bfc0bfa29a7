//! Our own client at our daemon, over its WebSocket: beside OpenSSH's `sftp` at OpenSSH's server, a
//! bare WebSocket, and the same workspace here.

use std::fs;
use std::path::Path;
use std::time::Instant;

use ab_core::Backend;
use ab_core::backend::GrepOptions;
use ab_core::options::{
    ExistingContentHandling, FileAccess, FileCreationMode, ListOptions, OpenOptions,
};
use ab_remote::client::{RemoteClientSettings, RemoteDriver};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, TryStreamExt, stream};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_tungstenite::tungstenite::Message;

use crate::fixture::{Fixture, HUGE, HUGE_SIZE, SMALL};
use crate::measure::{Bar, Pair, ROUNDS, Table, median};
use crate::openssh::{CIPHER, Client, Sshd};
use crate::our_daemon;
use crate::programs::Daemon;

/// Bytes of one read or write, and how many of them are under way.
const PIECE: usize = 1 << 20;
const TOGETHER: usize = 8;
const MIB: f64 = (HUGE_SIZE >> 20) as f64;
/// Questions of one round whose median counts.
const QUESTIONS: usize = 2000;
const FILES: usize = 10_000;
const TREE: &str = "tree";

pub(crate) fn run(table: &mut Table, sshd: Option<&Path>, fixture: &Fixture) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let daemon = Daemon::start(our_daemon(&fixture.root(), fixture));
    if let Some(sshd) = sshd {
        for (cipher, what, read, write) in
            [(Some(CIPHER), "one cipher", 1.5, 1.1), (None, "both on their defaults", 2.0, 2.0)]
        {
            transfers(table, &runtime, (sshd, cipher), (daemon.port, fixture), what, (read, write));
        }
    }
    questions(table, &runtime, daemon.port);
    walks(table, &runtime, daemon.port, fixture);
}

async fn connected(port: u16) -> Backend {
    let settings = RemoteClientSettings::parse(&format!("ws://127.0.0.1:{port}/ssh")).unwrap();
    let backend = Backend::new(RemoteDriver::new(settings).unwrap());
    backend.connect().await.unwrap();
    backend
}

/// A gibibyte each way, connection included.
fn transfers(
    table: &mut Table,
    runtime: &Runtime,
    (sshd, cipher): (&Path, Option<&'static str>),
    (port, fixture): (u16, &Fixture),
    how: &str,
    (read, write): (f64, f64),
) {
    let client = Client::new(fixture);
    let openssh = Sshd::start(sshd, &client, fixture);
    let there = fixture.root().join(HUGE);
    let (back, put) = (fixture.beside("back.bin"), fixture.root().join("put.bin"));
    let get = format!("get {} {}\n", there.display(), back.display());
    let pair = Pair::of(
        || runtime.block_on(read_all(port)),
        || client.transfer_with(openssh.port, cipher, &get),
    );
    table.compare(&format!("read 1 GiB, {how}"), "MiB/s", Bar::AtLeast(read), &pair);
    let batch = format!("put {} {}\n", back.display(), put.display());
    let pair = Pair::of(
        || {
            let _ = fs::remove_file(&put);
            let speed = runtime.block_on(write_all(port));
            assert_eq!(fs::metadata(&put).unwrap().len(), HUGE_SIZE as u64);
            speed
        },
        || {
            let _ = fs::remove_file(&put);
            client.transfer_with(openssh.port, cipher, &batch)
        },
    );
    table.compare(&format!("write 1 GiB, {how}"), "MiB/s", Bar::AtLeast(write), &pair);
}

async fn read_all(port: u16) -> f64 {
    let begun = Instant::now();
    let backend = connected(port).await;
    let file = backend.open(HUGE, OpenOptions::default()).await.unwrap();
    let pieces = stream::iter((0..HUGE_SIZE).step_by(PIECE))
        .map(|offset| file.read_at(offset as u64, PIECE))
        .buffered(TOGETHER);
    let length = pieces.try_fold(0, async |sum, piece| Ok(sum + piece.len())).await.unwrap();
    assert_eq!(length, HUGE_SIZE);
    let speed = MIB / begun.elapsed().as_secs_f64();
    drop(file);
    backend.destroy().await.unwrap();
    speed
}

async fn write_all(port: u16) -> f64 {
    let content = Bytes::from(vec![b'x'; PIECE]);
    let begun = Instant::now();
    let backend = connected(port).await;
    let options = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::IfMissing,
        existing: ExistingContentHandling::Truncate,
        ..OpenOptions::default()
    };
    let file = backend.open("put.bin", options).await.unwrap();
    let pieces = stream::iter((0..HUGE_SIZE).step_by(PIECE))
        .map(|offset| file.write_at(offset as u64, content.clone()))
        .buffered(TOGETHER);
    pieces.try_collect::<()>().await.unwrap();
    let speed = MIB / begun.elapsed().as_secs_f64();
    drop(file);
    backend.destroy().await.unwrap();
    speed
}

/// One question at a time, beside a WebSocket that only says everything again.
fn questions(table: &mut Table, runtime: &Runtime, port: u16) {
    let echo = echo();
    let backend = runtime.block_on(connected(port));
    let pair = Pair::of(
        || {
            runtime.block_on(async {
                let mut times = Vec::with_capacity(QUESTIONS);
                for _ in 0..QUESTIONS {
                    let begun = Instant::now();
                    backend.stat(SMALL).await.unwrap();
                    times.push(begun.elapsed().as_secs_f64() * 1e6);
                }
                median(times)
            })
        },
        || {
            runtime.block_on(async {
                let url = format!("ws://127.0.0.1:{echo}/");
                let (mut socket, _) =
                    tokio_tungstenite::connect_async_with_config(url, None, true).await.unwrap();
                let mut times = Vec::with_capacity(QUESTIONS);
                for _ in 0..QUESTIONS {
                    let begun = Instant::now();
                    socket.send(Message::Binary(Bytes::from_static(&[7; 100]))).await.unwrap();
                    socket.next().await.unwrap().unwrap();
                    times.push(begun.elapsed().as_secs_f64() * 1e6);
                }
                median(times)
            })
        },
    );
    table.compare("stat p50, beside a bare WebSocket echo", "us", Bar::AtMost(2.0), &pair);
    runtime.block_on(backend.destroy()).unwrap();
}

/// A server that says everything again, on a thread of its own.
fn echo() -> u16 {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap().port()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_close() || socket.send(message).await.is_err() {
                        break;
                    }
                }
            }
        });
    });
    told.recv().unwrap()
}

/// Many files: in one round trip, and beside the same walk here.
fn walks(table: &mut Table, runtime: &Runtime, port: u16, fixture: &Fixture) {
    let tree = fixture.root().join(TREE);
    for number in 0..FILES {
        let directory = tree.join(format!("d{}", number % 100));
        fs::create_dir_all(&directory).unwrap();
        let text = format!("line one\nfile {number}\nneedle {}\n", number % 50);
        fs::write(directory.join(format!("f{number}.txt")), text).unwrap();
    }
    let (remote, local) = runtime
        .block_on(async { (connected(port).await, agent_backend::local(fixture.root()).unwrap()) });
    let listed = (0..ROUNDS).map(|_| {
        runtime.block_on(async {
            let begun = Instant::now();
            let options = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
            let listing = remote.list(TREE, options).await.unwrap();
            assert_eq!(listing.entries.len(), FILES + 100);
            begun.elapsed().as_secs_f64() * 1e3
        })
    });
    let listed: Vec<f64> = listed.collect();
    table.alone("a tree of 10,000 files", "ms", Bar::AtMost(40.0), &listed);
    let grep = |backend: &Backend| {
        runtime.block_on(async {
            let begun = Instant::now();
            let options = GrepOptions { root: TREE.to_owned(), ..GrepOptions::default() };
            let found = backend.grep("needle 7", options).await.unwrap();
            assert_eq!(found.matches.len(), FILES / 50);
            begun.elapsed().as_secs_f64() * 1e3
        })
    };
    let pair = Pair::of(|| grep(&remote), || grep(&local));
    table.compare("grep of 10,000 files, beside here", "ms", Bar::AtMost(1.5), &pair);
    runtime.block_on(async {
        remote.destroy().await.unwrap();
        local.destroy().await.unwrap();
    });
}
