//! `delete`: removes a file, a link, or a directory with its contents.

use ab_core::Backend;
use ab_core::options::RemoveOptions;

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::files_read_tracker::LedgerView;
use crate::quantity::counted;
use crate::used::shown;

pub(crate) async fn call(
    backend: &Backend,
    mut arguments: Arguments,
    ledger: Option<&LedgerView>,
) -> Outcome {
    let path = arguments.text("path")?;
    let options = if arguments.flag("recursive", false)? {
        RemoveOptions::recursive()
    } else {
        RemoveOptions::default()
    };
    let removed = backend.rm(&path, options).await?;
    if let Some(ledger) = ledger {
        ledger.forget(backend, &path);
    }
    let many = match removed.count {
        0 | 1 => String::new(),
        count => format!(" ({} in all)", counted(count as usize, "entry", "entries")),
    };
    let path = shown(backend, &path);
    Ok(ToolAnswer::text(format!("Successfully deleted {path}{many}"))
        .with("removed", removed.count))
}
