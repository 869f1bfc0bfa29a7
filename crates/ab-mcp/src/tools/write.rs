//! `write_file` and `create_directory`: write a file or create a directory.

use ab_core::Backend;

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::files_read_tracker::LedgerView;
use crate::used::shown;

pub(crate) async fn file(
    backend: &Backend,
    mut arguments: Arguments,
    ledger: Option<&LedgerView>,
) -> Outcome {
    let (path, content) = (arguments.text("path")?, arguments.text("content")?);
    match ledger {
        Some(ledger) => ledger.write(backend, &backend.parse_path(&path)?, content).await?,
        None => {
            backend.write(&path, content).await?;
        }
    }
    Ok(ToolAnswer::text(format!("Successfully wrote to {}", shown(backend, &path))))
}

pub(crate) async fn directory(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let path = arguments.text("path")?;
    backend.mkdir(&path).await?;
    Ok(ToolAnswer::text(format!("Successfully created directory {}", shown(backend, &path))))
}
