//! Restores a backup into an empty data directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ab_core::{Backend, Error, ErrorKind};
use ab_host::directory::{DirectoryCopyLimits, copy_directory, remove_directory};
use ab_store::{DataDir, Store, check_backup};

use super::making::{digest, failed, make_dir};
use super::{BackupContent, BackupReport, DATABASE, FORMAT, MANIFEST, Manifest, archive, beside};
use crate::data_dir;
use crate::failure::Failure;

/// Files in a workspace that contain the path of the workspace. An agent may have changed them.
const FILES_WITH_PATHS: [(&str, &str); 2] =
    [("tree", ".git/objects/info/alternates"), ("home", ".gitconfig")];

/// Restores the backup at `from`. `step` is called before each step with its description.
///
/// # Errors
///
/// Fails if the target directory is not empty or a server uses it. Also fails if the backup is
/// incomplete, damaged, or made by a newer version. After a failure the target directory is
/// unchanged.
pub(crate) async fn restore(
    from: &Path,
    data_dir: &Path,
    step: &mut (dyn FnMut(&str) + Send),
) -> Result<BackupReport, Failure> {
    let to = check_target(data_dir)?;
    let staging = beside(&to, "restoring")?;
    make_dir(&staging)?;
    let restored = fill(from, &staging, &to, step).await;
    if restored.is_err() {
        // If the removal fails too, the error of the restore is more important.
        let _ = remove_directory(&staging).await;
    }
    restored
}

/// Returns the absolute path of the directory. Fails if the directory exists and is not empty.
fn check_target(data_dir: &Path) -> Result<PathBuf, Failure> {
    if let Some(url) = data_dir::running_server(data_dir) {
        let message = format!("the server at {url} uses {}", data_dir.display());
        return Err(Failure::usage(message).with_hint("name an empty directory with --data-dir"));
    }
    match fs::read_dir(data_dir) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                let message = format!("the data directory {} is not empty", data_dir.display());
                return Err(Failure::usage(message)
                    .with_hint("name an empty directory with --data-dir, or move this one away"));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(Failure::input(
                format!("list the directory {}", data_dir.display()),
                error,
            ));
        }
    }
    let parent = data_dir.parent().unwrap_or(Path::new("/"));
    make_dir(parent)?;
    let parent = parent
        .canonicalize()
        .map_err(|error| Failure::input(format!("find {}", parent.display()), error))?;
    match data_dir.file_name() {
        Some(name) => Ok(parent.join(name)),
        None => Err(Failure::usage(format!("{} has no name", data_dir.display()))),
    }
}

