//! Changes through an overlay. Each change is made in the upper layer. The files that the change
//! needs are first copied there from the lower layer.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;

use super::look::{Spot, as_dir};
use super::{Overlay, Turn, exists, is_a_directory, marks, missing, named};
use crate::call::Verb;
use crate::driver::File;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{FileKind, RemoveOutcome, Stat};
use crate::options::{
    AttributeChanges, EntryDetailLevel, ExistingContentHandling, FileCreationMode, LinkHandling,
    ListOptions, OnMissingTarget, OpenOptions, RemoveDepth, RemoveOptions, WriteMode, WriteOptions,
};
use crate::path::WsPath;
use crate::transfer::{self, Onto, TransferEnd, TransferFailure};

/// The permission bits that a new directory gets by default.
const DIR_MODE: u32 = 0o755;
const PERMISSIONS: u32 = 0o777;

impl Overlay {
    pub(super) async fn write_file(
        &self,
        verb: Verb,
        path: &WsPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<Stat> {
        let _tree = self.locks.tree.read().await;
        let (_turn, spot) = self.file_turn(verb, path, LinkHandling::Follow).await?;
        must_be_file(verb, path, spot.kind())?;
        let below = match (&spot.upper, &spot.lower) {
            // The upper layer has the file, so it can check the options itself.
            (Some(_), _) => {
                return named(verb, path, self.upper.write(&spot.path, content, options).await);
            }
            (None, below) => below.as_ref(),
        };
        if let Some(expected) = options.expected_version
            && below.is_none_or(|stat| stat.version != expected)
        {
            let message = "the file does not have the expected version";
            return Err(Error::for_path(verb, path, ErrorKind::Conflict, message));
        }
        let options = match (below, options.mode) {
            (Some(_), WriteMode::CreateNew) => return Err(exists(verb, path)),
            (Some(stat), WriteMode::CreateIfMissing) => return Ok(stat.clone()),
            (None, WriteMode::Replace) => return Err(missing(verb, path)),
            (Some(stat), WriteMode::CreateOrReplace | WriteMode::Replace) => WriteOptions {
                mode: WriteMode::CreateNew,
                permissions: stat.mode,
                expected_version: None,
                ..options
            },
            (
                None,
                WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::CreateIfMissing,
            ) => WriteOptions { expected_version: None, ..options },
        };
        named(verb, path, self.prepare(&spot).await)?;
        named(verb, path, self.upper.write(&spot.path, content, options).await)
    }

    pub(super) async fn open_file(
        &self,
        path: &WsPath,
        options: OpenOptions,
    ) -> Result<Box<dyn File>> {
        let verb = Verb::Open;
        let (spot, inner) = if options.may_modify() {
            let _tree = self.locks.tree.read().await;
            let (_turn, spot) = self.file_turn(verb, path, LinkHandling::Follow).await?;
            let file = self.open_to_change(path, &spot, options).await?;
            (spot, file)
        } else {
            let spot = self.look(verb, path, LinkHandling::Follow).await?;
            must_be_file(verb, path, spot.kind())?;
            let layer = spot.layer().ok_or_else(|| missing(verb, path))?;
            let file = named(verb, path, self.layer(layer).open(&spot.path, options).await)?;
            (spot, file)
        };
        if spot.path == *path {
            return Ok(inner);
        }
        Ok(Box::new(NamedFile { inner, path: path.clone() }))
    }

    async fn open_to_change(
        &self,
        path: &WsPath,
        spot: &Spot,
        options: OpenOptions,
    ) -> Result<Box<dyn File>> {
        let verb = Verb::Open;
        must_be_file(verb, path, spot.kind())?;
        match (&spot.upper, &spot.lower, options.create) {
            (None, None, FileCreationMode::Never) => return Err(missing(verb, path)),
            (None, None, FileCreationMode::IfMissing | FileCreationMode::MustBeNew) => {
                named(verb, path, self.prepare(spot).await)?;
            }
            (Some(_), _, _) => {}
            (None, Some(_), FileCreationMode::MustBeNew) => return Err(exists(verb, path)),
            (None, Some(_), FileCreationMode::Never | FileCreationMode::IfMissing) => {
                if !options.access.can_write() {
                    return named(verb, path, self.lower.open(&spot.path, options).await);
                }
                let copied = match options.existing {
                    ExistingContentHandling::Keep => self.copy_up(spot).await,
                    ExistingContentHandling::Truncate => self.copy_up_empty(spot).await,
                };
                named(verb, path, copied)?;
            }
        }
        named(verb, path, self.upper.open(&spot.path, options).await)
    }

    pub(super) async fn change_attributes(
        &self,
        path: &WsPath,
        attributes: AttributeChanges,
    ) -> Result<Stat> {
        let verb = Verb::SetAttributes;
        self.alive(verb)?;
        match attributes.mode {
            Some(_) if !self.capabilities.file_modes => return self.lacks(verb),
            Some(mode) if mode > PERMISSIONS => {
                let message = "only permission bits up to 777 can be set";
                return Err(Error::for_path(verb, path, ErrorKind::Invalid, message));
            }
            Some(_) | None => {}
        }
        let _tree = self.locks.tree.read().await;
        let (_turn, spot) = self.file_turn(verb, path, LinkHandling::Follow).await?;
        let now = named(verb, path, self.describe(&spot).await)?;
        let now = now.ok_or_else(|| missing(verb, path))?;
        if attributes == AttributeChanges::default() {
            return Ok(now);
        }
        named(verb, path, self.set_in_upper(&spot, &now, attributes).await)
    }

    async fn set_in_upper(
        &self,
        spot: &Spot,
        now: &Stat,
        attributes: AttributeChanges,
    ) -> Result<Stat> {
        if spot.upper.is_none() {
            self.copy_up(spot).await?;
        }
        if self.has_real_dirs || !now.kind.is_dir() {
            return self.upper.set_attributes(&spot.path, attributes).await;
        }
        self.keep(&spot.path, Some(now)).await?;
        let keeper = marks::keeper_in(&spot.path);
        self.upper.set_attributes(&keeper, attributes).await.map(as_dir)
    }

    pub(super) async fn make_link(&self, path: &WsPath, target: &str) -> Result<()> {
        let verb = Verb::Symlink;
        if !self.capabilities.symlinks {
            return self.lacks(verb);
        }
        let _tree = self.locks.tree.read().await;
        let (_turn, spot) = self.file_turn(verb, path, LinkHandling::NoFollow).await?;
        if spot.kind().is_some() {
            return Err(exists(verb, path));
        }
        named(verb, path, self.prepare(&spot).await)?;
        named(verb, path, self.upper.symlink(&spot.path, target).await)
    }

    pub(super) async fn make_dir(&self, path: &WsPath) -> Result<()> {
        let verb = Verb::Mkdir;
        let _tree = self.locks.tree.read().await;
        let spot = self.look_to_change(verb, path, LinkHandling::Follow).await?;
        match spot.kind() {
            Some(FileKind::Dir) => Ok(()),
            Some(FileKind::File | FileKind::Symlink | FileKind::Other) => Err(exists(verb, path)),
            None => {
                named(verb, path, self.prepare(&spot).await)?;
                named(verb, path, self.make_upper_dir(&spot.path, None).await)
            }
        }
    }

    pub(super) async fn take_away(
        &self,
        path: &WsPath,
        options: RemoveOptions,
    ) -> Result<RemoveOutcome> {
        let verb = Verb::Delete;
        let _tree = self.locks.tree.write().await;
        let spot = match self.look_to_displace(verb, path).await {
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && options.missing == OnMissingTarget::Ignore =>
            {
                return Ok(RemoveOutcome::default());
            }
            result => result?,
        };
        let count = match (spot.kind(), options.depth) {
            (None, _) if options.missing == OnMissingTarget::Ignore => {
                return Ok(RemoveOutcome::default());
            }
            (None, _) => return Err(missing(verb, path)),
            (Some(FileKind::Dir), RemoveDepth::NonRecursive) => {
                if !named(verb, path, self.is_empty(&spot).await)? {
                    let message = "the directory is not empty";
                    return Err(Error::for_path(verb, path, ErrorKind::NotEmpty, message)
                        .with_hint("remove it recursively"));
                }
                1
            }
            (Some(FileKind::Dir), RemoveDepth::Recursive) => {
                let whole = ListOptions {
                    max_depth: usize::MAX,
                    max_entries: usize::MAX,
                    detail: EntryDetailLevel::Kind,
                };
                let below = named(verb, path, self.tree_below(&spot, whole).await)?;
                below.nodes.len() as u64 + 1
            }
            (Some(FileKind::File | FileKind::Symlink | FileKind::Other), _) => 1,
        };
        named(verb, path, self.take_from_layers(&spot).await)?;
        Ok(RemoveOutcome { count })
    }

    /// Removes the file or directory at `spot` from both layers. Hides it in the lower layer first,
    /// because the lower entry would otherwise be visible for a moment.
    pub(super) async fn take_from_layers(&self, spot: &Spot) -> Result<()> {
        self.hide_or_keep(spot).await?;
        if spot.upper.is_some() {
            // A directory that appears empty to callers may still contain marker files.
            self.upper.remove(&spot.path, RemoveOptions::recursive().missing_ok()).await?;
        }
        Ok(())
    }

    /// Prepares the removal of a path from the upper layer: hides the file or directory in the
    /// lower layer, and makes sure that the parent directory continues to exist.
    pub(super) async fn hide_or_keep(&self, spot: &Spot) -> Result<()> {
        if spot.lower.is_some() {
            return self.hide(spot).await;
        }
        match spot.path.parent() {
            Some(parent) if !self.has_real_dirs && !spot.is_in_lower_dir && !parent.is_root() => {
                self.keep(&parent, None).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Hides a path of the lower layer with a marker file. A file in the upper layer with the same
    /// path stays visible.
    pub(super) async fn hide(&self, spot: &Spot) -> Result<()> {
        let Some((path, whiteout)) = marks::whiteout_of(&spot.path) else { return Ok(()) };
        self.prepare(spot).await?;
        self.upper.write(&path, whiteout.content.into(), WriteOptions::default()).await.map(drop)
    }

    /// Creates the missing parent directories of a path in the upper layer, with the modes that
    /// they have in the lower layer.
    pub(super) async fn prepare(&self, spot: &Spot) -> Result<()> {
        if !self.has_real_dirs {
            return Ok(());
        }
        for (path, stat) in &spot.above {
            self.make_upper_dir(path, Some(stat)).await?;
        }
        Ok(())
    }

    /// Creates a directory in the upper layer. It gets the mode of the directory in the lower
    /// layer, if there is one.
    pub(super) async fn make_upper_dir(&self, path: &WsPath, like: Option<&Stat>) -> Result<()> {
        if !self.has_real_dirs {
            return self.keep(path, like).await;
        }
        self.upper.create_dir(path).await?;
        let mode = like.and_then(|stat| stat.mode).filter(|_| self.capabilities.file_modes);
        if mode.is_none() {
            return Ok(());
        }
        self.upper
            .set_attributes(path, AttributeChanges { mode, ..AttributeChanges::default() })
            .await
            .map(drop)
    }

    /// Creates a keeper. This is a marker file that keeps a directory in existence if the upper
    /// layer does not support empty directories.
    async fn keep(&self, path: &WsPath, like: Option<&Stat>) -> Result<()> {
        let options = WriteOptions {
            mode: WriteMode::CreateIfMissing,
            permissions: like.and_then(|stat| stat.mode).or(Some(DIR_MODE)),
            ..WriteOptions::default()
        };
        self.upper.write(&marks::keeper_in(path), Bytes::new(), options).await.map(drop)
    }

    /// Copies a file or directory to the upper layer if only the lower layer has it. Callers see no
    /// change.
    pub(super) async fn copy_up(&self, spot: &Spot) -> Result<()> {
        self.prepare(spot).await?;
        let Some(stat) = &spot.lower else { return Ok(()) };
        self.copy_one_up(&spot.path, stat).await
    }

    /// Like `copy_up`, but the parent directories must already exist.
    pub(super) async fn copy_one_up(&self, path: &WsPath, stat: &Stat) -> Result<()> {
        match stat.kind {
            FileKind::Dir => self.make_upper_dir(path, Some(stat)).await,
            FileKind::File => {
                let (source, target) = (
                    TransferEnd { driver: &*self.lower, path },
                    TransferEnd { driver: &*self.upper, path },
                );
                let copied = transfer::copy_file(source, target, stat, Onto::Nothing).await;
                copied.map(drop).map_err(TransferFailure::into_error)
            }
            FileKind::Symlink => {
                let text = self.lower.read_link(path).await?;
                self.upper.symlink(path, &text).await
            }
            FileKind::Other => {
                let message = "only files, directories and links can be copied up";
                Err(Error::for_path(Verb::Write, path, ErrorKind::SpecialFile, message))
            }
        }
    }

    /// Like `copy_up`, but does not copy the content, because the caller is about to replace it.
    async fn copy_up_empty(&self, spot: &Spot) -> Result<()> {
        self.prepare(spot).await?;
        let options = WriteOptions {
            mode: WriteMode::CreateNew,
            permissions: spot.lower.as_ref().and_then(|stat| stat.mode),
            ..WriteOptions::default()
        };
        self.upper.write(&spot.path, Bytes::new(), options).await.map(drop)
    }

    /// Locks the file to which `path` leads after links are resolved, and returns its place in both
    /// layers.
    async fn file_turn(
        &self,
        verb: Verb,
        path: &WsPath,
        last: LinkHandling,
    ) -> Result<(Turn<'_>, Spot)> {
        if !self.has_links {
            let (turn, _) = self.turn(path).await;
            return Ok((turn, self.look_to_change(verb, path, last).await?));
        }
        let before = self.locks.turns.load(Ordering::Acquire);
        let spot = self.look_to_change(verb, path, last).await?;
        let (turn, begun_or_ended) = self.turn(&spot.path).await;
        if begun_or_ended == before {
            Ok((turn, spot))
        } else {
            // Look the file up again, because it may have changed while this call waited for the
            // lock.
            Ok((turn, self.look_to_change(verb, path, last).await?))
        }
    }

    /// Looks up `path`. Fails if the caller may not change the file to which the path leads.
    async fn look_to_change(&self, verb: Verb, path: &WsPath, last: LinkHandling) -> Result<Spot> {
        let spot = self.look(verb, path, last).await?;
        if spot.path.is_write_protected() {
            Err(Error::for_write_protected_path(verb, path))
        } else {
            Ok(spot)
        }
    }

    /// Looks up `path` for a rename or removal. Fails also if something below the path is
    /// restricted.
    pub(super) async fn look_to_displace(&self, verb: Verb, path: &WsPath) -> Result<Spot> {
        let spot = self.look_to_change(verb, path, LinkHandling::NoFollow).await?;
        if spot.path.is_or_contains_restricted_path() {
            Err(Error::for_write_protected_path(verb, path))
        } else {
            Ok(spot)
        }
    }
}

fn must_be_file(verb: Verb, path: &WsPath, kind: Option<FileKind>) -> Result<()> {
    match kind {
        None | Some(FileKind::File) => Ok(()),
        Some(FileKind::Dir) => Err(is_a_directory(verb, path)),
        Some(FileKind::Symlink | FileKind::Other) => {
            Err(Error::for_path(verb, path, ErrorKind::SpecialFile, "not a regular file"))
        }
    }
}

/// An open file. Its errors contain the path by which it was opened, not the target of links on the
/// path.
#[derive(Debug)]
struct NamedFile {
    inner: Box<dyn File>,
    path: WsPath,
}

impl NamedFile {
    fn shown<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.with_path(self.path.to_string()))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl File for NamedFile {
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
