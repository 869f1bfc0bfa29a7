//! Makes a backup. A server may use the data directory at the same time.
//!
//! The copy of the database is a consistent snapshot. Agents may be changing the workspaces during
//! the copy. Therefore workspaces are copied through handles, and links are not followed. The copy
//! of a workspace that changes can be a mixture of its states.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ab_api::Time;
use ab_core::{Error, ErrorCode, ErrorKind};
use ab_host::directory::{DirectoryCopyLimits, copy_directory, copy_file, remove_directory};
use ab_store::{check_backup, copy_database};
use sha2::{Digest, Sha256};

use super::{
    BackupContent, BackupForm, BackupReport, DATABASE, FORMAT, LEFT_OUT, MANIFEST, MAX_SMALL_FILE,
    Manifest, archive, beside,
};
use crate::failure::Failure;

/// How often a directory is copied if it changes during the copy.
const ATTEMPTS: u32 = 3;
const WORKSPACES: &str = "sessions/workspaces";
const CACHES: &str = "sessions/cache";
/// Directories whose entries are copied one by one. If one entry cannot be copied, the other
/// entries are still copied.
const SEPARATE: [&str; 2] = [WORKSPACES, "spaces"];
/// Subdirectories of `sessions` that are copied by other functions or can be made again.
const SESSIONS_LEFT_OUT: [&str; 3] = ["workspaces", "cache", "git"];

/// Copies the data directory to `to`, which must not exist. `step` is called before each step with
/// its description.
pub(crate) async fn make(
    data_dir: &Path,
    to: &Path,
    step: &mut (dyn FnMut(&str) + Send),
) -> Result<BackupReport, Failure> {
    let source =
        data_dir.canonicalize().and_then(|path| path.join(DATABASE).metadata().map(|_| path));
    let source = source.map_err(|error| {
        Failure::input(format!("find the data of a server in {}", data_dir.display()), error)
            .with_hint("name the data directory with --data-dir")
    })?;
    let to = std::path::absolute(to)
        .map_err(|error| Failure::input(format!("find {}", to.display()), error))?;
    if to.symlink_metadata().is_ok() {
        let message = format!("the backup {} already exists", to.display());
        return Err(Failure::usage(message).with_hint("choose a new name for each backup"));
    }
    if to.starts_with(&source) {
        return Err(Failure::usage(format!("{} is inside the data directory", to.display()))
            .with_hint("name a path outside the data directory"));
    }
    let staging = beside(&to, "partial")?;
    make_dir(&staging)?;
    let made = fill(&source, &staging, &to, step).await;
    // After a success the directory was renamed, and there is nothing to remove.
    let removed = remove_directory(&staging).await;
    let report = made?;
    removed?;
    Ok(report)
}

async fn fill(
    source: &Path,
    staging: &Path,
    to: &Path,
    step: &mut (dyn FnMut(&str) + Send),
) -> Result<BackupReport, Failure> {
    let mut copying = Copying {
        source,
        staging,
        report: BackupReport { path: to.display().to_string(), ..BackupReport::default() },
    };
    // Copy workspaces before the database. If a session ends between the two copies, the copy of
    // the database shows that the session has ended.
    for directory in SEPARATE {
        copying.entries(directory, step).await?;
    }
    step("the database");
    let database = staging.join(DATABASE);
    private_file(&database)?;
    copy_database(source, &database).await.map_err(failed)?;
    copying.report.sessions = check_backup(&database).await.map_err(failed)?.sessions;
    // Copy the workspaces of sessions that started during the first copy.
    copying.entries(WORKSPACES, step).await?;
    copying.caches(step).await?;
    copying.rest(step).await?;
    copying.report.workspaces = count(&staging.join(WORKSPACES));
    write_manifest(source, staging)?;
    match BackupForm::by_name(to) {
        BackupForm::Directory => publish(staging, to)?,
        BackupForm::Archive => {
            step("the archive");
            let name = to.file_name().unwrap_or_default().to_string_lossy();
            let partial = to.with_file_name(format!(".partial-{}-{name}", std::process::id()));
            let packed = archive::pack(staging, &partial).await;
            let published = packed.and_then(|()| publish(&partial, to));
            if published.is_err() {
                // If the removal fails too, the error of the archive is more important.
                let _ = fs::remove_file(&partial);
            }
            published?;
        }
    }
    Ok(copying.report)
}

/// Flushes a complete file or directory to the disk, and then renames it to its final name.
fn publish(partial: &Path, to: &Path) -> Result<(), Failure> {
    let synced = File::open(partial).and_then(|file| Ok(rustix::fs::syncfs(&file)?));
    synced
        .and_then(|()| fs::rename(partial, to))
        .map_err(|error| Failure::input(format!("create {}", to.display()), error))
}

struct Copying<'a> {
    source: &'a Path,
    staging: &'a Path,
    report: BackupReport,
}

