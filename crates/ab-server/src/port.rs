//! A port: a listener that serves all routes, from its start to its orderly shutdown.

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

/// Limits of the port.
#[derive(Clone, Copy, Debug)]
pub struct HttpServerLimits {
    /// Maximum number of connections, including WebSockets. Further connections wait until one
    /// ends.
    pub max_connections: usize,
    /// Maximum number of connections from one address. For IPv6, from one /64 network. Further
    /// connections are refused.
    pub max_connections_per_address: usize,
    /// Returns whether an address is exempt from `max_connections_per_address`.
    pub is_exempt_address: fn(IpAddr) -> bool,
    /// How long a TLS handshake, or the head of a request, may take.
    pub handshake_timeout: Duration,
    /// How long a peer may go without reading any part of a response.
    pub write_timeout: Duration,
    /// How long a response to a caller that has closed its sending side may make no progress. After
    /// this time the request is cancelled.
    pub half_closed_timeout: Duration,
    /// How long running requests may continue when the port closes.
    pub shutdown_grace: Duration,
    /// Limits on wrong tokens.
    pub token_guesses: TokenGuessLimits,
}

impl Default for HttpServerLimits {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            max_connections_per_address: 512,
            is_exempt_address: |address| address.is_loopback(),
            handshake_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            half_closed_timeout: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(5),
            token_guesses: TokenGuessLimits::default(),
        }
    }
}

/// A server that is not started yet: the app to serve and its settings.
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

    pub fn with_limits(mut self, limits: HttpServerLimits) -> HttpServer {
        self.bounds = limits;
        self
    }

    /// Serves connections until it is closed.
    pub fn start(self, listener: TcpListener) -> io::Result<RunningHttpServer> {
        let address = listener.local_addr()?;
        let grace = self.bounds.shutdown_grace;
        let closing = self.app.shutdown().clone();
        let router = routes::all(self.app.clone().with_guessing(self.bounds.token_guesses));
        let connections = Connections { router, tls: self.tls, bounds: self.bounds, closing };
        let serving = tokio::spawn(connections::serve(connections, listener));
        let finding_out = self.app.daemon().ok().cloned().map(|daemon| {
            // Run this on a blocking thread, so that the port can already answer requests.
            let runtime = Handle::current();
            tokio::task::spawn_blocking(move || {
                let found = runtime.block_on(daemon.find_out()).cloned();
                if let Err(error) = &found {
                    tracing::warn!(%error, "cannot determine the sandbox controls of commands");
                }
                found
            })
        });
        Ok(RunningHttpServer { address, serving, finding_out, app: self.app, grace })
    }
}

/// An open port.
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

    /// Waits for the controls that are in force for commands of the daemon's workspace. `None` if
    /// the port serves no workspace. The port answers requests during the wait.
    pub async fn wait_for_effective_policy(&mut self) -> Result<Option<EffectivePolicy>> {
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

    /// Stops accepting connections, waits for running requests up to the grace period, and closes
    /// the remaining connections.
    pub async fn shutdown(self) {
        // Peers that do not close within the grace period are dropped.
        let _ = timeout(self.grace, self.app.close()).await;
        if let Some(finding_out) = self.finding_out {
            // The blocking thread ends by itself and does not use anything that is closed here.
            finding_out.abort();
        }
        // The task ends within the grace period. A panic in it has already been reported.
        let _ = self.serving.await;
        // The bodies of dropped connections have ended, so their writes now remove temporary files.
        let _ = timeout(self.grace, self.app.writes_ended()).await;
    }
}
