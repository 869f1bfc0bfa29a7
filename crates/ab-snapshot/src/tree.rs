//! Plain copies of directories, for spaces.

use std::path::Path;

use ab_host::directory::{DirectoryCopyLimits, copy_directory, remove_directory};

/// Copies the directory `from` to `to`, which must not exist. Links stay links.
///
/// # Errors
///
/// A file cannot be read, the directory is too large, or `to` lies inside `from`.
pub async fn copy_directory_tree(from: &Path, to: &Path) -> ab_core::Result<()> {
    copy_directory(from, to, DirectoryCopyLimits::default()).await.map(drop)
}

/// Removes a directory with everything in it. A missing directory is not an error.
///
/// # Errors
///
/// Something cannot be removed. The call can be repeated.
pub async fn remove_directory_tree(path: &Path) -> ab_core::Result<()> {
    remove_directory(path).await
}
