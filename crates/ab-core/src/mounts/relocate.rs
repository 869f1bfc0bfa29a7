//! A rename from one workspace of a tree of mounts to another: a copy, followed by the removal of
//! the source.
//!
//! First makes the copy, then checks that the source has not changed, and then removes the source.
//! A failure before the removal removes the copy and leaves the source unchanged. This also
//! protects the source if two mounts show the same files. If the caller drops the future, the
//! source and the incomplete copy remain.

use std::collections::BTreeMap;

use super::KEEP;
use super::parts::Part;
use crate::call::Verb;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{DirEntry, FileKind, FileVersion, RenameOutcome, Stat};
use crate::options::{
    DEFAULT_MAX_LIST_ENTRIES, EntryDetailLevel, ListOptions, OverwriteMode, RemoveOptions,
    RenameOptions,
};
use crate::path::WsPath;
use crate::transfer::{self, Onto, TransferEnd, TransferFailure};

const VERB: Verb = Verb::Rename;

/// Moves the file or directory at `from` to `to`, which is in another workspace of the tree.
pub(super) async fn run(
    from: (Part<'_>, &WsPath),
    to: (Part<'_>, &WsPath),
    options: RenameOptions,
) -> Result<RenameOutcome> {
    let (from, to) = (Place::new(from), Place::new(to));
    let source =
        from.stat().await?.ok_or_else(|| from.error(ErrorKind::NotFound, "nothing is there"))?;
    let target = to.stat().await?;
    if let Some(target) = &target {
        if options.overwrite == OverwriteMode::Refuse {
            return Err(to.error(ErrorKind::AlreadyExists, "the path already exists"));
        }
        if is_same(&source, target) {
            return Ok(RenameOutcome { atomic: true });
        }
        check_kinds(&to, source.kind, target.kind).await?;
    }
    match source.kind {
        FileKind::File => move_file(&from, &to, &source, target).await?,
        FileKind::Dir => move_dir(&from, &to, &source, target).await?,
        FileKind::Symlink => return Err(from.error(ErrorKind::Invalid, LEADS_OUT)),
        FileKind::Other => return Err(from.error(ErrorKind::SpecialFile, SPECIAL)),
    }
    Ok(RenameOutcome { atomic: false })
}

const LEADS_OUT: &str = "a symbolic link cannot be moved to another mount";
const SPECIAL: &str = "only files, directories and links can be moved to another mount";

/// A path inside the base or a mount.
struct Place<'a> {
    part: Part<'a>,
    path: &'a WsPath,
}

impl<'a> Place<'a> {
    fn new((part, path): (Part<'a>, &'a WsPath)) -> Self {
        Self { part, path }
    }

    fn end(&self) -> TransferEnd<'_> {
        self.below(self.path)
    }

    fn below<'b>(&'b self, path: &'b WsPath) -> TransferEnd<'b> {
        TransferEnd { driver: self.part.driver, path }
    }

    fn shown<T>(&self, result: Result<T>) -> Result<T> {
        self.part.shown(result).map_err(|error| error.with_verb(VERB))
    }

    fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::for_path(VERB, &self.part.outward(self.path), kind, message)
    }

    /// The attributes of the file at this path. `None` if it does not exist.
    async fn stat(&self) -> Result<Option<Stat>> {
        match self.part.driver.stat(self.path, KEEP).await {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => self.shown(Err(error)),
        }
    }

    async fn remove(&self) -> Result<()> {
        let options = RemoveOptions::recursive();
        self.shown(self.part.driver.remove(self.path, options).await.map(drop))
    }

    /// Removes the copy at this path. An error is ignored, because an earlier error is reported.
    async fn clear(&self) {
        let options = RemoveOptions::recursive().missing_ok();
        let _ = self.part.driver.remove(self.path, options).await;
    }

    /// All entries below this path, with details. Fails if there are too many, or if some cannot be
    /// read.
    async fn tree(&self) -> Result<Vec<DirEntry>> {
        let options = ListOptions {
            max_depth: usize::MAX,
            max_entries: DEFAULT_MAX_LIST_ENTRIES,
            detail: EntryDetailLevel::Stat,
        };
        let listing = self.shown(self.part.driver.list(self.path, options).await)?;
        if listing.truncated.is_some() {
            let message = format!("more than {DEFAULT_MAX_LIST_ENTRIES} entries");
            return Err(self.error(ErrorKind::TooLarge, &message));
        }
        match listing.problems.into_iter().next() {
            Some(problem) => self.shown(Err(problem.error)),
            None => Ok(listing.entries),
        }
    }
}

