//! A listener with everything on it, from the first connection to an end in good order.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ab_core::{EffectivePolicy, Result};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::app::HttpApp;
use crate::connections::{self, Connections};
use crate::gate::TokenGuessLimits;
use crate::routes;
use crate::tls::TlsConfig;

/// How much the port takes on.
#[derive(Clone, Copy, Debug)]
pub struct HttpServerLimits {
    /// Connections at a time, WebSockets included; more wait until one ends.
    pub connections: usize,
    /// Connections of one address (of IPv6: one /64) at a time; more are refused.
    pub per_address: usize,
    /// Addresses without that bound.
    pub exempt: fn(IpAddr) -> bool,
    /// How long a TLS handshake, or the head of a request, may take.
    pub handshake_timeout: Duration,
    /// How long a peer may take nothing of an answer.
    pub write_timeout: Duration,
    /// How long a caller that has closed its end may wait for an answer to begin or to go on; then
    /// it counts as gone, and what it asked for ends.
    pub half_closed_timeout: Duration,
    /// How long requests that are being answered may go on when the port closes.
    pub shutdown_grace: Duration,
    /// How callers are met that show wrong tokens.
    pub token_guesses: TokenGuessLimits,
}

impl Default for HttpServerLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            per_address: 512,
            exempt: |address| address.is_loopback(),
            handshake_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            half_closed_timeout: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(5),
            token_guesses: TokenGuessLimits::default(),
        }
    }
}

/// What is served, and to whom.
#[derive(Debug)]
pub struct HttpServer {
    app: HttpApp,
    tls: Option<TlsConfig>,
    bounds: HttpServerLimits,
}

impl HttpServer {
    pub fn new(app: HttpApp) -> HttpServer {
        HttpServer { app, tls: None, bounds: HttpServerLimits::default() }
    }

    pub fn with_tls(mut self, tls: Option<TlsConfig>) -> HttpServer {
        self.tls = tls;
        self
    }

    pub fn with_limits(mut self, bounds: HttpServerLimits) -> HttpServer {
        self.bounds = bounds;
        self
    }

    /// Serves whoever connects, until it is closed.
    pub fn start(self, listener: TcpListener) -> io::Result<RunningHttpServer> {
        let address = listener.local_addr()?;
        let grace = self.bounds.shutdown_grace;
        let closing = self.app.shutdown().clone();
        let router = routes::all(self.app.clone().with_guessing(self.bounds.token_guesses));
        let connections = Connections { router, tls: self.tls, bounds: self.bounds, closing };
        let serving = tokio::spawn(connections::serve(connections, listener));
        let finding_out = self.app.daemon().ok().cloned().map(|daemon| {
            // On a thread that may block: the port answers meanwhile.
            let runtime = Handle::current();
            tokio::task::spawn_blocking(move || {
                let found = runtime.block_on(daemon.find_out()).cloned();
                if let Err(error) = &found {
                    tracing::warn!(%error, "cannot say what is in force for commands");
                }
                found
            })
        });
        Ok(RunningHttpServer { address, serving, finding_out, app: self.app, grace })
    }
}

/// A port that is open.
#[derive(Debug)]
pub struct RunningHttpServer {
    address: SocketAddr,
    serving: JoinHandle<()>,
    finding_out: Option<JoinHandle<Result<EffectivePolicy>>>,
    app: HttpApp,
    grace: Duration,
}

impl RunningHttpServer {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is in force for commands of the daemon's workspace, if there is one. The port answers
    /// while this is found out.
    pub async fn workspace_effective_policy(&mut self) -> Result<Option<EffectivePolicy>> {
        if let Some(finding_out) = self.finding_out.take()
            && let Ok(found) = finding_out.await
        {
            return found.map(Some);
        }
        match self.app.daemon() {
            Ok(daemon) => daemon.find_out().await.cloned().map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Takes no more connections, lets what is being answered come to its end within the grace,
    /// and cuts the rest off.
    pub async fn shutdown(self) {
        // Peers that do not close within the grace period are dropped.
        let _ = timeout(self.grace, self.app.close()).await;
        if let Some(finding_out) = self.finding_out {
            // It ends by itself, and touches nothing that ends here.
            finding_out.abort();
        }
        // It ends by itself within the grace; a panic in it was told already.
        let _ = self.serving.await;
    }
}
