//! Which workspace a command works on: the flags, the environment, the handle.

use std::env;
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use ab_core::{Backend, Code, Error, Kind, ScopeOptions};
use ab_host::ExecSettings;
use agent_backend::{CommandPolicy, LocalConfig};
use clap::Args;

use crate::failure::Failure;
use crate::remote::RemoteFlags;

/// Names the workspace where no flag does.
const ROOT_VARIABLE: &str = "AGENT_BACKEND_ROOT";

#[derive(Args, Debug)]
#[command(next_help_heading = "Workspace")]
pub(crate) struct WorkspaceFlags {
    /// The workspace [env: AGENT_BACKEND_ROOT] [default: the current directory]
    #[arg(long, value_name = "DIR", global = true)]
    root: Option<PathBuf>,

    /// Work inside this directory of the workspace, as if there were nothing around it
    #[arg(long, value_name = "PATH", global = true)]
    scope: Option<OsString>,

    #[command(flatten)]
    elsewhere: RemoteFlags,
}

impl WorkspaceFlags {
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        self.open_with(ExecSettings::default(), CommandPolicy::default()).await
    }

    /// With commands that run as `exec` says and are judged as `policy` says, where the workspace
    /// is here. One that is elsewhere has walls and rules of its own.
    pub(crate) async fn open_with(
        &self,
        exec: ExecSettings,
        policy: CommandPolicy,
    ) -> Result<Opened, Failure> {
        let root = match self.elsewhere.url()? {
            Some(url) => self.elsewhere.connect(&url, self.root.as_deref()).await?,
            None => {
                let mut config = LocalConfig::new(self.root()?);
                config.options.exec = exec;
                config.policy = policy;
                agent_backend::local_with(config)
                    .map_err(|error| with_directory_hint(error, "--root"))?
            }
        };
        let handle = match &self.scope {
            Some(scope) => root.scope(path_text(scope)?, ScopeOptions::default())?,
            None => root.clone(),
        };
        Ok(Opened { handle, root })
    }

    /// What went wrong, with a word on where the workspace was named.
    pub(crate) fn traced(&self, failure: Failure) -> Failure {
        self.elsewhere.traced(failure)
    }

    /// Whether the workspace is on another machine.
    pub(crate) fn is_elsewhere(&self) -> Result<bool, Failure> {
        Ok(self.elsewhere.url()?.is_some())
    }

    /// What to say of a workspace elsewhere that cannot be reached any more.
    pub(crate) fn out_of_reach(&self, why: Error) -> Failure {
        self.elsewhere.lost(why)
    }

    fn root(&self) -> Result<PathBuf, Failure> {
        let from_environment = || env::var_os(ROOT_VARIABLE).filter(|value| !value.is_empty());
        let root = self.root.clone().or_else(|| from_environment().map(PathBuf::from));
        match root {
            Some(root) if root.as_os_str().is_empty() => Err(Failure::usage("--root is empty")
                .with_hint("name a directory, or leave --root out for the current one")),
            Some(root) => Ok(root),
            None => env::current_dir().map_err(|error| {
                Failure::input("find the current directory", error)
                    .with_hint("it may have been removed: change to another, or pass --root")
            }),
        }
    }
}

/// A workspace, and the handle to work with.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) handle: Backend,
    root: Backend,
}

impl Opened {
    /// Ends it, and with it what it started.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        Ok(self.root.destroy().await?)
    }
}

/// The workspace in a directory of the host that `flag` may name.
pub(crate) fn open_directory(directory: &Path, flag: &str) -> Result<Backend, Failure> {
    agent_backend::local(directory).map_err(|error| with_directory_hint(error, flag))
}

/// A path argument as text. The operating system allows any bytes; a workspace path is UTF-8.
pub(crate) fn path_text(path: &OsStr) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| {
        Error::new(Code::InvalidPath, Kind::InvalidPath, "not valid UTF-8")
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
