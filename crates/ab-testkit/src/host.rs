//! Skips tests that a host cannot run. A variable turns skips into failures.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Set on hosts that must support all tests, as in CI.
pub const REQUIRE_HOST_SUPPORT_VARIABLE: &str = "AB_REQUIRE_HOST";

/// Reports that `what` cannot be tested here and `why`. The caller then returns.
///
/// # Panics
/// If [`REQUIRE_HOST_SUPPORT_VARIABLE`] is set, because a test that is silently skipped proves
/// nothing.
#[expect(clippy::print_stderr, reason = "the reader of the test's output is the one to tell")]
#[track_caller]
pub fn report_skip(what: &str, why: &str) {
    let message = format!("this host cannot run {what}: {why}");
    if env::var_os(REQUIRE_HOST_SUPPORT_VARIABLE).is_some() {
        panic!("{message} ({REQUIRE_HOST_SUPPORT_VARIABLE} is set)");
    }
    eprintln!("skipped: {message}");
}

/// Reports that a test leaves out a program that `cargo xtask test` does not install because of its size. Unlike
/// [`report_skip`], it never fails.
#[expect(clippy::print_stderr, reason = "the reader of the test's output is the one to tell")]
pub fn report_optional_program_missing(program: &str) {
    eprintln!("skipped: {program} is not installed");
}

/// The directory that OpenSSH's server uses as its root before a client has logged in.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// The path of OpenSSH's server, ready to start; `None` if it is not installed.
///
/// The package of the server leaves the creation of one directory to the init system, which may not
/// have run. As root the server does not start without this directory, so this function creates it.
///
/// # Panics
/// If that directory cannot be created.
#[must_use]
pub fn prepare_sshd() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let program = directories.map(|directory| directory.join("sshd")).find(|it| it.is_file())?;
    if is_root() && !Path::new(PRIVILEGE_SEPARATION).is_dir() {
        let made = fs::create_dir_all(PRIVILEGE_SEPARATION);
        assert!(made.is_ok(), "create {PRIVILEGE_SEPARATION}: {made:?}");
    }
    Some(program)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}
