//! Commits the changes of an overlay to the lower layer, or discards them.
//!
//! A commit handles one path after the other. It first writes the state of the overlay to the lower
//! layer, and then removes the path from the upper layer. Callers see the same content at any time.
//! After a failure the remaining changes are still in the upper layer, so the commit can be
//! repeated.
//!
//! A file of the lower layer is removed only when its replacement is complete. The replacement is
//! first written next to it under a hidden name.

use std::collections::BTreeSet;

use super::diff::is_other_mode;
use super::look::{KEEP, found};
use super::upper::UpperDir;
use super::{OPEN, Overlay, marks, missing};
use crate::call::Verb;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{DirEntry, FileKind, Stat};
use crate::options::{
    AttributeChanges, EntryDetailLevel, OverwriteMode, RemoveOptions, RenameOptions,
};
use crate::path::WsPath;
use crate::transfer::{self, Onto, TransferEnd, TransferFailure};

enum Step {
    Enter(WsPath, Release),
    /// All entries of a directory are committed. Contains the attributes that the directory in the
    /// lower layer should get.
    Leave(WsPath, Stat, Release),
}

/// When a path is removed from the upper layer after it was committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    AtOnce,
    /// The entry is removed later, together with a parent directory whose mode forbids removals.
    /// Until then the parent keeps this mode, because a repeated commit needs the mode.
    WithDirectory,
}

