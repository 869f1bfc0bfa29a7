//! Opens a TCP connection with `TCP_NODELAY`.

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
    let failed = |error: std::io::Error| {
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
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}