impl Copying<'_> {
    /// Copies the entries of a directory that are not copied yet.
    async fn entries(
        &mut self,
        directory: &str,
        step: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), Failure> {
        for name in names(&self.source.join(directory))? {
            let relative = Path::new(directory).join(name);
            if !self.staging.join(&relative).exists() {
                self.copy(&relative, step).await?;
            }
        }
        Ok(())
    }

    /// Copies the caches whose objects are used by workspaces. Other caches can be made again.
    async fn caches(&mut self, step: &mut (dyn FnMut(&str) + Send)) -> Result<(), Failure> {
        let borrowed = ab_snapshot::caches_used_by_workspaces(&self.source.join("sessions"));
        for cache in borrowed.map_err(|error| Failure::from(error.error))? {
            let name = cache.file_name().unwrap_or_default();
            self.copy(&Path::new(CACHES).join(name), step).await?;
        }
        Ok(())
    }

    /// Copies all other data that the server keeps.
    async fn rest(&mut self, step: &mut (dyn FnMut(&str) + Send)) -> Result<(), Failure> {
        for name in names(self.source)? {
            let is_database = name.starts_with(DATABASE);
            let is_known = name == "sessions" || SEPARATE.contains(&name.as_str());
            if is_database || is_known || LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            self.copy(Path::new(&name), step).await?;
        }
        for name in names(&self.source.join("sessions"))? {
            if !SESSIONS_LEFT_OUT.contains(&name.as_str()) {
                self.copy(&Path::new("sessions").join(name), step).await?;
            }
        }
        Ok(())
    }

    /// Copies one file or directory. If the file or directory is removed during the copy, it is
    /// omitted. If it cannot be copied, a problem is recorded.
    async fn copy(
        &mut self,
        relative: &Path,
        step: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), Failure> {
        step(&relative.display().to_string());
        let (from, to) = (self.source.join(relative), self.staging.join(relative));
        if let Some(parent) = to.parent().filter(|parent| *parent != self.staging) {
            make_dir(parent)?;
        }
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            let Ok(kind) = from.symlink_metadata() else { return Ok(()) };
            outcome = if kind.is_dir() {
                copy_directory(&from, &to, DirectoryCopyLimits::default()).await.map(drop)
            } else if kind.is_file() {
                let directory = from.parent().unwrap_or(self.source);
                let name = from.file_name().unwrap_or_default().to_string_lossy();
                copy_file(directory, &name, &to, MAX_SMALL_FILE).await.map(drop)
            } else {
                return Ok(());
            };
            match &outcome {
                Ok(()) => return Ok(()),
                // Retrying does not help if the disk is full.
                Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(outcome?),
                Err(_) => remove_directory(&to).await?,
            }
        }
        if let Err(error) = outcome
            && from.exists()
        {
            let problem = format!("{} is not in the backup: {error}", relative.display());
            self.report.problems.push(problem);
        }
        Ok(())
    }
}

/// The sorted names of the entries of a directory. Empty if the directory does not exist.
fn names(directory: &Path) -> Result<Vec<String>, Failure> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::input(format!("list {}", directory.display()), error)),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

fn count(directory: &Path) -> u64 {
    names(directory).map_or(0, |names| names.len() as u64)
}

pub(super) fn make_dir(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(path);
    made.map_err(|error| Failure::input(format!("create {}", path.display()), error))
}

fn private_file(path: &Path) -> Result<File, Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| Failure::input(format!("create {}", path.display()), error))
}

fn write_manifest(source: &Path, staging: &Path) -> Result<(), Failure> {
    let Some(data_dir) = source.to_str() else {
        return Err(Failure::usage(format!("{} is not valid UTF-8", source.display())));
    };
    let content = BackupContent::of(staging)
        .map_err(|error| Failure::input(format!("list {}", staging.display()), error))?;
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: Time::now().to_string(),
        data_dir: data_dir.to_owned(),
        database_sha256: digest(&staging.join(DATABASE))?,
        content: Some(content),
    };
    let path: PathBuf = staging.join(MANIFEST);
    let fails = |error: io::Error| Failure::input(format!("write {}", path.display()), error);
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| fails(error.into()))?;
    private_file(&path)?.write_all(format!("{text}\n").as_bytes()).map_err(fails)
}

/// The SHA-256 digest of a file, in hexadecimal.
pub(super) fn digest(path: &Path) -> Result<String, Failure> {
    let fails = |error| Failure::input(format!("read {}", path.display()), error);
    let mut file = File::open(path).map_err(fails)?;
    let (mut digest, mut piece) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        let length = file.read(&mut piece).map_err(fails)?;
        if length == 0 {
            break;
        }
        digest.update(&piece[..length]);
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn failed(error: ab_store::StoreError) -> Failure {
    Error::new(ErrorCode::ReadFailed, ErrorKind::CommandFailed, error.to_string()).into()
}
