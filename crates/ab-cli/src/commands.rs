//! The commands, one file each: what may be typed after the name, and what happens then.

pub(crate) mod agent;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod fs;
pub(crate) mod input;
pub(crate) mod mcp;
pub(crate) mod policy;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod ssh_proxy;
pub(crate) mod task;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod webui;

use std::pin::Pin;

use crate::arguments::Command;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// A command at work.
type Running<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

pub(crate) async fn run(command: Command, terminal: &mut Terminal) -> Result<(), Failure> {
    // Boxed: the compiler cannot prove that all of them together may change threads.
    let running: Running<'_> = match command {
        Command::Fs(command) => Box::pin(fs::run(*command, terminal)),
        Command::Exec(command) => Box::pin(exec::run(*command, terminal)),
        Command::Policy(command) => Box::pin(policy::run(*command, terminal)),
        Command::Mcp(command) => Box::pin(mcp::run(*command)),
        Command::Daemon(command) => Box::pin(daemon::run(*command)),
        Command::Serve(command) => Box::pin(serve::run(*command)),
        Command::Webui(command) => Box::pin(webui::run(*command, terminal)),
        Command::Task(command) => Box::pin(task::run(*command, terminal)),
        Command::Session(command) => Box::pin(session::run(*command, terminal)),
        Command::Wait(command) => Box::pin(wait::run(command, terminal)),
        Command::Agent(command) => Box::pin(agent::run(command)),
        Command::SshProxy(command) => Box::pin(ssh_proxy::run(command)),
        Command::Doctor(command) => Box::pin(doctor::run(*command, terminal)),
        Command::Config(command) => return config::run(command, terminal),
        Command::Version(command) => return version::run(&command, terminal),
        Command::Completions(command) => return completions::run(&command, terminal),
    };
    running.await
}
