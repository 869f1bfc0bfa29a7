//! Directories and files of the host that the operator shows to the commands of a workspace, such
//! as a private home.

use std::path::{Component, Path, PathBuf};

use ab_core::driver::BackendKind;
use ab_core::effective_policy::Isolation;
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::HostDirectoryAccess;

use super::settings::LocalExecSettings;
use crate::sandbox::bwrap::{self, SANDBOX_WORKSPACE_PATH};

/// A directory or file of the host that every command of a workspace sees.
///
/// Mounts are configured by the operator. Unlike the directories that a caller binds to a handle,
/// mounts do not disable local sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxMount {
    /// The absolute path of the directory or file on the host.
    pub source: PathBuf,
    /// The absolute path at which commands see the mount. Only bwrap supports a path that differs
    /// from `source`.
    pub target: PathBuf,
    pub access: HostDirectoryAccess,
    pub sockets: MountedSockets,
}

/// Whether commands can connect to the local sockets in a read-only mount. They can connect to those
/// in a writable one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MountedSockets {
    #[default]
    Refused,
    Allowed,
}

impl SandboxMount {
    /// Creates a mount of a directory or file that commands can read, at its own path.
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        let source = path.into();
        Self {
            target: source.clone(),
            source,
            access: HostDirectoryAccess::ReadOnly,
            sockets: MountedSockets::Refused,
        }
    }

    /// Creates a mount of a directory with a local socket for commands, at its own path. Commands
    /// can connect to the socket, and cannot change the directory.
    pub fn socket_dir(path: impl Into<PathBuf>) -> Self {
        Self { sockets: MountedSockets::Allowed, ..Self::read_only(path) }
    }

    /// Creates a mount of a directory that commands can read and write, at its own path.
    pub fn read_write(path: impl Into<PathBuf>) -> Self {
        Self { access: HostDirectoryAccess::ReadWrite, ..Self::read_only(path) }
    }
}

/// Returns all mounts of the settings, including the private home, in the order in which they are
/// made.
pub(super) fn all(settings: &LocalExecSettings) -> Vec<SandboxMount> {
    let home = settings.home.iter().map(SandboxMount::read_write);
    home.chain(settings.mounts.iter().cloned()).collect()
}

/// Fails if a mount cannot be made, or if a command could redirect it.
///
/// bwrap follows links on the way to a mount point, and a command can create a link wherever it can
/// write. So neither end of a mount may lie in the workspace or in a writable mount.
pub(crate) fn check(settings: &LocalExecSettings, roots: &[PathBuf]) -> Result<()> {
    let mounts = all(settings);
    for mount in &mounts {
        for path in [&mount.source, &mount.target] {
            let plain = path.components().all(|it| !matches!(it, Component::ParentDir));
            if path.is_relative() || !plain || path.to_str().is_none() {
                return Err(invalid(
                    mount,
                    "a path must be absolute, valid UTF-8 and without '..'",
                ));
            }
        }
        let found = std::fs::metadata(&mount.source)
            .map_err(|error| invalid(mount, &error.to_string()).with_source(error))?;
        let directory = found.is_dir();
        if !directory && !found.is_file() {
            return Err(invalid(mount, "it is neither a directory nor a regular file"));
        }
        if !directory && mount.access == HostDirectoryAccess::ReadWrite {
            return Err(invalid(mount, "only directories can be writable"));
        }
        let at = mount.target.to_string_lossy();
        if bwrap::is_taken(&at)
            || at == "/"
            || (!directory && mount.target.parent() == Some(TMP.as_ref()))
        {
            return Err(invalid(mount, "the sandbox itself needs that path"));
        }
        let workspace =
            roots.iter().filter(|root| root.as_path() != Path::new(SANDBOX_WORKSPACE_PATH));
        let others = mounts.iter().filter(|other| {
            other.access == HostDirectoryAccess::ReadWrite && other.source != mount.source
        });
        let writable = workspace.chain(others.map(|other| &other.source));
        let mut writable = writable.filter(|root| within(mount, root)).peekable();
        if let Some(root) = writable.peek() {
            let cause = format!("commands can write to {}, which contains it", root.display());
            return Err(invalid(mount, &cause));
        }
        let around = |root: &&PathBuf| root.starts_with(&mount.source);
        if mount.access == HostDirectoryAccess::ReadWrite && roots.iter().any(|root| around(&root))
        {
            return Err(invalid(mount, "a writable directory must not contain the workspace"));
        }
    }
    Ok(())
}

