//! Settings of `serve` that `exec`, `mcp` and `daemon` also have: limits, variables and directories
//! for commands.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ab_core::process::{ExecLimits, HostDirectoryAccess};
use ab_host::SandboxMount;
use clap::Args;

use super::setting::{Setting, Sources};
use crate::commands::exec::amount;
use crate::failure::Failure;

/// The same flags and values as those of `exec`. They are for agents, their commands, and commands in the served root.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Commands in sessions and in the --root directory")]
pub(crate) struct CommandFlags {
    /// Set an environment variable of agents and commands
    #[arg(short = 'e', long = "env", value_name = "KEY=VALUE", value_parser = variable)]
    env: Vec<Variable>,

    /// Make a directory of this machine visible to agents and commands; with :rw also writable
    #[arg(long, value_name = "DIR[:rw]")]
    bind: Vec<String>,

    /// Hide a path in the --root directory
    #[arg(long, value_name = "PATH")]
    hide: Vec<String>,

    /// Make a path in the --root directory read-only
    #[arg(long, value_name = "PATH")]
    read_only: Vec<String>,

    /// End a command after this time, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    timeout: Option<Duration>,

    /// Limit the CPU time of each process of a command
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    cpu: Option<Duration>,

    /// Limit the memory of all processes of a session together, such as 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = amount::some_size)]
    memory: Option<u64>,

    /// Limit the number of processes and threads of a session
    #[arg(long, value_name = "N", value_parser = amount::count)]
    processes: Option<u64>,

    /// Limit the size of a file that a command writes
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    file_size: Option<u64>,

    /// Limit the number of files that a process of a command has open
    #[arg(long, value_name = "N", value_parser = amount::count)]
    open_files: Option<u64>,
}

/// The limits, variables and directories of commands.
#[derive(Debug)]
pub(crate) struct CommandConfig {
    pub(crate) env: Setting<Variables>,
    pub(crate) bind: Setting<Binds>,
    pub(crate) hide: Setting<Vec<String>>,
    pub(crate) read_only: Setting<Vec<String>>,
    pub(crate) timeout: Setting<Option<Duration>>,
    pub(crate) cpu: Setting<Option<Duration>>,
    pub(crate) memory: Setting<Option<u64>>,
    pub(crate) processes: Setting<Option<u64>>,
    pub(crate) file_size: Setting<Option<u64>>,
    pub(crate) open_files: Setting<Option<u64>>,
}

/// A variable in the form in which `--env` accepts it.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    name: String,
    value: String,
}

/// Environment variables of commands, with their values.
#[derive(Debug, Default)]
pub(crate) struct Variables(pub(crate) BTreeMap<String, String>);

/// Directories of the host that are made visible to commands.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    /// The arguments as they were given.
    pub(crate) words: Vec<String>,
    pub(crate) mounts: Vec<SandboxMount>,
}

impl CommandConfig {
    pub(super) fn load(
        sources: &Sources<'_>,
        flags: &CommandFlags,
        data_dir: &Path,
    ) -> Result<CommandConfig, Failure> {
        let usage = |flag: &str, why: String| Failure::usage(format!("invalid {flag}: {why}"));
        let env = (!flags.env.is_empty()).then(|| Variables::of(flags.env.iter().cloned()));
        let bind = (!flags.bind.is_empty()).then(|| Binds::of(flags.bind.clone(), data_dir));
        let bind = bind.transpose().map_err(|why| usage("--bind", why))?;
        let time = |name, flag: Option<Duration>| {
            let none = || None;
            sources.pick(name, flag.map(Some), none, |words| amount::time(words.one()?).map(Some))
        };
        let number = |name, flag: Option<u64>, parse: fn(&str) -> Result<u64, String>| {
            sources.pick(name, flag.map(Some), || None, |words| parse(words.one()?).map(Some))
        };
        let paths = |name, flag: &[String]| {
            let flag = Some(flag.to_vec()).filter(|paths| !paths.is_empty());
            sources
                .pick(name, flag, Vec::new, |words| Ok(words.list().map(str::to_owned).collect()))
        };
        Ok(CommandConfig {
            hide: paths("hide", &flags.hide)?,
            read_only: paths("read-only", &flags.read_only)?,
            env: sources.pick("sessions.env", env, Variables::default, |words| {
                let variables: Result<Vec<_>, _> = words.list().map(variable).collect();
                variables.map(Variables::of)
            })?,
            bind: sources.pick("sessions.bind", bind, Binds::default, |words| {
                Binds::of(words.paths_or_words(), data_dir)
            })?,
            timeout: time("sessions.timeout", flags.timeout)?,
            cpu: time("sessions.cpu", flags.cpu)?,
            memory: number("sessions.memory", flags.memory, amount::some_size)?,
            processes: number("sessions.processes", flags.processes, amount::count)?,
            file_size: number("sessions.file-size", flags.file_size, amount::size)?,
            open_files: number("sessions.open-files", flags.open_files, amount::count)?,
        })
    }

    /// The limits for each command of a session. They do not contain the limits on memory and
    /// processes, because these limits apply to a session as a whole.
    pub(crate) fn limits_of_session_command(&self) -> ExecLimits {
        ExecLimits { memory: None, processes: None, ..self.limits() }
    }

    /// The limits for each command outside of sessions.
    pub(crate) fn limits(&self) -> ExecLimits {
        ExecLimits {
            wall_time: self.timeout.value,
            cpu: self.cpu.value,
            memory: self.memory.value,
            processes: self.processes.value,
            file_size: self.file_size.value,
            open_files: self.open_files.value,
        }
    }
}

impl Variables {
    fn of(given: impl IntoIterator<Item = Variable>) -> Variables {
        Variables(given.into_iter().map(|Variable { name, value }| (name, value)).collect())
    }
}

impl Binds {
    /// Parses directories that are made visible to commands.
    ///
    /// # Errors
    ///
    /// Fails if a directory does not exist, or if the token of the server would become visible to
    /// commands.
    fn of(words: Vec<String>, data_dir: &Path) -> Result<Binds, String> {
        let data = fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let mount = |word: &String| {
            let (path, access) = match word.strip_suffix(":rw") {
                Some(path) => (path, HostDirectoryAccess::ReadWrite),
                None => (word.as_str(), HostDirectoryAccess::ReadOnly),
            };
            let real = fs::canonicalize(path).map_err(|error| format!("'{path}': {error}"))?;
            if !real.is_dir() {
                return Err(format!("'{path}' is not a directory"));
            }
            if real.starts_with(&data) || data.starts_with(&real) {
                let data = data.display();
                return Err(format!("'{path}' would show the data directory {data} to agents"));
            }
            Ok(SandboxMount { access, ..SandboxMount::read_only(real) })
        };
        let mounts = words.iter().map(mount).collect::<Result<Vec<_>, String>>()?;
        Ok(Binds { words, mounts })
    }
}

fn variable(text: &str) -> Result<Variable, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => {
            Ok(Variable { name: name.to_owned(), value: value.to_owned() })
        }
        _ => Err("must be KEY=VALUE".to_owned()),
    }
}
