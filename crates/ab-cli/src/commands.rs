//! The commands. Each file defines the arguments of one command and what the command does.
//!
//! To add a command, add a file with a [`CliCommand`], its `mod` line, and one line in
//! [`COMMANDS`].

pub(crate) mod agent;
pub(crate) mod approvals;
mod backup;
mod chat;
pub(crate) mod cleanup;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod draft;
pub(crate) mod exec;
pub(crate) mod fs;
pub(crate) mod input;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod remote_catalogue;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod space;
pub(crate) mod ssh_proxy;
pub(crate) mod task;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod webui;

use std::fmt;
use std::pin::Pin;

use clap::{ArgMatches, Args};

use crate::failure::Failure;
use crate::help;
use crate::terminal::{Format, Terminal};

/// Every command, in the order of the help text.
pub(crate) const COMMANDS: &[CommandEntry] = &[
    CommandEntry::of::<fs::Fs>("fs"),
    CommandEntry::of::<exec::Exec>("exec"),
    CommandEntry::of::<job::JobCommand>("job"),
    CommandEntry::of::<run::RunCommand>("run"),
    CommandEntry::of::<space::SpaceCommand>("space"),
    CommandEntry::of::<policy::Policy>("policy"),
    CommandEntry::of::<mcp::Mcp>("mcp"),
    CommandEntry::of::<daemon::Daemon>("daemon"),
    CommandEntry::of::<serve::Serve>("serve"),
    CommandEntry::of::<server::ServerCommand>("server"),
    CommandEntry::of::<webui::Webui>("webui"),
    CommandEntry::of::<task::TaskCommand>("task"),
    CommandEntry::of::<draft::DraftCommand>("draft"),
    CommandEntry::of::<session::SessionCommand>("session"),
    CommandEntry::of::<approvals::ApprovalsCommand>("approvals"),
    CommandEntry::of::<wait::Wait>("wait"),
    CommandEntry::of::<remote_catalogue::RemoteCommand>("remote"),
    CommandEntry::of::<key::KeyCommand>("key"),
    CommandEntry::of::<cleanup::Cleanup>("cleanup"),
    CommandEntry::of::<backup::Backup>("backup"),
    CommandEntry::of::<backup::Restore>("restore"),
    CommandEntry::of::<config::ConfigCommand>("config"),
    CommandEntry::of::<agent::Agent>("agent"),
    CommandEntry::of::<ssh_proxy::SshProxy>("ssh-proxy"),
    CommandEntry::of::<doctor::Doctor>("doctor"),
    CommandEntry::of::<version::Version>("version"),
    CommandEntry::of::<completions::Completions>("completions"),
];

/// A parsed command that can be run. The fields of the type are its arguments, and the doc comment
/// of the type is its help text.
pub(crate) trait CliCommand: fmt::Debug + Send {
    /// The output format of the command.
    fn format(&self) -> Format {
        Format::Text
    }

    /// Whether the command installs its own handlers for SIGINT and SIGTERM.
    fn handles_signals(&self) -> bool {
        false
    }

    /// Whether the command exits with the codes of the programs that it runs. Its own failures then
    /// have other codes.
    fn runs_programs(&self) -> bool {
        false
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_>;
}

/// The future that runs a command.
pub(crate) type RunningCommand<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// An entry of the command table: the name, the arguments, and how a command is built from them.
pub(crate) struct CommandEntry {
    pub(crate) name: &'static str,
    augment: fn(clap::Command) -> clap::Command,
    parse: fn(&ArgMatches) -> Result<Box<dyn CliCommand>, clap::Error>,
}

impl CommandEntry {
    const fn of<C: Args + CliCommand + 'static>(name: &'static str) -> Self {
        let parse = |matches: &ArgMatches| -> Result<Box<dyn CliCommand>, clap::Error> {
            Ok(Box::new(C::from_arg_matches(matches)?))
        };
        Self { name, augment: C::augment_args, parse }
    }

    /// The clap definition of the command and its arguments.
    pub(crate) fn definition(&self) -> clap::Command {
        help::shortened((self.augment)(clap::Command::new(self.name)))
    }

    pub(crate) fn parse(&self, matches: &ArgMatches) -> Result<Box<dyn CliCommand>, clap::Error> {
        (self.parse)(matches)
    }
}
