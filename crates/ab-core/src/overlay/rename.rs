//! Renames inside an overlay.
//!
//! The source is first copied completely to the upper layer, and then hidden in the lower layer.
//! Callers see neither of these steps. Then the upper layer renames the source. The rename is
//! therefore as atomic as a rename in the upper layer.

use super::look::Spot;
use super::{OPEN, Overlay, exists, missing, named};
use crate::call::Verb;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{FileKind, RenameOutcome, Stat};
use crate::options::{
    AttributeChanges, DEFAULT_MAX_LIST_ENTRIES, EntryDetailLevel, ListOptions, OverwriteMode,
    RemoveOptions, RenameOptions,
};
use crate::path::WsPath;

const VERB: Verb = Verb::Rename;

impl Overlay {
    pub(super) async fn move_within(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let _tree = self.locks.tree.write().await;
        let source = self.look_to_displace(VERB, from).await?;
        let Some(kind) = source.kind() else { return Err(missing(VERB, from)) };
        if from == to {
            return Ok(RenameOutcome { atomic: true });
        }
        refuse_into_itself(kind, from, from, to)?;
        let target = self.look_to_displace(VERB, to).await?;
        if source.path == target.path {
            return Ok(RenameOutcome { atomic: true });
        }
        refuse_into_itself(kind, from, &source.path, &target.path)?;
        self.check_target(kind, to, &target, options).await?;
        named(VERB, from, self.bring_up(&source).await)?;
        named(VERB, from, self.hide_or_keep(&source).await)?;
        named(VERB, to, self.prepare(&target).await)?;
        let replaces_dir = target.kind() == Some(FileKind::Dir);
        if replaces_dir {
            named(VERB, to, self.clear_for_dir(&target).await)?;
        }
        let replace = RenameOptions { overwrite: OverwriteMode::Replace };
        let renamed = self.upper.rename(&source.path, &target.path, replace).await;
        if renamed.is_err() && replaces_dir {
            let like = target.upper.as_ref().or(target.lower.as_ref());
            let _ = self.make_upper_dir(&target.path, like).await;
        }
        let renamed = named(VERB, to, renamed)?;
        Ok(RenameOutcome { atomic: renamed.atomic && !replaces_dir })
    }

    async fn check_target(
        &self,
        source_kind: FileKind,
        to: &WsPath,
        target: &Spot,
        options: RenameOptions,
    ) -> Result<()> {
        let Some(kind) = target.kind() else { return Ok(()) };
        if options.overwrite == OverwriteMode::Refuse {
            return Err(exists(VERB, to));
        }
        let refused = |kind, message| Err(Error::for_path(VERB, to, kind, message));
        match (source_kind.is_dir(), kind.is_dir()) {
            (false, false) => Ok(()),
            (false, true) => refused(ErrorKind::IsADirectory, "the target is a directory"),
            (true, false) => refused(ErrorKind::NotADirectory, "the target is a file"),
            (true, true) => {
                if named(VERB, to, self.is_empty(target).await)? {
                    Ok(())
                } else {
                    refused(ErrorKind::NotEmpty, "the target is not empty")
                }
            }
        }
    }

    /// Copies the parts of the source that only the lower layer has to the upper layer.
    async fn bring_up(&self, source: &Spot) -> Result<()> {
        if source.upper.is_none() {
            self.prepare(source).await?;
        }
        let mut shut = Vec::new();
        let copied = self.copy_tree_up(source, &mut shut).await;
        // Do this after a failure too, so that the copied directories have the same attributes as
        // in the lower layer.
        for (path, attributes) in shut.into_iter().rev() {
            self.upper.set_attributes(&path, attributes).await?;
        }
        copied
    }

    /// Copies a tree to the upper layer. Adds the directories whose mode forbids new entries to
    /// `shut`. These directories get this mode only when they are complete.
    async fn copy_tree_up(
        &self,
        source: &Spot,
        shut: &mut Vec<(WsPath, AttributeChanges)>,
    ) -> Result<()> {
        if let (None, Some(stat)) = (&source.upper, &source.lower) {
            self.copy_open(&source.path, stat.clone(), shut).await?;
        }
        if !source.shows_lower() {
            return Ok(());
        }
        let options = ListOptions {
            max_depth: usize::MAX,
            max_entries: DEFAULT_MAX_LIST_ENTRIES,
            detail: EntryDetailLevel::Stat,
        };
        let below = self.tree_below(source, options).await?;
        if below.truncated.is_some() {
            let message = format!("more than {DEFAULT_MAX_LIST_ENTRIES} entries");
            return Err(Error::for_path(VERB, &source.path, ErrorKind::TooLarge, message));
        }
        if let Some(problem) = below.problems.into_iter().next() {
            return Err(problem.error);
        }
        for node in below.nodes {
            let only_lower = node.lower.filter(|_| node.upper.is_none());
            if let Some(stat) = only_lower.and_then(|entry| entry.stat) {
                self.copy_open(&node.path, stat, shut).await?;
            }
        }
        Ok(())
    }

    /// Copies one entry to the upper layer. If the mode of a directory forbids new entries, the
    /// directory is first created with write permission.
    async fn copy_open(
        &self,
        path: &WsPath,
        mut stat: Stat,
        shut: &mut Vec<(WsPath, AttributeChanges)>,
    ) -> Result<()> {
        let is_real_dir = self.has_real_dirs && stat.kind.is_dir();
        if let Some(mode) = stat.mode.filter(|mode| is_real_dir && mode & OPEN != OPEN) {
            stat.mode = Some(mode | OPEN);
            shut.push((
                path.clone(),
                AttributeChanges { mode: Some(mode), ..AttributeChanges::default() },
            ));
        }
        self.copy_one_up(path, &stat).await
    }

    /// Removes an empty directory with its marker files. Also hides the directory in the lower
    /// layer, because the renamed directory would otherwise be merged with it.
    async fn clear_for_dir(&self, target: &Spot) -> Result<()> {
        if target.lower.is_some() {
            self.hide(target).await?;
        }
        let options = RemoveOptions::recursive().missing_ok();
        self.upper.remove(&target.path, options).await.map(drop)
    }
}

fn refuse_into_itself(kind: FileKind, name: &WsPath, from: &WsPath, to: &WsPath) -> Result<()> {
    if kind.is_dir() && from != to && to.starts_with(from) {
        let message = "a directory cannot move into itself";
        Err(Error::for_path(VERB, name, ErrorKind::Invalid, message))
    } else {
        Ok(())
    }
}
