//! Serves SSH on a TCP socket.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::server::{SshConnectionEnd, SshServer, closed};

/// Default of the maximum number of connections of one listener.
pub(crate) const DEFAULT_MAX_CONNECTIONS: usize = 1024;
/// Maximum number of connections of one listener that are not logged in. A further connection
/// replaces the oldest of these connections, so that silent clients cannot keep other clients out.
pub const DEFAULT_MAX_UNAUTHENTICATED_CONNECTIONS: usize = 64;
/// The pause before the next accept if the system has no free sockets.
const RESPITE: Duration = Duration::from_millis(100);

/// Called when a connection has ended.
pub type SshConnectionEndObserver = Arc<dyn Fn(SocketAddr, &SshConnectionEnd) + Send + Sync>;

/// Limits of a listener, and the observer of its connections.
#[derive(Clone)]
pub struct SshListenerOptions {
    pub max_connections: usize,
    pub max_unauthenticated: usize,
    /// Called for each connection that has ended.
    pub on_connection_end: SshConnectionEndObserver,
}

impl Default for SshListenerOptions {
    fn default() -> Self {
        Self {
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_unauthenticated: DEFAULT_MAX_UNAUTHENTICATED_CONNECTIONS,
            on_connection_end: Arc::new(|_, _| {}),
        }
    }
}

impl std::fmt::Debug for SshListenerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listening")
            .field("max_connections", &self.max_connections)
            .field("max_unauthenticated", &self.max_unauthenticated)
            .finish_non_exhaustive()
    }
}

/// Serves every connection of a socket until the server is shut down. Returns when all connections
/// have ended. When the maximum number of connections is reached, further clients wait until
/// another connection ends.
pub async fn serve_ssh_on_listener(
    listener: TcpListener,
    server: SshServer,
    options: SshListenerOptions,
) -> io::Result<()> {
    let mut open = server.is_open();
    let all = Arc::new(Semaphore::new(options.max_connections));
    let strangers = Arc::new(Strangers::new(options.max_unauthenticated));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let accepted = async {
            let place = all.clone().acquire_owned().await.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            Ok((stream, peer, place))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = closed(&mut open) => break,
        };
        let (stream, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => match mishap(&error) {
                Mishap::OfOne => continue,
                Mishap::Passing => {
                    tokio::time::sleep(RESPITE).await;
                    continue;
                }
                Mishap::Final => return Err(error),
            },
        };
        let (server, told) = (server.clone(), options.on_connection_end.clone());
        let (stranger, sent_away) = Strangers::admit(&strangers);
        let (socket, lanes) = (stream.into_std(), server.clone());
        let serving = async move {
            let ended = tokio::select! {
                ended = serve_one(&server, socket, || drop(stranger)) => ended,
                () = sent_away => SshConnectionEnd::NotLoggedIn("it made room for another".to_owned()),
            };
            told(peer, &ended);
            drop(place);
        };
        match lanes.connection_threads() {
            Some(lanes) => {
                let serving = AbortOnDropHandle::new(lanes.spawn(serving));
                // A panic in the task has already been reported.
                tasks.spawn(async move { drop(serving.await) })
            }
            None => tasks.spawn(serving),
        };
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Registers the socket with the runtime that serves it. This runtime may differ from the runtime
/// that accepted the socket.
async fn serve_one(
    server: &SshServer,
    socket: io::Result<std::net::TcpStream>,
    logged_in: impl FnOnce() + Send,
) -> SshConnectionEnd {
    let stream = socket.and_then(TcpStream::from_std).and_then(|stream| {
        // Send small packets without delay.
        stream.set_nodelay(true)?;
        Ok(stream)
    });
    match stream {
        Ok(stream) => server.serve_with_login_hook(stream, logged_in).await,
        Err(error) => SshConnectionEnd::NotLoggedIn(error.to_string()),
    }
}

/// The connections that have not logged in yet. Their number is limited.
struct Strangers {
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// The connections in the order of their arrival.
    places: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// Counts one connection that has not logged in yet. Dropped when the client logs in or the
/// connection ends.
struct Stranger {
    strangers: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    fn new(most: usize) -> Self {
        Self { most: most.max(1), waiting: Mutex::default() }
    }

    /// Counts a new connection. If the limit is reached, drops the oldest connection that has not
    /// logged in, by completing its returned future.
    fn admit(this: &Arc<Self>) -> (Stranger, impl Future<Output = ()> + Send + use<>) {
        let (sender, lost) = oneshot::channel();
        let mut waiting = this.lock();
        while waiting.places.len() >= this.most
            && let Some((_, oldest)) = waiting.places.pop_front()
        {
            // Sending fails if that connection has just ended.
            let _ = oldest.send(());
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.places.push_back((number, sender));
        drop(waiting);
        let lost = async {
            if lost.await.is_err() {
                // The connection is no longer counted, because the client logged in or the
                // connection ended.
                std::future::pending::<()>().await;
            }
        };
        (Stranger { strangers: this.clone(), number }, lost)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.lock().places.retain(|(number, _)| *number != self.number);
    }
}

/// What an error of the listening socket means for further connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    /// The error affects only the connection that should have been accepted.
    OfOne,
    /// The error is temporary: sockets may become free, or the network may work again.
    Passing,
    /// The listening socket can no longer be used.
    Final,
}

fn mishap(error: &io::Error) -> Mishap {
    match (error.kind(), error.raw_os_error()) {
        (
            io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted,
            _,
        ) => Mishap::OfOne,
        // `EBADF`, `EFAULT`, `EINVAL` and `ENOTSOCK`.
        (_, Some(9 | 14 | 22 | 88)) => Mishap::Final,
        _ => Mishap::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_there_goes_on() {
        for (errno, meaning) in [
            (103, Mishap::OfOne),
            (4, Mishap::OfOne),
            (24, Mishap::Passing),
            (23, Mishap::Passing),
            (12, Mishap::Passing),
            // A refusal by a firewall, a failed handshake, and a network that is down.
            (1, Mishap::Passing),
            (71, Mishap::Passing),
            (100, Mishap::Passing),
            (113, Mishap::Passing),
            (9, Mishap::Final),
            (88, Mishap::Final),
        ] {
            assert_eq!(mishap(&io::Error::from_raw_os_error(errno)), meaning, "{errno}");
        }
    }
}
