//! Translates paths between the workspace of the client and the workspace of the server.
//!
//! For the server, the innermost scope root of a path is the root of a workspace. The server
//! resolves the rest of the path below this root, and the paths in its answers are relative to this
//! root.

use ab_core::metadata::WalkProblem;
use ab_core::{Error, PathParser, Result, WsPath};

/// The path of a call, as the client writes it and as the server does.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The path that is sent to the server.
    pub(crate) path: WsPath,
    /// The directory to which the paths in the server's answers are relative.
    behind: WsPath,
    base: WsPath,
}

impl Place {
    /// Translates the path of a call. `base` is the path of the client's workspace in the server's
    /// workspace.
    pub(crate) fn new(base: &WsPath, path: &WsPath) -> Self {
        let path = base.join(path);
        let behind = plain(&path.split_at_scope_roots().scopes.join("/"));
        Self { path, behind, base: base.clone() }
    }

    /// Translates answers whose paths are relative to the root of the server's workspace.
    pub(crate) fn whole(base: &WsPath) -> Self {
        Self { path: base.clone(), behind: WsPath::root(), base: base.clone() }
    }

    /// Translates a path in the server's answer to a path in the client's workspace.
    pub(crate) fn inward(&self, path: &WsPath) -> WsPath {
        let path = self.behind.join(path);
        path.strip_prefix(&self.base).unwrap_or(path)
    }

    fn inward_text(&self, text: &str) -> String {
        match PathParser::lenient().allow_reserved_names().parse(text) {
            Ok(path) => self.inward(&path).to_string(),
            Err(_) => text.to_owned(),
        }
    }

    pub(crate) fn error(&self, error: Error) -> Error {
        match error.path().map(|path| self.inward_text(path)) {
            Some(path) => error.with_path(path),
            None => error,
        }
    }

    pub(crate) fn shown<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.error(error))
    }

    pub(crate) fn problems(&self, problems: &mut [WalkProblem]) {
        for problem in problems {
            problem.path = self.inward_text(&problem.path);
            problem.error = self.error(problem.error.clone());
        }
    }
}

fn plain(text: &str) -> WsPath {
    let rules = PathParser::lenient().allow_reserved_names();
    let parsed = if text.is_empty() { None } else { rules.parse(text).ok() };
    parsed.unwrap_or_else(WsPath::root)
}
