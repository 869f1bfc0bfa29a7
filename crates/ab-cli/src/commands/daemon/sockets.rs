//! Sockets that a daemon listens on.
//!
//! TCP keep-alive is enabled, so that the kernel detects clients whose machine or network has
//! disappeared.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpListener;

/// The settings of TCP keep-alive. `SILENCE` is the idle time before the first probe. The other two
/// are the time between probes, and the number of unanswered probes after which a connection is
/// considered dead.
const SILENCE: Duration = Duration::from_secs(60);
const AGAIN: Duration = Duration::from_secs(15);
const TIMES: u32 = 4;

/// Opens a listener. Its connections end two minutes after their peer has disappeared.
pub(crate) async fn listen(host: IpAddr, port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((host, port)).await?;
    // Accepted connections inherit these options.
    sockopt::set_socket_keepalive(&listener, true)?;
    sockopt::set_tcp_keepidle(&listener, SILENCE)?;
    sockopt::set_tcp_keepintvl(&listener, AGAIN)?;
    sockopt::set_tcp_keepcnt(&listener, TIMES)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn the_kernel_asks_who_is_there() {
        let listener = listen(Ipv4Addr::LOCALHOST.into(), 0).await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), SILENCE);
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), AGAIN);
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), TIMES);
    }
}
