//! Runs git in this process. Git uses no hooks and no prompts here. It never uses the configuration
//! of a repository that other users or agents can write.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_core::ErrorKind;
use ab_host::host_program::{HostProgram, HostProgramOutput, HostProgramRequest};

use crate::area;
use crate::error::{Result, SnapshotError};

/// The environment variables that git uses to reach other hosts. The caller passes the variables
/// that the operator has set.
pub const GIT_NETWORK_ENV_VARIABLES: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "PATH",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSL_CAINFO",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// Time limit for commands on local files.
pub(crate) const LOCAL_TIME: Duration = Duration::from_secs(10 * 60);
/// Time limit for commands that transfer a repository.
pub(crate) const TRANSFER_TIME: Duration = Duration::from_secs(60 * 60);
/// Maximum size, in bytes, of the output of ordinary commands.
const MAX_OUTPUT: usize = 8 * 1024 * 1024;
/// Maximum number of characters of git's error output that are repeated in an error message.
const QUOTED: usize = 500;

/// Settings for every git command. A repository's own settings cannot override them.
const OVERRIDES: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.askPass=",
    "core.alternateRefsCommand=true",
    "core.untrackedCache=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "push.followTags=false",
    "commit.gpgSign=false",
    "init.templateDir=",
    "protocol.ext.allow=never",
];
/// Additional settings for commands that must not use anything of the operator.
const CLEAN_OVERRIDES: &[&str] = &["core.sshCommand=false", "credential.helper=", "http.proxy="];

/// The operator's variables that [`Git::anonymous`] keeps. Git needs them to find programs and to
/// reach the network.
const KEPT_WITHOUT_CREDENTIALS: &[&str] = &[
    "PATH",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
];

/// The git program and the environments that it runs in.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    pub(crate) tool: HostProgram,
    /// An empty directory of ours, used as the home directory.
    pub(crate) home: PathBuf,
    /// The only configuration file that git reads with [`Authority::Clean`].
    pub(crate) config: PathBuf,
    /// The operator's environment variables.
    pub(crate) operator: Vec<(OsString, OsString)>,
}

/// What a git command may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authority {
    /// Local files only, with our own configuration.
    Clean,
    /// The network, with the operator's configuration and credentials.
    Operator,
}

/// A git command that is being prepared.
#[derive(Debug)]
pub(crate) struct GitRun<'a> {
    git: &'a Git,
    run: HostProgramRequest,
    what: String,
}

