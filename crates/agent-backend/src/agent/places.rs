//! Maps paths of the workspace to paths that the tools of a session accept, for texts that a model
//! reads.
//!
//! Toolsets may have different roots and prefixes, so the same file has a different path in each of
//! them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::WsPath;

use super::tool::{AgentTool, ToolOrigin};

/// The tool that a model is told to use to read a file.
const READ: &str = "read_text_file";
const EXEC: &str = "exec";

/// The tools of a session and their directories. Empty until all toolsets of the session are open.
#[derive(Debug, Default)]
pub(super) struct ToolPlaces(Mutex<Vec<Arc<ToolOrigin>>>);

impl ToolPlaces {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<ToolOrigin>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the stored tools by `tools`.
    pub(super) fn set(&self, tools: &[AgentTool]) {
        *self.lock() = tools.iter().filter_map(|tool| tool.origin().cloned()).collect();
    }

    /// The name of a tool that can read the file `path` of the workspace, and the path that this
    /// tool accepts.
    pub(super) fn reader(&self, path: &WsPath) -> Option<(String, WsPath)> {
        let places = self.lock();
        let mut readers = places.iter().filter(|place| place.name == READ);
        readers.find_map(|place| Some((place.called.clone(), path.strip_prefix(&place.root)?)))
    }

    /// The absolute path by which commands of the session can access `path`.
    pub(super) fn command_path(&self, path: &WsPath) -> Option<String> {
        let places = self.lock();
        let mut shells = places.iter().filter(|place| place.name == EXEC);
        shells.find_map(|place| {
            let below = path.strip_prefix(&place.root)?;
            let root = place.workspace.info().root_aliases.into_iter().next()?;
            Some(format!("{}/{below}", root.trim_end_matches('/')))
        })
    }

    /// The directory of a tool that can read text files. If there is no such tool, this is the root
    /// of the workspace.
    pub(super) fn readable_root(&self) -> WsPath {
        let places = self.lock();
        let reader = places.iter().find(|place| place.name == READ);
        reader.map(|place| place.root.clone()).unwrap_or_default()
    }

    /// A text that tells a model the path of a file and how to read it.
    pub(super) fn describe(&self, path: &WsPath) -> String {
        if let Some((reader, below)) = self.reader(path) {
            let prefix = reader.strip_suffix(READ).unwrap_or_default();
            return format!("'{below}'; {reader} and {prefix}grep show more of it");
        }
        match self.command_path(path) {
            Some(found) => format!("'{found}', where commands find it"),
            None => format!("'{path}' of the workspace, which no tool of this session reads"),
        }
    }
}
