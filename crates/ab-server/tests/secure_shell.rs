//! `/ssh`: the upgrade, the token, the goodbye. What SSH is spoken there is tested elsewhere.

use ab_core::Backend;
use ab_remote::{HostKey, SshAccess, SshConnectionThreads, SshServer, SshServerSettings};
use ab_server::{HttpAccessPolicy, HttpServerLimits, RunningHttpServer, TokenGuessLimits};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::caller::{TOKEN, get, guarded, memory, open_within, serves};

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

async fn port(gate: HttpAccessPolicy) -> RunningHttpServer {
    port_within(gate, HttpServerLimits::default()).await
}

async fn port_within(gate: HttpAccessPolicy, bounds: HttpServerLimits) -> RunningHttpServer {
    let backend: Backend = memory().await;
    let key = HostKey::generate_ephemeral("a test").unwrap();
    let ssh = SshServer::new(backend.clone(), SshServerSettings::new(key, SshAccess::AnyUser));
    open_within(serves(&backend).with_ssh(ssh), gate, bounds).await
}

async fn connect(
    port: &RunningHttpServer,
    query: &str,
    headers: &[(&str, &str)],
) -> Result<Socket, Error> {
    let url = format!("ws://{}/ssh{query}", port.address());
    let mut request = url.into_client_request().unwrap();
    for (name, value) in headers {
        let name = axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    Ok(connect_async(request).await?.0)
}

/// What the server says first.
async fn greeting(socket: &mut Socket) -> Message {
    socket.next().await.unwrap().unwrap()
}

/// The frame that the connection ends with.
async fn goodbye(socket: &mut Socket) -> Option<CloseFrame> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Close(frame))) => return frame,
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

#[tokio::test]
async fn the_token_comes_by_header_or_query() {
    let port = port(guarded()).await;
    let bearer = format!("Bearer {TOKEN}");
    let query = format!("?token={TOKEN}");
    for (query, headers) in
        [("", vec![("authorization", bearer.as_str())]), (query.as_str(), vec![])]
    {
        let mut socket = connect(&port, query, &headers).await.unwrap();
        let Message::Binary(first) = greeting(&mut socket).await else { panic!("no banner") };
        assert!(first.starts_with(b"SSH-2.0-"), "{first:?}");
    }
}

#[tokio::test]
async fn a_wrong_token_is_upgraded_and_sent_away() {
    let port = port(guarded()).await;
    for (query, headers) in [
        ("", vec![]),
        ("?token=wrong", vec![]),
        ("?token=", vec![]),
        ("", vec![("authorization", "Bearer wrong")]),
    ] {
        let mut socket = connect(&port, query, &headers).await.unwrap();
        // Nothing of SSH is said before.
        let Message::Close(Some(frame)) = greeting(&mut socket).await else { panic!("let in") };
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4001, "Unauthorized"));
    }
}

#[tokio::test]
async fn many_wrong_tokens_are_sent_away_in_the_same_words() {
    let (first_wait, longest_wait) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    let token_guesses = TokenGuessLimits {
        max_attempts: 2,
        first_delay: first_wait,
        max_delay: longest_wait,
        ..TokenGuessLimits::default()
    };
    let port =
        port_within(guarded(), HttpServerLimits { token_guesses, ..HttpServerLimits::default() })
            .await;
    for _ in 0..8 {
        let mut socket = connect(&port, "?token=wrong", &[]).await.unwrap();
        let frame = goodbye(&mut socket).await.unwrap();
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4001, "Unauthorized"));
    }
    // They were counted.
    let wrong = [("authorization", "Bearer wrong")];
    assert_eq!(get(port.address(), "/mcp", &wrong).await.status, 429);
    let mut socket = connect(&port, &format!("?token={TOKEN}"), &[]).await.unwrap();
    assert!(greeting(&mut socket).await.is_binary());
}

#[tokio::test]
async fn a_page_of_others_is_not_upgraded() {
    let port = port(HttpAccessPolicy::default()).await;
    for header in [("origin", "http://evil.example"), ("host", "evil.example")] {
        let error = connect(&port, "", &[header]).await.unwrap_err();
        assert!(matches!(&error, Error::Http(answer) if answer.status() == 403), "{error}");
    }
}

