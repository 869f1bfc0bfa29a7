//! `backup` and `restore`: copies of a server's data directory.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{CliCommand, RunningCommand};
use crate::backup::{self, BackupReport};
use crate::config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Format, Terminal, talk};

const BACKUP_EXAMPLES: &str = "\
Examples:
  agent-backend backup /backups/ab.tar.gz
  agent-backend backup /backups/ab        # a directory
  agent-backend restore /backups/ab.tar.gz --data-dir /srv/agent-backend

A backup contains the token and the keys of the server: keep it private. It does
not contain installed agents, or caches that no workspace needs.";

const RESTORE_EXAMPLES: &str = "\
Examples:
  agent-backend restore ab.tar.gz --data-dir /srv/agent-backend
  agent-backend serve --data-dir /srv/agent-backend

When the server starts, it continues the sessions that were running at the time
of the backup, as after a restart. Install agents again with
`agent-backend agent install`.";

/// Back up the data of a server; the server can keep running
///
/// The backup contains the database, the workspaces, the keys and the token. If the name ends in .tar, .tar.gz, .tgz,
/// .tar.zst or .tar.xz, the backup is an archive; otherwise it is a directory. Only its owner can read it. The file or
/// directory appears when the backup is complete.
#[derive(Args, Debug)]
#[command(after_help = BACKUP_EXAMPLES)]
pub(crate) struct Backup {
    /// Archive or directory to create
    #[arg(value_name = "FILE|DIR")]
    to: PathBuf,

    /// Data directory of the server
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Restore a backup into an empty data directory
///
/// The backup is checked first. The directory must not be in use by a server.
#[derive(Args, Debug)]
#[command(after_help = RESTORE_EXAMPLES)]
pub(crate) struct Restore {
    /// Archive or directory with the backup
    #[arg(value_name = "FILE|DIR")]
    from: PathBuf,

    /// Data directory to restore into; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl CliCommand for Backup {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(async move {
            let data_dir = config::data_dir(self.data_dir.as_deref())?;
            let mut step = steps(terminal);
            let report = backup::make(&data_dir, &self.to, &mut step).await?;
            show(&report, "backed up", terminal)
        })
    }
}

impl CliCommand for Restore {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(async move {
            let data_dir = config::data_dir(Some(&self.data_dir))?;
            let mut step = steps(terminal);
            let report = backup::restore(&self.from, &data_dir, &mut step).await?;
            show(&report, "restored", terminal)
        })
    }
}

/// Returns a function that prints the current step for a person.
fn steps(terminal: &Terminal) -> impl FnMut(&str) + Send + use<> {
    let is_heard = terminal.is_heard() && terminal.format() == Format::Text;
    move |what| {
        if is_heard {
            talk(&format!("{what}\n"));
        }
    }
}

fn show(report: &BackupReport, act: &str, terminal: &mut Terminal) -> Result<(), Failure> {
    match terminal.format() {
        Format::Json => terminal.value(&json!(report))?,
        Format::Text => {
            let BackupReport { path, sessions, workspaces, .. } = report;
            let line = format!("{act} {sessions} sessions and {workspaces} workspaces: {path}");
            let line = terminal.shown(&line).into_owned();
            terminal.line(&line)?;
        }
    }
    for problem in &report.problems {
        talk(&format!("warning: {}\n", ab_core::error::escape_unprintable(problem)));
    }
    if report.problems.is_empty() { Ok(()) } else { Err(Failure::Told(Exit::Failed)) }
}
