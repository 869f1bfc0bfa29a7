//! What the workspaces and caches occupy on the disk, and the removal of caches that no workspace needs.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ab_core::ErrorKind;
use ab_host::directory::{DirectoryUsage, directory_usage, free_space, remove_directory};

use crate::area::Area;
use crate::error::Result;
use crate::token::WorkspaceToken;
use crate::workspaces::{ATTACHMENTS, READ_ONLY, SessionWorkspaceStore};

/// The repository that caches one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCache {
    /// Identifies the source. The name of a directory.
    pub name: String,
    /// When a workspace was last made from it.
    pub last_used: SystemTime,
    /// Whether a workspace uses its objects.
    pub is_borrowed: bool,
    pub usage: DirectoryUsage,
}

impl SessionWorkspaceStore {
    /// The cached repositories by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub async fn caches(&self) -> Result<Vec<StoredCache>> {
        let borrowed = Borrowed::find(&self.area)?;
        let mut caches = Vec::new();
        for (name, last_used) in self.area.caches()? {
            let path = self.area.cache(&name);
            // A cache that is being removed, or that git changes now, is counted as far as it can be.
            let usage = directory_usage(&path).await.unwrap_or_default();
            let is_borrowed = borrowed.has(&path);
            caches.push(StoredCache { name, last_used, is_borrowed, usage });
        }
        Ok(caches)
    }

    /// Removes a cache. Returns `false`, and removes nothing, if a workspace uses its objects or is being made.
    ///
    /// # Errors
    /// The cache cannot be removed. The call can be repeated.
    pub async fn remove_cache(&self, name: &str) -> Result<bool> {
        if !self.area.caches()?.iter().any(|(known, _)| known == name) {
            return Ok(true);
        }
        let lock = match self.area.lock(name, Duration::ZERO).await {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::Timeout => return Ok(false),
            Err(error) => return Err(error),
        };
        // The directory of a workspace is made before its cache is locked, and its record after it. So a workspace
        // that uses the cache is either recorded or visibly incomplete.
        let path = self.area.cache(name);
        if Borrowed::find(&self.area)?.has(&path) {
            return Ok(false);
        }
        remove_directory(&path).await?;
        self.area.remove_lock(name, lock)?;
        Ok(true)
    }

    /// The bytes that this process can still write to the file system; `None` if that is unknown.
    pub fn free_space(&self) -> Option<u64> {
        free_space(self.area.root()).ok()
    }
}

/// The cached repositories whose objects the workspaces in `directory` use, for a copy of the directory. Incomplete
/// workspaces count as none.
///
/// # Errors
/// The directory cannot be read.
pub fn borrowed_caches(directory: &Path) -> Result<Vec<PathBuf>> {
    let area = Area::existing(directory);
    let borrowed = Borrowed::find(&area)?;
    let caches = area.caches()?.into_iter().map(|(name, _)| area.cache(&name));
    Ok(caches.filter(|cache| borrowed.objects.contains(&cache.join(OBJECTS))).collect())
}

/// Replaces the directory `from` at the beginning of the paths that the records of workspaces in `directory` contain.
/// Returns the directories of the workspaces.
///
/// # Errors
/// A record cannot be read or written.
pub fn move_records(directory: &Path, from: &str, to: &str) -> Result<Vec<PathBuf>> {
    let area = Area::existing(directory);
    let mut moved = Vec::new();
    for token in area.tokens()? {
        let Some(record) = area.record(&token)? else { continue };
        let line = |line: &str| match line.split_once(' ') {
            Some((key @ (READ_ONLY | ATTACHMENTS), path)) => match path.strip_prefix(from) {
                Some(below) => format!("{key} {to}{below}\n"),
                None => format!("{line}\n"),
            },
            Some(_) | None => format!("{line}\n"),
        };
        area.write_record(&token, &record.lines().map(line).collect::<String>())?;
        moved.push(area.workspace(&token));
    }
    Ok(moved)
}

/// The directory of objects in a repository.
const OBJECTS: &str = "objects";

/// Which object directories the workspaces use.
struct Borrowed {
    objects: Vec<PathBuf>,
    /// Whether a workspace is being made. It may use any cache.
    has_incomplete: bool,
}

impl Borrowed {
    fn find(area: &Area) -> Result<Borrowed> {
        let mut found = Borrowed { objects: Vec::new(), has_incomplete: false };
        for token in area.tokens()? {
            found.add(area, &token)?;
        }
        Ok(found)
    }

    fn add(&mut self, area: &Area, token: &WorkspaceToken) -> Result<()> {
        let Some(record) = area.record(token)? else {
            self.has_incomplete = true;
            return Ok(());
        };
        let paths = record.lines().filter_map(|line| line.strip_prefix(READ_ONLY));
        self.objects.extend(paths.map(|path| PathBuf::from(path.trim_start())));
        Ok(())
    }

    fn has(&self, cache: &Path) -> bool {
        self.has_incomplete || self.objects.contains(&cache.join(OBJECTS))
    }
}