/// The client's first words may come together with its request: they are none of HTTP's.
#[tokio::test]
async fn what_comes_with_the_request_is_heard_on_a_lane_or_not() {
    let backend: Backend = memory().await;
    let settings =
        SshServerSettings::new(HostKey::generate_ephemeral("a test").unwrap(), SshAccess::AnyUser);
    let lanes = SshConnectionThreads::start(1).unwrap();
    let with = SshServer::with_threads(backend.clone(), settings.clone(), lanes);
    for ssh in [with, SshServer::new(backend.clone(), settings)] {
        let port = open_within(
            serves(&backend).with_ssh(ssh),
            HttpAccessPolicy::default(),
            HttpServerLimits::default(),
        )
        .await;
        let mut stream = tokio::net::TcpStream::connect(port.address()).await.unwrap();
        let mut all = b"GET /ssh HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n\
            upgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
            sec-websocket-version: 13\r\n\r\n"
            .to_vec();
        let name = b"SSH-2.0-early\r\n";
        // A whole binary message under a mask of zeros.
        all.extend([0x82, 0x80 | u8::try_from(name.len()).unwrap(), 0, 0, 0, 0]);
        all.extend(name);
        stream.write_all(&all).await.unwrap();
        let mut heard = Vec::new();
        // Said to those only whose name is known.
        while !heard.windows(10).any(|piece| piece == b"curve25519") {
            assert!(stream.read_buf(&mut heard).await.unwrap() > 0, "it ended");
        }
        drop(stream);
        port.shutdown().await;
    }
}

#[tokio::test]
async fn a_port_that_closes_says_so() {
    let port = port(HttpAccessPolicy::default()).await;
    let mut socket = connect(&port, "", &[]).await.unwrap();
    greeting(&mut socket).await;
    let closing = tokio::spawn(port.shutdown());
    let frame = goodbye(&mut socket).await.unwrap();
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1000, "Server shutting down"));
    closing.await.unwrap();
}

#[tokio::test]
async fn what_is_not_ssh_ends_its_own_connection_only() {
    let port = port(HttpAccessPolicy::default()).await;
    for nonsense in [
        Message::Text("hello".into()),
        Message::Binary(vec![0xff; 70_000].into()),
        Message::Binary(b"GET / HTTP/1.1\r\n\r\n".as_slice().into()),
    ] {
        let mut socket = connect(&port, "", &[]).await.unwrap();
        greeting(&mut socket).await;
        let _ = socket.send(nonsense).await;
        goodbye(&mut socket).await;
    }
    let got = get(port.address(), "/ssh", &[]).await;
    assert_eq!((got.status, got.json()["error"].as_str()), (400, Some("Not a WebSocket")));
    let older = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "8"),
    ];
    let got = get(port.address(), "/ssh", &older).await;
    assert_eq!((got.status, got.header("sec-websocket-version")), (426, Some("13")));
    let mut socket = connect(&port, "", &[]).await.unwrap();
    assert!(greeting(&mut socket).await.is_binary());
}

#[tokio::test]
async fn a_websocket_keeps_its_place_until_it_ends() {
    let bounds = HttpServerLimits {
        max_connections_per_address: 1,
        is_exempt_address: |_| false,
        ..HttpServerLimits::default()
    };
    let port = port_within(HttpAccessPolicy::default(), bounds).await;
    let mut socket = connect(&port, "", &[]).await.unwrap();
    greeting(&mut socket).await;
    let mut stream = tokio::net::TcpStream::connect(port.address()).await.unwrap();
    let mut told = Vec::new();
    stream.read_to_end(&mut told).await.unwrap();
    let told = crate::caller::parse(&told);
    assert_eq!((told.status, told.json()["error"].as_str()), (503, Some("Too many connections")));
    assert_eq!(told.header("content-length"), Some(told.body.len().to_string().as_str()));
    drop(socket);
    // It takes a moment until the end is noticed.
    while connect(&port, "", &[]).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_scope_that_a_websocket_may_not_choose_is_refused_before_the_upgrade() {
    let refused =
        async |port: &RunningHttpServer, headers: &[(&str, &str)]| match connect(port, "", headers)
            .await
        {
            Err(Error::Http(answer)) => {
                let body = answer.body().as_deref().unwrap_or_default();
                let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
                (answer.status().as_u16(), body["error"].as_str().unwrap_or_default().to_owned())
            }
            other => panic!("{other:?}"),
        };
    let bearer = format!("Bearer {TOKEN}");
    let shown = ("authorization", bearer.as_str());
    let open = port(guarded()).await;
    let invalid = (400, "Invalid scope path".to_owned());
    assert_eq!(refused(&open, &[shown, ("x-scope-path", "../x")]).await, invalid);
    let mismatch = (403, "Root directory mismatch".to_owned());
    assert_eq!(refused(&open, &[shown, ("x-root-dir", "/elsewhere")]).await, mismatch);
    // Who does not know the token learns nothing of it.
    let mut socket = connect(&open, "", &[("x-root-dir", "/elsewhere")]).await.unwrap();
    assert_eq!(u16::from(goodbye(&mut socket).await.unwrap().code), 4001);

    let backend: Backend = memory().await;
    let key = HostKey::generate_ephemeral("a test").unwrap();
    let served = crate::caller::serves_scope(&backend);
    let ssh = SshServer::new(backend, SshServerSettings::new(key, SshAccess::AnyUser));
    let scoped =
        open_within(served.with_ssh(ssh), HttpAccessPolicy::default(), HttpServerLimits::default())
            .await;
    let conflict = (400, "Scope conflict".to_owned());
    assert_eq!(refused(&scoped, &[("x-scope-path", "tenants/b")]).await, conflict);
}
