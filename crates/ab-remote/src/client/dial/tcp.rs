//! Opens a TCP connection with `TCP_NODELAY`.

use std::io;
use std::net::SocketAddr;

use ab_core::ErrorCause;
use tokio::net::{TcpStream, lookup_host};

use super::failure::{ConnectError, TimeLeft, lower};
use crate::client::address::HostPort;

pub(super) async fn connect(
    host: &HostPort,
    time_left: TimeLeft,
) -> Result<TcpStream, ConnectError> {
    let who = host.to_string();
    let failed = |error: io::Error| {
        ConnectError::lost("reach", &who, lower(&error.to_string())).with_source(error)
    };
    let looking_up = lookup_host((host.host(), host.port()));
    let addresses = time_left.spend("reach", &who, looking_up).await?;
    let unknown = |error: std::io::Error| {
        ConnectError::lost("reach", &who, "the host name cannot be resolved to an address")
            .with_source(error)
            .with_detail(ErrorCause::HostNotFound)
    };
    let addresses: Vec<SocketAddr> = addresses.map_err(unknown)?.collect();
    let connecting = TcpStream::connect(&*addresses);
    let stream = time_left.spend("reach", &who, connecting).await?.map_err(failed)?;
    refuse_itself(&stream).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Refuses a connection of a socket with itself. The kernel makes one if nothing listens on a port
/// of this host and the socket gets the same port as its own.
fn refuse_itself(stream: &TcpStream) -> io::Result<()> {
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn socket_that_is_connected_with_itself_is_refused() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let own = socket.connect(address).await.unwrap();
        assert_eq!(refuse_itself(&own).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        refuse_itself(&other).unwrap();
    }
}
