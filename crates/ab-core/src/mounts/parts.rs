//! The base of a tree of mounts, or one mount: translates paths to its driver and back.

use async_trait::async_trait;
use bytes::Bytes;

use super::Mount;
use crate::call::Verb;
use crate::driver::{Driver, File};
use crate::error::{Error, Result};
use crate::life::Life;
use crate::metadata::{Listing, Stat, WalkProblem};
use crate::options::AttributeChanges;
use crate::path::WsPath;

/// The base or one mount of a tree.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) driver: &'a dyn Driver,
    /// The mount point. The root for the base.
    pub(super) point: &'a WsPath,
    /// The lifetime of the mounted handle. `None` for the base, which lives as long as the view.
    pub(super) life: Option<&'a Life>,
}

impl<'a> Part<'a> {
    pub(super) fn of(mount: &'a Mount) -> Self {
        Self { driver: &**mount.stack.driver(), point: &mount.point, life: Some(&mount.life) }
    }

    /// Fails if the owner of the workspace has destroyed it.
    pub(super) fn check(&self, verb: Verb) -> Result<()> {
        let Some(life) = self.life else { return Ok(()) };
        life.check(verb).map_err(|error| {
            let hint = format!("the backend that is mounted at '{}' was destroyed", self.point);
            error.with_path(self.point.to_string()).with_hint(hint)
        })
    }

    /// Translates a path of the tree for this driver. Keeps the path's scope roots below the mount
    /// point. Drops other scope roots, because links inside a mount never lead out of the mount.
    pub(super) fn inward(&self, path: &WsPath) -> WsPath {
        path.strip_prefix(self.point).unwrap_or_else(|| path.clone())
    }

    pub(super) fn outward(&self, path: &WsPath) -> WsPath {
        self.point.join(path)
    }

    /// Translates the path in an error back to the path in the tree.
    pub(super) fn shown<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.shown_error(error))
    }

    pub(super) fn shown_error(&self, error: Error) -> Error {
        shown_error(self.point, error)
    }

    pub(super) fn shown_listing(&self, mut listing: Listing) -> Listing {
        for entry in &mut listing.entries {
            entry.path = self.outward(&entry.path);
        }
        self.show_problems(&mut listing.problems);
        listing
    }

    pub(super) fn show_problems(&self, problems: &mut [WalkProblem]) {
        for problem in problems {
            if let Some(path) = outward_text(self.point, &problem.path) {
                problem.path = path;
            }
            problem.error = self.shown_error(problem.error.clone());
        }
    }
}

fn shown_error(point: &WsPath, error: Error) -> Error {
    error.map_path(|path| outward_text(point, path))
}

/// The path with the mount point in front of it. `None` for the base, whose paths are not changed.
fn outward_text(point: &WsPath, text: &str) -> Option<String> {
    match (point.is_root(), text) {
        (true, _) => None,
        (false, ".") => Some(point.to_string()),
        (false, below) => Some(format!("{point}/{below}")),
    }
}

/// An open file of a mount. The paths in its errors are translated back to paths in the tree.
#[derive(Debug)]
pub(super) struct MountedFile {
    pub(super) inner: Box<dyn File>,
    pub(super) point: WsPath,
}

impl MountedFile {
    fn shown<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| shown_error(&self.point, error))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl File for MountedFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.shown(self.inner.read_at(offset, length).await)
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        self.shown(self.inner.write_at(offset, bytes).await)
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        self.shown(self.inner.set_len(length).await)
    }

    async fn stat(&self) -> Result<Stat> {
        self.shown(self.inner.stat().await)
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        self.shown(self.inner.set_attributes(attributes).await)
    }

    async fn sync(&self) -> Result<()> {
        self.shown(self.inner.sync().await)
    }
}
