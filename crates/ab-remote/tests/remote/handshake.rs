//! A connection that is cut after so many bytes, for every number up to the end of the first call:
//! whatever was under way fails at once and says so, nothing is left, and the next call connects.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ab_core::{Backend, ConnectionStatus, ErrorCode, ErrorKind};
use ab_remote::SshServer;
use ab_remote::client::{
    ByteStream, Connector, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use ab_testkit::ConnectionStatusRecorder;
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::runtime::Handle;

use super::world::server;
use crate::stage::within;

use ConnectionStatus::{Connected, Connecting, Disconnected};

/// Whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// Reaches a server, and lets no more than so many bytes of one side through.
#[derive(Debug)]
struct Cutter {
    server: SshServer,
    cut: Mutex<Option<(Side, usize)>>,
    /// Bytes that got through on all connections, of the client and of the server.
    through: [Arc<AtomicUsize>; 2],
}

impl Cutter {
    fn new() -> Arc<Self> {
        let server = server(agent_backend::memory());
        Arc::new(Self { server, cut: Mutex::default(), through: Default::default() })
    }

    fn cut(&self, after: Option<(Side, usize)>) {
        *self.cut.lock().unwrap() = after;
    }

    fn backend(self: &Arc<Self>) -> Backend {
        let mut settings = RemoteClientSettings::new(RemoteEndpoint::Stream(self.clone()));
        settings.reconnection.enabled = false;
        Backend::new(RemoteDriver::new(settings).unwrap())
    }

    /// How many bytes each side says from the first one to the answer of the first call.
    async fn lengths(self: &Arc<Self>) -> [usize; 2] {
        let backend = self.backend();
        assert!(!within(backend.exists("file")).await.unwrap());
        let lengths = self.through.each_ref().map(|through| through.load(Ordering::SeqCst));
        within(backend.destroy()).await.unwrap();
        lengths
    }
}

#[async_trait]
impl Connector for Cutter {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (mine, near) = tokio::io::duplex(64 * 1024);
        let (far, theirs) = tokio::io::duplex(64 * 1024);
        let server = self.server.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        let cut = *self.cut.lock().unwrap();
        let most = |side| cut.filter(|cut| cut.0 == side).map_or(usize::MAX, |cut| cut.1);
        let through = self.through.clone();
        tokio::spawn(carry(near, far, [most(Side::Client), most(Side::Server)], through));
        Ok(Box::new(mine))
    }
}

/// Carries bytes both ways until one side ends or has said as much as it may. Both find the end.
async fn carry(
    near: DuplexStream,
    far: DuplexStream,
    most: [usize; 2],
    through: [Arc<AtomicUsize>; 2],
) {
    let (from_near, to_near) = tokio::io::split(near);
    let (from_far, to_far) = tokio::io::split(far);
    tokio::select! {
        () = one_way(from_near, to_far, most[0], &through[0]) => {}
        () = one_way(from_far, to_near, most[1], &through[1]) => {}
    }
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut most: usize,
    through: &AtomicUsize,
) {
    let mut buffer = vec![0; 4096];
    while most > 0 {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        let passes = read.min(most);
        most -= passes;
        through.fetch_add(passes, Ordering::SeqCst);
        if to.write_all(&buffer[..passes]).await.is_err() {
            return;
        }
    }
}

/// Cuts after so many bytes of a side, and looks at what becomes of the first call; of the next one
/// too, if it is wanted.
async fn cut_after(cutter: &Arc<Cutter>, side: Side, bytes: usize, next: bool) {
    let tasks = Handle::current().metrics().num_alive_tasks();
    let backend = cutter.backend();
    let heard = ConnectionStatusRecorder::subscribe(&backend);
    cutter.cut(Some((side, bytes)));
    let answer = within(backend.exists("file")).await;
    let seen = format!("{bytes} bytes of the {side:?}: {answer:?}");
    let error = answer.expect_err(&seen);
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected),
        "{seen}"
    );
    // A call may know of a loss before the link does.
    until(|| heard.transitions().last().is_some_and(|last| last.1 == Disconnected)).await;
    let early = [(Disconnected, Connecting), (Connecting, Disconnected)];
    let late = [(Disconnected, Connecting), (Connecting, Connected), (Connected, Disconnected)];
    let transitions = heard.transitions();
    assert!(transitions == early || transitions == late, "{seen} {transitions:?}");
    if next {
        cutter.cut(None);
        assert!(!within(backend.exists("file")).await.expect(&seen), "{seen}");
        assert_eq!(backend.status(), Connected, "{seen}");
    }
    within(backend.destroy()).await.unwrap();
    drop(backend);
    until(|| cutter.server.connection_count() == 0).await;
    until(|| Handle::current().metrics().num_alive_tasks() <= tasks).await;
}

async fn until(holds: impl Fn() -> bool) {
    within(async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// What comes first, most of which is in the clear, and what comes last.
async fn near_the_ends(side: Side) {
    let cutter = Cutter::new();
    let length = cutter.lengths().await[side as usize];
    assert!(length > 1500, "{length}");
    for bytes in (0..700).chain(length - 60..length) {
        cut_after(&cutter, side, bytes, bytes % 20 == 0).await;
    }
}

/// One of so many parts of all that there is.
async fn everywhere(side: Side, part: usize, parts: usize) {
    let cutter = Cutter::new();
    let length = cutter.lengths().await[side as usize];
    for (cut, bytes) in (part..length).step_by(parts).enumerate() {
        cut_after(&cutter, side, bytes, cut % 8 == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_is_cut_off_fails_at_once() {
    near_the_ends(Side::Client).await;
}

#[tokio::test]
async fn a_server_that_is_cut_off_is_lost_at_once() {
    near_the_ends(Side::Server).await;
}

#[tokio::test]
async fn slow_a_client_may_be_cut_off_at_any_even_byte() {
    everywhere(Side::Client, 0, 2).await;
}

#[tokio::test]
async fn slow_a_client_may_be_cut_off_at_any_odd_byte() {
    everywhere(Side::Client, 1, 2).await;
}

#[tokio::test]
async fn slow_a_server_may_be_cut_off_at_any_even_byte() {
    everywhere(Side::Server, 0, 2).await;
}

#[tokio::test]
async fn slow_a_server_may_be_cut_off_at_any_odd_byte() {
    everywhere(Side::Server, 1, 2).await;
}