/// Fails if the isolation cannot show a mount at its target.
pub(super) fn check_isolation(mounts: &[SandboxMount], isolation: Isolation) -> Result<()> {
    let moved = mounts.iter().find(|mount| mount.source != mount.target);
    match (isolation, moved) {
        (Isolation::Bwrap, _) | (_, None) => Ok(()),
        (_, Some(mount)) => {
            let (source, at) = (mount.source.display(), mount.target.display());
            let message = format!("isolation '{isolation}' cannot show {source} at {at}");
            Err(Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, message)
                .with_hint("run where bwrap works, or show it at its own path"))
        }
    }
}

const TMP: &str = "/tmp";

/// Returns whether the source or the target of a mount is `root` or lies in it. Compares the
/// written paths and the paths with all links resolved.
fn within(mount: &SandboxMount, root: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let real_root = real(root);
    [&mount.source, &mount.target]
        .iter()
        .any(|path| path.starts_with(root) || real(path).starts_with(&real_root))
}

fn invalid(mount: &SandboxMount, cause: &str) -> Error {
    let (source, at) = (mount.source.display(), mount.target.display());
    let message = if mount.source == mount.target {
        format!("cannot show {source} to commands: {cause}")
    } else {
        format!("cannot show {source} to commands at {at}: {cause}")
    };
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        .with_backend_kind(BackendKind::Local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_that_a_command_could_redirect_are_refused() {
        let keep = tempfile::tempdir().unwrap();
        let path = |name: &str| keep.path().join(name);
        for name in ["w/in", "h/in", "c"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        std::fs::write(path("file"), "x").unwrap();
        std::os::unix::fs::symlink(path("w/in"), path("link")).unwrap();
        let check = |mounts: &[SandboxMount], expect: &str| {
            let settings = LocalExecSettings {
                home: Some(path("h")),
                mounts: mounts.to_vec(),
                ..LocalExecSettings::default()
            };
            let checked = check(&settings, &[path("w")]);
            let said = checked.err().map(|error| error.message().to_owned()).unwrap_or_default();
            assert!(said.contains(expect) && said.is_empty() == expect.is_empty(), "{said}");
        };
        let read = |name: &str| SandboxMount::read_only(path(name));
        check(&[read("c"), read("file")], "");
        check(&[SandboxMount { target: path("else"), ..read("file") }], "");
        check(&[SandboxMount { target: path("w/file"), ..read("file") }], "which contains it");
        check(&[SandboxMount { target: path("h/file"), ..read("file") }], "which contains it");
        check(&[read("w/in")], "which contains it");
        check(&[read("h/in")], "which contains it");
        check(&[read("link")], "which contains it");
        check(&[read("missing")], "no such file");
        check(&[read("c/../c")], "absolute");
        check(&[SandboxMount::read_only("c")], "absolute");
        check(&[SandboxMount::read_write(path("file"))], "only directories");
        check(&[SandboxMount::read_write(keep.path())], "which contains it");
        check(&[SandboxMount { target: "/proc/x".into(), ..read("file") }], "needs that path");
        check(&[SandboxMount { target: "/tmp/x".into(), ..read("file") }], "needs that path");
        let around = LocalExecSettings {
            mounts: vec![SandboxMount::read_write(keep.path())],
            ..LocalExecSettings::default()
        };
        let refused = super::check(&around, &[path("w")]).unwrap_err();
        assert!(refused.message().contains("must not contain the workspace"), "{refused}");
    }
}