async fn fill(
    from: &Path,
    staging: &Path,
    to: &Path,
    step: &mut (dyn FnMut(&str) + Send),
) -> Result<BackupReport, Failure> {
    let kind = from.metadata();
    let kind = kind.map_err(|error| Failure::input(format!("open {}", from.display()), error))?;
    step("the files");
    if kind.is_dir() {
        // Remove the directory, because the copy creates it.
        fs::remove_dir(staging).map_err(|error| Failure::input("create a directory", error))?;
        copy_directory(from, staging, DirectoryCopyLimits::default()).await?;
    } else {
        let from = std::path::absolute(from)
            .map_err(|error| Failure::input(format!("find {}", from.display()), error))?;
        archive::unpack(&from, staging).await.map_err(|failure| {
            match failure.error().map(Error::kind) {
                Some(ErrorKind::NoSpace) => failure,
                _ => failure.with_hint("if the backup is damaged or incomplete, use another one"),
            }
        })?;
    }
    step("the database");
    let manifest = read_manifest(from, staging)?;
    check_content(from, staging, &manifest)?;
    let check = check_backup(&staging.join(DATABASE)).await;
    let check = check.map_err(|error| unusable(from, &error.to_string()))?;
    fs::remove_file(staging.join(MANIFEST))
        .map_err(|error| Failure::input("remove the manifest", error))?;
    let mut report = BackupReport {
        path: to.display().to_string(),
        sessions: check.sessions,
        ..BackupReport::default()
    };
    step("the paths of workspaces");
    let Some(new) = to.to_str() else {
        return Err(Failure::usage(format!("{} is not valid UTF-8", to.display())));
    };
    let (old, sessions) = (manifest.data_dir.as_str(), staging.join("sessions"));
    let moved = ab_snapshot::replace_path_prefix_in_records(&sessions, old, new);
    let moved = moved.map_err(|error| Failure::from(error.error))?;
    report.workspaces = moved.len() as u64;
    if old != new {
        for workspace in &moved {
            for (directory, file) in FILES_WITH_PATHS {
                let changed = move_paths(&workspace.join(directory), file, old, new).await;
                if let Err(error) = changed {
                    let name = workspace.file_name().unwrap_or_default().to_string_lossy();
                    report.problems.push(format!("workspace {name}: {error}"));
                }
            }
        }
    }
    // Opening the store also migrates the database of an earlier version.
    let store = Store::open(DataDir::open(staging).map_err(failed)?).await.map_err(failed)?;
    let changed = store.replace_workspace_path_prefix(old, new).await;
    store.close().await;
    drop(store);
    changed.map_err(failed)?;
    // The rename replaces an empty target directory.
    fs::rename(staging, to)
        .map_err(|error| Failure::input(format!("create {}", to.display()), error))?;
    Ok(report)
}

/// Replaces a path in a file of a workspace. The file is opened through a workspace handle, because
/// an agent may have replaced the file by a link, and files outside of the directory must not be
/// changed.
async fn move_paths(directory: &Path, file: &str, old: &str, new: &str) -> ab_core::Result<()> {
    let backend: Backend = agent_backend::local(directory)?;
    let changed = match backend.read_text(file).await {
        Ok(text) if text.contains(old) => {
            backend.write(file, text.replace(old, new)).await.map(drop)
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    backend.destroy().await?;
    changed
}

/// Compares the files with the manifest.
fn check_content(from: &Path, staging: &Path, manifest: &Manifest) -> Result<(), Failure> {
    let database = staging.join(DATABASE);
    if !database.is_file() {
        return Err(unusable(from, &format!("{DATABASE} is missing")));
    }
    if digest(&database)? != manifest.database_sha256 {
        return Err(unusable(from, &format!("{DATABASE} is damaged")));
    }
    let Some(expected) = manifest.content else { return Ok(()) };
    let found = BackupContent::of(staging)
        .map_err(|error| Failure::input(format!("list {}", from.display()), error))?;
    if found == expected {
        return Ok(());
    }
    let why = format!(
        "it has {} entries with {} bytes, and had {} with {} when it was made",
        found.entries, found.bytes, expected.entries, expected.bytes
    );
    Err(unusable(from, &why))
}

fn unusable(from: &Path, why: &str) -> Failure {
    let message = format!("the backup {} is incomplete or damaged: {why}", from.display());
    Failure::usage(message).with_hint("use another backup")
}

fn read_manifest(from: &Path, staging: &Path) -> Result<Manifest, Failure> {
    let no_backup = |why: String| {
        Failure::usage(format!("{} is not a backup: {why}", from.display()))
            .with_hint("create a backup with `agent-backend backup`")
    };
    let text = fs::read_to_string(staging.join(MANIFEST))
        .map_err(|error| no_backup(format!("cannot read {MANIFEST}: {error}")))?;
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|error| no_backup(format!("{MANIFEST} is invalid: {error}")))?;
    if manifest.format != FORMAT {
        let message = format!(
            "the backup {} has format {}, and this program knows format {FORMAT}",
            from.display(),
            manifest.format
        );
        let hint = format!("use the version {} that made it", manifest.version);
        return Err(Failure::usage(message).with_hint(hint));
    }
    Ok(manifest)
}
