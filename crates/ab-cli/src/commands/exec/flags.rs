//! Flags for the isolation and the limits of commands. Shared by all subcommands that start
//! commands.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use ab_core::Backend;
use ab_core::effective_policy::{EffectivePolicy, Isolation, NetworkAccess};
use ab_core::process::{ExecLimits, HostDirectory, HostDirectoryAccess, PathRestrictions};
use ab_host::{CommandShell, LocalExecSettings, OutputSpoolLimits, SandboxRequirement};
use clap::{Args, ValueEnum};

use super::amount;
use crate::commands::policy::RuleFlags;
use crate::failure::Failure;
use crate::restricted_paths::RestrictedPaths;
use crate::toolchains::ToolchainFlags;
use crate::workspace::path_text;

#[derive(Args, Debug)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxFlags {
    /// Isolation of commands [default: the strongest that works here]
    ///
    /// From strong to weak: bwrap (a sandbox in which other files and processes do not exist), landlock (a sandbox in
    /// which the kernel refuses access to other files), software (no sandbox: the paths in a command line are
    /// checked), none. auto chooses the strongest of bwrap, landlock and software that works.
    #[arg(long, value_enum, value_name = "MODE", hide_possible_values = true)]
    isolation: Option<Mode>,

    /// Weakest isolation that is accepted; commands with less are refused
    #[arg(long, value_enum, value_name = "MODE", hide_possible_values = true)]
    floor: Option<Mode>,

    /// shared: the network of this machine; none: no network
    #[arg(
        long,
        value_enum,
        default_value = "shared",
        value_name = "NETWORK",
        hide_possible_values = true
    )]
    network: NetworkChoice,

    /// Hide a path of the workspace from commands
    #[arg(long, value_name = "PATH")]
    hide: Vec<OsString>,

    /// Make a path of the workspace read-only for commands
    #[arg(long, value_name = "PATH")]
    read_only: Vec<OsString>,

    /// Make a directory of this machine visible to commands; with :rw also writable
    #[arg(long, value_name = "DIR[:rw]")]
    bind: Vec<String>,

    #[command(flatten)]
    toolchains: ToolchainFlags,

    /// Keep caches of package managers and compilers in this directory
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,

    /// Shell that runs command lines
    #[arg(long, value_enum, default_value = "auto", value_name = "SHELL")]
    shell: ShellChoice,

    /// Run even if this machine cannot enforce these restrictions
    ///
    /// By default, a command is refused if one of its restrictions cannot be enforced.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    accept_unenforced: Vec<RequirementChoice>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// End a command after this time, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    timeout: Option<Duration>,

    /// Limit the CPU time of each process
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    cpu: Option<Duration>,

    /// Limit the memory of all processes together, such as 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = amount::some_size)]
    memory: Option<u64>,

    /// Limit the number of processes and threads
    #[arg(long, value_name = "N", value_parser = amount::count)]
    processes: Option<u64>,

    /// Limit the size of a file that a command writes
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    file_size: Option<u64>,

    /// Limit the number of files that a process has open
    #[arg(long, value_name = "N", value_parser = amount::count)]
    open_files: Option<u64>,

    /// Limit the output of a command to this size; the rest is discarded
    ///
    /// The beginning of the output is kept. For a background command of a daemon, the end is kept.
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    max_output: Option<u64>,
}

impl Limits {
    /// The limits for each command of a workspace that several callers use.
    pub(crate) fn of_workspace(&self) -> ExecLimits {
        ExecLimits { wall_time: self.timeout, ..self.of_command() }
    }

    /// Refuses limit flags for a remote workspace, because its daemon sets the limits.
    pub(crate) fn none_given(&self) -> Result<(), Failure> {
        let given = [
            ("--timeout", self.timeout.is_some()),
            ("--cpu", self.cpu.is_some()),
            ("--memory", self.memory.is_some()),
            ("--processes", self.processes.is_some()),
            ("--file-size", self.file_size.is_some()),
            ("--open-files", self.open_files.is_some()),
            ("--max-output", self.max_output.is_some()),
        ];
        match given.into_iter().find_map(|(flag, given)| given.then_some(flag)) {
            Some(flag) => Err(daemon_decides(flag)),
            None => Ok(()),
        }
    }

