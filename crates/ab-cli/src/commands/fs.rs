//! `fs`: the files of a workspace.

mod cat;
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
mod tree;
mod write;

use clap::{Args, Subcommand};

use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::progress::Wanted;
use crate::terminal::{Format, Terminal};
use crate::workspace::WorkspaceFlags;

/// Read and change the files of a workspace
///
/// Paths are taken from the root of the workspace, or of the scope. No path and no link leads out
/// of it. Flags may stand before or after the paths.
#[derive(Args, Debug)]
#[command(arg_required_else_help = true)]
pub(crate) struct Fs {
    /// Print one JSON value, and errors as JSON
    #[arg(long, global = true)]
    json: bool,

    /// Show no progress of large transfers
    #[arg(long, global = true)]
    quiet: bool,

    #[command(flatten)]
    workspace: WorkspaceFlags,

    #[command(subcommand)]
    command: FsCommand,
}

impl Fs {}

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
    Rm(rm::Rm),
    Mv(mv::Mv),
    Mkdir(mkdir::Mkdir),
    Stat(stat::Stat),
    Touch(touch::Touch),
}

impl CliCommand for Fs {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn handles_signals(&self) -> bool {
        matches!(self.command, FsCommand::Write(_))
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(fs: Fs, terminal: &mut Terminal) -> Result<(), Failure> {
    let workspace = fs.workspace.open().await?;
    let backend = workspace.handle.clone();
    let wanted = Wanted::by(fs.quiet, terminal);
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
            let manner = write::Manner::of(fs.workspace.is_elsewhere()?, wanted);
            write::run(command, &backend, manner, terminal).await
        }
        FsCommand::Edit(command) => edit::run(command, &backend, terminal).await,
        FsCommand::Diff(command) => diff::run(command, &backend, terminal).await,
        FsCommand::Rm(command) => rm::run(command, &backend, terminal).await,
        FsCommand::Mv(command) => mv::run(command, &backend, terminal).await,
        FsCommand::Mkdir(command) => mkdir::run(command, &backend, terminal).await,
        FsCommand::Stat(command) => stat::run(command, &backend, terminal).await,
        FsCommand::Touch(command) => touch::run(command, &backend, terminal).await,
    };
    ending.and(workspace.close().await)
}
