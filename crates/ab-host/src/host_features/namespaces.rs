//! Tests namespaces, and overlays that are mounted inside them.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use rustix::thread::{SecureComputingMode, secure_computing_mode};

use super::program::{Complaint, Programs};
use super::{HostFeature, HostFeatureReport, Lack};

const OVERLAY_ABSENCE: &str = "isolated copies need another way";

/// A shell script that mounts an overlay inside a new mount namespace, so that all mounts disappear
/// when the script ends. It prints the steps that worked. `$1` is a directory to mount over, and
/// `$2` is a mount option.
const OVERLAY_SCRIPT: &str = r#"
set -e
mount -n -t tmpfs tmpfs "$1"
cd "$1"
mkdir lower upper work merged
echo old > lower/file
echo prepared
mount -n -t overlay -o "lowerdir=lower,upperdir=upper,workdir=work$2" overlay merged
echo mounted
echo new > merged/file
read upper < upper/file
read lower < lower/file
test "$upper $lower" = "new old"
"#;

/// Directories over which a tmpfs may be mounted inside a namespace. The root is not listed,
/// because it cannot be hidden in this way.
const HIDEABLE: &[&str] = &["/tmp", "/var/tmp", "/mnt", "/run", "/usr"];

/// Starts a program in a new user namespace and a new mount namespace, with a mapped user and
/// private mounts.
pub(super) fn user(programs: &Programs) -> HostFeatureReport {
    let absence = "isolation by namespaces needs root";
    match start(programs, &["--user", "--map-root-user", "--mount"]) {
        Ok(()) => HostFeatureReport::working(
            HostFeature::UserNamespaces,
            "can be created, mapped and mounted in",
        ),
        Err(lack) => HostFeatureReport::missing(HostFeature::UserNamespaces, absence, lack),
    }
}

pub(super) fn overlay(programs: &Programs) -> HostFeatureReport {
    let mapped = mount_overlay(programs, &["--user", "--map-root-user", "--mount"], ",userxattr");
    if !geteuid().is_root() {
        return match mapped {
            Ok(()) => {
                HostFeatureReport::working(HostFeature::Overlay, "mounted in a user namespace")
            }
            Err(lack) => HostFeatureReport::missing(HostFeature::Overlay, OVERLAY_ABSENCE, lack),
        };
    }
    match (mount_overlay(programs, &["--mount"], ""), mapped) {
        (Ok(()), Ok(())) => HostFeatureReport::working(
            HostFeature::Overlay,
            "mounted as root and in a user namespace",
        ),
        (Ok(()), Err(lack)) => {
            HostFeatureReport::partial(HostFeature::Overlay, "mounted as root only", lack)
        }
        (Err(lack), Ok(())) => HostFeatureReport::partial(
            HostFeature::Overlay,
            "mounted in a user namespace only",
            lack,
        ),
        (Err(lack), Err(_)) => {
            HostFeatureReport::missing(HostFeature::Overlay, OVERLAY_ABSENCE, lack)
        }
    }
}

/// Explains why namespaces are refused. Uses the kernel's settings and the error message.
pub(super) fn refusal(complaint: &str) -> Lack {
    let setting = |file: &str| fs::read_to_string(file).map(|value| value.trim().to_owned()).ok();
    let filtered = matches!(secure_computing_mode(), Ok(SecureComputingMode::Filter));
    explained(complaint, setting, filtered)
}

fn explained(complaint: &str, setting: impl Fn(&str) -> Option<String>, filtered: bool) -> Lack {
    let is = |file: &str, value: &str| setting(file).as_deref() == Some(value);
    if is("/proc/sys/user/max_user_namespaces", "0") {
        return Lack::new(
            format!("user.max_user_namespaces is 0 ({complaint})"),
            "as root: sysctl -w user.max_user_namespaces=10000",
        );
    }
    if ["No space left", "ENOSPC"].iter().any(|sign| complaint.contains(sign)) {
        return Lack::new(
            format!("the limit on namespaces is used up, here or further out ({complaint})"),
            "raise user.max_user_namespaces outside, or nest less deeply (bwrap --disable-userns)",
        );
    }
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return Lack::new(
            format!("kernel.unprivileged_userns_clone is 0 ({complaint})"),
            "as root: sysctl -w kernel.unprivileged_userns_clone=1",
        );
    }
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return Lack::new(
            format!(
                "AppArmor restricts user namespaces: \
                 kernel.apparmor_restrict_unprivileged_userns is 1 ({complaint})"
            ),
            "give the program an AppArmor profile with 'userns', or as root: \
             sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    if filtered {
        return Lack::new(
            format!("this process runs under a seccomp filter, as in a container ({complaint})"),
            "start the container with a profile that allows unshare, clone and mount",
        );
    }
    Lack::new(
        complaint,
        "allow user namespaces: the kernel needs CONFIG_USER_NS, the container CAP_SYS_ADMIN or no \
         rule against unshare",
    )
}

