//! Tests of how connections end. They need access to private types.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ab_core::{ErrorCode, ErrorKind};
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Dialled, dial};
use crate::client::{ByteStream, ClientSettings, Connector, RemoteEndpoint};
use crate::{HostKey, SshAccess, SshServer};

/// Time limit of a step. If it is exceeded, the test fails.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connector whose server runs in this process.
#[derive(Debug)]
struct InProcess(SshServer);

#[async_trait]
impl Connector for InProcess {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (mine, theirs) = tokio::io::duplex(64 * 1024);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        Ok(Box::new(mine))
    }
}

fn server() -> SshServer {
    let host_key = HostKey::generate_ephemeral("a test").unwrap();
    SshServer::new(agent_backend::memory(), crate::SshServerSettings::new(host_key, SshAccess::Any))
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future).await.expect("took too long")
}

async fn dialled(server: &SshServer) -> Dialled {
    let connector = Arc::new(InProcess(server.clone()));
    within(dial(&ClientSettings::new(RemoteEndpoint::Stream(connector)))).await.unwrap()
}

#[tokio::test]
async fn a_connection_that_is_cut_says_so_and_leaves_nothing() {
    let server = server();
    let Dialled { handle, gone, cut, .. } = dialled(&server).await;
    cut.cut();
    let gone = within(gone).await.unwrap();
    assert_eq!(
        (gone.error.code(), gone.error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    assert!(
        gone.error.message().starts_with("the connection to the server was closed"),
        "{gone:?}"
    );
    let _ = within(handle).await;
    within(server.shut_down()).await;
    assert_eq!(server.connection_count(), 0);
}

#[tokio::test]
async fn dropping_a_connection_ends_it() {
    let server = server();
    drop(dialled(&server).await.cut);
    within(server.shut_down()).await;
}

#[tokio::test]
async fn a_goodbye_is_passed_on() {
    let server = server();
    let Dialled { gone, handle, cut, .. } = dialled(&server).await;
    within(server.shut_down()).await;
    let gone = within(gone).await.unwrap();
    assert!(gone.error.message().contains("it said 'Server shutting down'"), "{gone:?}");
    assert!(!gone.refused);
    drop((handle, cut));
}

/// A connector whose streams can be stalled. While they are stalled, no bytes pass in either
/// direction.
#[derive(Debug)]
struct Stalling(SshServer, watch::Receiver<bool>);

#[async_trait]
impl Connector for Stalling {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (mine, near) = tokio::io::duplex(64 * 1024);
        let (far, theirs) = tokio::io::duplex(64 * 1024);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        let mut stalled = self.1.clone();
        tokio::spawn(async move {
            let (mut near, mut far) = (near, far);
            let relaying = tokio::io::copy_bidirectional(&mut near, &mut far);
            tokio::select! {
                _ = relaying => {}
                () = is(&mut stalled, true) => {}
            }
            // Both ends stay open, as if a cable was cut.
            is(&mut stalled, false).await;
        });
        Ok(Box::new(mine))
    }
}

async fn is(stalled: &mut watch::Receiver<bool>, wanted: bool) {
    // If the sender was dropped, nothing is stalled any more.
    let _ = stalled.wait_for(|stalled| *stalled == wanted).await;
}

#[tokio::test]
async fn a_peer_that_takes_and_says_nothing_is_found_out() {
    for busy in [false, true] {
        let server = server();
        let (stall, stalled) = watch::channel(false);
        let connector = Arc::new(Stalling(server.clone(), stalled.clone()));
        let mut settings = ClientSettings::new(RemoteEndpoint::Stream(connector));
        settings.keepalive.interval = Duration::from_millis(50);
        settings.keepalive.max_missed = 2;
        let Dialled { handle, gone, cut, .. } = within(dial(&settings)).await.unwrap();
        let mut writing = tokio::task::JoinSet::new();
        // The windows of nine channels exceed all buffers on the way.
        for _ in 0..9 {
            let channel = within(handle.channel_open_session()).await.unwrap();
            within(channel.request_subsystem(true, "sftp")).await.unwrap();
            let mut stalled = stalled.clone();
            writing.spawn(async move {
                is(&mut stalled, true).await;
                while busy && channel.data_bytes(vec![0; 60_000]).await.is_ok() {}
                channel
            });
        }
        stall.send_replace(true);
        let gone = within(gone).await.unwrap();
        // Which of the two errors occurs first depends on how fast the buffers fill.
        let found = ["it stopped reading", "it stopped answering"];
        let message = gone.error.message();
        assert!(found.iter().any(|found| message.ends_with(found)), "{gone:?}");
        // russh does not wake tasks that wait for a window when the connection ends.
        within(writing.shutdown()).await;
        drop((handle, cut, stall));
        within(server.shut_down()).await;
    }
}

/// A connector whose streams are cut after a number of bytes in each direction.
#[derive(Debug)]
struct Cutting {
    server: SshServer,
    there: Cut,
    back: Cut,
}

#[derive(Clone, Debug)]
struct Cut {
    after: usize,
    /// The number of bytes that have passed.
    passed: Arc<AtomicUsize>,
}

impl Cut {
    fn after(after: usize) -> Self {
        Self { after, passed: Arc::default() }
    }

    async fn pass(&self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
        let mut buffer = [0; 4096];
        loop {
            let left = self.after - self.passed.load(Ordering::Relaxed);
            let room = buffer.len().min(left);
            let Ok(count @ 1..) = from.read(&mut buffer[..room]).await else { return };
            self.passed.fetch_add(count, Ordering::Relaxed);
            if to.write_all(&buffer[..count]).await.is_err() || count == left {
                return;
            }
        }
    }
}

#[async_trait]
impl Connector for Cutting {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        let (mine, near) = tokio::io::duplex(64 * 1024);
        let (far, theirs) = tokio::io::duplex(64 * 1024);
        let (server, there, back) = (self.server.clone(), self.there.clone(), self.back.clone());
        tokio::spawn(async move { server.serve(theirs).await });
        tokio::spawn(async move {
            let ((near_in, near_out), (far_in, far_out)) =
                (tokio::io::split(near), tokio::io::split(far));
            tokio::select! {
                () = there.pass(near_in, far_out) => {}
                () = back.pass(far_in, near_out) => {}
            }
        });
        Ok(Box::new(mine))
    }
}

