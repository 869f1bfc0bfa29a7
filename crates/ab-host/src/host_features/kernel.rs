//! Tests the features that are system calls.

use std::fs;
use std::io;
use std::path::Path;

use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr, RulesetError};
use rustix::fs::{self as sys, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::thread::{SecureComputingMode, secure_computing_mode, set_secure_computing_mode};

use super::{HostFeature, HostFeatureReport, Lack};
use crate::sandbox::landlock::{SCOPES, too_old};

const NEWER_KERNEL: &str = "run a newer kernel";

pub(super) fn version() -> HostFeatureReport {
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => {
            HostFeatureReport::working(HostFeature::Kernel, format!("Linux {}", release.trim()))
        }
        Err(error) => {
            let lack = Lack::new(format!("cannot read /proc: {error}"), "mount /proc");
            HostFeatureReport::missing(HostFeature::Kernel, "version not known", lack)
        }
    }
}

/// Opens the root directory relative to itself, and expects the kernel to refuse `..`.
pub(super) fn openat2() -> HostFeatureReport {
    let absence = "files are opened component by component instead";
    let beneath = |path: &str| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = sys::open("/", flags, Mode::empty())?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        sys::openat2(directory, path, flags, Mode::empty(), resolve)
    };
    match (beneath("."), beneath("..")) {
        (Ok(_), Err(Errno::XDEV)) => HostFeatureReport::working(
            HostFeature::Openat2,
            "the kernel keeps paths beneath a directory",
        ),
        (Err(Errno::NOSYS), _) => {
            let cause = format!("the kernel, or a seccomp filter, does not know it{}", filtered());
            let remedy = format!("{NEWER_KERNEL} (5.6), or a newer container runtime");
            HostFeatureReport::missing(HostFeature::Openat2, absence, Lack::new(cause, remedy))
        }
        (Err(Errno::PERM), _) => {
            let cause = format!("a seccomp filter forbids it{}", filtered());
            let remedy = "use a container runtime whose profile knows openat2";
            HostFeatureReport::missing(HostFeature::Openat2, absence, Lack::new(cause, remedy))
        }
        (Err(errno), _) => {
            let lack = Lack::new(format!("the kernel answers: {errno}"), NEWER_KERNEL);
            HostFeatureReport::missing(HostFeature::Openat2, absence, lack)
        }
        (Ok(_), climbed) => {
            let cause = match climbed {
                Ok(_) => "'..' got out of the directory".to_owned(),
                Err(errno) => format!("'..' was answered by: {errno}"),
            };
            let lack = Lack::new(cause, "run a kernel that implements RESOLVE_BENEATH");
            HostFeatureReport::missing(HostFeature::Openat2, absence, lack)
        }
    }
}

pub(super) fn pidfd() -> HostFeatureReport {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => HostFeatureReport::working(HostFeature::Pidfd, "processes have stable handles"),
        Err(errno) => {
            let cause = format!("the kernel answers: {errno}{}", filtered());
            let remedy = format!("{NEWER_KERNEL} (5.3), or a newer container runtime");
            let absence = "processes are signalled by ID, which another process may have by then";
            HostFeatureReport::missing(HostFeature::Pidfd, absence, Lack::new(cause, remedy))
        }
    }
}

const NO_LANDLOCK: &str = "no file rules without namespaces";

/// Restricts the calling thread and checks that the thread has lost access. The thread must end
/// afterwards.
pub(super) fn landlock() -> HostFeatureReport {
    let absence = NO_LANDLOCK;
    let restrict = || -> Result<LandlockStatus, RulesetError> {
        let rules = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1))?.create()?;
        Ok(rules.restrict_self()?.landlock)
    };
    let (abi, kernel_abi) = match restrict() {
        Ok(LandlockStatus::Available { effective_abi, kernel_abi }) => (effective_abi, kernel_abi),
        Ok(LandlockStatus::NotEnabled) => {
            let cause = "built into the kernel, but not switched on at boot";
            let remedy = "add 'landlock' to the lsm= list on the kernel command line";
            return HostFeatureReport::missing(
                HostFeature::Landlock,
                absence,
                Lack::new(cause, remedy),
            );
        }
        Ok(LandlockStatus::NotImplemented) => {
            let cause = format!("the kernel, or a seccomp filter, does not know it{}", filtered());
            let remedy = format!("{NEWER_KERNEL} (5.13), built with CONFIG_SECURITY_LANDLOCK");
            return HostFeatureReport::missing(
                HostFeature::Landlock,
                absence,
                Lack::new(cause, remedy),
            );
        }
        Err(error) => {
            let lack = Lack::new(format!("cannot restrict a thread: {error}"), NEWER_KERNEL);
            return HostFeatureReport::missing(HostFeature::Landlock, absence, lack);
        }
    };
    if !locked_out() {
        let cause = "rules were accepted, but a forbidden directory could be read";
        let lack = Lack::new(cause, "do not rely on it here");
        return HostFeatureReport::missing(HostFeature::Landlock, absence, lack);
    }
    landlock_of(kernel_abi.unwrap_or(abi as i32))
}

