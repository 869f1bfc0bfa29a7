//! A connection to a server that a test can cut, stall, delay and refuse.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ab_remote::SshServer;
use ab_remote::client::{ByteStream, Connector};
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

/// What becomes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    /// Nothing gets through, and nobody is told.
    Stalled,
    /// Those that are there end, and so does every new one.
    Cut,
    /// Each piece takes its time.
    Slow(Duration),
    /// The connection ends after so many more bytes, in either direction.
    CutAfter(usize),
}

/// Reaches a server through a relay.
#[derive(Debug)]
pub(crate) struct Relay {
    server: Mutex<SshServer>,
    weather: watch::Sender<Weather>,
    attempts: AtomicUsize,
    refusals: AtomicUsize,
}

impl Relay {
    pub(crate) fn new(server: SshServer) -> Self {
        Self {
            server: Mutex::new(server),
            weather: watch::Sender::new(Weather::Fair),
            attempts: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
        }
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// Ends the connections that there are; new ones may come.
    pub(crate) fn cut(&self) {
        self.weather.send_replace(Weather::Cut);
        self.weather.send_replace(Weather::Fair);
    }

    /// The next attempts fail, so many of them.
    pub(crate) fn refuse(&self, attempts: usize) {
        self.refusals.store(attempts, Ordering::SeqCst);
    }

    /// How often somebody tried to connect.
    pub(crate) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }

    /// Another server is there from now on.
    pub(crate) fn replace(&self, server: SshServer) -> SshServer {
        std::mem::replace(&mut *self.server.lock().unwrap(), server)
    }

    pub(crate) fn server(&self) -> SshServer {
        self.server.lock().unwrap().clone()
    }
}

#[async_trait]
impl Connector for Relay {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let refused = self
            .refusals
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        if refused || *self.weather.borrow() == Weather::Cut {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "nobody is there"));
        }
        let (mine, near) = tokio::io::duplex(64 * 1024);
        let (far, theirs) = tokio::io::duplex(64 * 1024);
        let server = self.server();
        tokio::spawn(async move { server.serve(theirs).await });
        tokio::spawn(carry(near, far, self.weather.subscribe()));
        Ok(Box::new(mine))
    }
}

/// Carries bytes both ways until one side ends or the connection is cut. Both sides find the end.
async fn carry(near: DuplexStream, far: DuplexStream, mut weather: watch::Receiver<Weather>) {
    let (from_near, to_near) = tokio::io::split(near);
    let (from_far, to_far) = tokio::io::split(far);
    weather.borrow_and_update();
    let cut = {
        let mut weather = weather.clone();
        async move {
            // A change back to fair may come before this looks, so every change counts that was to
            // an end; `cut` sends two at once.
            loop {
                if weather.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                let now = *weather.borrow_and_update();
                if matches!(now, Weather::Cut | Weather::Fair) {
                    return;
                }
            }
        }
    };
    tokio::select! {
        () = one_way(from_near, to_far, weather.clone()) => {}
        () = one_way(from_far, to_near, weather.clone()) => {}
        () = cut => {}
    }
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut left = None;
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        let now = *weather.borrow_and_update();
        match now {
            Weather::Fair | Weather::Cut => left = None,
            Weather::Stalled => {
                // Until somebody says otherwise.
                let _ = weather.wait_for(|weather| *weather != Weather::Stalled).await;
            }
            // What makes a slow line slow.
            Weather::Slow(pause) => tokio::time::sleep(pause).await,
            Weather::CutAfter(bytes) => {
                let most = *left.get_or_insert(bytes);
                if read >= most {
                    let _ = to.write_all(&buffer[..most]).await;
                    let _ = to.flush().await;
                    return;
                }
                left = Some(most - read);
            }
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
