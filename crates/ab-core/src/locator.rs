//! How another process opens the same workspace.

use std::any::Any;
use std::sync::Arc;

use crate::path::WsPath;

/// How to open the workspace of a handle from another process, and the scope inside it. Only a
/// handle without guards, restrictions, mounts or scope environment has one, because these cannot
/// be passed on.
#[derive(Clone, Debug)]
pub struct WorkspaceLocator {
    pub opener: WorkspaceOpener,
    pub scope: WsPath,
}

/// What opens the workspace.
#[derive(Clone, Debug)]
pub enum WorkspaceOpener {
    /// The agent-backend program, with these arguments.
    Program(Vec<String>),
    /// The server that has it, as a value of the creator of the handle.
    Server(Arc<dyn Any + Send + Sync>),
}

impl WorkspaceLocator {
    /// Opens it with the agent-backend program.
    pub fn opened_by_program(arguments: Vec<String>) -> WorkspaceLocator {
        WorkspaceLocator { opener: WorkspaceOpener::Program(arguments), scope: WsPath::root() }
    }

    /// Opens it through the server that has it.
    pub fn opened_by_server(server: Arc<dyn Any + Send + Sync>) -> WorkspaceLocator {
        WorkspaceLocator { opener: WorkspaceOpener::Server(server), scope: WsPath::root() }
    }

    pub(crate) fn inside(&self, scope: &WsPath) -> WorkspaceLocator {
        WorkspaceLocator { opener: self.opener.clone(), scope: self.scope.join(scope) }
    }
}
