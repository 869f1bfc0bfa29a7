//! `agent`: lists, installs and runs coding agents. The scripted agent is built into this program.

pub(crate) mod catalog;

use std::path::{Path, PathBuf};

use ab_acp::scripted_agent::{self, AgentScenario, ScriptedAgentExit, ScriptedAgentSettings};
use ab_core::{Error, ErrorCode, ErrorKind};
use clap::{Args, Subcommand};

use self::catalog::{Install, List, Show};
use super::chat::{self, Chat};
use super::input;
use super::serve::{self, Serve};
use super::{CliCommand, RunningCommand};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::stdio;
use crate::terminal::{Format, Terminal};

/// The path of the scenario file in a repository.
const OF_REPOSITORY: &str = ".agent-backend/scenario.toml";

/// The environment variable that contains a scenario. The setting `scenario` of a task sets it.
const SCENARIO_VARIABLE: &str = "SCRIPTED_AGENT_SCENARIO";

/// List, install and run coding agents
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct Agent {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    Chat(Box<Chat>),
    List(List),
    Show(Show),
    Install(Install),
    Script(Script),
    /// The same as `agent-backend serve`
    AccessPoint(Box<Serve>),
}

/// Run the scripted agent, which plays a scenario and uses no model
///
/// The agent speaks the Agent Client Protocol (ACP). Without FILE, it plays the scenario in the environment variable
/// SCRIPTED_AGENT_SCENARIO, or in .agent-backend/scenario.toml of the current directory. If there is no scenario, it sends a
/// plan, asks for permission, writes NOTES.md, runs ls, and reports. It stores its sessions in the home directory.
/// In the source repository, docs/scripted-agent.md describes scenarios.
#[derive(Args, Debug)]
struct Script {
    /// File with a scenario, in TOML
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl CliCommand for Agent {
    fn format(&self) -> Format {
        Format::from_flag(match &self.command {
            AgentCommand::Chat(chat) => chat.json,
            AgentCommand::List(list) => list.json,
            AgentCommand::Show(show) => show.json,
            AgentCommand::Install(install) => install.json,
            AgentCommand::Script(_) | AgentCommand::AccessPoint(_) => false,
        })
    }

    fn handles_signals(&self) -> bool {
        matches!(
            self.command,
            AgentCommand::Chat(_) | AgentCommand::Script(_) | AgentCommand::AccessPoint(_)
        )
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(agent: Agent, terminal: &mut Terminal) -> Result<(), Failure> {
    match agent.command {
        AgentCommand::Chat(chat) => chat::run(*chat, terminal).await,
        AgentCommand::List(list) => catalog::list(&list, terminal),
        AgentCommand::Show(show) => catalog::show(&show, terminal),
        AgentCommand::Install(install) => catalog::install(install, terminal).await,
        AgentCommand::Script(script) => scripted(script).await,
        AgentCommand::AccessPoint(serve) => serve::run(*serve).await,
    }
}

async fn scripted(script: Script) -> Result<(), Failure> {
    let of_repository = Path::new(OF_REPOSITORY);
    let is_unnamed = script.file.is_none();
    let file = script.file.or_else(|| of_repository.is_file().then(|| of_repository.to_owned()));
    let variable = std::env::var(SCENARIO_VARIABLE).ok().filter(|_| is_unnamed);
    let scenario = match (&variable, &file) {
        (Some(text), _) => AgentScenario::parse(text)
            .map_err(|error| Failure::usage(format!("{SCENARIO_VARIABLE}: {error}")))?,
        (None, Some(path)) => {
            let text = String::from_utf8(input::file(path)?)
                .map_err(|_| Failure::usage(format!("{} is not valid UTF-8", path.display())))?;
            let read = AgentScenario::parse(&text);
            read.map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?
        }
        (None, None) => {
            AgentScenario::built_in().map_err(|error| Failure::usage(error.to_string()))?
        }
    };
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let Some(home) = home.map(PathBuf::from) else {
        return Err(Failure::usage("HOME is not set, but the agent stores its sessions there"));
    };
    let (input, output) = stdio::streams();
    let mut signals = Signals::watch();
    tokio::select! {
        end = scripted_agent::run_scripted_agent(input, output, ScriptedAgentSettings { scenario, home }) => match end {
            ScriptedAgentExit::Finished => Ok(()),
            ScriptedAgentExit::Exit(code) => Err(Failure::Told(Exit::Command(code))),
            ScriptedAgentExit::MessageTooLong { limit } => {
                let message = format!("the client sent a message of more than {limit} bytes");
                Err(Failure::from(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message)))
            }
        },
        exit = signals.next() => Err(Failure::Told(exit)),
    }
}