fn start(programs: &Programs, namespaces: &[&str]) -> Result<(), Lack> {
    let unshare = required(programs, "unshare", "util-linux")?;
    let program = required(programs, "true", "coreutils")?;
    let command = ["--", &program.to_string_lossy()];
    let ended = programs.run(&unshare, &[namespaces, &command].concat());
    ended.map(drop).map_err(|complaint| refusal(&complaint.text))
}

fn mount_overlay(programs: &Programs, namespaces: &[&str], option: &str) -> Result<(), Lack> {
    let unshare = required(programs, "unshare", "util-linux")?;
    let shell = required(programs, "sh", "a shell")?;
    required(programs, "mount", "mount")?;
    let Some(hidden) = HIDEABLE.iter().find(|directory| Path::new(directory).is_dir()) else {
        return Err(Lack::new("no directory to mount on", "create /tmp"));
    };
    let shell = shell.to_string_lossy();
    let command = ["--", &*shell, "-c", OVERLAY_SCRIPT, "sh", hidden, option];
    let ended = programs.run(&unshare, &[namespaces, &command].concat());
    ended.map(drop).map_err(|complaint| overlay_refusal(&complaint))
}

fn overlay_refusal(complaint: &Complaint) -> Lack {
    match complaint.said.lines().last() {
        Some("mounted") => Lack::new(
            format!("mounted, but it does not keep layers apart: {}", complaint.text),
            "do not rely on it here",
        ),
        Some("prepared") => {
            let known = fs::read_to_string("/proc/filesystems")
                .is_ok_and(|list| list.lines().any(|line| line.trim_end().ends_with("\toverlay")));
            let remedy = if known {
                "run a kernel from 5.11 on, and no rule against mounts"
            } else {
                "load the kernel module: modprobe overlay"
            };
            Lack::new(format!("the mount is refused: {}", complaint.text), remedy)
        }
        _ => refusal(&complaint.text),
    }
}

fn required(programs: &Programs, name: &str, package: &str) -> Result<PathBuf, Lack> {
    programs.find(name).ok_or_else(|| {
        let cause = format!("not tested: there is no program '{name}' on the path");
        Lack::new(cause, format!("install {package}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_namespaces_is_named() {
        let apparmor = "kernel/apparmor_restrict_unprivileged_userns";
        for (file, value, filtered, cause) in [
            ("user/max_user_namespaces", "0", false, "max_user_namespaces is 0"),
            ("kernel/unprivileged_userns_clone", "0", false, "unprivileged_userns_clone is 0"),
            (apparmor, "1", true, "AppArmor restricts"),
            (apparmor, "0", true, "seccomp filter"),
            ("user/max_user_namespaces", "96343", false, "not permitted"),
        ] {
            let setting = |asked: &str| asked.ends_with(file).then(|| value.to_owned());
            let lack = explained("unshare failed: not permitted", setting, filtered);
            assert!(lack.cause.contains(cause), "{file} = {value}: {lack:?}");
            assert!(lack.cause.contains("not permitted"), "{lack:?}");
        }
        let lack = explained("unshare failed: No space left on device", |_| None, false);
        assert!(lack.cause.starts_with("the limit on namespaces is used up"), "{lack:?}");
    }

    #[test]
    fn a_failed_overlay_is_told_from_failed_namespaces() {
        let complaint = |said: &str| Complaint { text: "no".into(), said: said.into() };
        let cause = |said: &str| overlay_refusal(&complaint(said)).cause;
        assert!(cause("prepared\n").starts_with("the mount is refused: no"));
        assert!(cause("prepared\nmounted\n").contains("does not keep layers apart"));
        assert!(!cause("").contains("the mount"));
    }
}