/// Whether two mounts show the same file or directory here, so that there is nothing to move. A
/// directory with version zero comes from a driver that stores no directories. It is never the same
/// as another directory.
fn is_same(source: &Stat, target: &Stat) -> bool {
    source.kind == target.kind
        && source.version == target.version
        && (source.kind != FileKind::Dir || source.version != FileVersion::new(0))
}

/// Whether the source may replace the target: a file may replace a file, and a directory may
/// replace an empty directory.
async fn check_kinds(to: &Place<'_>, source_kind: FileKind, target_kind: FileKind) -> Result<()> {
    match (source_kind.is_dir(), target_kind.is_dir()) {
        (false, false) => Ok(()),
        (false, true) => Err(to.error(ErrorKind::IsADirectory, "the target is a directory")),
        (true, false) => Err(to.error(ErrorKind::NotADirectory, "the target is a file")),
        (true, true) => {
            let one = ListOptions { max_depth: 1, max_entries: 1, detail: EntryDetailLevel::Kind };
            let listing = to.shown(to.part.driver.list(to.path, one).await)?;
            if listing.entries.is_empty() {
                Ok(())
            } else {
                Err(to.error(ErrorKind::NotEmpty, "the target is not empty"))
            }
        }
    }
}

async fn move_file(
    from: &Place<'_>,
    to: &Place<'_>,
    source: &Stat,
    target: Option<Stat>,
) -> Result<()> {
    let onto = match target {
        Some(_) => Onto::File,
        None => Onto::Nothing,
    };
    let copied = copy(from, from.end(), to, to.end(), source, onto).await?;
    let moved = match from.stat().await {
        Ok(Some(now)) if now.version == copied => from.remove().await,
        Ok(_) => from.shown(Err(transfer::changed(from.path))),
        Err(error) => Err(error),
    };
    if moved.is_err() && onto == Onto::Nothing {
        // If the answer to the removal was lost, the removal may have succeeded. The copy must then
        // be kept, because it is the only one left.
        let now = from.stat().await;
        if now.is_ok_and(|now| now.is_some_and(|now| now.version == copied)) {
            to.clear().await;
        }
    }
    moved
}

async fn copy(
    from: &Place<'_>,
    source: TransferEnd<'_>,
    to: &Place<'_>,
    target: TransferEnd<'_>,
    stat: &Stat,
    onto: Onto,
) -> Result<FileVersion> {
    transfer::copy_file(source, target, stat, onto).await.or_else(|failure| match failure {
        TransferFailure::Source(error) => from.shown(Err(error)),
        TransferFailure::Target(error) => to.shown(Err(error)),
    })
}

async fn move_dir(
    from: &Place<'_>,
    to: &Place<'_>,
    source: &Stat,
    target: Option<Stat>,
) -> Result<()> {
    let entries = from.tree().await?;
    check_entries(from, to, &entries)?;
    let copied = match copy_tree(from, to, source, &entries).await {
        Ok(()) => is_unchanged(from, &entries).await,
        Err(error) => Err(error),
    };
    if let Err(error) = copied {
        to.clear().await;
        if target.is_some() {
            let _ = to.part.driver.create_dir(to.path).await;
        }
        return Err(error);
    }
    // If the removal fails halfway, the copy is still complete.
    from.remove().await.map_err(|error| {
        let target = to.part.outward(to.path);
        error.with_hint(format!("the copy at '{target}' is complete"))
    })
}

