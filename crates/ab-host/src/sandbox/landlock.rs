//! Landlock rules. The parent makes them, and the child puts them in force.
//!
//! Every access that this kernel's Landlock can refuse is refused, except the access that is
//! granted here. It is an error if a rule cannot be made. So a command may have fewer rights than
//! intended, but never more.

use std::error::Error as StdError;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::{Mode, OFlags};

/// The oldest version of Landlock that is usable. With older versions, a process can truncate a
/// file without the right to write to it.
const NEEDED: ABI = ABI::V3;
/// The version number of [`NEEDED`].
const NEEDED_VERSION: i32 = 3;
/// The newest version that this file uses.
const NEWEST: ABI = ABI::V6;
/// From this version on, signals and abstract sockets are restricted too.
pub(crate) const SCOPES: i32 = 6;

/// Files from which programs get information about the machine. They contain nothing about other
/// processes.
const READABLE_FILES: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs",
    "/proc/sys/net/core/somaxconn",
    "/sys/devices/system/cpu",
];
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    // A command may use its own terminal and create new ones. Terminals of other users are in
    // /dev/pts, which is not listed.
    "/dev/tty",
    "/dev/ptmx",
];

/// Returns the version of this kernel's Landlock, or `None` if the kernel has no Landlock.
pub(crate) fn version() -> Option<i32> {
    crate::process::child::landlock_version()
}

/// Returns why this version is too old to isolate commands, or `None` if it is new enough.
pub(crate) fn too_old(version: i32) -> Option<String> {
    (version < NEEDED_VERSION).then(|| {
        format!(
            "the kernel has version {version} of Landlock; before version {NEEDED_VERSION} (Linux 6.2), \
             commands can truncate files that they may not write"
        )
    })
}

/// What a command may access.
#[derive(Debug, Default)]
pub(crate) struct Grants<'a> {
    /// Directories and files that may be written, including everything below them.
    pub(crate) writable: Vec<&'a OwnedFd>,
    pub(crate) readable: Vec<&'a OwnedFd>,
    /// Directories and files of the host that may be read. No command can replace them.
    pub(crate) system: Vec<&'a Path>,
}

/// Creates the rules for a command that only Landlock isolates.
pub(crate) fn rules(grants: &Grants<'_>) -> Result<OwnedFd> {
    let explained = |error: landlock::RulesetError| unmade("no rules can be made", error);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .map_err(explained)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .map_err(explained)?
        .scope(Scope::from_all(NEWEST))
        .map_err(explained)?;
    let mut made = ruleset.create().map_err(explained)?;
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    for directory in &grants.writable {
        made = allow(made, directory, all)?;
    }
    for directory in &grants.readable {
        made = allow(made, directory, read)?;
    }
    for path in grants.system.iter().copied().chain(READABLE_FILES.iter().map(Path::new)) {
        if let Some(handle) = opened(path)? {
            made = allow(made, &handle, read)?;
        }
    }
    for path in DEVICES {
        if let Some(handle) = opened(Path::new(path))? {
            let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            made = allow(made, &handle, device | AccessFs::ReadDir)?;
        }
    }
    into_handle(made)
}

/// Creates rules for what namespaces do not restrict: signals to other processes, and connections
/// to their abstract sockets. Returns `None` if the kernel does not support such rules.
pub(crate) fn scopes() -> Result<Option<OwnedFd>> {
    if version().is_none_or(|version| version < SCOPES) {
        return Ok(None);
    }
    let explained = |error: landlock::RulesetError| unmade("no scopes can be made", error);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(explained)?;
    into_handle(ruleset.create().map_err(explained)?).map(Some)
}

fn allow(
    made: RulesetCreated,
    handle: &OwnedFd,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated> {
    // For a file, Landlock refuses rights that make sense only for a directory.
    let stat = rustix::fs::fstat(handle);
    let stat =
        stat.map_err(|errno| unmade("a rule cannot be made", std::io::Error::from(errno)))?;
    let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    let rights = if is_dir { rights } else { rights & AccessFs::from_file(NEWEST) };
    made.add_rule(PathBeneath::new(handle.as_fd(), rights))
        .map_err(|error| unmade("a rule cannot be made", error))
}

fn into_handle(made: RulesetCreated) -> Result<OwnedFd> {
    Option::<OwnedFd>::from(made).ok_or_else(|| {
        let message = "this kernel has no Landlock";
        Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, message)
    })
}

/// Opens a path. Returns `None` if the path does not exist on this host or is not accessible. No
/// rule is needed then.
fn opened(path: &Path) -> Result<Option<OwnedFd>> {
    match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(handle) => Ok(Some(handle)),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS) => Ok(None),
        Err(errno) => {
            let act = format!("cannot open {}", path.display());
            Err(unmade(&act, std::io::Error::from(errno)))
        }
    }
}

/// Creates an error that contains its cause, so that a temporary failure can be recognized.
fn unmade(act: &str, cause: impl StdError + Send + Sync + 'static) -> Error {
    Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, format!("{act}: {cause}"))
        .with_source(cause)
}
