//! The failure of a command, with a hint about what the user can do.

use std::io;

use ab_core::{Error, ErrorCode, ErrorKind};
use rustix::io::Errno;

use crate::exit::Exit;

#[derive(Debug)]
pub(crate) enum Failure {
    /// A call to the workspace, a server or the host failed.
    Call(Error),
    /// The arguments have the right form, but they are not valid.
    Usage(Error),
    /// Any failure, for callers that expect a single exit code.
    Plain(Error),
    /// `exec` could not run a command. `exec` has its own exit codes.
    Exec(Error, Exit),
    /// The reader of standard output has closed the pipe. This counts as success.
    ClosedPipe,
    /// All errors have already been printed.
    Told(Exit),
    /// The answer to the user's question is no. This is not an error, and nothing is printed.
    No,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::Usage(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message))
    }

    /// A failure to read standard input or a file of the host. `act` is a verb in its basic form and
    /// an object, such as `read notes.txt`.
    pub(crate) fn input(act: impl Into<String>, error: io::Error) -> Failure {
        Failure::Call(stream_error(ErrorCode::ReadFailed, act.into(), error))
    }

    /// A failure to write to standard output.
    pub(crate) fn output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => {
                let act = "write to standard output".to_owned();
                Failure::Call(stream_error(ErrorCode::WriteFailed, act, error))
            }
        }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Failure {
        match self {
            Failure::Call(error) => Failure::Call(error.with_hint(hint)),
            Failure::Usage(error) => Failure::Usage(error.with_hint(hint)),
            Failure::Plain(error) => Failure::Plain(error.with_hint(hint)),
            Failure::Exec(error, exit) => Failure::Exec(error.with_hint(hint), exit),
            Failure::ClosedPipe | Failure::Told(_) | Failure::No => self,
        }
    }

    /// If a limit of open files is the cause, adds a hint that names it.
    pub(crate) fn with_limit_hint(self) -> Failure {
        let cause = self.error().and_then(errno);
        let hint = match cause {
            Some(Errno::MFILE) => "raise the limit of open files: ulimit -n",
            Some(Errno::NFILE) => "raise the limit of open files of this machine: fs.file-max",
            _ => return self,
        };
        self.with_hint(hint)
    }

    /// Converts the failure into a usage error.
    pub(crate) fn into_usage(self) -> Failure {
        match self {
            Failure::Call(error) => Failure::Usage(error),
            Failure::Usage(_)
            | Failure::Plain(_)
            | Failure::Exec(..)
            | Failure::ClosedPipe
            | Failure::Told(_)
            | Failure::No => self,
        }
    }

    /// Converts the failure to a failure with the exit codes of `exec`. These are the codes of
    /// `docker run` and `env`. Other programs rarely use these codes.
    pub(crate) fn into_exec(self) -> Failure {
        match self {
            Failure::Call(error) => {
                let exit = Exit::of_exec(&error);
                let error = if exit == Exit::NO_PROGRAM {
                    error.with_hint(
                        "is it installed? commands can use programs in the system directories and in the toolchains that `agent-backend doctor` lists",
                    )
                } else {
                    error
                };
                Failure::Exec(error, exit)
            }
            Failure::Usage(error) | Failure::Plain(error) => {
                Failure::Exec(error, Exit::OWN_FAILURE)
            }
            Failure::Exec(..) | Failure::ClosedPipe | Failure::Told(_) | Failure::No => self,
        }
    }

    /// Converts an error of any kind to a failure with the exit code 1.
    pub(crate) fn into_plain(self) -> Failure {
        match self {
            Failure::Call(error) | Failure::Usage(error) | Failure::Exec(error, _) => {
                Failure::Plain(error)
            }
            Failure::Plain(_) | Failure::ClosedPipe | Failure::Told(_) | Failure::No => self,
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Call(error) => Exit::of(error.kind()),
            Failure::Usage(_) => Exit::Usage,
            Failure::Plain(_) => Exit::Failed,
            Failure::Exec(_, exit) => *exit,
            Failure::ClosedPipe => Exit::Success,
            Failure::Told(exit) => *exit,
            Failure::No => Exit::Failed,
        }
    }

    /// The error to print, if any.
    pub(crate) fn error(&self) -> Option<&Error> {
        match self {
            Failure::Call(error)
            | Failure::Usage(error)
            | Failure::Plain(error)
            | Failure::Exec(error, _) => Some(error),
            Failure::ClosedPipe | Failure::Told(_) | Failure::No => None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Call(error)
    }
}

/// Returns the error of the operating system that caused an error.
fn errno(error: &Error) -> Option<Errno> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let found = error.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
        if let Some(errno) = found.or_else(|| error.downcast_ref::<Errno>().copied()) {
            return Some(errno);
        }
        cause = error.source();
    }
    None
}

fn stream_error(code: ErrorCode, act: String, error: io::Error) -> Error {
    Error::new(code, ErrorKind::Io, format!("cannot {act}: {error}")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::output(io::ErrorKind::BrokenPipe.into());
        assert_eq!((failure.exit(), failure.error().is_none()), (Exit::Success, true));
    }

    #[test]
    fn no_is_an_answer_and_no_error() {
        let no = Failure::No.with_hint("look elsewhere");
        assert_eq!((no.exit(), no.error().is_none()), (Exit::Failed, true));
    }

    #[test]
    fn a_full_disk_is_told() {
        let failure = Failure::output(io::Error::from_raw_os_error(28));
        assert_eq!(failure.exit(), Exit::Failed);
        let told = failure.error().map(ToString::to_string).unwrap_or_default();
        assert!(told.starts_with("cannot write to standard output: no space left"), "{told}");
    }

    #[test]
    fn usage_and_refusal_differ() {
        assert_eq!(Failure::usage("odd").exit(), Exit::Usage);
        let escape = Error::new(ErrorCode::PathEscapeAttempt, ErrorKind::PathEscape, "leaves");
        assert_eq!(Failure::from(escape).exit(), Exit::Refused);
        assert_eq!(Failure::Told(Exit::Unavailable).exit(), Exit::Unavailable);
    }
}
