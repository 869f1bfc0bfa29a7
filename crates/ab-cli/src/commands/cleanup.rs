//! `cleanup`: removes what the retention settings of a server allow to remove, and shows the disk
//! use.

use ab_api::{CleanupReport, StorageUse};
use clap::Args;
use serde_json::json;

use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::progress::size;
use crate::server::ServerFlags;
use crate::table;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  agent-backend cleanup --dry-run   # what would be removed
  agent-backend cleanup

The server does the same at its start and every ten minutes. The table
[retention] of its configuration file sets how long things are kept.";

/// Remove old workspaces, caches and sessions of a server now
///
/// Files that a running session uses are kept. A workspace with changes that were not delivered is kept until its
/// retention time ends.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cleanup {
    /// Remove nothing, and show what would be removed
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerFlags,
}

impl CliCommand for Cleanup {
    fn format(&self) -> Format {
        Format::from_flag(self.json)
    }

    fn run(self: Box<Self>, terminal: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self, terminal))
    }
}

async fn run(command: Cleanup, terminal: &mut Terminal) -> Result<(), Failure> {
    let client = command.server.client()?;
    let report =
        if command.dry_run { client.preview_clean_up().await? } else { client.clean_up().await? };
    if terminal.format() == Format::Json {
        return terminal.value(&json!(report));
    }
    show(&report, terminal)
}

fn show(report: &CleanupReport, terminal: &mut Terminal) -> Result<(), Failure> {
    let workspaces = report.workspaces.iter().map(|removed| {
        let session = removed.session_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        ["workspace".to_owned(), session, size(removed.bytes), removed.reason.as_str().to_owned()]
    });
    let caches = report.caches.iter().map(|removed| {
        let reason = removed.reason.as_str().to_owned();
        ["cache".to_owned(), removed.name.clone(), size(removed.bytes), reason]
    });
    let rows: Vec<[String; 4]> = workspaces.chain(caches).collect();
    if !rows.is_empty() {
        table::print(["WHAT", "SESSION", "SIZE", "WHY"], &rows, terminal)?;
    }
    let act = if report.dry_run { "would remove" } else { "removed" };
    let counts = [
        (report.workspaces.len() as u64, "workspaces"),
        (report.caches.len() as u64, "caches"),
        (report.sessions, "sessions"),
        (report.runs, "runs"),
    ];
    let counts: Vec<String> =
        counts.iter().map(|(count, what)| format!("{count} {what}")).collect();
    terminal.line(&format!("{act} {}", counts.join(", ")))?;
    for line in storage_lines(&report.storage) {
        terminal.line(&line)?;
    }
    for problem in &report.problems {
        let problem = terminal.shown(problem).into_owned();
        terminal.note(&problem);
    }
    Ok(())
}

fn storage_lines(storage: &StorageUse) -> [String; 3] {
    let StorageUse { workspaces_bytes, caches_bytes, database_bytes, limit_bytes, free_bytes } =
        *storage;
    let limit =
        limit_bytes.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {}", size(limit)));
    let free = free_bytes.map_or_else(|| "unknown".to_owned(), size);
    [
        format!("workspaces {}, caches {}, {limit}", size(workspaces_bytes), size(caches_bytes)),
        format!("database {}", size(database_bytes)),
        format!("free on the disk {free}"),
    ]
}
