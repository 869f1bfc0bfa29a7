//! A connection by TCP that does not wait to fill its packets.

use tokio::net::TcpStream;

use super::failure::{DialError, Patience, lower};
use crate::client::address::Host;

pub(super) async fn connect(host: &Host, patience: Patience) -> Result<TcpStream, DialError> {
    let who = host.to_string();
    let connecting = TcpStream::connect((host.name(), host.port()));
    let connected = patience.spend("reach", &who, connecting).await?;
    let failed = |error: std::io::Error| {
        DialError::lost("reach", &who, lower(&error.to_string())).with_source(error)
    };
    let stream = connected.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}
