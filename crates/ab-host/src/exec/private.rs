//! Directories that a workspace or scope keeps between its commands, outside of its own files: a
//! `/tmp`, and the caches and histories of programs.
//!
//! - Each workspace or scope has one directory on the host. The first command creates this
//!   directory. It is removed together with the driver.
//! - `/tmp` is a tmpfs of [`TMP_SIZE`] bytes if this process may mount one. If not, it is a plain
//!   directory.
//! - If this process is killed, the watchdog removes the directory. If there is no watchdog, the next
//!   process removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tokio::sync::OnceCell;

use super::git_config;
use super::settings::LocalExecSettings;
use crate::blocking;
use crate::limits::cgroup::Groups;
use crate::local::Shared;
use crate::process::{incarnation, watchdog};
use crate::sandbox::bwrap::TMP_SIZE;

/// Maximum number of files and directories in a private `/tmp`.
const TMP_FILES: u64 = 1 << 18;
/// Maximum number of scopes whose directories a driver keeps. If there are more scopes, the least
/// recently used directories that no command uses are removed.
const MOST_KEPT: usize = 256;
/// Where private directories are made if the configured directory lies in the workspace.
const OUTSIDE: &[&str] = &["/var/tmp", "/dev/shm", "/run"];
/// The names inside the directory of one scope. The script of the watchdog also uses the first
/// name.
const TMP: &str = "tmp";
const CACHES: &str = "cache";

/// Why a private `/tmp` cannot be a tmpfs on this host. Empty until that is known.
static UNBOUNDED: OnceLock<String> = OnceLock::new();

/// Returns why `/tmp` has no size limit on this host, or `None` if it has one.
pub(super) fn unbounded() -> Option<&'static str> {
    UNBOUNDED.get().map(String::as_str)
}

/// The private directories of one workspace or scope. They are removed when the last reference is
/// dropped.
#[derive(Debug)]
pub(super) struct Private {
    base: PathBuf,
    /// The private `/tmp`. `None` if the isolation does not use one.
    pub(super) tmp: Option<PrivateDirectory>,
    pub(super) caches: PrivateDirectory,
}

#[derive(Debug)]
pub(super) struct PrivateDirectory {
    pub(super) path: String,
    pub(super) handle: OwnedFd,
}

impl Private {
    /// Returns whether a process that can write to `directory` could replace the private
    /// directories.
    pub(super) fn lies_in(&self, directory: &str) -> bool {
        self.base.starts_with(directory)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        clear(&self.base);
    }
}

/// Identifies the private directories that a command needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PrivateKey {
    /// The path of the workspace on the host.
    pub(super) root: String,
    pub(super) scope_root: String,
    pub(super) tmp: TmpNeed,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TmpNeed {
    /// The command uses the host's `/tmp`.
    None,
    /// The command needs a private `/tmp` that contains directories of these names. They are used
    /// as mount points.
    With(BTreeSet<String>),
}

/// The private directories of all scopes of one driver.
#[derive(Debug, Default)]
pub(super) struct Privates {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    by_key: BTreeMap<PrivateKey, Slot>,
    clock: u64,
}

#[derive(Debug, Default)]
struct Slot {
    cell: Arc<OnceCell<Arc<Private>>>,
    used: u64,
}

impl Slot {
    fn is_idle(&self) -> bool {
        let lent = |private: &Arc<Private>| Arc::strong_count(private) > 1;
        Arc::strong_count(&self.cell) == 1 && !self.cell.get().is_some_and(lent)
    }
}

impl Privates {
    /// Takes all directories out of the value. They are removed when the result is dropped.
    pub(super) fn take(&self) -> Kept {
        std::mem::take(&mut *self.lock())
    }

    /// Returns the directories for `key`. Missing ones are created.
    pub(super) async fn lend(
        &self,
        settings: &LocalExecSettings,
        place: &Path,
        key: PrivateKey,
    ) -> Result<Arc<Private>> {
        let (cell, evicted) = self.slot(&key);
        if evicted.is_some() {
            blocking::finish(move || drop(evicted)).await;
        }
        let lent = cell.get_or_try_init(|| {
            let (place, caches) = (place.to_owned(), settings.cache_dir.clone());
            let identity = settings.git_identity.clone();
            blocking::run(move |_| {
                let made = make(&place, caches.as_deref(), &key);
                let made = made.and_then(|made| {
                    git_config::create(&made.caches.handle, &identity)?;
                    Ok(made)
                });
                made.map(Arc::new).map_err(|error| unmade(&place, caches.as_deref(), &error))
            })
        });
        lent.await.cloned()
    }