impl Overlay {
    /// Brings the lower layer to the state of the overlay, and empties the upper layer.
    pub(crate) async fn commit(&self) -> Result<()> {
        self.alive(Verb::Write)?;
        let _tree = self.locks.tree.write().await;
        let mut steps = vec![Step::Enter(WsPath::root(), Release::AtOnce)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(path, release) => {
                    steps.extend(self.commit_dir(&path, release).await?);
                }
                Step::Leave(path, stat, release) => self.leave(&path, &stat, release).await?,
            }
        }
        Ok(())
    }

    /// Empties the upper layer, so that the state of the lower layer becomes visible again.
    pub(crate) async fn discard(&self) -> Result<()> {
        self.alive(Verb::Delete)?;
        let _tree = self.locks.tree.write().await;
        let UpperDir { entries, whiteouts, silent, .. } =
            self.upper_dir(&WsPath::root(), EntryDetailLevel::Kind).await?;
        let names = entries.into_iter().map(|entry| entry.path);
        let marks = whiteouts.iter().map(|name| WsPath::from_key(name));
        for path in names.chain(marks).chain(silent) {
            self.drop_upper(&path).await?;
        }
        Ok(())
    }

    async fn commit_dir(&self, path: &WsPath, release: Release) -> Result<Vec<Step>> {
        let upper = self.upper_dir(path, EntryDetailLevel::Stat).await?;
        if let Some(problem) = upper.problems.first() {
            return Err(problem.error.clone());
        }
        let hidden = self.hidden_names(path, &upper).await?;
        let own: BTreeSet<&str> = upper.entries.iter().filter_map(|e| e.path.name()).collect();
        for name in hidden.iter().filter(|name| !own.contains(name.as_str())) {
            let path = path.with_name(name);
            self.drop_lower(&path).await?;
            self.release_whiteout(&path, release).await?;
        }
        let mut steps = Vec::new();
        for entry in &upper.entries {
            steps.extend(self.commit_entry(entry, &hidden, release).await?);
        }
        if path.is_root() {
            for path in &upper.silent {
                self.drop_upper(path).await?;
            }
        }
        Ok(steps)
    }

    /// Commits one entry of the upper layer. The entries of a directory are added as further steps.
    async fn commit_entry(
        &self,
        entry: &DirEntry,
        hidden: &BTreeSet<String>,
        release: Release,
    ) -> Result<Vec<Step>> {
        let DirEntry { path, stat: Some(stat), .. } = entry else { return Ok(Vec::new()) };
        let is_hidden = path.name().is_some_and(|name| hidden.contains(name));
        let lower = found(self.lower.stat(path, KEEP).await)?;
        // A file can replace a file in one step. In all other cases the old entry must be removed
        // first. This includes a new directory that has the name of a directory that was removed in
        // the overlay.
        let gives_way = match (&lower, stat.kind) {
            (None, _) => false,
            (Some(below), FileKind::Dir) => is_hidden || !below.kind.is_dir(),
            (Some(below), FileKind::File | FileKind::Symlink | FileKind::Other) => {
                stat.kind != FileKind::File || below.kind != FileKind::File
            }
        };
        if let Some(below) = lower.as_ref().filter(|_| gives_way) {
            self.commit_instead(path, stat, below).await?;
            self.release_whiteout(path, release).await?;
            self.release(path, release).await?;
            return Ok(Vec::new());
        }
        match stat.kind {
            FileKind::Dir => {
                let like = self.describe_dir(path, stat, lower.as_ref()).await?;
                self.lower.create_dir(path).await?;
                if !is_shut(&like) {
                    self.give_mode(path, &like).await?;
                }
                self.release_whiteout(path, release).await?;
                let inside = if is_shut(stat) { Release::WithDirectory } else { release };
                let leave = Step::Leave(path.clone(), like, release);
                return Ok(vec![leave, Step::Enter(path.clone(), inside)]);
            }
            FileKind::File => self.commit_file(path, stat, lower).await?,
            FileKind::Symlink | FileKind::Other => self.put(path, path, stat).await?,
        }
        self.release_whiteout(path, release).await?;
        self.release(path, release).await?;
        Ok(Vec::new())
    }

    /// Commits the entry at `path` if the lower layer has an entry there that must be removed
    /// first.
    async fn commit_instead(&self, path: &WsPath, stat: &Stat, below: &Stat) -> Result<()> {
        let staged = transfer::beside(path);
        let placed = match self.stage(path, &staged, stat).await {
            Ok(()) => self.put_in_place(&staged, path, stat, below).await,
            Err(error) => Err(error),
        };
        if placed.is_err() {
            // If the removal fails too, the first error is still reported.
            let _ = self.drop_lower(&staged).await;
        }
        let in_place = |text: &str| {
            let staged = WsPath::from_key(text).strip_prefix(&staged)?;
            Some(path.join(&staged).to_string())
        };
        placed.map_err(|error| error.map_path(in_place))
    }

    /// Copies `path` in the upper layer, with everything below it, to `staged` in the lower layer.
    async fn stage(&self, path: &WsPath, staged: &WsPath, stat: &Stat) -> Result<()> {
        let mut todo = vec![(path.clone(), stat.clone())];
        let mut dirs: Vec<(WsPath, Stat)> = Vec::new();
        while let Some((from, stat)) = todo.pop() {
            let below = from.strip_prefix(path).ok_or_else(|| missing(Verb::Write, &from))?;
            let to = staged.join(&below);
            if stat.kind != FileKind::Dir {
                self.put(&from, &to, &stat).await?;
                continue;
            }
            let like = self.describe_dir(&from, &stat, None).await?;
            self.lower.create_dir(&to).await?;
            dirs.push((to, like));
            let inside = self.upper_dir(&from, EntryDetailLevel::Stat).await?;
            if let Some(problem) = inside.problems.first() {
                return Err(problem.error.clone());
            }
            let known = |entry: DirEntry| entry.stat.map(|stat| (entry.path, stat));
            todo.extend(inside.entries.into_iter().filter_map(known));
        }
        if self.lower.info().capabilities.empty_dirs {
            // Set modes from the bottom up, because the mode of a directory may forbid new entries.
            for (dir, like) in dirs.iter().rev() {
                self.give_mode(dir, like).await?;
            }
        }
        Ok(())
    }

    /// Copies a file or a link from `from` in the upper layer to `to` in the lower layer.
    async fn put(&self, from: &WsPath, to: &WsPath, stat: &Stat) -> Result<()> {
        match stat.kind {
            FileKind::File => {
                let source = TransferEnd { driver: &*self.upper, path: from };
                let target = TransferEnd { driver: &*self.lower, path: to };
                let copied = transfer::copy_file(source, target, stat, Onto::Nothing).await;
                copied.map(drop).map_err(TransferFailure::into_error)
            }
            FileKind::Symlink => {
                let text = self.upper.read_link(from).await?;
                self.lower.symlink(to, &text).await
            }
            FileKind::Dir | FileKind::Other => {
                let message = "only files, directories and links can be committed";
                Err(Error::for_path(Verb::Write, from, ErrorKind::SpecialFile, message))
            }
        }
    }

    /// Moves `staged` to `path` in the lower layer, replacing the old entry.
    async fn put_in_place(
        &self,
        staged: &WsPath,
        path: &WsPath,
        stat: &Stat,
        below: &Stat,
    ) -> Result<()> {
        let replace = RenameOptions { overwrite: OverwriteMode::Replace };
        if !stat.kind.is_dir() && !below.kind.is_dir() {
            return self.lower.rename(staged, path, replace).await.map(drop);
        }
        // A directory cannot be replaced in one step. Move the old entry aside, and move it back if
        // the new entry cannot take its place.
        let aside = transfer::beside(path);
        // In a layer without empty directories, an empty directory has no staged copy.
        let has_staged = found(self.lower.stat(staged, KEEP).await)?.is_some();
        self.lower.rename(path, &aside, RenameOptions::default()).await?;
        if has_staged || self.lower.info().capabilities.empty_dirs {
            let moved = self.lower.rename(staged, path, RenameOptions::default()).await;
            if let Err(error) = moved {
                let back = self.lower.rename(&aside, path, RenameOptions::default()).await;
                return Err(match back {
                    Ok(_) => error,
                    Err(_) => error.with_hint(format!("what was there is now at '{aside}'")),
                });
            }
        }
        match self.drop_lower(&aside).await {
            Ok(()) => Ok(()),
            // Try the removal again, because no later commit would remove this entry.
            Err(_) => self.drop_lower(&aside).await,
        }
    }

    async fn commit_file(&self, path: &WsPath, stat: &Stat, lower: Option<Stat>) -> Result<()> {
        if let Some(lower) = &lower
            && self.is_same_file(path, stat, lower).await?
        {
            return Ok(());
        }
        let (source, target) = (
            TransferEnd { driver: &*self.upper, path },
            TransferEnd { driver: &*self.lower, path },
        );
        let copied = transfer::copy_file(source, target, stat, Onto::File).await;
        copied.map(drop).map_err(TransferFailure::into_error)
    }

    /// Finishes a directory. It gets its final mode only now, because this mode may forbid new
    /// entries.
    async fn leave(&self, path: &WsPath, like: &Stat, release: Release) -> Result<()> {
        self.give_mode(path, like).await?;
        self.release(path, release).await
    }

    /// Sets the mode of a directory in the lower layer to the mode that the overlay shows, if the
    /// layer supports modes.
    async fn give_mode(&self, path: &WsPath, like: &Stat) -> Result<()> {
        let lower = found(self.lower.stat(path, KEEP).await)?;
        if !lower.is_some_and(|lower| is_other_mode(like, &lower)) {
            return Ok(());
        }
        let attributes = AttributeChanges { mode: like.mode, ..AttributeChanges::default() };
        match self.lower.set_attributes(path, attributes).await {
            Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn release(&self, path: &WsPath, release: Release) -> Result<()> {
        match release {
            Release::AtOnce => self.drop_upper(path).await,
            Release::WithDirectory => Ok(()),
        }
    }

    async fn release_whiteout(&self, path: &WsPath, release: Release) -> Result<()> {
        match marks::whiteout_of(path) {
            Some((mark, _)) => self.release(&mark, release).await,
            None => Ok(()),
        }
    }

    async fn drop_lower(&self, path: &WsPath) -> Result<()> {
        self.lower.remove(path, RemoveOptions::recursive().missing_ok()).await.map(drop)
    }

    /// Removes a path from the upper layer. Works even for a directory whose mode forbids removals.
    async fn drop_upper(&self, path: &WsPath) -> Result<()> {
        let options = RemoveOptions::recursive().missing_ok();
        match self.upper.remove(path, options).await {
            Err(error) if error.kind() == ErrorKind::PermissionDenied && self.has_real_dirs => {
                self.open_up(path).await?;
                self.upper.remove(path, options).await.map(drop)
            }
            result => result.map(drop),
        }
    }

    /// Gives the owner access to a directory of the upper layer and to all directories in it.
    async fn open_up(&self, top: &WsPath) -> Result<()> {
        let mut dirs = vec![top.clone()];
        while let Some(path) = dirs.pop() {
            let is_dir = |stat: &Stat| stat.kind.is_dir();
            if !found(self.upper.stat(&path, KEEP).await)?.as_ref().is_some_and(is_dir) {
                continue;
            }
            let attributes = AttributeChanges { mode: Some(OPEN), ..AttributeChanges::default() };
            self.upper.set_attributes(&path, attributes).await?;
            let inside = self.upper_dir(&path, EntryDetailLevel::Kind).await?;
            let is_dir = |entry: &DirEntry| entry.kind.is_dir();
            dirs.extend(inside.entries.into_iter().filter(is_dir).map(|entry| entry.path));
        }
        Ok(())
    }
}

/// Whether the mode of a directory forbids even its owner to change its entries.
fn is_shut(dir: &Stat) -> bool {
    dir.mode.is_some_and(|mode| mode & OPEN != OPEN)
}
