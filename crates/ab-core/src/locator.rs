//! Describes how another process can open the same workspace.

use std::any::Any;
use std::sync::Arc;

use crate::path::WsPath;

/// How another process can open the workspace of a handle, and the scope inside it. A handle with
/// guards, restrictions, mounts or a scope environment has no locator, because these cannot be
/// transferred to another process.
#[derive(Clone, Debug)]
pub struct WorkspaceLocator {
    pub opener: WorkspaceOpener,
    pub scope: WsPath,
}

/// The program or the server through which another process opens the workspace.
#[derive(Clone, Debug)]
pub enum WorkspaceOpener {
    /// The agent-backend program, with these arguments.
    Program(Vec<String>),
    /// The server of the workspace. The creator of the handle defines what the value contains.
    Server(Arc<dyn Any + Send + Sync>),
}

impl WorkspaceLocator {
    /// A locator for a workspace that the agent-backend program opens.
    pub fn opened_by_program(arguments: Vec<String>) -> WorkspaceLocator {
        WorkspaceLocator { opener: WorkspaceOpener::Program(arguments), scope: WsPath::root() }
    }

    /// A locator for a workspace that is opened through its server.
    pub fn opened_by_server(server: Arc<dyn Any + Send + Sync>) -> WorkspaceLocator {
        WorkspaceLocator { opener: WorkspaceOpener::Server(server), scope: WsPath::root() }
    }

    pub(crate) fn inside(&self, scope: &WsPath) -> WorkspaceLocator {
        WorkspaceLocator { opener: self.opener.clone(), scope: self.scope.join(scope) }
    }
}
