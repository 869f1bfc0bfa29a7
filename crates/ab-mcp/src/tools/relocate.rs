//! `move_file`: moves a file or a directory.

use ab_core::Backend;

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::files_read_tracker::LedgerView;
use crate::used::shown;

pub(crate) async fn call(
    backend: &Backend,
    mut arguments: Arguments,
    ledger: Option<&LedgerView>,
) -> Outcome {
    let (source, destination) = (arguments.text("source")?, arguments.text("destination")?);
    let before = match ledger {
        Some(ledger) => ledger.before_move(backend, &source).await,
        None => None,
    };
    let renamed = backend.rename(&source, &destination).await?;
    if let Some(ledger) = ledger {
        ledger.moved(backend, &source, &destination, before).await;
    }
    let note = (!renamed.atomic).then(|| "it was copied, then removed".to_owned());
    let (source, destination) = (shown(backend, &source), shown(backend, &destination));
    Ok(ToolAnswer::noted(format!("Successfully moved {source} to {destination}"), note))
}
