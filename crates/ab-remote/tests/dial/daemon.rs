//! A daemon's WebSocket as far as clients see it: TLS, a token, headers, and SSH behind it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ab_remote::SshServer;
use ab_remote::client::{ByteStream, WebSocketEndpoint};
use ab_remote::websocket::WebSocketByteStream;
use futures_util::SinkExt;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::client::open_server;
use crate::stage::within;

/// Who is let in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Door {
    Open,
    /// Whoever knows this token; others see the WebSocket opened and closed again.
    Token(&'static str),
    /// The request is answered with this status, and a page.
    Page(u16),
    /// The WebSocket is opened, and this is said on it.
    Says(&'static str),
    /// The WebSocket is opened and closed at once.
    HangsUp,
}

pub(super) struct Daemon {
    pub(super) address: SocketAddr,
    server: SshServer,
    /// The headers of the requests so far.
    pub(super) requests: Arc<Mutex<Vec<http::HeaderMap>>>,
    listening: JoinHandle<()>,
}

impl Daemon {
    pub(super) async fn new(door: Door) -> Self {
        Self::with(door, None).await
    }

    /// With a certificate.
    pub(super) async fn with(
        door: Door,
        certificate: Option<&rcgen::CertifiedKey<rcgen::KeyPair>>,
    ) -> Self {
        let server = open_server(agent_backend::memory());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<http::HeaderMap>>>::default();
        let tls = certificate.map(acceptor);
        let listening = {
            let (server, requests) = (server.clone(), requests.clone());
            tokio::spawn(async move {
                let mut serving = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let (server, requests, tls) = (server.clone(), requests.clone(), tls.clone());
                    serving.spawn(async move {
                        let stream: Box<dyn ByteStream> = match tls {
                            None => Box::new(stream),
                            Some(tls) => match tls.accept(stream).await {
                                Ok(stream) => Box::new(stream),
                                Err(_) => return,
                            },
                        };
                        serve(door, server, &requests, stream).await;
                    });
                }
            })
        };
        Self { address, server, requests, listening }
    }

    pub(super) fn websocket(&self) -> WebSocketEndpoint {
        WebSocketEndpoint::new(&format!("ws://{}/ssh", self.address)).unwrap()
    }

    /// Ends it; nobody may be left.
    pub(super) async fn end(self) {
        within(self.server.shut_down()).await;
        self.listening.abort();
        let _ = within(self.listening).await;
    }
}

fn acceptor(certificate: &rcgen::CertifiedKey<rcgen::KeyPair>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve(
    door: Door,
    server: SshServer,
    requests: &Mutex<Vec<http::HeaderMap>>,
    stream: Box<dyn ByteStream>,
) {
    let mut known = true;
    #[allow(clippy::result_large_err, reason = "tungstenite has it so")]
    let look = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        requests.lock().unwrap().push(request.headers().clone());
        match door {
            Door::Page(status) => {
                let page = Some("<!DOCTYPE html><html><body>elsewhere</body></html>".to_owned());
                Err(http::Response::builder().status(status).body(page).unwrap())
            }
            Door::Token(token) => {
                let said = request.headers().get("authorization").map(|value| value.as_bytes());
                known = said == Some(format!("Bearer {token}").as_bytes());
                Ok(response)
            }
            Door::Open | Door::Says(_) | Door::HangsUp => Ok(response),
        }
    };
    let Ok(mut socket) = accept_hdr_async(stream, look).await else { return };
    match door {
        Door::Says(text) => {
            let _ = socket.send(Message::text(text)).await;
        }
        Door::HangsUp => {}
        _ if !known => {
            let frame = CloseFrame { code: 4001.into(), reason: "Unauthorized".into() };
            let _ = socket.close(Some(frame)).await;
        }
        _ => {
            let _ = server.serve(WebSocketByteStream::new_server(socket.into_inner())).await;
        }
    }
}
