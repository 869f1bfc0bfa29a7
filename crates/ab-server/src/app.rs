//! The state of the router: one optional field for each surface (a group of routes), the access
//! policy, and the shutdown token.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gate::{Guesses, HttpAccessPolicy, Identity, TokenGuessLimits};
use crate::http_metrics::HttpMetrics;
use crate::problem::{Problem, ProblemKind};
use crate::routes::{
    AgentGatewayRoutes, ControlPlaneRoutes, DaemonRoutes, ServedDirectory, SpacesRoutes,
};

/// The surfaces that a port serves. The port has no routes for an absent surface.
#[derive(Clone)]
pub struct HttpApp {
    control: Option<Arc<ControlPlaneRoutes>>,
    daemon: Option<Arc<DaemonRoutes>>,
    gateway: Option<Arc<AgentGatewayRoutes>>,
    spaces: Option<Arc<SpacesRoutes>>,
    identity: Arc<Identity>,
    guesses: Arc<Guesses>,
    http_metrics: Arc<HttpMetrics>,
    shutdown: CancellationToken,
    /// Tasks that are writing request bodies.
    writes: TaskTracker,
}

impl HttpApp {
    pub fn new(access: HttpAccessPolicy) -> HttpApp {
        HttpApp {
            control: None,
            daemon: None,
            gateway: None,
            spaces: None,
            identity: Arc::new(Identity::new(access)),
            guesses: Arc::new(Guesses::new(TokenGuessLimits::default())),
            http_metrics: Arc::default(),
            shutdown: CancellationToken::new(),
            writes: TaskTracker::new(),
        }
    }

    /// Serves one workspace at `/mcp` and `/ssh`, and shows it at `/health`.
    pub fn with_daemon_routes(mut self, daemon: DaemonRoutes) -> HttpApp {
        self.daemon = Some(Arc::new(daemon));
        self
    }

    /// Serves sessions at `/api/v1`, their approvals at `/v1/approvals`, and the page at `/ui`. The
    /// caller shuts the control plane down after the port is closed.
    pub fn with_control_plane_routes(mut self, control: ControlPlaneRoutes) -> HttpApp {
        self.control = Some(Arc::new(control));
        self
    }

    /// Serves coding agents at `/v1`.
    pub fn with_agent_gateway_routes(mut self, gateway: AgentGatewayRoutes) -> HttpApp {
        self.gateway = Some(Arc::new(gateway));
        self
    }

    /// Serves spaces at `/v1/spaces`, `/v1/runs` and `/v1/policies`. The caller shuts the spaces down after the port
    /// is closed.
    pub fn with_spaces_routes(mut self, spaces: SpacesRoutes) -> HttpApp {
        self.spaces = Some(Arc::new(spaces));
        self
    }

    /// The surface of spaces, or a 404 problem if it is absent.
    pub(crate) fn spaces(&self) -> Result<&Arc<SpacesRoutes>, Problem> {
        self.spaces.as_ref().ok_or_else(|| not_served("spaces are not enabled on this server"))
    }

    /// The control plane's surface, or a 404 problem if it is absent.
    pub(crate) fn control(&self) -> Result<&Arc<ControlPlaneRoutes>, Problem> {
        self.control.as_ref().ok_or_else(|| not_served("sessions are not enabled on this server"))
    }

    /// The daemon's surface, or a 404 problem if it is absent.
    pub(crate) fn daemon(&self) -> Result<&Arc<DaemonRoutes>, Problem> {
        self.daemon.as_ref().ok_or_else(|| not_served("this server serves no workspace"))
    }

    /// The gateway's surface, or a 404 problem if it is absent.
    pub(crate) fn gateway(&self) -> Result<&Arc<AgentGatewayRoutes>, Problem> {
        self.gateway.as_ref().ok_or_else(|| not_served("agents are not enabled on this server"))
    }

    /// The gateway's files, or a 404 problem if no directory is served. Routes get them as
    /// `CallerFiles`, with the caller as the actor.
    pub(crate) fn files(&self) -> Result<&ServedDirectory, Problem> {
        let files = self.gateway()?.files.as_ref();
        files
            .ok_or_else(|| not_served("files are not available: this server has no root directory"))
    }

    /// Makes a one-time link to the web page. The link expires after a few minutes. The cookie that
    /// it sets is valid only for the host name of the link.
    pub fn create_login_link(&self, scheme: &str, port: u16) -> io::Result<String> {
        let (host, path) = self.identity.login_link()?;
        Ok(format!("{scheme}://{host}:{port}{path}"))
    }

    pub(crate) fn with_guessing(mut self, guessing: TokenGuessLimits) -> HttpApp {
        self.guesses = Arc::new(Guesses::new(guessing));
        self
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn guesses(&self) -> &Guesses {
        &self.guesses
    }

    pub(crate) fn http_metrics(&self) -> &Arc<HttpMetrics> {
        &self.http_metrics
    }

    /// A token that is cancelled when the port begins to close. Streams then end at once.
    pub(crate) fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Runs a write of a request body in its own task. If the caller disconnects, the body ends and
    /// the write removes its temporary file. The separate task is needed because the file would
    /// stay if the write were dropped together with its request.
    ///
    /// # Errors
    ///
    /// Fails if the write panicked.
    pub(crate) async fn finish_write<T: Send + 'static>(
        &self,
        write: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        let written = self.writes.spawn(write).await;
        written.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))
    }

    /// Waits until all running writes have ended.
    pub(crate) async fn writes_ended(&self) {
        self.writes.close();
        self.writes.wait().await;
    }

    /// Ends everything that outlives its request, and waits for running writes.
    pub(crate) async fn close(&self) {
        self.shutdown.cancel();
        let daemon = async {
            if let Some(daemon) = &self.daemon {
                daemon.close().await;
            }
        };
        let gateway = async {
            if let Some(gateway) = &self.gateway {
                gateway.close().await;
            }
        };
        if let Some(spaces) = &self.spaces {
            spaces.close();
        }
        let control = async {
            if let Some(control) = &self.control {
                control.close().await;
            }
        };
        tokio::join!(daemon, gateway, control, self.writes_ended());
    }
}

fn not_served(detail: &str) -> Problem {
    Problem::new(ProblemKind::NotFound, detail)
}

impl fmt::Debug for HttpApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpApp")
            .field("control", &self.control)
            .field("daemon", &self.daemon)
            .field("gateway", &self.gateway)
            .finish_non_exhaustive()
    }
}
