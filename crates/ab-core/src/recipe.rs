//! How a program of its own can open the same workspace.

use crate::path::WsPath;

/// The arguments with which the agent-backend program opens the workspace of a handle, and the scope
/// inside it. Only a handle that nothing stands before has one: what guards, restrictions, mounts or
/// a scope's own environment do cannot be said in arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub arguments: Vec<String>,
    pub scope: WsPath,
}

impl Recipe {
    pub fn new(arguments: Vec<String>) -> Recipe {
        Recipe { arguments, scope: WsPath::root() }
    }

    pub(crate) fn inside(&self, scope: &WsPath) -> Recipe {
        Recipe { arguments: self.arguments.clone(), scope: self.scope.join(scope) }
    }
}
