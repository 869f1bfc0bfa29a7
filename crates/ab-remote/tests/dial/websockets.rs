//! Daemons behind their WebSockets, and what may be there instead.

use ab_remote::client::{Proxy, RemoteClientSettings, RemoteEndpoint, WebSocketEndpoint};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::daemon::{Daemon, Door};
use super::{denied, lost, reached};

fn at(socket: WebSocketEndpoint) -> RemoteClientSettings {
    RemoteClientSettings::new(RemoteEndpoint::WebSocket(socket))
}

#[tokio::test]
async fn a_daemon_is_reached_with_its_token_and_headers() {
    let daemon = Daemon::new(Door::Token("secret")).await;
    let mut socket = daemon.websocket();
    socket.token = Some("secret".into());
    socket.headers.insert("X-Access", "for me").unwrap();
    reached(&at(socket)).await;
    assert_eq!(daemon.requests.lock().unwrap()[0]["x-access"], "for me");
    daemon.end().await;
}

#[tokio::test]
async fn a_wrong_token_is_refused_for_good() {
    let daemon = Daemon::new(Door::Token("another")).await;
    let mut socket = daemon.websocket();
    let said = denied(&at(socket.clone())).await;
    assert!(said.contains("the daemon requires a token"), "{said}");
    socket.token = Some("secret".into());
    let said = denied(&at(socket.clone())).await;
    assert!(said.contains("refused the token") && said.contains("127.0.0.1"), "{said}");
    daemon.end().await;
    for status in [401, 403] {
        let daemon = Daemon::new(Door::Page(status)).await;
        let said = denied(&at(daemon.websocket())).await;
        assert!(said.contains(&status.to_string()), "{said}");
        daemon.end().await;
    }
}

#[tokio::test]
async fn what_is_no_daemon_is_told_from_one() {
    for (door, what) in [
        (Door::Page(502), "HTTP 502 with a page instead of upgrading to a websocket: 'elsewhere'"),
        (Door::Page(502), "[the server sent a web page"),
        (Door::Page(302), "[the server redirects"),
        (Door::Says("hello"), "does not speak SSH"),
        (Door::HangsUp, "cannot open ws://127.0.0.1"),
    ] {
        let daemon = Daemon::new(door).await;
        let said = lost(&at(daemon.websocket())).await;
        assert!(said.contains(what), "{door:?}: {said}");
        daemon.end().await;
    }
}

/// Whoever connects is answered with this, whatever it says.
pub(super) async fn answering(answer: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer).await;
            // Until the client has had enough.
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    address
}

#[tokio::test]
async fn a_handshake_that_is_cut_is_no_foreign_language() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 101 Switching").await;
        }
    });
    let socket = WebSocketEndpoint::new(&format!("ws://{address}/ssh")).unwrap();
    let said = lost(&RemoteClientSettings::new(RemoteEndpoint::WebSocket(socket))).await;
    assert!(said.contains("the connection was closed during the handshake"), "{said}");
}

#[tokio::test]
async fn garbage_is_told_from_a_websocket() {
    for (answer, what) in [
        (&b"SSH-2.0-OpenSSH_9.9\r\n"[..], "does not speak the WebSocket protocol"),
        (b"\0\x01\x02\r\n\r\n", "does not speak the WebSocket protocol"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html></html>",
            "HTTP 200 with a page instead of upgrading to a websocket [the server sent a web page",
        ),
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "HTTP 404 instead of upgrading to a websocket [check the path",
        ),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "does not speak the WebSocket protocol"),
    ] {
        let address = answering(answer).await;
        let said = lost(&at(WebSocketEndpoint::new(&format!("ws://{address}/ssh")).unwrap())).await;
        assert!(said.contains(what), "{said}");
    }
}

