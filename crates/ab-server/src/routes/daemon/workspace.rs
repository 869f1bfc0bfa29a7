//! The workspace that the port serves, and the part of it that a request is about.

use std::fmt;

use ab_core::{Backend, EffectivePolicy, Error, ScopeOptions};
use ab_mcp::{HttpEndpoint, HttpSettings};
use ab_remote::SshServer;
use axum::http::{HeaderMap, HeaderName};
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use crate::problem::{Problem, ProblemKind};

const ROOT_DIR: HeaderName = HeaderName::from_static("x-root-dir");
const SCOPE_PATH: HeaderName = HeaderName::from_static("x-scope-path");

/// One workspace, ready to be served.
pub struct DaemonRoutes {
    pub(crate) backend: Backend,
    /// As it was named when the daemon was started.
    pub(crate) root_dir: String,
    /// Whether the daemon was started inside a scope, so that requests cannot choose one.
    pub(crate) scoped: bool,
    pub(crate) conventional_ssh: bool,
    pub(crate) mcp: HttpEndpoint,
    /// By WebSocket, unless that is turned off.
    pub(crate) ssh: Option<SshServer>,
    /// Sockets that left HTTP, until each has ended.
    pub(crate) sockets: TaskTracker,
    /// What is in force for commands, once that was found out.
    in_force: OnceCell<EffectivePolicy>,
}

impl DaemonRoutes {
    pub fn new(backend: Backend, root_dir: impl Into<String>, http: &HttpSettings) -> DaemonRoutes {
        let mcp = HttpEndpoint::new(&backend, http);
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

    /// Finds out what is in force, which may need programs to be tried; once is enough.
    pub(crate) async fn find_out(&self) -> Result<&EffectivePolicy, Error> {
        self.in_force.get_or_try_init(|| self.backend.effective_policy()).await
    }

    /// What was found out so far.
    pub(crate) fn in_force(&self) -> Option<&EffectivePolicy> {
        self.in_force.get()
    }

    /// `backend` is a scope that was chosen for everybody.
    pub fn reject_requested_scopes(mut self) -> DaemonRoutes {
        self.scoped = true;
        self
    }

    /// With SSH over WebSockets.
    pub fn with_ssh(mut self, ssh: SshServer) -> DaemonRoutes {
        self.ssh = Some(ssh);
        self
    }

    /// Whether the daemon also serves SSH on a port of its own, which is only told here.
    pub fn report_separate_ssh_port(mut self, beside: bool) -> DaemonRoutes {
        self.conventional_ssh = beside;
        self
    }

    /// Ends what is not a request.
    pub(crate) async fn close(&self) {
        self.mcp.close();
        if let Some(ssh) = &self.ssh {
            ssh.shut_down().await;
        }
        self.sockets.close();
        self.sockets.wait().await;
    }

    /// The part that the headers name.
    pub(crate) fn view(&self, headers: &HeaderMap) -> Result<Backend, Problem> {
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

    /// Clients say which root they believe in. Some say `undefined`, which means nothing.
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

/// The text of a header that may be there once.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let malformed = |why| {
        let message = format!("{name} {why}");
        Problem::new(ProblemKind::Invalid, message).titled("Bad header")
    };
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(malformed("is there twice")),
        (Some(value), None) => match str::from_utf8(value.as_bytes()) {
            Ok("") => Ok(None),
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(malformed("is no UTF-8 text")),
        },
    }
}
