//! Plain copies of directories, which spaces use.

use std::path::Path;

use ab_host::directory::{DirectoryCopyLimits, copy_directory, remove_directory};

/// Copies the directory `from` to `to`, which must not exist. Symbolic links are copied as links.
///
/// # Errors
///
/// Fails if a file cannot be read, if the directory is too large, or if `to` lies inside `from`.
pub async fn copy_directory_tree(from: &Path, to: &Path) -> ab_core::Result<()> {
    copy_directory(from, to, DirectoryCopyLimits::default()).await.map(drop)
}

/// Removes a directory with everything in it. It is not an error if the directory does not exist.
///
/// # Errors
///
/// Fails if something in the directory cannot be removed. The call can be repeated.
pub async fn remove_directory_tree(path: &Path) -> ab_core::Result<()> {
    remove_directory(path).await
}
