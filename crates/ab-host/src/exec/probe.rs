//! Finds out which isolation works on this host, by trying it once.
//!
//! A result is valid for one boot, bwrap program, user and mode. All workspaces of the process
//! share the results.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ab_core::effective_policy::Isolation;
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};

use super::settings::{CommandShell, LocalExecSettings, SYSTEM_PROGRAM_DIRS};
use super::trouble::Unproven;
use super::{Runner, canary, requirements};
use crate::host_features::program::is_program;
use crate::local::Shared;
use crate::process::child::{can_fix_devices, can_make_families};
use crate::sandbox::bwrap::{self, SystemPlace};
use crate::sandbox::landlock;

/// Maximum size of a bwrap program in bytes. Even a statically linked bwrap is smaller.
const LARGEST_BWRAP: u64 = 32 * 1024 * 1024;

/// The isolation that works for the commands of a driver.
#[derive(Clone, Debug)]
pub(super) struct ProbedIsolation {
    pub(super) isolation: Isolation,
    pub(super) shell: PathBuf,
    pub(super) bwrap: Option<Bwrap>,
    /// A description of what was tested, and of the result.
    pub(super) proof: Option<String>,
    /// Stronger isolations that do not work on this host, each with the reason.
    pub(super) fallen: Vec<(Isolation, String)>,
}

/// A bwrap program, and how to use it on this host.
#[derive(Clone, Debug)]
pub(super) struct Bwrap {
    pub(super) path: PathBuf,
    pub(super) setuid: bool,
    /// The bytes of the program. `Some` if commands run as a user who may change the program's
    /// file.
    pub(super) copy: Option<Arc<[u8]>>,
    pub(super) system: Arc<[SystemPlace]>,
    /// Whether commands own the host's devices and the devices can be protected from them.
    pub(super) fixes_devices: bool,
    /// Whether bwrap can be the first process of a pid namespace that we make. This namespace ends
    /// together with bwrap, even before bwrap has set up its own namespace.
    pub(super) own_family: bool,
    /// Landlock rules that prevent signals to outside processes and connections to their abstract
    /// sockets. `None` if the kernel does not support such rules.
    pub(super) scopes: Option<Arc<OwnedFd>>,
    /// Whether the program `env` can restore ignored signals for a command on a terminal.
    pub(super) restores_signals: bool,
}

impl ProbedIsolation {
    /// Returns the value of `PATH` for commands.
    pub(super) fn path(&self, settings: &LocalExecSettings) -> String {
        let own = settings.toolchains.iter().flat_map(|toolchain| &toolchain.program_dirs);
        let own = own.map(|bin| bin.to_string_lossy().into_owned());
        let all: Vec<String> =
            own.chain(SYSTEM_PROGRAM_DIRS.iter().map(|p| (*p).to_owned())).collect();
        all.join(":")
    }
}

/// Tries the isolations that the settings allow, the strongest first.
pub(super) async fn find(runner: &Runner, shared: &Arc<Shared>) -> Result<Arc<ProbedIsolation>> {
    let settings = &runner.settings;
    requirements::check_floor(settings)?;
    let shell = shell(settings.shell, program)?;
    check_toolchains(settings)?;
    check_temporary_dir(settings)?;
    let order: &[Isolation] = match settings.isolation {
        Isolation::Auto => &[Isolation::Bwrap, Isolation::Landlock, Isolation::Software],
        Isolation::Bwrap => &[Isolation::Bwrap],
        Isolation::Landlock => &[Isolation::Landlock],
        Isolation::Software => &[Isolation::Software],
        Isolation::None => &[Isolation::None],
    };
    let mut fallen = Vec::new();
    for isolation in order {
        let key = key(*isolation, settings, shared);
        let known = lock(&KNOWN).find(&key);
        let tried = match known {
            Some(known) => Ok(known),
            None => {
                let tried = attempt(*isolation, runner, shared, &shell).await;
                if let Ok(proven) = &tried {
                    lock(&KNOWN).keep(key, proven.clone());
                }
                tried
            }
        };
        match tried {
            Ok(Proven { bwrap, proof }) => {
                let probed = ProbedIsolation { isolation: *isolation, shell, bwrap, proof, fallen };
                return above_floor(settings, probed).map(Arc::new);
            }
            Err(Unproven::Impossible(cause)) => fallen.push((*isolation, cause)),
            // The test was not conclusive. Do not store this result, and do not fall back to a
            // weaker isolation.
            Err(Unproven::Failed(error)) => return Err(error),
        }
    }
    let causes: Vec<String> = fallen.iter().map(|(it, cause)| format!("{it}: {cause}")).collect();
    Err(missing(format!("the requested isolation does not work here: {}", causes.join("; ")))
        .with_hint("`agent-backend doctor` shows what is missing on this machine"))
}

