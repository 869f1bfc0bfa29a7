//! Conventional SSH: a socket that clients dial.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::server::{Ended, Server, closed};

/// Connections of one listener.
pub const MAX_CONNECTIONS: usize = 1024;
/// Connections of one listener that have not said who they are.
pub const MAX_UNAUTHENTICATED: usize = 64;
/// How long to wait when the system has no more sockets to give.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Hears how a connection ended.
pub type Observer = Arc<dyn Fn(SocketAddr, &Ended) + Send + Sync>;

/// What a listener may have at a time, and who hears of its connections.
#[derive(Clone)]
pub struct Listening {
    pub max_connections: usize,
    pub max_unauthenticated: usize,
    /// Told of each connection that ended.
    pub ended: Observer,
}

impl Default for Listening {
    fn default() -> Self {
        Self {
            max_connections: MAX_CONNECTIONS,
            max_unauthenticated: MAX_UNAUTHENTICATED,
            ended: Arc::new(|_, _| {}),
        }
    }
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening")
            .field("max_connections", &self.max_connections)
            .field("max_unauthenticated", &self.max_unauthenticated)
            .finish_non_exhaustive()
    }
}

/// Serves every connection that a socket gets, until the server is shut down. All of them have
/// ended when this returns. Beyond a bound, clients wait to be accepted.
pub async fn listen(listener: TcpListener, server: Server, listening: Listening) -> io::Result<()> {
    let mut open = server.is_open();
    let all = Arc::new(Semaphore::new(listening.max_connections));
    let strangers = Arc::new(Semaphore::new(listening.max_unauthenticated));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let accepted = async {
            let place = all.clone().acquire_owned().await.map_err(io::Error::other)?;
            let stranger = strangers.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            Ok((stream, peer, place, stranger))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = closed(&mut open) => break,
        };
        let (stream, peer, place, stranger) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) if is_exhaustion(&error) => {
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let (server, told) = (server.clone(), listening.ended.clone());
        tasks.spawn(async move {
            let ended = serve_one(&server, stream, || drop(stranger)).await;
            told(peer, &ended);
            drop(place);
        });
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

async fn serve_one(server: &Server, stream: TcpStream, logged_in: impl FnOnce() + Send) -> Ended {
    // Small packets in both directions wait for nothing.
    if let Err(error) = stream.set_nodelay(true) {
        return Ended::NotLoggedIn(error.to_string());
    }
    server.serve_told(stream, logged_in).await
}

/// Whether only the connection that was to be accepted is concerned.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Whether there will be sockets again once others are closed: `EMFILE`, `ENFILE`, no memory.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24)) || error.kind() == io::ErrorKind::OutOfMemory
}
