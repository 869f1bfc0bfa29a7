//! `policy`: shows what the rules decide about a command, without running the command.

pub(crate) mod check;
mod examples;
mod list;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ab_core::Error;
use agent_backend::policy::{CommandPolicySettings, PolicyProfile, PolicyRuleFile};
use clap::{Args, Subcommand, ValueEnum};

use super::{CliCommand, RunningCommand};
use crate::approver::TerminalApprover;
use crate::commands::input;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const EXAMPLE: &str = "\
Example:
  agent-backend policy check 'cd src && make'";

/// Show which commands the rules allow, and why
///
/// Command lines are parsed as shell code, and every part is judged. The rules catch mistakes. They
/// cannot stop a malicious program: that needs a sandbox, see `agent-backend doctor`.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true, after_help = EXAMPLE)]
pub(crate) struct Policy {
    /// Print one JSON value, and errors as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    Check(Box<check::Check>),
    Rules(list::List),
    Test(examples::Examples),
}

impl CliCommand for Policy {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(policy: Policy, terminal: &mut Terminal) -> Result<(), Failure> {
    match &policy.command {
        PolicyCommand::Check(command) => check::run(command, terminal).await,
        PolicyCommand::Rules(command) => list::run(command, terminal),
        PolicyCommand::Test(command) => examples::run(command, terminal),
    }
}

/// Which rules hold.
#[derive(Args, Debug)]
#[command(next_help_heading = "Rules")]
pub(crate) struct RuleFlags {
    /// Built-in rules to apply
    ///
    /// guarded judges every command of a line, refuses dangerous commands, and asks about commands that it cannot judge.
    /// strict allows only one simple command at a time, and refuses a command if guarded asks about it. off applies no rules.
    #[arg(
        long,
        visible_alias = "safety",
        value_enum,
        default_value = "guarded",
        value_name = "PROFILE"
    )]
    profile: ProfileChoice,

    /// File with more rules, in TOML or JSON
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProfileChoice {
    Guarded,
    Strict,
    Off,
}

impl From<ProfileChoice> for PolicyProfile {
    fn from(choice: ProfileChoice) -> Self {
        match choice {
            ProfileChoice::Guarded => PolicyProfile::Guarded,
            ProfileChoice::Strict => PolicyProfile::Strict,
            ProfileChoice::Off => PolicyProfile::Off,
        }
    }
}

impl ProfileChoice {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ProfileChoice::Guarded => "guarded",
            ProfileChoice::Strict => "strict",
            ProfileChoice::Off => "off",
        }
    }
}

impl RuleFlags {
    /// The first given flag that changes the rules. These flags cannot be used for a remote
    /// workspace, because its daemon has its own rules.
    pub(crate) fn made_here(&self) -> Option<&'static str> {
        match (self.profile, &self.rules) {
            (_, Some(_)) => Some("--rules"),
            (ProfileChoice::Strict | ProfileChoice::Off, None) => Some("--profile"),
            (ProfileChoice::Guarded, None) => None,
        }
    }

    pub(crate) fn profile_name(&self) -> &'static str {
        self.profile.as_str()
    }

    fn profile(&self) -> PolicyProfile {
        self.profile.into()
    }

    fn own(&self) -> Result<PolicyRuleFile, Failure> {
        match &self.rules {
            Some(path) => rules_in(path, &text_of(path)?),
            None => Ok(PolicyRuleFile::default()),
        }
    }

    /// Loads the rules. An invalid file is a usage error, because verdicts use other exit codes.
    fn load(&self) -> Result<agent_backend::CommandPolicy, Failure> {
        let load = || self.proven(&self.own()?);
        load().map_err(Failure::into_usage)
    }

    fn proven(&self, own: &PolicyRuleFile) -> Result<agent_backend::CommandPolicy, Failure> {
        let loaded = agent_backend::CommandPolicy::with_user_rules(self.profile(), own);
        loaded.map_err(|error| match &self.rules {
            Some(path) => in_file(path, error),
            None => error.into(),
        })
    }

    /// Policy settings for commands that are about to run. Questions are asked at the terminal.
    pub(crate) fn policy(&self, terminal: &Terminal) -> Result<CommandPolicySettings, Failure> {
        let own = self.own().map_err(Failure::into_usage)?;
        if self.rules.is_some() {
            self.proven(&own).map_err(Failure::into_usage)?;
        }
        Ok(CommandPolicySettings {
            profile: self.profile(),
            rules: own,
            approver: Arc::new(TerminalApprover::new(terminal.format())),
            document: None,
        })
    }

    /// Policy settings for commands that run where no person can be asked.
    pub(crate) fn unattended(&self) -> Result<CommandPolicySettings, Failure> {
        let (profile, rules) = (self.profile(), self.own()?);
        Ok(CommandPolicySettings { profile, rules, ..CommandPolicySettings::default() })
    }
}

/// Reads a rule file with the profile that sessions use.
pub(crate) fn read_rules(path: &Path) -> Result<PolicyRuleFile, String> {
    let flags = RuleFlags { profile: ProfileChoice::Guarded, rules: Some(path.to_owned()) };
    let own = flags.own().and_then(|own| flags.proven(&own).map(|_| own));
    own.map_err(|failure| match failure.error() {
        Some(error) => error.to_string(),
        None => format!("cannot read {}", path.display()),
    })
}

fn rules_in(path: &Path, text: &str) -> Result<PolicyRuleFile, Failure> {
    PolicyRuleFile::parse(text).map_err(|error| in_file(path, error))
}

/// Adds the path of the file to an error.
fn in_file(path: &Path, error: Error) -> Failure {
    let message = format!("{}: {}", path.display(), error.message());
    Error::new(error.code(), error.kind(), message).with_source(error).into()
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let bytes = input::file(path)?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{} is not valid UTF-8", path.display())))
}