/// Dials over a stream that is cut. Returns whether it succeeded, and the number of bytes that were
/// sent in each direction.
async fn dial_cut(server: &SshServer, there: usize, back: usize) -> (bool, usize, usize) {
    let (there, back) = (Cut::after(there), Cut::after(back));
    let connector =
        Arc::new(Cutting { server: server.clone(), there: there.clone(), back: back.clone() });
    let dialled = within(dial(&ClientSettings::new(RemoteEndpoint::Stream(connector)))).await;
    let passed = (there.passed.load(Ordering::Relaxed), back.passed.load(Ordering::Relaxed));
    if let Err(failure) = &dialled {
        let error = &failure.error;
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
        );
        assert!(failure.retryable, "{failure:?}");
        assert!(error.message().starts_with("cannot "), "{failure}");
    }
    (dialled.is_ok(), passed.0, passed.1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_anywhere_on_the_way_is_an_error_at_once() {
    const WHOLE: usize = usize::MAX / 2;
    let server = server();
    let (whole, there, back) = dial_cut(&server, WHOLE, WHOLE).await;
    assert!(whole && there > 1000 && back > 1000, "{there} {back}");
    // Cut at every byte near the start and the end, and at every ninth byte in the middle, which
    // contains long keys.
    let points = |whole: usize| {
        let chosen = move |n: &usize| *n <= 100 || whole - *n <= 100 || n.is_multiple_of(9);
        (1..whole).filter(chosen)
    };
    let cuts = points(there).map(|n| (n, WHOLE)).chain(points(back).map(|n| (WHOLE, n)));
    let mut dialling = JoinSet::<bool>::new();
    for (there, back) in cuts {
        // Run only a few at the same time, because each needs a server.
        if dialling.len() == 16 {
            assert!(!dialling.join_next().await.unwrap().unwrap());
        }
        let server = server.clone();
        dialling.spawn(async move { dial_cut(&server, there, back).await.0 });
    }
    assert!(dialling.join_all().await.iter().all(|done| !done));
    within(server.shut_down()).await;
}
