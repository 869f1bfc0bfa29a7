//! Why a task failed: a message and an exit code for scripts.

use std::fmt;
use std::process::ExitStatus;

const CODE_FAILED: u8 = 1;
const CODE_USAGE: u8 = 2;

/// A failed task.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The task itself failed.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { code: CODE_FAILED, message: message.into() }
    }

    /// The command line is invalid; `message` ends with the usage.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { code: CODE_USAGE, message: message.into() }
    }

    /// A child process failed; its exit code becomes ours.
    pub(crate) fn step(name: &str, command: &str, status: ExitStatus) -> Failure {
        let code = exit_code(status);
        Failure { code, message: format!("step `{name}` failed with exit code {code}: {command}") }
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(format!("{error:#}"))
    }
}

/// The exit code that a shell shows for `status`: 128 plus the number for a signal.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| signal(status).map(|number| 128 + number));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(CODE_FAILED)
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_status: ExitStatus) -> Option<i32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn codes_follow_the_shell() {
        use std::os::unix::process::ExitStatusExt;

        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(101 << 8)), 101);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }

    #[test]
    fn usage_exits_with_two() {
        assert_eq!(Failure::usage("no").code(), 2);
        assert_eq!(Failure::from(anyhow::anyhow!("no")).code(), 1);
    }
}
