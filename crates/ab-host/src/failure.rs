//! Maps errors of the kernel to the errors of the driver contract.

use ab_core::error::escape_unprintable;
use ab_core::{Error, ErrorKind, Verb, WsPath};
use rustix::io::Errno;

use crate::jail::Fault;
use crate::local::Trouble;

/// Converts the faults of one operation to errors that name the operation and the path.
#[derive(Clone, Copy)]
pub(crate) struct Act<'a> {
    pub(crate) verb: Verb,
    pub(crate) path: &'a WsPath,
}

impl<'a> Act<'a> {
    pub(crate) fn new(verb: Verb, path: &'a WsPath) -> Self {
        Self { verb, path }
    }

    pub(crate) fn failed(&self, fault: impl Into<Fault>) -> Error {
        match fault.into() {
            Fault::Escape => self.error(
                ErrorKind::PathEscape,
                "a symbolic link in the path leads out of the workspace",
            ),
            Fault::Dangling(target) => {
                let target = escape_unprintable(&target);
                self.error(
                    ErrorKind::NotFound,
                    &format!("a symbolic link leads to '{target}', which does not exist"),
                )
                .with_hint("links are not followed to create files; name the target instead")
            }
            Fault::Kept => Error::for_write_protected_path(self.verb, self.path),
            Fault::Os(errno) => self.os(errno),
        }
    }

    pub(crate) fn error(&self, kind: ErrorKind, message: &str) -> Error {
        Error::for_path(self.verb, self.path, kind, message)
    }

    /// Creates the error for an entry that a walk could not read. The error contains the entry's
    /// path.
    pub(crate) fn troubled(&self, path: &str, trouble: Trouble) -> Error {
        let error = match trouble {
            Trouble::Os(errno) => self.failed(errno),
            Trouble::NotText => self.error(ErrorKind::InvalidPath, "the name is not valid UTF-8"),
        };
        error.with_path(path)
    }

    fn os(&self, errno: Errno) -> Error {
        let (kind, message) = explain(errno);
        let message = match kind {
            // If we have no message of our own for an error, the system's message is used.
            ErrorKind::Io => format!("{message}: {}", std::io::Error::from(errno)),
            _ => message.to_owned(),
        };
        let error = self.error(kind, &message).with_source(std::io::Error::from(errno));
        match errno {
            Errno::MFILE | Errno::NFILE => error.with_hint("raise the limit of open files"),
            Errno::NOTEMPTY => error.with_hint("remove it recursively"),
            Errno::ROFS => error.with_hint("the workspace is read-only; use another one"),
            Errno::NAMETOOLONG => error.with_hint("choose shorter names, or fewer directories"),
            _ => error,
        }
    }
}

fn explain(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::NOENT => (ErrorKind::NotFound, "no such file or directory"),
        Errno::EXIST => (ErrorKind::AlreadyExists, "the path already exists"),
        Errno::NOTDIR => {
            (ErrorKind::NotADirectory, "not a directory: the path or one of its parents is a file")
        }
        Errno::ISDIR => (ErrorKind::IsADirectory, "is a directory"),
        Errno::NOTEMPTY => (ErrorKind::NotEmpty, "the directory is not empty"),
        Errno::ACCESS | Errno::PERM => {
            (ErrorKind::PermissionDenied, "permission denied by the system")
        }
        Errno::ROFS => (ErrorKind::PermissionDenied, "the file system is read-only"),
        Errno::NOSPC => (ErrorKind::NoSpace, "no space left on the device"),
        Errno::DQUOT => (ErrorKind::NoSpace, "the disk quota is exceeded"),
        Errno::FBIG => (ErrorKind::TooLarge, "too large for the file system"),
        Errno::NAMETOOLONG => (ErrorKind::InvalidPath, "the name is too long for the file system"),
        Errno::LOOP => (ErrorKind::LinkLoop, "too many symbolic links, or a loop of links"),
        Errno::XDEV => (ErrorKind::Unsupported, "the target is on another file system"),
        Errno::NXIO | Errno::NODEV => (ErrorKind::SpecialFile, "not a regular file"),
        Errno::INVAL => (ErrorKind::Invalid, "not possible here"),
        Errno::CANCELED => (ErrorKind::Cancelled, "cancelled"),
        Errno::MFILE | Errno::NFILE => (ErrorKind::Io, "too many open files"),
        Errno::BUSY => (ErrorKind::Io, "it is in use, for example by a mount"),
        Errno::AGAIN => (ErrorKind::Io, "another program holds a lease or a lock on it"),
        Errno::TXTBSY => (ErrorKind::Io, "the file is being executed"),
        _ => (ErrorKind::Io, "the system failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_permissions_cannot_help_says_what_does() {
        let path = WsPath::root();
        let act = Act::new(Verb::Write, &path);
        for (errno, kind, hint) in [
            (Errno::ROFS, ErrorKind::PermissionDenied, "use another one"),
            (Errno::NAMETOOLONG, ErrorKind::InvalidPath, "choose shorter names"),
            (Errno::MFILE, ErrorKind::Io, "raise the limit"),
        ] {
            let error = act.failed(errno);
            assert_eq!(error.kind(), kind);
            assert!(error.hint().is_some_and(|says| says.contains(hint)), "{error}");
        }
    }
}
