//! `list_allowed_directories`: names the root of the workspace.

use ab_core::Backend;

use super::Outcome;
use crate::answer::ToolAnswer;

pub(crate) fn call(backend: &Backend) -> Outcome {
    let root = backend.info().root_aliases.into_iter().next().unwrap_or_else(|| "/".to_owned());
    Ok(ToolAnswer::text(format!("Allowed directories:\n{root}")))
}