    fn slot(&self, key: &PrivateKey) -> (Arc<OnceCell<Arc<Private>>>, Option<Slot>) {
        let mut kept = self.lock();
        kept.clock += 1;
        let now = kept.clock;
        if let Some(slot) = kept.by_key.get_mut(key) {
            slot.used = now;
            return (slot.cell.clone(), None);
        }
        let full = kept.by_key.len() >= MOST_KEPT;
        let idle = kept.by_key.iter().filter(|(_, slot)| full && slot.is_idle());
        let oldest = idle.min_by_key(|(_, slot)| slot.used).map(|(key, _)| key.clone());
        let evicted = oldest.and_then(|oldest| kept.by_key.remove(&oldest));
        let slot = Slot { used: now, ..Slot::default() };
        let cell = slot.cell.clone();
        kept.by_key.insert(key.clone(), slot);
        (cell, evicted)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the directory in which a driver makes its private directories. This directory lies
/// outside of the workspace, because commands could replace a directory inside the workspace.
/// Returns `None` if the workspace is the whole host.
pub(super) fn place(settings: &LocalExecSettings, shared: &Shared) -> Option<PathBuf> {
    let configured = std::path::absolute(&settings.temporary_dir).ok()?;
    let configured = std::fs::canonicalize(&configured).unwrap_or(configured);
    let inside = |place: &Path| shared.aliases.iter().any(|root| place.starts_with(root));
    let others = OUTSIDE.iter().map(PathBuf::from).filter(|place| place.is_dir());
    std::iter::once(configured).chain(others).find(|place| !inside(place))
}

/// Creates the error for private directories that cannot be made.
///
/// The error says nothing about the isolation. A missing or full `TMPDIR` must not make a weaker
/// isolation replace a stronger one. So the error contains no error number, because an error number
/// would be taken as a property of the host.
fn unmade(place: &Path, caches: Option<&Path>, error: &io::Error) -> Error {
    if let Some(caches) = caches.filter(|caches| caches.metadata().is_ok_and(|it| !it.is_dir())) {
        let message = format!("cannot keep caches in {}: it is not a directory", caches.display());
        return Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
            .with_hint("name a writable directory for the caches");
    }
    let message = format!("cannot create a private directory in {}: {error}", place.display());
    let (code, kind) = match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorCode::InvalidConfiguration, ErrorKind::Invalid)
        }
        _ => (ErrorCode::ExecError, ErrorKind::Io),
    };
    Error::new(code, kind, message).with_hint("set TMPDIR to an existing, writable directory")
}

fn make(place: &Path, kept_caches: Option<&Path>, key: &PrivateKey) -> io::Result<Private> {
    sweep(place);
    // If this process is killed, the watchdog removes the directory.
    watchdog::clears(place);
    let base = place.join(incarnation::next_name());
    make_private(&base)?;
    let made = filled(&base, kept_caches, key);
    if made.is_err() {
        clear(&base);
    }
    made
}

fn filled(base: &Path, kept_caches: Option<&Path>, key: &PrivateKey) -> io::Result<Private> {
    let mut private_tmp = None;
    if let TmpNeed::With(names) = &key.tmp {
        let tmp = base.join(TMP);
        make_private(&tmp)?;
        if mount_tmpfs(&tmp)? {
            // A tmpfs that is not removed keeps using memory. So a watchdog must exist that removes
            // the tmpfs if this process is killed.
            let _ = watchdog::stand(&Groups::find().parents());
        }
        // This is the usual mode of `/tmp`. Other users still cannot enter this directory, because
        // its parent directory is closed to them.
        std::fs::set_permissions(&tmp, std::fs::Permissions::from_mode(0o1777))?;
        for name in names {
            std::fs::DirBuilder::new().mode(0o755).create(tmp.join(name))?;
        }
        private_tmp = Some(opened(&tmp)?);
    }
    let caches = match kept_caches {
        Some(kept) => {
            let own = std::path::absolute(kept)?.join(cache_name(key));
            let made = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&own);
            made.map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", own.display()))
            })?;
            own
        }
        None => {
            let own = base.join(CACHES);
            make_private(&own)?;
            own
        }
    };
    Ok(Private { base: base.to_owned(), tmp: private_tmp, caches: opened(&caches)? })
}

