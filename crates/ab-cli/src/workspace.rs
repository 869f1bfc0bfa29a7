//! The workspace of a command: its flags and environment variables, and a handle to it.

use std::env;
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ab_core::process::ExecRequest;
use ab_core::{Backend, Error, ErrorCode, ErrorKind, ScopeOptions, WsPath};
use ab_host::LocalExecSettings;
use agent_backend::{CommandPolicySettings, LocalWorkspaceConfig};
use clap::Args;

use crate::failure::Failure;
use crate::remote::RemoteFlags;

/// The environment variable with the workspace. Used if no flag names it.
const ROOT_VARIABLE: &str = "AGENT_BACKEND_ROOT";

/// The directory for temporary files that the environment names. An empty variable is ignored.
pub(crate) fn temporary_dir() -> PathBuf {
    let named = env::temp_dir();
    if named.as_os_str().is_empty() { PathBuf::from("/tmp") } else { named }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Workspace")]
pub(crate) struct WorkspaceFlags {
    /// Directory of the workspace [default: .]
    ///
    /// The environment variable AGENT_BACKEND_ROOT sets it too.
    #[arg(long, value_name = "DIR", global = true)]
    root: Option<PathBuf>,

    /// Use only this directory of the workspace
    #[arg(long, value_name = "PATH", global = true)]
    scope: Option<OsString>,

    #[command(flatten)]
    elsewhere: RemoteFlags,
}

impl WorkspaceFlags {
    /// The flags of a command that works only on workspaces of this machine.
    pub(crate) fn of_this_machine(root: Option<PathBuf>, scope: Option<OsString>) -> Self {
        WorkspaceFlags { root, scope, elsewhere: RemoteFlags::default() }
    }

    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let (exec, policy) = (LocalExecSettings::default(), CommandPolicySettings::default());
        self.open_with(Starter::Person, exec, policy).await
    }

    /// Opens the workspace. `exec` and `policy` apply to the commands of a local workspace. They do
    /// not apply to a remote workspace, which has its own isolation and rules.
    pub(crate) async fn open_with(
        &self,
        starter: Starter,
        exec: LocalExecSettings,
        policy: CommandPolicySettings,
    ) -> Result<Opened, Failure> {
        let root = match self.elsewhere.url()? {
            Some(url) => self.elsewhere.connect(&url, self.root.as_deref()).await?,
            None => {
                let mut config = LocalWorkspaceConfig::new(self.root(starter)?);
                config.options.exec = exec;
                config.policy = policy;
                agent_backend::local_with(config)
                    .map_err(|error| with_directory_hint(error, "--root"))?
            }
        };
        let (handle, scope) = match &self.scope {
            Some(scope) => {
                let scope = path_text(scope)?;
                let handle = root.scope(scope, ScopeOptions::default())?;
                (handle, Some(root.parse_path(scope)?))
            }
            None => (root.clone(), None),
        };
        Ok(Opened { handle, root, scope })
    }

    /// Adds a hint that says where the workspace was named.
    pub(crate) fn traced(&self, failure: Failure) -> Failure {
        self.elsewhere.traced(failure)
    }

    /// Whether the workspace is on another machine.
    pub(crate) fn is_elsewhere(&self) -> Result<bool, Failure> {
        Ok(self.elsewhere.url()?.is_some())
    }

    /// The failure for a remote workspace that can no longer be reached.
    pub(crate) fn out_of_reach(&self, why: Error) -> Failure {
        self.elsewhere.lost(why)
    }

    /// The directory of a local workspace, as an absolute path.
    pub(crate) fn directory(&self) -> Result<PathBuf, Failure> {
        let root = self.root(Starter::Person)?;
        Ok(root.canonicalize().unwrap_or(root))
    }

    /// The directory in the flag, as an absolute path. `None` if no flag names one.
    pub(crate) fn named_directory(&self) -> Option<PathBuf> {
        let root = self.root.as_ref()?;
        Some(root.canonicalize().unwrap_or_else(|_| root.clone()))
    }

    fn root(&self, starter: Starter) -> Result<PathBuf, Failure> {
        local_root(self.root.clone(), starter)
    }
}

/// The directory of a local workspace: the named directory, or else the directory that the
/// environment names, or else the current directory.
pub(crate) fn local_root(named: Option<PathBuf>, starter: Starter) -> Result<PathBuf, Failure> {
    let from_environment = || env::var_os(ROOT_VARIABLE).filter(|value| !value.is_empty());
    match named.or_else(|| from_environment().map(PathBuf::from)) {
        Some(root) if root.as_os_str().is_empty() => Err(Failure::usage("--root is empty")
            .with_hint("name a directory, or remove --root to use the current one")),
        Some(root) => Ok(root),
        None => starter.current_directory(),
    }
}

/// Who chose the current directory. This determines whether the current directory may be used as
/// the workspace if no workspace is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// A person who typed a command in this directory. Any directory is accepted except `/`.
    /// Isolation would separate nothing if the workspace were `/`.
    Person,
    /// A program that may start other programs in `/` or in the home directory, such as an MCP host
    /// on a desktop. This variant also applies to a person who starts an agent, because an agent in
    /// the home directory could read every login. The user must explicitly name a workspace that is
    /// `/`, the home directory or a directory above it.
    Program,
}

