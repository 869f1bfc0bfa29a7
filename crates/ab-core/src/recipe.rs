//! How somebody else opens the same workspace.

use std::any::Any;
use std::sync::Arc;

use crate::path::WsPath;

/// How the workspace of a handle is opened without that handle, and the scope inside it. Only a
/// handle that nothing stands before has one: what guards, restrictions, mounts or a scope's own
/// environment do cannot be said to others.
#[derive(Clone, Debug)]
pub struct WorkspaceLocator {
    pub opener: WorkspaceOpener,
    pub scope: WsPath,
}

/// What opens it.
#[derive(Clone, Debug)]
pub enum WorkspaceOpener {
    /// The agent-backend program, with these arguments.
    Program(Vec<String>),
    /// The server that has it, in the words of whoever made the handle.
    Server(Arc<dyn Any + Send + Sync>),
}

impl WorkspaceLocator {
    /// By the agent-backend program.
    pub fn via_program(arguments: Vec<String>) -> WorkspaceLocator {
        WorkspaceLocator { opener: WorkspaceOpener::Program(arguments), scope: WsPath::root() }
    }

    /// By the server that has it.
    pub fn via_server(server: Arc<dyn Any + Send + Sync>) -> WorkspaceLocator {
        WorkspaceLocator { opener: WorkspaceOpener::Server(server), scope: WsPath::root() }
    }

    pub(crate) fn inside(&self, scope: &WsPath) -> WorkspaceLocator {
        WorkspaceLocator { opener: self.opener.clone(), scope: self.scope.join(scope) }
    }
}