    /// Maximum number of bytes that are shown of each output.
    pub(super) fn max_output(&self) -> Option<u64> {
        self.max_output
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The limits on the stored output of a background command.
    pub(crate) fn spooling(&self) -> OutputSpoolLimits {
        let usual = OutputSpoolLimits::default();
        let Some(bytes) = self.max_output else { return usual };
        let memory = usize::try_from(bytes).unwrap_or(usize::MAX).min(usual.memory_bytes);
        OutputSpoolLimits {
            memory_bytes: memory,
            disk_bytes: (bytes - memory as u64).min(usual.disk_bytes),
        }
    }

    pub(crate) fn of_command(&self) -> ExecLimits {
        let Limits { cpu, memory, processes, file_size, open_files, .. } = *self;
        ExecLimits { wall_time: None, cpu, memory, processes, file_size, open_files }
    }
}

/// Refuses flags for isolation and rules for a remote workspace, because its daemon sets them.
pub(crate) fn refuse_local_sandbox_flags(
    sandbox: &SandboxFlags,
    rules: &RuleFlags,
) -> Result<(), Failure> {
    match sandbox.built_here().or_else(|| rules.made_here()) {
        Some(flag) => Err(daemon_decides(flag)),
        None => Ok(()),
    }
}

fn daemon_decides(flag: &str) -> Failure {
    Failure::usage(format!("{flag} cannot be used with a remote workspace"))
        .with_hint("pass the flag to agent-backend daemon on the other machine")
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    Auto,
    Bwrap,
    Landlock,
    Software,
    None,
}

impl From<Mode> for Isolation {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Isolation::Auto,
            Mode::Bwrap => Isolation::Bwrap,
            Mode::Landlock => Isolation::Landlock,
            Mode::Software => Isolation::Software,
            Mode::None => Isolation::None,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RequirementChoice {
    Network,
    Hide,
    ReadOnly,
    Memory,
    Processes,
}

impl From<RequirementChoice> for SandboxRequirement {
    fn from(choice: RequirementChoice) -> Self {
        match choice {
            RequirementChoice::Network => SandboxRequirement::NoNetwork,
            RequirementChoice::Hide => SandboxRequirement::HiddenPaths,
            RequirementChoice::ReadOnly => SandboxRequirement::ReadOnlyPaths,
            RequirementChoice::Memory => SandboxRequirement::MemoryLimit,
            RequirementChoice::Processes => SandboxRequirement::ProcessLimit,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum NetworkChoice {
    Shared,
    None,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShellChoice {
    Auto,
    Bash,
    Sh,
}

impl From<NetworkChoice> for NetworkAccess {
    fn from(choice: NetworkChoice) -> Self {
        match choice {
            NetworkChoice::Shared => NetworkAccess::Shared,
            NetworkChoice::None => NetworkAccess::None,
        }
    }
}

impl From<ShellChoice> for CommandShell {
    fn from(choice: ShellChoice) -> Self {
        match choice {
            ShellChoice::Auto => CommandShell::Auto,
            ShellChoice::Bash => CommandShell::Bash,
            ShellChoice::Sh => CommandShell::Sh,
        }
    }
}

impl SandboxFlags {
    /// The first given flag that can only be applied on the machine of the workspace.
    pub(crate) fn built_here(&self) -> Option<&'static str> {
        let given = [
            ("--isolation", self.isolation.is_some()),
            ("--floor", self.floor.is_some()),
            ("--network", !matches!(self.network, NetworkChoice::Shared)),
            ("--shell", !matches!(self.shell, ShellChoice::Auto)),
            ("--toolchain", self.toolchains.are_given()),
            ("--cache-dir", self.cache_dir.is_some()),
            ("--bind", !self.bind.is_empty()),
            ("--accept-unenforced", !self.accept_unenforced.is_empty()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }

    pub(crate) fn settings(&self) -> Result<LocalExecSettings, Failure> {
        Ok(LocalExecSettings {
            isolation: self.isolation.map_or(Isolation::Auto, Isolation::from),
            minimum_isolation: self.floor.map_or(Isolation::None, Isolation::from),
            network: self.network.into(),
            shell: self.shell.into(),
            toolchains: self.toolchains.chosen()?,
            temporary_dir: crate::workspace::temporary_dir(),
            git_identity: crate::git_identity::find(),
            allowed_unenforced: self.accepted(),
            cache_dir: self.cache_dir.clone(),
            ..LocalExecSettings::default()
        })
    }

    fn accepted(&self) -> BTreeSet<SandboxRequirement> {
        self.accept_unenforced.iter().copied().map(SandboxRequirement::from).collect()
    }

    /// The line about the isolation of commands that is printed on standard error.
    pub(crate) fn in_force(&self, policy: &EffectivePolicy) -> Option<String> {
        let asked = self.isolation.is_some_and(|mode| !matches!(mode, Mode::Auto));
        let isolation = policy.isolation?;
        let mut line = in_force(isolation, asked);
        let shows_binds = matches!(isolation, Isolation::Bwrap | Isolation::Landlock);
        if !self.bind.is_empty() && !shows_binds {
            line.push_str("; --bind has no effect");
        }
        Some(line)
    }

    /// The restrictions of commands, and notes about paths that do not exist.
    pub(crate) async fn restrictions(
        &self,
        backend: &Backend,
    ) -> Result<(PathRestrictions, Vec<String>), Failure> {
        let texts = |paths: &'_ [OsString]| -> Result<Vec<String>, Failure> {
            paths.iter().map(|path| Ok(path_text(path)?.to_owned())).collect()
        };
        let (hide, read_only) = (texts(&self.hide)?, texts(&self.read_only)?);
        let hidden =
            RestrictedPaths::parse("--hide", hide.iter().map(String::as_str), backend).await?;
        let read_only =
            RestrictedPaths::parse("--read-only", read_only.iter().map(String::as_str), backend)
                .await?;
        let bind = |bind: &String| match bind.strip_suffix(":rw") {
            Some(path) => {
                HostDirectory { path: path.to_owned(), access: HostDirectoryAccess::ReadWrite }
            }
            None => HostDirectory { path: bind.clone(), access: HostDirectoryAccess::ReadOnly },
        };
        let restrictions = PathRestrictions {
            hidden: hidden.paths,
            read_only: read_only.paths,
            host_directories: self.bind.iter().map(bind).collect(),
        };
        Ok((restrictions, [hidden.notes, read_only.notes].concat()))
    }
}

#[derive(Args, Debug)]
pub(crate) struct EnvFlags {
    /// Set an environment variable of commands
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE")]
    env: Vec<String>,
}

impl EnvFlags {
    pub(crate) fn variables(&self) -> Result<BTreeMap<String, String>, Failure> {
        variables(&self.env)
    }
}

/// Parses the variables of `--env`.
fn variables(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Failure::usage(format!("invalid --env '{text}': '=' is missing"))
            .with_hint("write --env KEY=VALUE")),
    };
    given.iter().map(pair).collect()
}

/// One line about the isolation of commands. `asked` is whether the user named the isolation.
pub(crate) fn in_force(isolation: Isolation, asked: bool) -> String {
    let what = match isolation {
        Isolation::Bwrap => "commands run in a bwrap sandbox",
        Isolation::Landlock => "commands run in a landlock sandbox, which is weaker than bwrap",
        Isolation::Software => {
            "commands run without a sandbox: only the paths in a command line are checked"
        }
        Isolation::None | Isolation::Auto => "commands run without isolation",
    };
    let why = if isolation == Isolation::Bwrap || asked {
        ""
    } else {
        " (`agent-backend doctor` explains why)"
    };
    format!("{what}{why}")
}