/// Returns the name of the cache directory of a scope. Every driver of the workspace uses the same
/// name.
fn cache_name(key: &PrivateKey) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let readable: String = key.scope_root.chars().map(|c| if plain(c) { c } else { '.' }).collect();
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    (&key.root, &key.scope_root).hash(&mut hasher);
    let start = readable.len().saturating_sub(40);
    format!("scope-{}-{:016x}", &readable[start..], hasher.finish())
}

fn make_private(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

fn opened(path: &Path) -> io::Result<PrivateDirectory> {
    let text = path.to_str().ok_or_else(|| io::Error::other("its path is not valid UTF-8"))?;
    let handle = crate::jail::open_host_dir(path)?;
    Ok(PrivateDirectory { path: text.to_owned(), handle })
}

/// Mounts a tmpfs. Returns false if this process is not allowed to mount one.
fn mount_tmpfs(at: &Path) -> io::Result<bool> {
    let data = CString::new(format!("size={TMP_SIZE},nr_inodes={TMP_FILES},mode=1777"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    match mount("agent-backend", at, "tmpfs", flags, Some(data.as_c_str())) {
        Ok(()) => Ok(true),
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::NODEV | Errno::NOSYS)) => {
            UNBOUNDED.get_or_init(|| format!("no tmpfs can be mounted: {errno}"));
            Ok(false)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Removes a private directory, including the tmpfs in it.
fn clear(base: &Path) {
    let tmp = base.join(TMP);
    let is_mount = || {
        let device = |path: &Path| std::fs::symlink_metadata(path).map(|found| found.dev());
        Ok::<_, io::Error>(device(&tmp)? != device(base)?)
    };
    if is_mount().unwrap_or(false) {
        let _ = unmount(&tmp, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    if std::fs::remove_dir_all(base).is_err() {
        // Some caches are read-only, such as the cache of Go modules. So make everything writable
        // first.
        make_writable(base);
        let _ = std::fs::remove_dir_all(base);
    }
}

fn make_writable(directory: &Path) {
    let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Removes the directories in `place` whose process was killed together with its watchdog. Runs
/// only once for each `place`.
pub(super) fn sweep(place: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if !SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(place.to_owned()) {
        return;
    }
    let gone = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let maker = entry.file_name().to_str().and_then(incarnation::maker);
        // In a directory that several users share, other users may create such names too. Remove
        // only our own user's directories.
        let ours = |found: std::fs::Metadata| found.is_dir() && found.uid() == user;
        if maker.is_some_and(gone) && entry.metadata().is_ok_and(ours) {
            clear(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scope_root: &str, names: &[&str]) -> PrivateKey {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        PrivateKey {
            root: "/w".to_owned(),
            scope_root: scope_root.to_owned(),
            tmp: TmpNeed::With(names),
        }
    }

    #[test]
    fn a_private_directory_is_closed_to_others_and_removed_whole() {
        let place = tempfile::tempdir().unwrap();
        let private = make(place.path(), None, &key("", &["ws"])).unwrap();
        let base = private.base.clone();
        assert_eq!(base.metadata().unwrap().mode() & 0o777, 0o700);
        let tmp = PathBuf::from(&private.tmp.as_ref().unwrap().path);
        assert!(tmp.join("ws").is_dir());
        std::fs::write(tmp.join("file"), "x").unwrap();
        let kept = Path::new(&private.caches.path).join("mod/x");
        std::fs::create_dir_all(&kept).unwrap();
        std::fs::write(kept.join("file"), "x").unwrap();
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o555)).unwrap();
        drop(private);
        assert!(!base.exists());
    }

    #[test]
    fn directories_of_dead_processes_are_removed_and_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let mine = incarnation::next_name();
        let pid = std::process::id().to_string();
        // This number is larger than any process id.
        let dead = mine.replacen(&format!("-{pid}-"), "-4194999-", 1);
        for name in [mine.as_str(), dead.as_str(), "agent-backend-else", "else"] {
            std::fs::create_dir_all(place.path().join(name).join(TMP)).unwrap();
        }
        sweep(place.path());
        assert!(!place.path().join(&dead).exists());
        for name in [mine.as_str(), "agent-backend-else", "else"] {
            assert!(place.path().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn caches_of_a_scope_have_one_name() {
        let name = |scope_root: &str| cache_name(&key(scope_root, &[]));
        assert_eq!(name("a/b"), cache_name(&key("a/b", &["x"])));
        assert_ne!(name("a/b"), name("a.b"));
        assert!(!name("../../x").contains('/'));
    }
}
