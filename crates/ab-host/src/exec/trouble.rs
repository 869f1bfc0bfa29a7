//! Decides whether the failure of an isolation's test is permanent or temporary.
//!
//! A weaker isolation replaces a stronger one only if it is known that the host lacks something.
//! Any other failure, including an unknown failure, is an error for the command. The next command
//! repeats the test.

use std::error::Error as StdError;
use std::path::Path;

use ab_core::effective_policy::Isolation;
use ab_core::error::{Error, ErrorCode, ErrorKind};
use ab_core::process::{ExitCause, ProcessExit};
use rustix::io::Errno;

use crate::process::spawner::FailedStart;
use crate::process::supervise::{NOT_RUN, NOT_RUN_MESSAGE};

/// Why an isolation could not be shown to work.
#[derive(Clone, Debug)]
pub(super) enum Unproven {
    /// The host does not support the isolation, and that will not change.
    Impossible(String),
    /// The test failed this time. This says nothing about the host.
    Failed(Error),
}

impl Unproven {
    pub(super) fn impossible(cause: impl Into<String>) -> Self {
        Unproven::Impossible(cause.into())
    }

    /// Creates the result for a temporary failure. The caller may retry.
    pub(super) fn this_time(isolation: Isolation, cause: &str) -> Self {
        let message = format!("isolation '{isolation}' could not be tested: {cause}");
        Unproven::Failed(
            Error::new(ErrorCode::ExecError, ErrorKind::Io, message)
                .with_hint(
                    "the machine is busy or out of resources: try again, or name a weaker isolation",
                )
                .mark_transient(),
        )
    }

    /// Adds the error of the kernel as the source of a failure.
    fn caused_by(self, errno: Option<Errno>) -> Self {
        match (self, errno) {
            (Unproven::Failed(error), Some(errno)) => {
                Unproven::Failed(error.with_source(std::io::Error::from(errno)))
            }
            (unproven, _) => unproven,
        }
    }

    /// Classifies the error of a preparation or start that failed.
    pub(super) fn by_error(isolation: Isolation, error: &Error) -> Self {
        if error.code() == ErrorCode::InvalidConfiguration {
            // An error in the settings would occur with every isolation.
            return Unproven::Failed(error.clone());
        }
        let lacking = match errno(error) {
            Some(errno) => is_lacking(errno),
            None => error.code() == ErrorCode::MissingUtilities,
        };
        if lacking {
            Unproven::impossible(error.message())
        } else if error.kind() == ErrorKind::Destroyed {
            Unproven::Failed(error.clone())
        } else {
            Unproven::this_time(isolation, error.message()).caused_by(errno(error))
        }
    }

    pub(super) fn by_errno(isolation: Isolation, act: &str, error: &std::io::Error) -> Self {
        let errno = Errno::from_io_error(error);
        if errno.is_some_and(is_lacking) {
            Unproven::Impossible(format!("{act}: {error}"))
        } else {
            Unproven::this_time(isolation, &format!("{act}: {error}")).caused_by(errno)
        }
    }

    /// Classifies the exit of a test command that did not finish its script.
    pub(super) fn by_end(isolation: Isolation, exit: &ProcessExit, stderr: &str) -> Self {
        let stderr = stderr.strip_suffix(NOT_RUN_MESSAGE).unwrap_or(stderr);
        let stderr = stderr.trim().lines().collect::<Vec<_>>().join("; ");
        if exit.cause == ExitCause::Timeout {
            return Unproven::this_time(isolation, "a test command did not end in time");
        }
        if exit.cause != ExitCause::Exited
            || exit.signal.is_some_and(|signal| signal != libc::SIGSYS)
        {
            let ended = format!("a test command ended with {} {stderr}", status_text(exit));
            return Unproven::this_time(isolation, ended.trim_end());
        }
        let refused = exit.signal == Some(libc::SIGSYS);
        if stderr.is_empty() && (refused || matches!(exit.code, Some(0 | 1 | NOT_RUN))) {
            // Either the kernel lacks a system call, or the configured program is not a sandbox,
            // for example `true`.
            return Unproven::Impossible(format!(
                "a test command ended with {}",
                status_text(exit)
            ));
        }
        if says_lacking(&stderr, namespaces_are_off) {
            Unproven::Impossible(stderr)
        } else {
            let ended = format!("a test command ended with {} {stderr}", status_text(exit));
            Unproven::this_time(isolation, ended.trim_end())
        }
    }
}

/// How a command ended, in words.
fn status_text(exit: &ProcessExit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}

/// Returns the errno that caused an error, if the kernel returned one.
fn errno(error: &Error) -> Option<Errno> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(failed) = cause.downcast_ref::<FailedStart>() {
            return Some(failed.0.errno);
        }
        if let Some(failed) = cause.downcast_ref::<std::io::Error>()
            && let Some(errno) = Errno::from_io_error(failed)
        {
            return Some(errno);
        }
        source = cause.source();
    }
    None
}

/// Returns whether an errno means that something is forbidden or missing, so that a repetition
/// would fail in the same way.
fn is_lacking(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::NOENT
            | Errno::NOTDIR
            | Errno::OPNOTSUPP
            | Errno::NOEXEC
            | Errno::ROFS
            | Errno::LOOP
            | Errno::NODEV
    )
}

