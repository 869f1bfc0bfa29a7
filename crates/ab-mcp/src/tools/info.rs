//! `get_file_info`: shows the metadata of a path.

use std::time::SystemTime;

use ab_core::Backend;
use jiff::Timestamp;

use super::Outcome;
use crate::answer::ToolAnswer;
use crate::arguments::Arguments;
use crate::used::shown as path_shown;

pub(crate) async fn call(backend: &Backend, mut arguments: Arguments) -> Outcome {
    let path = arguments.text("path")?;
    let stat = backend.stat(&path).await?;
    let mut rows = vec![format!("size: {}", stat.size)];
    let times =
        [("created", stat.created), ("modified", Some(stat.modified)), ("accessed", stat.accessed)];
    for (name, time) in times {
        rows.extend(time.and_then(shown).map(|time| format!("{name}: {time}")));
    }
    rows.push(format!("isDirectory: {}", stat.kind.is_dir()));
    rows.push(format!("isFile: {}", stat.kind.is_file()));
    rows.extend(stat.mode.map(|mode| format!("permissions: {mode:03o}")));
    rows.push(format!("type: {}", stat.kind));
    rows.push(format!("version: {}", stat.version));
    rows.push(format!("path: {}", path_shown(backend, &path)));
    Ok(ToolAnswer::text(rows.join("\n")))
}

/// A time in UTC with milliseconds. `None` if it cannot be represented.
pub(crate) fn shown(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    Some(format!("{time:.3}"))
}
