//! `session audit`: lists which caller did what to a session.

use ab_api::{AuditEntry, SessionId};
use agent_backend::ServeClient;
use serde_json::json;

use crate::failure::Failure;
use crate::table;
use crate::terminal::{Format, Terminal};

/// Maximum number of characters of a text in the table.
const MAX_SHOWN: usize = 60;

/// Prints all entries, oldest first. As JSON, each entry is on its own line.
pub(super) async fn show(
    client: &ServeClient,
    id: SessionId,
    terminal: &mut Terminal,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut next = Some(1);
    while let Some(page) = next {
        let part = client.audit(id, page).await?;
        next = part.next_page;
        match terminal.format() {
            Format::Json => {
                for entry in part.items {
                    terminal.line(&json!(entry).to_string())?;
                }
            }
            Format::Text => rows.extend(part.items.into_iter().map(row)),
        }
    }
    match terminal.format() {
        Format::Json => Ok(()),
        Format::Text if rows.is_empty() => {
            terminal.note("nothing is recorded");
            Ok(())
        }
        Format::Text => table::print(
            ["TIME", "ACTOR", "ACTION", "OUTCOME", "SUBJECT", "DETAIL"],
            &rows,
            terminal,
        ),
    }
}

fn row(entry: AuditEntry) -> [String; 6] {
    let outcome = if entry.success { "ok" } else { "failed" };
    let short = |text: Option<String>| {
        let text = text.unwrap_or_default();
        let mut shown: String = text.chars().take(MAX_SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        shown
    };
    [
        entry.at.to_string(),
        entry.actor,
        entry.action,
        outcome.to_owned(),
        short(entry.subject),
        short(entry.detail),
    ]
}
