//! `move_file`: moves a file or a directory.

use ab_core::Backend;

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::used::shown;

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let (source, destination) = (arguments.text("source")?, arguments.text("destination")?);
    let renamed = backend.rename(&source, &destination).await?;
    let note = (!renamed.atomic).then(|| "it was copied, then removed".to_owned());
    let (source, destination) = (shown(backend, &source), shown(backend, &destination));
    Ok(ToolAnswer::noted(format!("Successfully moved {source} to {destination}"), note))
}