/// Fails if an entry cannot be stored by the target's driver. Called before anything is copied.
fn check_entries(from: &Place<'_>, to: &Place<'_>, entries: &[DirEntry]) -> Result<()> {
    let links = from.part.driver.info().capabilities.symlinks
        && to.part.driver.info().capabilities.symlinks;
    for entry in entries {
        let refused = |kind, message: &str| {
            Err(Error::for_path(VERB, &from.part.outward(&entry.path), kind, message))
        };
        match entry.kind {
            FileKind::File | FileKind::Dir => {}
            FileKind::Symlink if links => {}
            FileKind::Symlink => {
                return refused(
                    ErrorKind::Unsupported,
                    "the target does not support symbolic links",
                );
            }
            FileKind::Other => return refused(ErrorKind::SpecialFile, SPECIAL),
        }
    }
    Ok(())
}

async fn copy_tree(
    from: &Place<'_>,
    to: &Place<'_>,
    source: &Stat,
    entries: &[DirEntry],
) -> Result<()> {
    let driver = to.part.driver;
    to.shown(driver.create_dir(to.path).await)?;
    let mut dirs: Vec<(WsPath, &Stat)> = vec![(to.path.clone(), source)];
    for entry in entries {
        let Some(below) = entry.path.strip_prefix(from.path) else { continue };
        let below = below.without_access_rules();
        let (origin, target) = (from.path.join(&below), to.path.join(&below));
        let Some(stat) = &entry.stat else {
            return from.shown(Err(transfer::changed(&entry.path)));
        };
        match entry.kind {
            FileKind::Dir => {
                to.shown(driver.create_dir(&target).await)?;
                dirs.push((target, stat));
            }
            FileKind::Symlink => {
                let text = from.shown(from.part.driver.read_link(&origin).await)?;
                if !stays_below(&below, &text) {
                    let path = from.part.outward(&entry.path);
                    return Err(Error::for_path(VERB, &path, ErrorKind::Invalid, LEADS_OUT));
                }
                to.shown(driver.symlink(&target, &text).await)?;
            }
            FileKind::File | FileKind::Other => {
                let (source, target) = (from.below(&origin), to.below(&target));
                copy(from, source, to, target, stat, Onto::Nothing).await?;
            }
        }
    }
    if !driver.info().capabilities.empty_dirs {
        return Ok(());
    }
    // Set modes from the bottom up, because no files can be added to a directory without write
    // permission.
    for (path, stat) in dirs.iter().rev() {
        to.shown(transfer::dress(to.below(path), stat).await)?;
    }
    Ok(())
}

/// Whether the target of the link at `link` is also inside the moved directory. `link` is relative
/// to the moved directory. Only the text of the link is examined.
fn stays_below(link: &WsPath, text: &str) -> bool {
    let mut depth = link.segments().count().saturating_sub(1);
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    !text.starts_with('/')
}

/// Fails unless the source still has the entries and versions that were copied.
async fn is_unchanged(from: &Place<'_>, before: &[DirEntry]) -> Result<()> {
    let versions = |entries: &[DirEntry]| -> BTreeMap<WsPath, (FileKind, Option<FileVersion>)> {
        let version = |entry: &DirEntry| match entry.kind {
            FileKind::Dir => None,
            FileKind::File | FileKind::Symlink | FileKind::Other => {
                entry.stat.as_ref().map(|stat| stat.version)
            }
        };
        entries.iter().map(|e| (e.path.clone(), (e.kind, version(e)))).collect()
    };
    if versions(&from.tree().await?) == versions(before) {
        Ok(())
    } else {
        from.shown(Err(transfer::changed(from.path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_with_what_they_lead_to() {
        for (link, text, expect) in [
            ("link", "file", true),
            ("link", "dir/../file", true),
            ("link", ".", true),
            ("link", "../file", false),
            ("link", "/file", false),
            ("dir/link", "../file", true),
            ("dir/link", "../../file", false),
            ("dir/link", "x/../../y/../../z", false),
        ] {
            assert_eq!(stays_below(&WsPath::from_key(link), text), expect, "{link} -> {text}");
        }
    }
}
