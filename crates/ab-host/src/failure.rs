//! What the kernel says, in the words of the contract.

use ab_core::error::printable;
use ab_core::{Error, Kind, Verb, WsPath};
use rustix::io::Errno;

use crate::jail::Fault;
use crate::local::Trouble;

/// Turns faults of one operation into errors that name it.
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
            Fault::Escape => self.error(Kind::Escape, "a link on the way leaves the workspace"),
            Fault::Dangling(target) => {
                let target = printable(&target);
                self.error(Kind::NotFound, &format!("a link leads to '{target}', which is missing"))
                    .with_hint("a change never creates through a link; write to its target")
            }
            Fault::Kept => Error::protected(self.verb, self.path),
            Fault::Os(errno) => self.os(errno),
        }
    }

    pub(crate) fn error(&self, kind: Kind, message: &str) -> Error {
        Error::for_path(self.verb, self.path, kind, message)
    }

    /// What a walk could not look at, named by the path it has there.
    pub(crate) fn troubled(&self, path: &str, trouble: Trouble) -> Error {
        let error = match trouble {
            Trouble::Os(errno) => self.failed(errno),
            Trouble::NotText => self.error(Kind::InvalidPath, "the name is not valid UTF-8"),
        };
        error.with_path(path)
    }

    fn os(&self, errno: Errno) -> Error {
        let (kind, message) = explain(errno);
        let message = match kind {
            // What has no words of ours has the system's.
            Kind::Io => format!("{message}: {}", std::io::Error::from(errno)),
            _ => message.to_owned(),
        };
        let error = self.error(kind, &message).with_source(std::io::Error::from(errno));
        match errno {
            Errno::MFILE | Errno::NFILE => error.with_hint("raise the limit of open files"),
            Errno::NOTEMPTY => error.with_hint("remove it recursively"),
            Errno::ROFS => error.with_hint("nothing here can be changed; use another workspace"),
            Errno::NAMETOOLONG => error.with_hint("choose shorter names, or fewer directories"),
            _ => error,
        }
    }
}

fn explain(errno: Errno) -> (Kind, &'static str) {
    match errno {
        Errno::NOENT => (Kind::NotFound, "no such file or directory"),
        Errno::EXIST => (Kind::AlreadyExists, "something is there already"),
        Errno::NOTDIR => (Kind::NotADirectory, "not a directory, or a parent is not"),
        Errno::ISDIR => (Kind::IsADirectory, "is a directory"),
        Errno::NOTEMPTY => (Kind::NotEmpty, "the directory is not empty"),
        Errno::ACCESS | Errno::PERM => (Kind::PermissionDenied, "permission denied by the system"),
        Errno::ROFS => (Kind::PermissionDenied, "the file system is read-only"),
        Errno::NOSPC => (Kind::NoSpace, "no space left on the device"),
        Errno::DQUOT => (Kind::NoSpace, "the disk quota is used up"),
        Errno::FBIG => (Kind::TooLarge, "too large for the file system"),
        Errno::NAMETOOLONG => (Kind::InvalidPath, "the name is too long for the file system"),
        Errno::LOOP => (Kind::LinkLoop, "too many links, or links in a circle"),
        Errno::XDEV => (Kind::Unsupported, "crosses from one file system to another"),
        Errno::NXIO | Errno::NODEV => (Kind::SpecialFile, "not a regular file"),
        Errno::INVAL => (Kind::Invalid, "not possible here"),
        Errno::CANCELED => (Kind::Cancelled, "cancelled"),
        Errno::MFILE | Errno::NFILE => (Kind::Io, "too many open files"),
        Errno::BUSY => (Kind::Io, "it is in use, by a mount perhaps"),
        Errno::AGAIN => (Kind::Io, "another program holds a lease or a lock on it"),
        Errno::TXTBSY => (Kind::Io, "the file is being executed"),
        _ => (Kind::Io, "the system failed"),
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
            (Errno::ROFS, Kind::PermissionDenied, "use another workspace"),
            (Errno::NAMETOOLONG, Kind::InvalidPath, "choose shorter names"),
            (Errno::MFILE, Kind::Io, "raise the limit"),
        ] {
            let error = act.failed(errno);
            assert_eq!(error.kind(), kind);
            assert!(error.hint().is_some_and(|says| says.contains(hint)), "{error}");
        }
    }
}
