//! What the server keeps of its clients: nothing, and it asks nothing of them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ab_remote::SshConnectionEnd;
use ab_remote::sftp::packet::flags;
use russh::client::Config;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::{Sftp, connect, exec, log_in, open_server};
use crate::stage::within;

/// A stream that counts the bytes that come in.
struct Counted<S> {
    inner: S,
    came: Arc<AtomicUsize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        this.came.fetch_add(buf.filled().len() - before, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

/// Half an hour passes at once, since nothing else happens; before keys are renewed, which takes an
/// hour.
#[tokio::test(start_paused = true)]
async fn a_silent_client_is_asked_nothing() {
    let server = open_server(agent_backend::memory());
    let (mine, theirs) = tokio::io::duplex(256 * 1024);
    let serving = {
        let server = server.clone();
        tokio::spawn(async move { server.serve(theirs).await })
    };
    let came = Arc::<AtomicUsize>::default();
    let handle = log_in(Counted { inner: mine, came: came.clone() }, Config::default()).await;
    let mut sftp = Sftp::new(&handle).await;
    let file = sftp.open("file", flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_CREATE).await;
    // Of paused time, once for what is still on its way and once for what might come unasked.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = came.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(came.load(Ordering::Relaxed), before, "the server spoke unasked");
    assert_eq!(sftp.write(&file, 0, b"still there").await, 0);
    drop((sftp, handle));
    assert_eq!(within(serving).await.unwrap(), SshConnectionEnd::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_finds_no_session() {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    backend.mkdir("sub").await.unwrap();
    let server = open_server(backend.clone());
    let mut handles = Vec::new();
    for _ in 0..2 {
        let (handle, serving) = connect(&server).await;
        // Neither where a command went nor what it was told outlives it, let alone a connection.
        let (said, _) = exec(&handle, "test -z \"$LEFT\" && test -d sub && echo at the root").await;
        assert_eq!(said, "at the root\n");
        assert_eq!(exec(&handle, "cd sub && export LEFT=over").await.1, Some(0));
        let mut sftp = Sftp::new(&handle).await;
        handles.push(sftp.open("file", flags::OPEN_FLAG_WRITE | flags::OPEN_FLAG_CREATE).await);
        drop((sftp, handle));
        within(serving).await.unwrap();
    }
    // Files are counted anew by each connection, and the first one's is gone with it.
    assert_eq!(handles[0], handles[1]);
    backend.destroy().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_left_are_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    let server = open_server(backend.clone());
    let mut clients = Vec::new();
    for _ in 0..20 {
        let (handle, serving) = connect(&server).await;
        assert_eq!(exec(&handle, "echo here").await.0, "here\n");
        clients.push((handle, serving));
    }
    assert_eq!(server.connection_count(), clients.len());
    for (handle, serving) in clients {
        drop(handle);
        within(serving).await.unwrap();
    }
    assert_eq!(server.connection_count(), 0);
    assert!(
        backend.detached_processes().await.unwrap().is_empty(),
        "of commands nothing is kept either"
    );
    backend.destroy().await.unwrap();
}
