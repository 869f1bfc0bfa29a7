//! Servers that say nothing, or nothing that means anything: each ends in bounded time.

use std::net::SocketAddr;
use std::time::Duration;

use ab_core::{ErrorCode, ErrorKind};
use ab_remote::client::{
    HostKeyCheck, HostPort, RemoteClientSettings, RemoteEndpoint, SshEndpoint, WebSocketEndpoint,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::{failure, lost};

/// Says this to whoever connects, and then nothing for ever.
async fn saying(words: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(&words).await;
            open.push(stream);
        }
    });
    address
}

fn ssh(address: SocketAddr) -> RemoteClientSettings {
    let mut ssh = SshEndpoint::new("ada", "127.0.0.1");
    ssh.host = HostPort::new("127.0.0.1", address.port());
    ssh.host_key = HostKeyCheck::Unchecked;
    RemoteClientSettings::new(RemoteEndpoint::Ssh(ssh))
}

fn websocket(scheme: &str, address: SocketAddr) -> RemoteClientSettings {
    let socket = WebSocketEndpoint::new(&format!("{scheme}://{address}/ssh")).unwrap();
    RemoteClientSettings::new(RemoteEndpoint::WebSocket(socket))
}

#[tokio::test]
async fn whoever_says_nothing_is_left() {
    let silent = saying(Vec::new()).await;
    let greeting = saying(b"SSH-2.0-Silent_1\r\n".to_vec()).await;
    let all = [
        (ssh(silent), "greet"),
        (ssh(greeting), "greet"),
        (websocket("ws", silent), "open"),
        (websocket("wss", silent), "greet"),
    ];
    for (mut settings, act) in all {
        settings.connect_timeout = Duration::from_millis(300);
        let failure = failure(&settings).await;
        let error = &failure.error;
        // Where there are no certificates, that is said before.
        if error.kind() == ErrorKind::Invalid {
            continue;
        }
        assert_eq!((error.code(), error.kind()), (ErrorCode::ConnectionClosed, ErrorKind::Timeout));
        assert!(failure.retryable);
        assert!(error.message().starts_with(&format!("cannot {act} ")), "{error}");
        assert!(error.message().ends_with("no answer within 300ms"), "{error}");
    }
}

#[tokio::test]
async fn whoever_does_not_speak_ssh_is_left() {
    let ident = b"SSH-2.0-Odd_1\r\n";
    for (words, what) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "cannot greet"),
        (vec![b'x'; 4096], "does not speak SSH"),
        (b"SSH-1.5-Old\r\n".to_vec(), "cannot greet"),
        // A packet of four gibibytes.
        ([&ident[..], &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]].concat(), "cannot greet"),
        (
            [&ident[..], &[0, 0, 0, 12, 4, 99, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]].concat(),
            "cannot greet",
        ),
    ] {
        let mut settings = ssh(saying(words.clone()).await);
        settings.connect_timeout = Duration::from_millis(500);
        let failure = failure(&settings).await;
        assert!(failure.to_string().contains(what), "{failure}");
        assert_eq!(failure.error.code(), ErrorCode::ConnectionClosed, "{failure:?}");
    }
    let mut settings = ssh(saying([&ident[..], &[0xff; 64]].concat()).await);
    settings.connect_timeout = Duration::from_secs(600);
    assert!(lost(&settings).await.contains("cannot greet 127.0.0.1"));
}
