//! The commands, one file each: what may be typed after the name, and what happens then.

pub(crate) mod agent;
pub(crate) mod completions;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod fs;
pub(crate) mod input;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod ssh_proxy;
pub(crate) mod version;

use crate::arguments::Command;
use crate::failure::Failure;
use crate::terminal::Terminal;

pub(crate) async fn run(command: Command, terminal: &mut Terminal) -> Result<(), Failure> {
    match command {
        Command::Fs(command) => fs::run(*command, terminal).await,
        Command::Exec(command) => exec::run(*command, terminal).await,
        Command::Policy(command) => policy::run(*command, terminal).await,
        Command::Mcp(command) => mcp::run(*command).await,
        Command::Daemon(command) => daemon::run(*command).await,
        Command::Agent(command) => agent::run(command).await,
        Command::SshProxy(command) => ssh_proxy::run(command).await,
        Command::Doctor(command) => doctor::run(*command, terminal).await,
        Command::Version(command) => version::run(&command, terminal),
        Command::Completions(command) => completions::run(&command, terminal),
    }
}