#[tokio::test]
async fn a_page_in_the_way_is_quoted() {
    let address = answering(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 74\r\n\r\n\
          <html><head><title>Welcome to\n\x1b[31m the Hotel</title></head><body></body></html>",
    )
    .await;
    let said = lost(&at(WebSocketEndpoint::new(&format!("ws://{address}/ssh")).unwrap())).await;
    let expect = format!(
        "cannot open ws://{address}/ssh: {address} answered HTTP 200 with text/html instead of \
         upgrading to a websocket: 'Welcome to [31m the Hotel' ["
    );
    assert!(said.starts_with(&expect), "{said}");
    for what in ["proxy", "captive portal", "path", "/ssh"] {
        assert!(said.contains(what), "{said}");
    }
    // One that repeats what it was told is not quoted.
    let address = answering(b"HTTP/1.1 200 OK\r\n\r\nAuthorization: Bearer secret").await;
    let mut socket = WebSocketEndpoint::new(&format!("ws://{address}/ssh")).unwrap();
    socket.token = Some("secret".into());
    assert!(lost(&at(socket)).await.contains("HTTP 200"));
}

#[tokio::test]
async fn nobody_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("ws://{address}/ssh?tenant=secret");
    let said = lost(&at(WebSocketEndpoint::new(&url).unwrap())).await;
    assert!(said.starts_with(&format!("cannot reach {address}: connection refused")), "{said}");
    let said = lost(&RemoteClientSettings::parse("ssh://ada@no-such-host.invalid").unwrap()).await;
    assert!(said.starts_with("cannot reach no-such-host.invalid:22: "), "{said}");
}

/// A proxy that connects whoever names itself, or refuses with a status.
async fn proxy(status: u16) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    assert_ne!(stream.read_line(&mut head).await.unwrap(), 0, "{head}");
                }
                // ada:lace
                let known = head.contains("\r\nProxy-Authorization: Basic YWRhOmxhY2U=\r\n");
                let status = if known { status } else { 407 };
                let answer = format!("HTTP/1.1 {status} So\r\nVia: test\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                let target = head.split(' ').nth(1).unwrap().to_owned();
                if status == 200 {
                    let mut there = TcpStream::connect(target).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_proxy_is_gone_through() {
    let daemon = Daemon::new(Door::Open).await;
    let mut socket = daemon.websocket();
    let open = proxy(200).await;
    socket.proxy = Some(Proxy::parse(&format!("http://ada:lace@{open}")).unwrap());
    reached(&at(socket.clone())).await;

    socket.proxy = Some(Proxy::parse(&format!("http://{open}")).unwrap());
    let said = denied(&at(socket.clone())).await;
    assert!(said.contains("the proxy requires a login"), "{said}");

    let closed = proxy(503).await;
    socket.proxy = Some(Proxy::parse(&format!("http://ada:lace@{closed}")).unwrap());
    let said = lost(&at(socket.clone())).await;
    let who = format!("cannot reach {} by the proxy {closed}: ", daemon.address);
    assert!(said.starts_with(&who) && said.contains("503"), "{said}");

    // A page instead, whether it says no or, as a captive portal does, yes.
    for (answer, status) in [
        (
            &b"HTTP/1.1 403 Forbidden\r\ncontent-type: text/html\r\nContent-Length: 31\r\n\r\n\
              <title>Blocked by ACME</title>\n more"[..],
            403,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 31\r\n\r\n\
              <title>Blocked by ACME</title>\n more",
            200,
        ),
    ] {
        let portal = answering(answer).await;
        socket.proxy = Some(Proxy::parse(&format!("http://{portal}")).unwrap());
        let said = lost(&at(socket.clone())).await;
        let what = format!(
            "by the proxy {portal}: the proxy answered HTTP {status} with text/html instead of \
             connecting: 'Blocked by ACME' [the proxy sent a web page"
        );
        assert!(said.contains(&what), "{said}");
    }

    let other = answering(b"SSH-2.0-x\r\n\r\n").await;
    socket.proxy = Some(Proxy::parse(&format!("http://{other}")).unwrap());
    assert!(lost(&at(socket)).await.contains("the proxy does not speak HTTP"));
    daemon.end().await;
}
