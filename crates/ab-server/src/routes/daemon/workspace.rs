//! The workspace that the port serves, and the scope that a request selects.

use std::fmt;

use ab_core::{Backend, EffectivePolicy, Error, NarrowOptions, Principal, ScopeOptions};
use ab_mcp::{McpHttpEndpoint, McpHttpSettings};
use ab_remote::SshServer;
use axum::http::{HeaderMap, HeaderName};
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use crate::problem::{Problem, ProblemKind};

const ROOT_DIR: HeaderName = HeaderName::from_static("x-root-dir");
const SCOPE_PATH: HeaderName = HeaderName::from_static("x-scope-path");

/// One workspace, with everything that is needed to serve it.
pub struct DaemonRoutes {
    pub(crate) backend: Backend,
    /// The workspace path that was given when the daemon was started.
    pub(crate) root_dir: String,
    /// Whether the daemon was started for a scope of the workspace. In this case requests cannot
    /// select a scope.
    pub(crate) scoped: bool,
    pub(crate) conventional_ssh: bool,
    pub(crate) mcp: McpHttpEndpoint,
    /// SSH over WebSockets, unless it is turned off.
    pub(crate) ssh: Option<SshServer>,
    /// Tracks upgraded connections until they have ended.
    pub(crate) sockets: TaskTracker,
    /// The controls that are in force for commands, once they are known.
    in_force: OnceCell<EffectivePolicy>,
}

impl DaemonRoutes {
    pub fn new(
        backend: Backend,
        root_dir: impl Into<String>,
        mcp_settings: &McpHttpSettings,
    ) -> DaemonRoutes {
        let mcp = McpHttpEndpoint::new(&backend, mcp_settings);
        DaemonRoutes {
            backend,
            root_dir: root_dir.into(),
            scoped: false,
            conventional_ssh: false,
            mcp,
            ssh: None,
            sockets: TaskTracker::new(),
            in_force: OnceCell::new(),
        }
    }

    /// Determines the controls that are in force, once. This may run test programs.
    pub(crate) async fn find_out(&self) -> Result<&EffectivePolicy, Error> {
        self.in_force.get_or_try_init(|| self.backend.effective_policy()).await
    }

    /// The controls that are in force, if they are already known.
    pub(crate) fn in_force(&self) -> Option<&EffectivePolicy> {
        self.in_force.get()
    }

    /// Refuses requests that select a scope. This is used when `backend` is already a scope for all
    /// callers.
    pub fn reject_requested_scopes(mut self) -> DaemonRoutes {
        self.scoped = true;
        self
    }

    /// Adds SSH over WebSockets.
    pub fn with_ssh(mut self, ssh: SshServer) -> DaemonRoutes {
        self.ssh = Some(ssh);
        self
    }

    /// Sets whether the daemon reports that it also serves SSH on a separate port. Does not open
    /// the port.
    pub fn report_separate_ssh_port(mut self, has_port: bool) -> DaemonRoutes {
        self.conventional_ssh = has_port;
        self
    }

    /// Ends everything except running HTTP requests.
    pub(crate) async fn close(&self) {
        self.mcp.close();
        if let Some(ssh) = &self.ssh {
            ssh.shut_down().await;
        }
        self.sockets.close();
        self.sockets.wait().await;
    }

    /// The workspace, or the scope that the headers select. The caller is the actor of all calls
    /// through this handle.
    pub(crate) fn view(
        &self,
        headers: &HeaderMap,
        principal: &Principal,
    ) -> Result<Backend, Problem> {
        let scope = self.requested_scope(headers)?;
        Ok(scope.narrow(NarrowOptions::for_actor(principal.clone()))?)
    }

    fn requested_scope(&self, headers: &HeaderMap) -> Result<Backend, Problem> {
        self.agrees_on_root(headers)?;
        let Some(scope) = text(headers, &SCOPE_PATH)? else { return Ok(self.backend.clone()) };
        if self.scoped {
            let message =
                "the server was started inside a scope; X-Scope-Path cannot choose another";
            return Err(Problem::new(ProblemKind::Invalid, message).titled("Scope conflict"));
        }
        let invalid = |message: String| {
            Problem::new(ProblemKind::Invalid, message).titled("Invalid scope path")
        };
        if scope.split('/').any(|segment| segment == "..") {
            let message = "Scope path must not contain path traversal sequences";
            return Err(invalid(message.to_owned()));
        }
        let options = ScopeOptions::default();
        self.backend.scope(scope, options).map_err(|error| invalid(error.to_string()))
    }

    /// Checks that the root in a client's header is the served root. Ignores `undefined`, which
    /// some clients send.
    fn agrees_on_root(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(named) = text(headers, &ROOT_DIR)? else { return Ok(()) };
        let bare = |path: &str| match path.trim_end_matches('/') {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        let named = bare(named);
        let info = self.backend.info();
        let ours = bare(&self.root_dir);
        let known = ours == named || info.root_aliases.iter().any(|alias| bare(alias) == named);
        if known || named == "undefined" {
            return Ok(());
        }
        let shown = ab_core::error::escape_unprintable(&named);
        let message = format!("Server is configured for {}, not {shown}", self.root_dir);
        Err(Problem::new(ProblemKind::Forbidden, message).titled("Root directory mismatch"))
    }
}

impl fmt::Debug for DaemonRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DaemonRoutes").field("root_dir", &self.root_dir).finish_non_exhaustive()
    }
}

/// The text of a header that may occur at most once.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let malformed = |why| {
        let message = format!("{name} {why}");
        Problem::new(ProblemKind::Invalid, message).titled("Bad header")
    };
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(malformed("occurs twice")),
        (Some(value), None) => match str::from_utf8(value.as_bytes()) {
            Ok("") => Ok(None),
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(malformed("is not UTF-8")),
        },
    }
}
