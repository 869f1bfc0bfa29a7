//! Views through the handle: other workspaces mounted into this one, and changes kept apart from it.

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
    /// A handle on this workspace with another one at `path`. Further mounts are made from the
    /// handle that this returns, in any order: the longest mount point that a path lies under
    /// owns it.
    ///
    /// The handle lives as long as this one, and destroying it ends neither workspace. What lies
    /// at or below `path` in this workspace cannot be named through it. A rename from one
    /// workspace to the other copies, then removes, and says that it was not atomic.
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

    /// This workspace with changes that go to `upper`, an empty workspace or one that was the upper
    /// layer of this one before. Nothing here is changed but by [`OverlayWorkspace::commit`].
    ///
    /// The handle lives as long as this one, and destroying it ends neither workspace. An overlay
    /// cannot be an upper layer itself, since its marks would be mistaken for its own; laid over
    /// one, it works.
    pub fn overlay(&self, upper: &Backend) -> Result<OverlayWorkspace> {
        self.life.check(Verb::Stat)?;
        upper.life.check(Verb::Stat)?;
        let refused = |message| {
            Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_backend(BackendKind::Overlay))
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

/// A workspace whose changes are kept apart, until they are committed or discarded. Clones share
/// them.
///
/// Two of these over the same upper workspace do not take turns with each other.
#[derive(Clone)]
pub struct OverlayWorkspace {
    backend: Backend,
    overlay: Arc<Overlay>,
}

impl OverlayWorkspace {
    /// The handle that sees the changes and makes more.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// What was changed, in path order. Looks only at what the upper layer has.
    pub async fn diff(&self) -> Result<Vec<OverlayChange>> {
        self.backend.life.check(Verb::List)?;
        self.overlay.diff().await
    }

    /// Brings the changes to the lower layer and empties the upper one.
    ///
    /// Readers see the same throughout. After a failure, what was not brought over is still a
    /// change, and committing again goes on. What the lower layer has become meanwhile is
    /// overwritten where there is a change. A file that is still open for writing loses what is
    /// written to it from then on.
    pub async fn commit(&self) -> Result<()> {
        self.backend.life.check(Verb::Write)?;
        self.overlay.commit().await
    }

    /// Lets the changes go: the lower layer shows again as it is.
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
