//! What may be typed: the commands, and the refusal of anything else.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::json;

use crate::commands::{
    agent, completions, config, daemon, doctor, exec, fs, mcp, policy, serve, session, ssh_proxy,
    task, version, wait, webui,
};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::json;
use crate::terminal::{Format, talk};

const SHORT_AFTER_HELP: &str = "Examples and exit codes: agent-backend --help";

const LONG_AFTER_HELP: &str = "\
Examples:
  agent-backend fs write notes/plan.md --content 'look around'
  agent-backend fs edit notes/plan.md --old around --new closer
  agent-backend fs tree --root ../project --depth 2
  agent-backend fs grep 'fn main' src --include '*.rs' -C 2
  agent-backend fs glob '**/*.toml' --exclude vendor
  agent-backend fs cat src/main.rs --offset 100 --limit 50 -n
  agent-backend fs diff old.toml new.toml
  agent-backend fs stat src/main.rs --json
  agent-backend fs ls --remote wss://box.example/ssh --token-file token
  agent-backend exec --timeout 5m -- 'make test'
  agent-backend policy check 'cd src && make'
  agent-backend mcp --root ../project
  agent-backend daemon --rootDir ../project
  agent-backend serve
  agent-backend task 'Fix the failing test' --follow
  agent-backend doctor

