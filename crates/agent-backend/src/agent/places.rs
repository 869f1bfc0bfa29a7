//! Where the tools of a session work, so that a model is told a path as its tools take it.
//!
//! Toolsets may have different roots and prefixes: the same file has another path in each of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::WsPath;

use super::tool::{AgentTool, ToolOrigin};

/// The tool whose path a model is told.
const READ: &str = "read_text_file";
const EXEC: &str = "exec";

/// The places of the tools of a session. Known when all its toolsets are open.
#[derive(Debug, Default)]
pub(super) struct ToolPlaces(Mutex<Vec<Arc<ToolOrigin>>>);

impl ToolPlaces {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<ToolOrigin>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the places by those of `tools`.
    pub(super) fn set(&self, tools: &[AgentTool]) {
        *self.lock() = tools.iter().filter_map(|tool| tool.origin().cloned()).collect();
    }

    /// A tool that reads the file `path` of the workspace, and the path that it takes.
    pub(super) fn reader(&self, path: &WsPath) -> Option<(String, WsPath)> {
        let places = self.lock();
        let mut readers = places.iter().filter(|place| place.name == READ);
        readers.find_map(|place| Some((place.called.clone(), path.strip_prefix(&place.root)?)))
    }

    /// The absolute path under which commands of the session find `path`.
    pub(super) fn command_path(&self, path: &WsPath) -> Option<String> {
        let places = self.lock();
        let mut shells = places.iter().filter(|place| place.name == EXEC);
        shells.find_map(|place| {
            let below = path.strip_prefix(&place.root)?;
            let root = place.workspace.info().root_aliases.into_iter().next()?;
            Some(format!("{}/{below}", root.trim_end_matches('/')))
        })
    }

    /// A directory that a tool of the session reads.
    pub(super) fn readable_root(&self) -> WsPath {
        let places = self.lock();
        let reader = places.iter().find(|place| place.name == READ);
        reader.map(|place| place.root.clone()).unwrap_or_default()
    }

    /// Tells a model where the file `path` is and how to read it.
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