impl Starter {
    /// The current directory. Fails if it cannot be the workspace.
    pub(crate) fn current_directory(self) -> Result<PathBuf, Failure> {
        let current = env::current_dir().map_err(|error| {
            Failure::input("find the current directory", error)
                .with_hint("it may have been removed: change to another directory, or pass --root")
        })?;
        match self.refusal(&current, &homes()) {
            Some(refusal) => Err(refusal),
            None => Ok(current),
        }
    }

    /// The failure if `current` cannot be the workspace. Directories are compared by device and
    /// inode, so that links to them are recognized.
    fn refusal(self, current: &Path, homes: &[PathBuf]) -> Option<Failure> {
        let above_home = |home: &PathBuf| {
            let real = home.canonicalize().unwrap_or_else(|_| home.clone());
            let above = |home: &Path| home.ancestors().skip(1).any(|above| same(above, current));
            above(home) || above(&real)
        };
        let what = if same(current, Path::new("/")) {
            "the root of the file system"
        } else if self == Starter::Person {
            return None;
        } else if homes.iter().any(|home| same(home, current)) {
            "the home directory"
        } else if homes.iter().any(above_home) {
            "a directory above the home directory"
        } else {
            return None;
        };
        let shown = current.display();
        let message =
            format!("the current directory, {shown}, is {what} and cannot be the workspace");
        let hint =
            format!("name a project with --root DIR; to work on all of it, pass --root {shown}");
        Some(Failure::usage(message).with_hint(hint))
    }
}

/// The home directories of the current user: from the environment, and from the user database.
fn homes() -> Vec<PathBuf> {
    let named = env::var_os("HOME").map(PathBuf::from);
    let user = fs::metadata("/proc/self").map(|own| own.uid()).ok();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = users.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let own = fields.get(2)?.parse().ok() == user;
        own.then(|| fields.get(5).map(PathBuf::from)).flatten()
    });
    named.into_iter().chain(known).filter(|home| home.is_absolute()).collect()
}

/// Whether both paths exist and lead to the same directory.
fn same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// An open workspace, and a handle to work with it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) handle: Backend,
    root: Backend,
    /// The path of the handle in the workspace, if it is a scope.
    scope: Option<WsPath>,
}

impl Opened {
    /// The whole workspace, without a scope.
    pub(crate) fn root(&self) -> &Backend {
        &self.root
    }

    /// Converts a request for `handle` to the form in which the guards of the workspace see it.
    pub(crate) fn seen_by_guards(&self, request: ExecRequest) -> ExecRequest {
        match &self.scope {
            Some(scope) => {
                let cwd = scope.clone().into_scope_root().join(&request.cwd);
                ExecRequest { cwd, ..request }
            }
            None => request,
        }
    }

    /// Closes the workspace, and ends the commands that it started.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        Ok(self.root.destroy().await?)
    }
}

/// Opens the workspace in a directory of the host. `flag` is the flag that names the directory, for
/// a hint.
pub(crate) fn open_directory(directory: &Path, flag: &str) -> Result<Backend, Failure> {
    agent_backend::local(directory).map_err(|error| with_directory_hint(error, flag))
}

/// Whether the directory that the user names does not exist yet.
pub(crate) fn is_missing(directory: &Path) -> bool {
    !directory.exists()
}

/// Converts a path argument to text. Arguments can contain any bytes, but workspace paths are
/// UTF-8.
pub(crate) fn path_text(path: &OsStr) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| {
        Error::new(ErrorCode::InvalidPath, ErrorKind::InvalidPath, "not valid UTF-8")
            .with_path(path.to_string_lossy())
    })
}

fn with_directory_hint(error: Error, flag: &str) -> Failure {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let hint = match cause.map(io::Error::kind) {
        Some(io::ErrorKind::NotFound) => {
            format!("create the directory, or name another with {flag}")
        }
        Some(io::ErrorKind::NotADirectory) => format!("name a directory with {flag}"),
        Some(io::ErrorKind::PermissionDenied) => {
            format!("check its permissions, or name another directory with {flag}")
        }
        _ => return error.into(),
    };
    Failure::from(error).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_must_name_a_workspace_that_is_the_home_directory_or_above_it() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path();
        let home = base.join("homes/me");
        let project = home.join("project");
        fs::create_dir_all(&project).unwrap();
        fs::create_dir(base.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(&home, base.join("link")).unwrap();
        let root = Path::new("/");
        let homes = [home.clone()];
        let refuses =
            |starter: Starter, directory: &Path| starter.refusal(directory, &homes).is_some();
        for (directory, by_program, by_person) in [
            (root, true, true),
            (&home, true, false),
            (&base.join("link"), true, false),
            (&home.join("."), true, false),
            (&base.join("homes"), true, false),
            (base, true, false),
            (&project, false, false),
            (&base.join("elsewhere"), false, false),
        ] {
            assert_eq!(refuses(Starter::Program, directory), by_program, "{directory:?}");
            assert_eq!(refuses(Starter::Person, directory), by_person, "{directory:?}");
        }
        // A home directory that is a link has two parent directories.
        let linked = [base.join("link")];
        for directory in [base.join("homes"), base.to_owned()] {
            assert!(Starter::Program.refusal(&directory, &linked).is_some(), "{directory:?}");
        }
    }

    #[test]
    fn the_home_directory_is_known_without_the_environment() {
        assert!(homes().iter().all(|home| home.is_absolute()));
    }
}
