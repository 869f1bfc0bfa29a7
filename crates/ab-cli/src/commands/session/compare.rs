//! Compares sessions: the cost, the result and the changes of each.

use std::collections::BTreeMap;

use ab_api::{Session, SessionStatus};
use agent_backend::ServeClient;
use agent_backend::serve_client::SessionQuery;
use serde_json::json;

use super::shortened;
use crate::failure::Failure;
use crate::follow::lines;
use crate::session_ref::SessionRef;
use crate::terminal::{Format, Terminal};

/// Maximum number of characters of a session id in a column heading.
const SHOWN_ID: usize = 12;
/// Number of characters of a commit that are shown.
const SHOWN_COMMIT: usize = 10;

/// A session with the lines that it added to and removed from each file.
struct Column {
    session: Session,
    files: BTreeMap<String, (u64, u64)>,
}

pub(super) async fn run(
    client: &ServeClient,
    ids: &[SessionRef],
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut sessions = Vec::new();
    for id in ids {
        let id = id.find(client).await?;
        sessions.push(client.session(id).await?);
    }
    if let [only] = sessions.as_slice()
        && let Some(group) = only.task_group
    {
        let query = SessionQuery {
            task_id: Some(group.id),
            per_page: Some(200),
            ..SessionQuery::default()
        };
        sessions = client.sessions(&query).await?.items;
        sessions.sort_by_key(|session| session.task_group.map(|group| group.number));
    }
    let mut columns = Vec::new();
    for session in sessions {
        // A session that has no workspace has no changes.
        let has_files = session.workspace.mount_path.is_some() || session.status.is_terminal();
        let diff = if has_files { client.session_diff(session.id).await.ok() } else { None };
        let files = diff.map(|diff| changed_files(&String::from_utf8_lossy(&diff)));
        columns.push(Column { session, files: files.unwrap_or_default() });
    }
    match terminal.format() {
        Format::Json => {
            let items: Vec<_> = columns.iter().map(as_json).collect();
            terminal.value(&json!({ "sessions": items }))
        }
        Format::Text => {
            for line in table(&columns).lines() {
                let line = terminal.shown(line).into_owned();
                terminal.line(&line)?;
            }
            Ok(())
        }
    }
}

fn as_json(column: &Column) -> serde_json::Value {
    let Column { session, files } = column;
    let files: Vec<_> = files
        .iter()
        .map(|(path, (added, removed))| {
            json!({ "path": path, "linesAdded": added, "linesRemoved": removed })
        })
        .collect();
    json!({
        "sessionId": session.id,
        "agent": session.agent,
        "status": session.status,
        "endReason": session.end_reason,
        "usage": session.usage,
        "budgetReached": reached_budget(session),
        "changes": session.changes,
        "baseCommit": session.vcs.base_commit,
        "deliveredBranch": session.vcs.delivered_branch,
        "files": files,
    })
}

/// The limit of its budget that a session reached, if it reached one.
fn reached_budget(session: &Session) -> Option<String> {
    session.budget?.describe_exceeded_limit(&session.budget_start, &session.usage)
}

/// What a session has used, as text. `None` if nothing is known.
pub(super) fn usage_text(session: &Session) -> Option<String> {
    let usage = &session.usage;
    let turns = match usage.turns {
        0 => return None,
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    };
    let seconds =
        (usage.wall_millis > 0).then(|| format!("{} s", usage.wall_millis.div_ceil(1000)));
    let tokens = usage.total_tokens().map(|tokens| format!("{tokens} tokens"));
    let cost = usage.cost_micros.map(|micros| format!("${:.2}", micros as f64 / 1e6));
    let parts: Vec<String> = [Some(turns), seconds, tokens, cost].into_iter().flatten().collect();
    Some(parts.join(", "))
}

/// For each file, the numbers of lines that a unified diff adds and removes.
fn changed_files(diff: &str) -> BTreeMap<String, (u64, u64)> {
    let mut files = BTreeMap::<String, (u64, u64)>::new();
    let (mut current, mut is_body) = (None::<String>, false);
    for line in diff.lines() {
        if let Some(names) = line.strip_prefix("diff --git ") {
            // The two names are equal unless the file was renamed.
            let name = names.rsplit_once(" b/").map_or(names, |(_, name)| name);
            files.entry(name.to_owned()).or_default();
            (current, is_body) = (Some(name.to_owned()), false);
        } else if line.starts_with("@@") {
            is_body = true;
        } else if let Some(counts) = current.as_ref().and_then(|name| files.get_mut(name))
            && is_body
        {
            counts.0 += u64::from(line.starts_with('+'));
            counts.1 += u64::from(line.starts_with('-'));
        }
    }
    files
}

fn table(columns: &[Column]) -> String {
    let short = |session: &Session| {
        let id = session.id.to_string();
        // Use the end of the id, because the beginning is equal for sessions that were created at
        // the same time.
        id.get(id.len().saturating_sub(SHOWN_ID)..).unwrap_or(&id).to_owned()
    };
    let row = |name: &str, cell: &dyn Fn(&Session) -> String| {
        let cells = columns.iter().map(|column| cell(&column.session));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let status = |session: &Session| match (session.status, &session.end_detail) {
        (SessionStatus::Failed, Some(detail)) => format!("failed: {}", shortened(detail)),
        (status, _) => status.to_string(),
    };
    let missing = || "-".to_owned();
    let base = |session: &Session| {
        let commit = session.vcs.base_commit.as_deref();
        commit
            .map_or_else(missing, |commit| commit.get(..SHOWN_COMMIT).unwrap_or(commit).to_owned())
    };
    let mut rows = vec![
        row("session", &|session| format!("…{}", short(session))),
        row("agent", &|session| format!("{} {}", session.agent.kind, session.agent.version)),
        row("status", &status),
        row("base", &base),
        row("used", &|session| usage_text(session).unwrap_or_else(missing)),
        row("changes", &|session| session.changes.map_or_else(missing, lines::changes_text)),
        row("budget", &|session| reached_budget(session).unwrap_or_else(missing)),
        row("delivered", &|session| session.vcs.delivered_branch.clone().unwrap_or_else(missing)),
    ];
    let mut paths: Vec<&String> = columns.iter().flat_map(|column| column.files.keys()).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        let cell = |column: &Column| match column.files.get(path) {
            Some((added, removed)) => format!("+{added} -{removed}"),
            None => missing(),
        };
        rows.push(std::iter::once(path.clone()).chain(columns.iter().map(cell)).collect());
    }
    let mut widths = vec![0; columns.len() + 1];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_diff_are_counted_by_file() {
        let diff = "diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n+\n\
                    diff --git a/old name b/new name\nrename from old name\nrename to new name\n\
                    diff --git a/bin b/bin\nBinary files differ\n";
        let files = changed_files(diff);
        let expect = [("a", (2, 1)), ("bin", (0, 0)), ("new name", (0, 0))];
        assert_eq!(files, expect.map(|(name, counts)| (name.to_owned(), counts)).into());
    }
}
