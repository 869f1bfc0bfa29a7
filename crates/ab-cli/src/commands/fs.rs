//! `fs`: works with the files of a workspace.

mod cat;
mod copy;
mod diff;
mod edit;
mod glob;
mod grep;
mod ls;
mod mkdir;
mod mv;
mod patch;
mod paths;
mod rm;
mod search;
mod stat;
mod touch;
mod transfer;
mod tree;
mod write;

use clap::{Args, Subcommand};

use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::progress::Wanted;
use crate::terminal::{Format, Terminal};
use crate::workspace::WorkspaceFlags;

const EXAMPLE: &str = "\
Example:
  agent-backend fs grep 'fn main' src";

/// Read and change the files of a workspace
///
/// Paths are relative to the root of the workspace. A path or a link that leads out of it is refused.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true, after_help = EXAMPLE)]
pub(crate) struct Fs {
    /// Print one JSON value, and errors as JSON
    #[arg(long, global = true)]
    json: bool,

    /// Print no notes and no progress
    #[arg(long, global = true)]
    quiet: bool,

    #[command(flatten)]
    workspace: WorkspaceFlags,

    #[command(subcommand)]
    command: FsCommand,
}

#[derive(Debug, Subcommand)]
enum FsCommand {
    Ls(ls::Ls),
    Tree(tree::Tree),
    Glob(glob::Glob),
    Grep(grep::Grep),
    Cat(cat::Cat),
    Write(write::Write),
    Edit(edit::Edit),
    Diff(diff::Diff),
    #[command(name = "cp")]
    Copy(copy::Copy),
    Mv(mv::Mv),
    Rm(rm::Rm),
    Get(transfer::Get),
    Put(transfer::Put),
    Mkdir(mkdir::Mkdir),
    Stat(stat::Stat),
    Touch(touch::Touch),
}

impl CliCommand for Fs {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        matches!(self.command, FsCommand::Write(_) | FsCommand::Get(_) | FsCommand::Put(_))
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(fs: Fs, terminal: &mut Terminal) -> Result<(), Failure> {
    let workspace = fs.workspace.open().await?;
    let backend = workspace.handle.clone();
    let wanted = Wanted::by(fs.quiet, terminal);
    if fs.quiet {
        terminal.silence_notes();
    }
    let ending = match &fs.command {
        FsCommand::Ls(command) => ls::run(command, &backend, terminal).await,
        FsCommand::Tree(command) => {
            tree::run(command, &backend, terminal).await.map_err(search::senseless)
        }
        FsCommand::Glob(command) => {
            glob::run(command, &backend, terminal).await.map_err(search::senseless)
        }
        FsCommand::Grep(command) => {
            grep::run(command, &backend, terminal).await.map_err(search::senseless)
        }
        FsCommand::Cat(command) => cat::run(command, &backend, wanted, terminal).await,
        FsCommand::Write(command) => {
            let input_options = write::InputOptions::of(fs.workspace.is_elsewhere()?, wanted);
            write::run(command, &backend, input_options, terminal).await
        }
        FsCommand::Edit(command) => edit::run(command, &backend, terminal).await,
        FsCommand::Diff(command) => diff::run(command, &backend, terminal).await,
        FsCommand::Copy(command) => copy::run(command, &backend, terminal).await,
        FsCommand::Get(command) => {
            let notes = !fs.quiet && !fs.json;
            transfer::interruptible(transfer::get(command, &backend, wanted, terminal), notes).await
        }
        FsCommand::Put(command) => {
            let notes = !fs.quiet && !fs.json;
            transfer::interruptible(transfer::put(command, &backend, wanted, terminal), notes).await
        }
        FsCommand::Rm(command) => rm::run(command, &backend, terminal).await,
        FsCommand::Mv(command) => mv::run(command, &backend, terminal).await,
        FsCommand::Mkdir(command) => mkdir::run(command, &backend, terminal).await,
        FsCommand::Stat(command) => stat::run(command, &backend, terminal).await,
        FsCommand::Touch(command) => touch::run(command, &backend, terminal).await,
    };
    ending.and(workspace.close().await)
}