/// The result of a test for an isolation that works.
#[derive(Clone, Debug, Default)]
struct Proven {
    bwrap: Option<Bwrap>,
    /// A description of what was tested. `None` if the isolation needs no test.
    proof: Option<String>,
}

/// Earlier results, by the conditions for which they hold.
#[derive(Debug, Default)]
struct KnownResults(BTreeMap<String, Proven>);

static KNOWN: Mutex<KnownResults> = Mutex::new(KnownResults(BTreeMap::new()));
/// Maximum number of results that are kept. A process has one result for each mode and each
/// configured bwrap.
const MOST_KNOWN: usize = 32;

impl KnownResults {
    fn find(&self, key: &str) -> Option<Proven> {
        self.0.get(key).cloned()
    }

    fn keep(&mut self, key: String, proven: Proven) {
        if self.0.len() >= MOST_KNOWN && !self.0.contains_key(&key) {
            self.0.pop_first();
        }
        self.0.insert(key, proven);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The conditions for which a result holds. The workspace itself is not among them.
fn key(isolation: Isolation, settings: &LocalExecSettings, shared: &Shared) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let user = rustix::process::geteuid().as_raw();
    let binary = bwrap_path(settings).and_then(|path| {
        let found = path.metadata().ok()?;
        Some(format!("{}@{:?}", path.display(), found.modified().ok()))
    });
    let screened = settings.command_line_check.is_some();
    // Whether there is anything outside to protect. There is nothing if the workspace is the whole
    // host.
    let outside = canary::outside(&settings.temporary_dir, shared).next().is_some();
    // Whether bwrap lies in the workspace, where commands could change it.
    let exposed = bwrap_path(settings).is_some_and(|path| lies_in(&path, shared));
    let temporary = settings.temporary_dir.display();
    format!(
        "{isolation} {} {boot} {user} {binary:?} {screened} {outside} {exposed} {temporary}",
        settings.network
    )
}

async fn attempt(
    isolation: Isolation,
    runner: &Runner,
    shared: &Arc<Shared>,
    shell: &Path,
) -> std::result::Result<Proven, Unproven> {
    let bwrap = match isolation {
        Isolation::Bwrap => Some(prepare(&runner.settings, shared)?),
        Isolation::Landlock => {
            let lacking = "the kernel has no Landlock, or it is not switched on";
            let version = landlock::version().ok_or_else(|| Unproven::impossible(lacking))?;
            if let Some(cause) = landlock::too_old(version) {
                return Err(Unproven::impossible(cause));
            }
            None
        }
        Isolation::Software => {
            let lacking = "the driver has no check for command lines (its setting 'screen')";
            runner.settings.command_line_check.ok_or_else(|| Unproven::impossible(lacking))?;
            return Ok(Proven::default());
        }
        Isolation::None | Isolation::Auto => return Ok(Proven::default()),
    };
    let mut probed = ProbedIsolation {
        isolation,
        shell: shell.to_owned(),
        bwrap,
        proof: None,
        fallen: Vec::new(),
    };
    let proof = canary::send(runner, shared, &probed).await?;
    if let Some(bwrap) = &mut probed.bwrap {
        bwrap.restores_signals = proof.restores_signals;
    }
    Ok(Proven { bwrap: probed.bwrap, proof: Some(proof.text) })
}

fn prepare(settings: &LocalExecSettings, shared: &Shared) -> std::result::Result<Bwrap, Unproven> {
    let lacking = || Unproven::impossible("no program 'bwrap' on the path of the system");
    let path = bwrap_path(settings).ok_or_else(lacking)?;
    if lies_in(&path, shared) {
        let place = path.display();
        return Err(Unproven::Impossible(format!(
            "{place} is in the workspace, where commands can change it"
        )));
    }
    let setuid = bwrap::is_setuid(&path);
    // A setuid bwrap must gain privileges, but Landlock rules require that no process can gain
    // privileges.
    let scopes = if setuid {
        None
    } else {
        landlock::scopes().map_err(|error| Unproven::by_error(Isolation::Bwrap, &error))?
    };
    let scopes = scopes.map(Arc::new);
    let copy = copy(&path, setuid)?;
    // If the devices cannot be protected, the described policy says so.
    let fixes_devices = owns_devices() && ability(&FIXES_DEVICES, can_fix_devices)?;
    let own_family = ability(&MAKES_FAMILIES, can_make_families)?;
    let system = bwrap::system().into();
    let restores_signals = false;
    Ok(Bwrap { path, setuid, copy, fixes_devices, own_family, system, scopes, restores_signals })
}

fn lies_in(path: &Path, shared: &Shared) -> bool {
    shared.aliases.iter().any(|root| path.starts_with(root))
}

static FIXES_DEVICES: OnceLock<bool> = OnceLock::new();
static MAKES_FAMILIES: OnceLock<bool> = OnceLock::new();

/// Returns whether the host can do something. The attempt is repeated until there is a clear
/// result, which is then kept.
fn ability(
    known: &OnceLock<bool>,
    find: fn() -> std::io::Result<bool>,
) -> std::result::Result<bool, Unproven> {
    if let Some(known) = known.get() {
        return Ok(*known);
    }
    let act = "a namespace cannot be tried";
    let found = find().map_err(|error| Unproven::by_errno(Isolation::Bwrap, act, &error))?;
    Ok(*known.get_or_init(|| found))
}

/// Returns whether commands run as the owner of the host's devices.
pub(super) fn owns_devices() -> bool {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata("/dev/null").map(|found| found.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}

/// Returns the bytes to run instead of the file at `path`, or `None` to run the file itself. No
/// copy is made if commands cannot change the file, because some hosts allow namespaces only for
/// the file at this path.
fn copy(path: &Path, setuid: bool) -> std::result::Result<Option<Arc<[u8]>>, Unproven> {
    use std::os::unix::fs::MetadataExt;
    let act = format!("cannot read {}", path.display());
    let failed = |error: std::io::Error| Unproven::by_errno(Isolation::Bwrap, &act, &error);
    let found = path.metadata().map_err(failed)?;
    let writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    let user = rustix::process::geteuid();
    let ours = found.uid() == user.as_raw() || writable;
    // A copy has no setuid bit, and only root can use bwrap without it.
    if !ours || (setuid && !user.is_root()) {
        return Ok(None);
    }
    if found.len() > LARGEST_BWRAP {
        let cause = format!("{} is larger than any bwrap", path.display());
        return Err(Unproven::Impossible(cause));
    }
    // All workspaces of the process share one copy.
    let key = (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec());
    let mut last = lock(&LAST_COPY);
    if let Some((_, copy)) = last.as_ref().filter(|(of, _)| *of == key) {
        return Ok(Some(copy.clone()));
    }
    let program: Arc<[u8]> = std::fs::read(path).map_err(failed)?.into();
    if program.starts_with(b"#!") {
        let cause = format!("{} is a script; the program itself is needed", path.display());
        return Err(Unproven::Impossible(cause));
    }
    *last = Some((key, program.clone()));
    Ok(Some(program))
}

/// The identity and state of a file: device, inode, size and modification time.
type FileKey = (u64, u64, u64, i64, i64);

static LAST_COPY: Mutex<Option<(FileKey, Arc<[u8]>)>> = Mutex::new(None);

fn bwrap_path(settings: &LocalExecSettings) -> Option<PathBuf> {
    match &settings.bwrap {
        Some(path) => is_program(path).then(|| path.clone()),
        None => program("bwrap"),
    }
}

fn program(name: &str) -> Option<PathBuf> {
    SYSTEM_PROGRAM_DIRS
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(|path| is_program(path))
}

fn shell(wanted: CommandShell, find: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    let names: &[&str] = match wanted {
        CommandShell::Auto => &["bash", "sh"],
        CommandShell::Bash => &["bash"],
        CommandShell::Sh => &["sh"],
    };
    names.iter().find_map(|name| find(name)).ok_or_else(|| {
        let message = format!("no shell '{}' on the path of the system", names.join("' or '"));
        missing(message)
    })
}

/// Fails if a toolchain is missing. Without this check, only the command that needs the toolchain
/// would fail.
fn check_toolchains(settings: &LocalExecSettings) -> Result<()> {
    for path in settings.toolchains.iter().flat_map(|toolchain| &toolchain.readable_paths) {
        let found = std::fs::metadata(path).map_err(|error| {
            let message = format!("cannot open the toolchain {}: {error}", path.display());
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_hint("name a directory that exists")
        })?;
        if path.is_relative() || !(found.is_dir() || found.is_file()) || path.to_str().is_none() {
            let message = format!(
                "the toolchain {} is not the absolute path of a directory or file",
                path.display()
            );
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        }
    }
    Ok(())
}

/// Fails if the directory for temporary files cannot be used. The sandboxes need this directory,
/// but a missing directory says nothing about whether an isolation works.
fn check_temporary_dir(settings: &LocalExecSettings) -> Result<()> {
    if matches!(settings.isolation, Isolation::Software | Isolation::None) {
        return Ok(());
    }
    let path = &settings.temporary_dir;
    let cause = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "it is not a directory".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("cannot use '{}' for temporary files: {cause}", path.display());
    Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        .with_hint("set TMPDIR to an existing, writable directory"))
}

fn above_floor(settings: &LocalExecSettings, probed: ProbedIsolation) -> Result<ProbedIsolation> {
    if probed.isolation.strength() >= settings.minimum_isolation.strength() {
        return Ok(probed);
    }
    let causes: Vec<String> =
        probed.fallen.iter().map(|(it, cause)| format!("; {it}: {cause}")).collect();
    let (have, want) = (probed.isolation, settings.minimum_isolation);
    Err(missing(format!(
        "isolation '{want}' is required, but commands would have only '{have}'{}",
        causes.concat()
    ))
    .with_hint("choose a stronger isolation, or accept a weaker one"))
}

fn missing(message: String) -> Error {
    Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use ab_core::NetworkAccess;

    use super::*;
    use crate::{LocalDriver, LocalDriverOptions};

    /// Creates an executable file at this path.
    fn program_at(path: PathBuf) -> PathBuf {
        fs::write(&path, "program").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_result_holds_for_every_workspace_under_the_same_conditions() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let programs = tempfile::tempdir().unwrap();
        let bwrap = program_at(programs.path().join("bwrap"));
        let settings = |bwrap: &Path, network| LocalExecSettings {
            bwrap: Some(bwrap.to_owned()),
            network,
            ..LocalExecSettings::default()
        };
        let key_of = |root: &Path, isolation, settings: &LocalExecSettings| {
            let driver = LocalDriver::open(root, LocalDriverOptions::default()).unwrap();
            key(isolation, settings, driver.shared())
        };
        let usual = settings(&bwrap, NetworkAccess::None);
        let first = key_of(one.path(), Isolation::Bwrap, &usual);
        assert_eq!(key_of(other.path(), Isolation::Bwrap, &usual), first);
        // With a different mode, network access or bwrap program, the result is not reused.
        assert_ne!(key_of(other.path(), Isolation::Landlock, &usual), first);
        let shared = settings(&bwrap, NetworkAccess::Shared);
        assert_ne!(key_of(other.path(), Isolation::Bwrap, &shared), first);
        let another = program_at(programs.path().join("another"));
        let another = settings(&another, NetworkAccess::None);
        assert_ne!(key_of(other.path(), Isolation::Bwrap, &another), first);
        // The result is not reused for a workspace whose commands could change the bwrap program.
        assert_ne!(key_of(programs.path(), Isolation::Bwrap, &usual), first);
        // The result is not reused for a workspace that contains the whole host.
        assert_ne!(key_of(Path::new("/"), Isolation::Bwrap, &usual), first);
        // The result is not reused after the program was replaced.
        let file = fs::File::options().write(true).open(&bwrap).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_ne!(key_of(other.path(), Isolation::Bwrap, &usual), first);
    }

    #[test]
    fn a_bounded_number_of_results_is_kept() {
        let mut known = KnownResults::default();
        let proven = |number: usize| Proven { bwrap: None, proof: Some(number.to_string()) };
        for number in 0..3 * MOST_KNOWN {
            // Storing a result again under the same key replaces it, and removes no other result.
            known.keep(number.to_string(), proven(number));
            known.keep(number.to_string(), proven(number));
            assert_eq!(known.0.len(), MOST_KNOWN.min(number + 1));
            let found = known.find(&number.to_string()).unwrap();
            assert_eq!(found.proof, Some(number.to_string()));
        }
        assert!(known.find("elsewhere").is_none());
    }

    #[test]
    fn bash_comes_first_and_a_named_shell_must_be_there() {
        let both = |name: &str| Some(Path::new("/bin").join(name));
        let only_sh = |name: &str| (name == "sh").then(|| PathBuf::from("/bin/sh"));
        assert_eq!(shell(CommandShell::Auto, both).unwrap(), Path::new("/bin/bash"));
        assert_eq!(shell(CommandShell::Sh, both).unwrap(), Path::new("/bin/sh"));
        assert_eq!(shell(CommandShell::Auto, only_sh).unwrap(), Path::new("/bin/sh"));
        let error = shell(CommandShell::Bash, only_sh).unwrap_err();
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::MissingUtilities, ErrorKind::Unavailable)
        );
        assert!(error.message().contains("'bash'"), "{error}");
        assert!(shell(CommandShell::Auto, |_| None).is_err());
    }
}