impl Git {
    /// Prepares a git command in `directory`. Git uses the repository that it finds there.
    pub(crate) fn at(&self, directory: &Path, authority: Authority) -> GitRun<'_> {
        let (mut arguments, mut environment) = (Vec::new(), Vec::new());
        let overrides = match authority {
            Authority::Clean => CLEAN_OVERRIDES,
            Authority::Operator => &[],
        };
        for setting in OVERRIDES.iter().chain(overrides) {
            arguments.push("-c".into());
            arguments.push(setting.into());
        }
        match authority {
            Authority::Clean => {
                let path = self.operator.iter().find(|(name, _)| name == "PATH");
                let path = path.map_or_else(|| "/usr/bin:/bin".into(), |(_, path)| path.clone());
                environment.push(("PATH".into(), path));
                environment.push(("HOME".into(), self.home.clone().into()));
                environment.push(("GIT_CONFIG_GLOBAL".into(), self.config.clone().into()));
                environment.push(("GIT_CONFIG_NOSYSTEM".into(), "1".into()));
                environment.push(("GIT_ATTR_NOSYSTEM".into(), "1".into()));
                environment.push(("GIT_ALLOW_PROTOCOL".into(), "file".into()));
            }
            Authority::Operator => {
                environment.extend(self.operator.iter().cloned());
                environment.push(("GIT_ALLOW_PROTOCOL".into(), "https:http:ssh:git".into()));
                environment.push(("GCM_INTERACTIVE".into(), "never".into()));
            }
        }
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_ADVICE", "0"),
        ] {
            environment.push((name.into(), value.into()));
        }
        let run = HostProgramRequest {
            arguments,
            directory: directory.to_owned(),
            environment,
            input: Vec::new(),
            timeout: LOCAL_TIME,
            max_output: MAX_OUTPUT,
        };
        GitRun { git: self, run, what: String::new() }
    }

    /// Returns the same program without the configuration and the credentials of the operator. It
    /// is used for addresses that the operator did not choose.
    pub(crate) fn anonymous(&self) -> Git {
        let is_kept = |name: &OsString| KEPT_WITHOUT_CREDENTIALS.iter().any(|kept| name == kept);
        let kept = self.operator.iter().filter(|(name, _)| is_kept(name)).cloned();
        let own = [
            ("HOME", self.home.clone().into_os_string()),
            ("GIT_CONFIG_GLOBAL", self.config.clone().into_os_string()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
        ];
        let operator = kept.chain(own.map(|(name, value)| (name.into(), value))).collect();
        Git { operator, ..self.clone() }
    }

    /// Makes a repository in a directory of a workspace. Makes the directory first if it is
    /// missing, but not its parents. Git runs inside the directory. So a run that is cancelled too
    /// late cannot recreate a workspace that was already removed.
    pub(crate) async fn init(&self, directory: &Path, arguments: &[&str]) -> Result<()> {
        if !area::exists(directory) {
            area::make_dir(directory)?;
        }
        let init = self.at(directory, Authority::Clean).args(["init", "--quiet", "--template="]);
        init.args(arguments).stdout().await?;
        Ok(())
    }

    /// Prepares a git command on one of our own repositories.
    pub(crate) fn on(&self, repository: &Path, authority: Authority) -> GitRun<'_> {
        self.at(repository, authority).env("GIT_DIR", repository)
    }

    /// Returns the value to set for `GIT_SSH_COMMAND`. `None` if the operator has configured an ssh
    /// command. Otherwise this is our own command, which never prompts.
    pub(crate) async fn ssh_command(&self) -> Result<Option<OsString>> {
        let own = |name: &OsString| name == "GIT_SSH_COMMAND" || name == "GIT_SSH";
        if self.operator.iter().any(|(name, _)| own(name)) {
            return Ok(None);
        }
        let run = self.at(&self.home, Authority::Operator);
        let configured = run.args(["config", "--get", "core.sshCommand"]).run().await?;
        let ours = || OsString::from("ssh -o BatchMode=yes");
        Ok((configured.code != Some(0)).then(ours))
    }
}

impl GitRun<'_> {
    pub(crate) fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        for argument in args {
            let argument = argument.into();
            if self.what.is_empty() {
                self.what = argument.to_string_lossy().into_owned();
            }
            self.run.arguments.push(argument);
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.run.environment.push((name.into(), value.into()));
        self
    }

    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.run.input = input.into();
        self
    }

    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.run.timeout = timeout;
        self
    }

    pub(crate) fn max_output(mut self, bytes: usize) -> Self {
        self.run.max_output = bytes;
        self
    }

    /// Runs git until it ends, whatever its exit status.
    pub(crate) async fn run(self) -> Result<HostProgramOutput> {
        Ok(self.git.tool.run(self.run).await?)
    }

    /// Runs git and returns its output. An exit status other than 0 is an error.
    pub(crate) async fn stdout(self) -> Result<String> {
        let what = self.what.clone();
        let output = self.run().await?;
        if output.output_limit_exceeded {
            return Err(SnapshotError::failed(
                ErrorKind::TooLarge,
                format!("git {what} printed too much"),
            ));
        }
        if output.code != Some(0) {
            return Err(failure(&what, &output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Creates the error for a git command that ended with a status other than 0.
pub(crate) fn failure(what: &str, output: &HostProgramOutput) -> SnapshotError {
    let message = format!("git {what} failed: {}", complaint(&output.stderr));
    SnapshotError::failed(ErrorKind::CommandFailed, message)
}

/// Returns git's error output as one line, with passwords in URLs removed.
pub(crate) fn complaint(stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let words = lines.flat_map(str::split_whitespace).map(|word| {
        if word.contains("://") {
            crate::source::redacted(word)
        } else {
            word.chars().filter(|c| !c.is_control()).collect()
        }
    });
    let text = words.collect::<Vec<String>>().join(" ");
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None if text.is_empty() => "no reason was given".to_owned(),
        None => text,
    }
}
