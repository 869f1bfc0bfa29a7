//! The end of an overlay's changes: into the lower layer, or away.
//!
//! A commit takes one path after the other: first the lower layer gets what the overlay shows
//! there, then the upper layer lets go of it. Callers see no difference at any moment, and after a
//! failure the rest is still in the upper layer, so the same commit can be tried again.

use std::collections::BTreeSet;

use super::diff::is_other_mode;
use super::look::{KEEP, found};
use super::upper::UpperDir;
use super::{Overlay, marks};
use crate::call::Verb;
use crate::error::{Error, Kind, Result};
use crate::metadata::{Entry, FileKind, Stat};
use crate::options::{Attributes, Detail, RemoveOptions};
use crate::path::WsPath;
use crate::transfer::{self, End, Failure, Onto};

enum Step {
    Enter(WsPath),
    /// Everything in it is done; what the lower layer's directory should look like.
    Leave(WsPath, Stat),
}

impl Overlay {
    /// Makes the lower layer what the overlay shows, and empties the upper one.
    pub(crate) async fn commit(&self) -> Result<()> {
        self.alive(Verb::Write)?;
        let _tree = self.tree.write().await;
        let mut steps = vec![Step::Enter(WsPath::root())];
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(path) => steps.extend(self.commit_dir(&path).await?),
                Step::Leave(path, stat) => self.leave(&path, &stat).await?,
            }
        }
        Ok(())
    }

    /// Empties the upper layer, so that the lower one shows again as it is.
    pub(crate) async fn discard(&self) -> Result<()> {
        self.alive(Verb::Delete)?;
        let _tree = self.tree.write().await;
        let UpperDir { entries, whiteouts, silent, .. } =
            self.upper_dir(&WsPath::root(), Detail::Kind).await?;
        let names = entries.into_iter().map(|entry| entry.path);
        let marks = whiteouts.iter().map(|name| WsPath::from_key(name));
        for path in names.chain(marks).chain(silent) {
            self.drop_upper(&path).await?;
        }
        Ok(())
    }

    async fn commit_dir(&self, path: &WsPath) -> Result<Vec<Step>> {
        let upper = self.upper_dir(path, Detail::Stat).await?;
        if let Some(problem) = upper.problems.first() {
            return Err(problem.error.clone());
        }
        let hidden = self.hidden_names(path, &upper).await?;
        let own: BTreeSet<&str> = upper.entries.iter().filter_map(|e| e.path.name()).collect();
        for name in hidden.iter().filter(|name| !own.contains(name.as_str())) {
            let path = path.join(&WsPath::from_key(name));
            self.drop_lower(&path).await?;
            self.drop_whiteout(&path).await?;
        }
        let mut steps = Vec::new();
        for entry in &upper.entries {
            let is_hidden = entry.path.name().is_some_and(|name| hidden.contains(name));
            steps.extend(self.commit_entry(entry, is_hidden).await?);
        }
        if path.is_root() {
            for path in &upper.silent {
                self.drop_upper(path).await?;
            }
        }
        Ok(steps)
    }

    /// Commits one entry of the upper layer; a directory's content is left to the steps.
    async fn commit_entry(&self, entry: &Entry, is_hidden: bool) -> Result<Vec<Step>> {
        let Entry { path, stat: Some(stat), .. } = entry else { return Ok(Vec::new()) };
        let mut lower = found(self.lower.stat(path, KEEP).await)?;
        // A file takes the place of a file in one step. Anything else must go first, and so must
        // a directory that was removed before this one was made.
        let gives_way = match (&lower, stat.kind) {
            (None, _) => false,
            (Some(below), FileKind::Dir) => is_hidden || !below.kind.is_dir(),
            (Some(below), FileKind::File | FileKind::Symlink | FileKind::Other) => {
                stat.kind != FileKind::File || below.kind != FileKind::File
            }
        };
        if gives_way {
            self.drop_lower(path).await?;
            lower = None;
        }
        match stat.kind {
            FileKind::Dir => {
                let like = self.describe_dir(path, stat, lower.as_ref()).await?;
                self.lower.create_dir(path).await?;
                self.drop_whiteout(path).await?;
                return Ok(vec![Step::Leave(path.clone(), like), Step::Enter(path.clone())]);
            }
            FileKind::File => self.commit_file(path, stat, lower).await?,
            FileKind::Symlink => {
                let text = self.upper.read_link(path).await?;
                self.lower.symlink(path, &text).await?;
            }
            FileKind::Other => {
                let message = "only files, directories and links can be committed";
                return Err(Error::on(Verb::Write, path, Kind::SpecialFile, message));
            }
        }
        self.drop_whiteout(path).await?;
        self.drop_upper(path).await?;
        Ok(Vec::new())
    }

    async fn commit_file(&self, path: &WsPath, stat: &Stat, lower: Option<Stat>) -> Result<()> {
        if let Some(lower) = &lower
            && self.is_same_file(path, stat, lower).await?
        {
            return Ok(());
        }
        let (source, target) =
            (End { driver: &*self.upper, path }, End { driver: &*self.lower, path });
        let copied = transfer::copy_file(source, target, stat, Onto::File).await;
        copied.map(drop).map_err(Failure::into_error)
    }

    /// Ends a directory: only now may it get a mode that lets nothing more in.
    async fn leave(&self, path: &WsPath, like: &Stat) -> Result<()> {
        let lower = found(self.lower.stat(path, KEEP).await)?;
        if let Some(lower) = lower
            && is_other_mode(like, &lower)
        {
            let attributes = Attributes { mode: like.mode, ..Attributes::default() };
            match self.lower.set_attributes(path, attributes).await {
                Err(error) if error.kind() != Kind::Unsupported => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        self.drop_upper(path).await
    }

    async fn drop_lower(&self, path: &WsPath) -> Result<()> {
        self.lower.remove(path, RemoveOptions::recursive().missing_ok()).await.map(drop)
    }

    async fn drop_upper(&self, path: &WsPath) -> Result<()> {
        self.upper.remove(path, RemoveOptions::recursive().missing_ok()).await.map(drop)
    }

    async fn drop_whiteout(&self, path: &WsPath) -> Result<()> {
        let Some((mark, _)) = marks::whiteout_of(path) else { return Ok(()) };
        self.drop_upper(&mark).await
    }
}