/// Reports what this version of Landlock can restrict. The version was tested already.
fn landlock_of(version: i32) -> HostFeatureReport {
    if let Some(cause) = too_old(version) {
        let lack = Lack::new(cause, "run a kernel from 6.2 on");
        return HostFeatureReport::missing(HostFeature::Landlock, NO_LANDLOCK, lack);
    }
    if version < ABI::V4 as i32 {
        let detail = format!("ABI {version}: rules for files only");
        let lack = Lack::new("the kernel has no rules for the network", "run a kernel from 6.7 on");
        return HostFeatureReport::partial(HostFeature::Landlock, detail, lack);
    }
    let reach = if version < SCOPES { "files and TCP" } else { "files, TCP, signals, sockets" };
    HostFeatureReport::working(
        HostFeature::Landlock,
        format!("ABI {version}: rules for {reach}; tested"),
    )
}

/// Returns whether the rules prevent the thread from reading the root directory.
fn locked_out() -> bool {
    fs::read_dir("/").is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Passes a filter at an invalid address. If the kernel supports filters, it returns EFAULT.
pub(super) fn seccomp() -> HostFeatureReport {
    let absence = "system calls cannot be filtered";
    match set_secure_computing_mode(SecureComputingMode::Filter) {
        Err(Errno::FAULT) => {
            HostFeatureReport::working(HostFeature::Seccomp, format!("filters work{}", filtered()))
        }
        Err(errno) => {
            let cause = format!("the kernel answers: {errno}{}", filtered());
            let remedy = "run a kernel built with CONFIG_SECCOMP_FILTER";
            HostFeatureReport::missing(HostFeature::Seccomp, absence, Lack::new(cause, remedy))
        }
        Ok(()) => {
            let cause = "the kernel accepted an invalid filter";
            HostFeatureReport::missing(
                HostFeature::Seccomp,
                absence,
                Lack::new(cause, "do not rely on it here"),
            )
        }
    }
}

/// Lets one unnamed file share the data of another unnamed file (reflink).
pub(super) fn reflink(directory: &Path) -> HostFeatureReport {
    let absence = "copies need time and disk space";
    let place = directory.display();
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        sys::openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)
    };
    let (source, copy) = match (unnamed(), unnamed()) {
        (Ok(source), Ok(copy)) => (source, copy),
        (Err(errno), _) | (_, Err(errno)) => {
            let cause = format!("no unnamed file can be made in {place} to try it: {errno}");
            let remedy = "name a directory that may be written, on btrfs or xfs";
            return HostFeatureReport::missing(
                HostFeature::Reflink,
                absence,
                Lack::new(cause, remedy),
            );
        }
    };
    let filled = rustix::io::write(&source, &[1; 4096]);
    match filled.and_then(|_| sys::ioctl_ficlone(&copy, &source)) {
        Ok(()) => HostFeatureReport::working(
            HostFeature::Reflink,
            format!("files in {place} can share their data"),
        ),
        Err(errno) => {
            let cause = format!("the file system of {place} answers: {errno}");
            let remedy = "keep workspaces on btrfs or xfs";
            HostFeatureReport::missing(HostFeature::Reflink, absence, Lack::new(cause, remedy))
        }
    }
}

/// Returns text to append to a cause. It is empty unless this process itself runs under a seccomp
/// filter.
pub(super) fn filtered() -> &'static str {
    match secure_computing_mode() {
        Ok(SecureComputingMode::Filter) => " (this process runs under a seccomp filter)",
        Ok(SecureComputingMode::Disabled | SecureComputingMode::Strict) | Err(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_features::HostFeatureState;

    #[test]
    fn the_probe_of_landlock_binds_only_its_thread() {
        let facility = std::thread::spawn(landlock).join().unwrap();
        assert!(fs::read_dir("/").is_ok());
        if facility.state == HostFeatureState::Working {
            assert!(facility.detail.starts_with("ABI "), "{facility:?}");
        }
    }

    #[test]
    fn landlock_that_isolates_no_command_is_reported_as_missing() {
        use HostFeatureState::{Missing, Partial, Working};
        for (version, state, text) in [
            (1, Missing, "no file rules"),
            (2, Missing, "no file rules"),
            (3, Partial, "ABI 3: rules for files only"),
            (5, Working, "ABI 5: rules for files and TCP"),
            (7, Working, "ABI 7: rules for files, TCP, signals"),
        ] {
            let report = landlock_of(version);
            assert_eq!(report.state, state, "{report:?}");
            assert!(report.detail.starts_with(text), "{report:?}");
        }
        let cause = landlock_of(2).cause.unwrap();
        assert!(cause.contains("version 2") && cause.contains("truncate"), "{cause}");
    }

    #[test]
    fn the_probe_of_seccomp_installs_nothing() {
        let before = secure_computing_mode().unwrap();
        seccomp();
        assert_eq!(secure_computing_mode().unwrap(), before);
    }

    #[test]
    fn the_probe_of_reflinks_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        reflink(directory.path());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