Data goes to standard output, everything else to standard error. With --json, standard output is
one JSON value, and an error is {\"error\": {\"code\", \"kind\", \"message\", \"path\", \"hint\"}} on
standard error.

Exit codes:
  0    done
  1    it failed, or the answer is no: not found, conflict, no match, different, permission denied
  2    the command line makes no sense
  3    refused: the path leaves the workspace or is no path, or a rule forbids it
  4    unavailable: something is missing, closed, too slow or not implemented
  70   a bug in agent-backend
  130  interrupted (143: terminated)

exec ends as its command does; see agent-backend exec --help.";

/// A place for AI agents to work, and control over that work for people.
#[derive(Debug, Parser)]
#[command(
    name = "agent-backend",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = SHORT_AFTER_HELP,
    after_long_help = LONG_AFTER_HELP
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands that are started often and stay. They are read without the flags of all others,
/// which would cost each of them time and memory.
#[derive(Debug, Parser)]
#[command(name = "agent-backend", version, max_term_width = 100)]
struct Servers {
    #[command(subcommand)]
    command: Server,
}

#[derive(Debug, Subcommand)]
enum Server {
    Mcp(Box<mcp::Mcp>),
    Daemon(Box<daemon::Daemon>),
}

impl From<Server> for Command {
    fn from(server: Server) -> Self {
        match server {
            Server::Mcp(mcp) => Command::Mcp(mcp),
            Server::Daemon(daemon) => Command::Daemon(daemon),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Fs(Box<fs::Fs>),
    Exec(Box<exec::Exec>),
    Policy(Box<policy::Policy>),
    Mcp(Box<mcp::Mcp>),
    Daemon(Box<daemon::Daemon>),
    Serve(Box<serve::Serve>),
    Webui(Box<webui::Webui>),
    Task(Box<task::TaskCommand>),
    Session(Box<session::SessionCommand>),
    Wait(wait::Wait),
    Config(config::ConfigCommand),
    Agent(agent::Agent),
    SshProxy(ssh_proxy::SshProxy),
    Doctor(Box<doctor::Doctor>),
    Version(version::Version),
    Completions(completions::Completions),
}

impl Command {
    pub(crate) fn format(&self) -> Format {
        match self {
            Command::Fs(fs) => Format::from_flag(fs.json),
            Command::Exec(exec) => Format::from_flag(exec.json),
            Command::Policy(policy) => Format::from_flag(policy.json),
            Command::Task(task) => Format::from_flag(task.json),
            Command::Session(session) => Format::from_flag(session.json),
            Command::Webui(webui) => Format::from_flag(webui.json),
            Command::Wait(wait) => Format::from_flag(wait.json),
            Command::Config(config) => Format::from_flag(config.json),
            Command::Doctor(doctor) => Format::from_flag(doctor.json),
            Command::Version(version) => Format::from_flag(version.json),
            Command::Mcp(_)
            | Command::Daemon(_)
            | Command::Serve(_)
            | Command::Agent(_)
            | Command::SshProxy(_)
            | Command::Completions(_) => Format::Text,
        }
    }
}

impl Command {
    /// Whether interrupts are the command's own business: it passes them on.
    pub(crate) fn minds_interrupts(&self) -> bool {
        match self {
            Command::Exec(_)
            | Command::Mcp(_)
            | Command::Daemon(_)
            | Command::Serve(_)
            | Command::Webui(_)
            | Command::Agent(_)
            | Command::SshProxy(_) => true,
            Command::Fs(fs) => fs.minds_interrupts(),
            Command::Task(task) => task.is_following(),
            Command::Session(session) => session.is_following(),
            Command::Policy(_)
            | Command::Wait(_)
            | Command::Config(_)
            | Command::Doctor(_)
            | Command::Version(_)
            | Command::Completions(_) => false,
        }
    }
}

/// Help that was asked for, or arguments that make no sense.
#[derive(Debug)]
pub(crate) struct Refusal {
    error: clap::Error,
    format: Format,
    exit: Exit,
}

pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Arguments, Refusal> {
    let arguments = completed(arguments.collect());
    let refuse =
        |error| Refusal { error, format: wanted_format(&arguments), exit: usage_exit(&arguments) };
    let word = arguments.get(1).and_then(|argument| argument.to_str());
    if matches!(word, Some("daemon" | "mcp")) {
        let matches = Servers::command().try_get_matches_from(&arguments).map_err(refuse)?;
        let servers = Servers::from_arg_matches(&matches).map_err(refuse)?;
        return Ok(Arguments { command: servers.command.into() });
    }
    let matches = Arguments::command().try_get_matches_from(&arguments).map_err(refuse)?;
    Arguments::from_arg_matches(&matches).map_err(refuse)
}

/// Clients that keep a workspace in memory start us with flags alone and speak over our standard
/// input and output.
fn completed(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let flag = arguments.get(1).and_then(|argument| argument.to_str()).unwrap_or_default();
    if flag == "--backend" || flag.starts_with("--backend=") {
        arguments.splice(1..1, ["daemon", "--local-only"].map(OsString::from));
    }
    arguments
}

/// The daemon's clients know one exit code for flags that make no sense.
fn usage_exit(arguments: &[OsString]) -> Exit {
    if arguments.get(1).is_some_and(|argument| argument == "daemon") {
        Exit::Failed
    } else {
        Exit::Usage
    }
}

impl Refusal {
    pub(crate) fn print(&self) -> Exit {
        let asked_for =
            matches!(self.error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        if asked_for {
            return match self.error.print() {
                Ok(()) => Exit::Success,
                Err(error) => Failure::output(error).exit(),
            };
        }
        match self.format {
            // Standard error may be closed; then there is nobody to tell.
            Format::Text => drop(self.error.print()),
            Format::Json => talk(&format!("{}\n", self.as_json())),
        }
        self.exit
    }

    fn as_json(&self) -> serde_json::Value {
        let text = self.error.render().to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let failure = Failure::usage(message).with_hint("see agent-backend help");
        json!({ "error": failure.error().map(json::error) })
    }
}

/// The format that was asked for by arguments that could not be parsed.
fn wanted_format(arguments: &[OsString]) -> Format {
    let mut flags = arguments.iter().take_while(|argument| *argument != "--");
    Format::from_flag(flags.any(|argument| argument == "--json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
        Servers::command().debug_assert();
    }

    #[test]
    fn servers_are_the_same_beside_all_others_and_alone() {
        for name in ["daemon", "mcp"] {
            let help = |mut all: clap::Command| {
                all.build();
                all.find_subcommand_mut(name).unwrap().render_long_help().to_string()
            };
            assert_eq!(help(Servers::command()), help(Arguments::command()), "{name}");
        }
    }

    #[test]
    fn a_refusal_speaks_the_format_that_was_asked_for() {
        for (line, format) in [
            ("agent-backend fs nonsense", Format::Text),
            ("agent-backend fs nonsense --json", Format::Json),
            ("agent-backend fs cat -- --json --root", Format::Text),
        ] {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(wanted_format(&arguments), format, "{line}");
        }
        let line = ["agent-backend", "fs", "mv", "a", "--json"].map(OsString::from);
        let refusal = parse(line.into_iter()).unwrap_err();
        let value = refusal.as_json();
        assert_eq!(value["error"]["code"], "INVALID_CONFIGURATION");
        let message = value["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("required arguments"), "{message}");
    }
}
