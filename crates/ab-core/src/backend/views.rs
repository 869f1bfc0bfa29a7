//! Views through the handle: mounts of other workspaces, and overlays.

use std::fmt;
use std::sync::Arc;

use super::Backend;
use crate::call::Verb;
use crate::driver::BackendKind;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::mounts::{Mount, Mounts};
use crate::overlay::{Overlay, OverlayChange};
use crate::path::PathInput;
use crate::stack::Stack;

impl Backend {
    /// A handle on this workspace with another workspace mounted at `path`. Further mounts can be
    /// added to the returned handle, in any order. If several mount points are prefixes of a path,
    /// the longest one applies.
    ///
    /// The handle lives as long as this handle, and destroying it ends neither workspace. Files of
    /// this workspace at or below `path` cannot be reached through the new handle. A rename from
    /// one workspace to the other copies the file and then removes the source. The outcome reports
    /// that this was not atomic.
    pub fn mount<'p>(&self, path: impl Into<PathInput<'p>>, other: &Backend) -> Result<Backend> {
        let point = self.parse(Verb::Stat, path)?;
        other.life.check(Verb::Stat)?;
        let mount = Mount { point, stack: other.stack.clone(), life: other.life.clone() };
        let mounts = Arc::new(match &self.mounts {
            Some(mounts) => mounts.with(mount)?,
            None => Mounts::new(self.stack.clone(), mount)?,
        });
        let derived = self.viewed(Stack::mounted(mounts.clone()));
        Ok(Backend { mounts: Some(mounts), ..derived })
    }

    /// A handle on this workspace that stores all changes in `upper`. `upper` must be empty, or
    /// must have been an upper layer of this workspace before. Only [`OverlayWorkspace::commit`]
    /// changes this workspace.
    ///
    /// The handle lives as long as this handle, and destroying it ends neither workspace. An
    /// overlay cannot be used as an upper layer. Both overlays mark removed paths with files, and
    /// these files would be confused with each other. An overlay can be used as a lower layer.
    pub fn overlay(&self, upper: &Backend) -> Result<OverlayWorkspace> {
        self.life.check(Verb::Stat)?;
        upper.life.check(Verb::Stat)?;
        let refused = |message| {
            Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_backend_kind(BackendKind::Overlay))
        };
        if upper.info().kind == BackendKind::Overlay {
            return refused("an overlay cannot be the upper layer of another");
        }
        if Arc::ptr_eq(self.driver(), upper.driver()) {
            return refused("a workspace cannot be laid over itself");
        }
        let (lower, life) = (self.stack.clone(), upper.life.clone());
        let overlay = Arc::new(Overlay::new(lower, upper.stack.clone(), life));
        let backend = self.viewed(Stack::overlaid(overlay.clone()));
        Ok(OverlayWorkspace { backend, overlay })
    }
}

/// A workspace whose changes are stored separately until they are committed or discarded. Clones
/// share the changes.
///
/// Changes through two overlays with the same upper workspace are not synchronized with each other.
#[derive(Clone)]
pub struct OverlayWorkspace {
    backend: Backend,
    overlay: Arc<Overlay>,
}

impl OverlayWorkspace {
    /// The handle through which callers see and make the changes.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The changes, in path order. Only the entries of the upper layer are read.
    pub async fn diff(&self) -> Result<Vec<OverlayChange>> {
        self.backend.life.check(Verb::List)?;
        self.overlay.diff().await
    }

    /// Writes the changes to the lower layer and empties the upper layer.
    ///
    /// Readers see the same content throughout. After a failure, the remaining changes are kept,
    /// and another commit continues. The commit overwrites other changes that were made in the
    /// lower layer since the overlay was created. If a file was open during the commit, bytes that
    /// are written to it afterwards are lost.
    pub async fn commit(&self) -> Result<()> {
        self.backend.life.check(Verb::Write)?;
        self.overlay.commit().await
    }

    /// Discards the changes. The lower layer is visible again.
    pub async fn discard(&self) -> Result<()> {
        self.backend.life.check(Verb::Delete)?;
        self.overlay.discard().await
    }
}

impl fmt::Debug for OverlayWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlaid").field("backend", &self.backend).finish_non_exhaustive()
    }
}