/// Error messages that mean a temporary condition.
const PASSING: &[&str] = &[
    "Too many open files",
    "Cannot allocate memory",
    "Resource temporarily unavailable",
    "No space left on device",
    "Disk quota exceeded",
    "Device or resource busy",
    "Input/output error",
    "Interrupted system call",
    "Text file busy",
    "No buffer space available",
    "failed to map segment",
    "cannot open shared object file: Error 23",
    "cannot open shared object file: Error 24",
];

/// Error messages that mean a permanent condition.
const LACKING: &[&str] = &[
    "Operation not permitted",
    "Permission denied",
    "Function not implemented",
    "Invalid argument",
    "No such file or directory",
    "Not a directory",
    "not supported",
    "Exec format error",
    "Read-only file system",
    "Too many levels of symbolic links",
    "No such device",
    "No permissions to",
    "Unexpected capabilities",
    "Unknown option",
];

/// Returns whether the error output of a sandbox that did not start means that the host lacks
/// something.
fn says_lacking(stderr: &str, namespaces_are_off: impl Fn() -> bool) -> bool {
    let has = |texts: &[&str]| texts.iter().any(|text| stderr.contains(text));
    // ENOSPC can also mean that no more namespaces are allowed.
    let no_more_namespaces = stderr.contains("ENOSPC");
    (no_more_namespaces && namespaces_are_off())
        || (!no_more_namespaces && !has(PASSING) && has(LACKING))
}

/// Returns whether the host allows no namespaces of one of the needed kinds.
fn namespaces_are_off() -> bool {
    ["user", "pid", "mnt", "ipc", "uts", "net"].iter().any(|kind| {
        let limit = Path::new("/proc/sys/user").join(format!("max_{kind}_namespaces"));
        std::fs::read_to_string(limit).is_ok_and(|limit| limit.trim() == "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_impossible(unproven: &Unproven) -> bool {
        matches!(unproven, Unproven::Impossible(_))
    }

    #[test]
    fn only_what_is_lacking_counts_against_the_host() {
        for (stderr, lacking) in [
            ("bwrap: No permissions to create new namespace, likely because …", true),
            ("bwrap: setting up uid map: Permission denied", true),
            ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", true),
            ("bwrap: Can't find source path /lib64: No such file or directory", true),
            ("bwrap: Unknown option --size", true),
            ("bwrap: Creating new namespace failed: Resource temporarily unavailable", false),
            ("bwrap: Creating new namespace failed: Cannot allocate memory", false),
            ("bwrap: Can't open /proc: Too many open files", false),
            ("/bin/bash: fork: retry: Resource temporarily unavailable", false),
            ("bwrap: libcap.so.2: cannot open shared object file: Error 24", false),
            ("Permission denied; then Too many open files", false),
            ("something that nobody has seen before", false),
        ] {
            assert_eq!(says_lacking(stderr, || false), lacking, "{stderr}");
            let exit = ProcessExit { code: Some(1), ..ProcessExit::default() };
            let unproven = Unproven::by_end(Isolation::Bwrap, &exit, stderr);
            assert_eq!(is_impossible(&unproven), lacking, "{stderr}");
        }
        let full = "bwrap: Creating new namespace failed: nesting depth or \
                    /proc/sys/user/max_*_namespaces exceeded (ENOSPC)";
        assert!(says_lacking(full, || true) && !says_lacking(full, || false));
    }

    #[test]
    fn a_command_that_was_ended_says_nothing_about_the_host() {
        let ended = |exit: ProcessExit| Unproven::by_end(Isolation::Landlock, &exit, "");
        assert!(!is_impossible(&ended(ProcessExit {
            cause: ExitCause::Timeout,
            ..ProcessExit::default()
        })));
        assert!(!is_impossible(&ended(ProcessExit {
            signal: Some(libc::SIGKILL),
            ..ProcessExit::default()
        })));
        assert!(is_impossible(&ended(ProcessExit {
            signal: Some(libc::SIGSYS),
            ..ProcessExit::default()
        })));
        assert!(is_impossible(&ended(ProcessExit { code: Some(0), ..ProcessExit::default() })));
        assert!(!is_impossible(&ended(ProcessExit { code: Some(2), ..ProcessExit::default() })));
    }

    #[test]
    fn errors_are_judged_by_their_number() {
        let error = |errno: Option<Errno>| {
            let error = Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, "no rules");
            match errno {
                Some(errno) => error.with_source(std::io::Error::from(errno)),
                None => error,
            }
        };
        for (errno, impossible) in [
            (Some(Errno::PERM), true),
            (Some(Errno::NOENT), true),
            (None, true),
            (Some(Errno::MFILE), false),
            (Some(Errno::NOMEM), false),
            (Some(Errno::AGAIN), false),
            (Some(Errno::NOSPC), false),
        ] {
            let unproven = Unproven::by_error(Isolation::Landlock, &error(errno));
            assert_eq!(is_impossible(&unproven), impossible, "{errno:?}");
            if let Unproven::Failed(error) = unproven {
                assert_eq!(error.retry_advice(), ab_core::RetryAdvice::Safe, "{error}");
            }
        }
    }
}
