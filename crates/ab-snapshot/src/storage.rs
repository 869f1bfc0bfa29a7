//! The disk space of the workspaces and caches, and the removal of caches that no workspace needs.

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
    /// The name of the cache's directory. It identifies the source.
    pub name: String,
    /// The time when a workspace was last made from this cache.
    pub last_used: SystemTime,
    /// Whether a workspace uses objects of this cache.
    pub is_used_by_workspace: bool,
    pub usage: DirectoryUsage,
}

impl SessionWorkspaceStore {
    /// Returns the caches, sorted by name.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub async fn list_caches(&self) -> Result<Vec<StoredCache>> {
        let borrowed = Borrowed::find(&self.area)?;
        let mut caches = Vec::new();
        for (name, last_used) in self.area.caches()? {
            let path = self.area.cache(&name);
            // Git may be changing or removing the cache now, so the result may be incomplete.
            let usage = directory_usage(&path).await.unwrap_or_default();
            let is_borrowed = borrowed.has(&path);
            caches.push(StoredCache { name, last_used, is_used_by_workspace: is_borrowed, usage });
        }
        Ok(caches)
    }

    /// Removes a cache. If a workspace uses its objects or is being made, removes nothing and
    /// returns `false`.
    ///
    /// # Errors
    /// Fails if the cache cannot be removed. The call can be repeated.
    pub async fn remove_cache(&self, name: &str) -> Result<bool> {
        if !self.area.caches()?.iter().any(|(known, _)| known == name) {
            return Ok(true);
        }
        let lock = match self.area.lock(name, Duration::ZERO).await {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::Timeout => return Ok(false),
            Err(error) => return Err(error),
        };
        // A workspace first gets its directory, then locks its cache, and then gets its record. So
        // a workspace that uses this cache is either recorded or recognizable as incomplete.
        let path = self.area.cache(name);
        if Borrowed::find(&self.area)?.has(&path) {
            return Ok(false);
        }
        remove_directory(&path).await?;
        self.area.remove_lock(name, lock)?;
        Ok(true)
    }

    /// Returns the number of bytes that this process can still write to the file system, or `None`
    /// if that is unknown.
    pub fn free_space(&self) -> Option<u64> {
        free_space(self.area.root()).ok()
    }
}

/// Returns the caches whose objects the workspaces in `directory` use. A caller that copies
/// `directory` must also copy these caches. Incomplete workspaces are ignored.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn caches_used_by_workspaces(directory: &Path) -> Result<Vec<PathBuf>> {
    let area = Area::existing(directory);
    let borrowed = Borrowed::find(&area)?;
    let caches = area.caches()?.into_iter().map(|(name, _)| area.cache(&name));
    Ok(caches.filter(|cache| borrowed.objects.contains(&cache.join(OBJECTS))).collect())
}

/// Changes the paths in the records of all workspaces in `directory`. If a path begins with the
/// directory `from`, replaces this part by `to`. Returns the directories of the workspaces.
///
/// # Errors
/// Fails if a record cannot be read or written.
pub fn replace_path_prefix_in_records(
    directory: &Path,
    from: &str,
    to: &str,
) -> Result<Vec<PathBuf>> {
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

/// The name of the directory with the objects of a repository.
const OBJECTS: &str = "objects";

/// The object directories of caches that the existing workspaces borrow from.
struct Borrowed {
    objects: Vec<PathBuf>,
    /// Whether a workspace is being made. A workspace that is being made may use any cache.
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
