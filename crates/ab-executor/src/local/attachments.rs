//! Attachments of a task. The executor copies the files beside the workspace. The agent's first
//! prompt contains their paths.

use std::path::Path;

use ab_api::Session;
use ab_snapshot::{PreparedWorkspace, WorkspaceAttachment};

/// The attachments of a session, which are copied from the directory `uploads`.
pub(super) fn requested(session: &Session, uploads: &Path) -> Vec<WorkspaceAttachment> {
    let attached = session.task.attachments.iter();
    let attachment = |it: &ab_api::TaskAttachment| WorkspaceAttachment {
        source_dir: uploads.to_owned(),
        source_name: it.upload_id.to_string(),
        target_name: it.name.clone(),
        max_bytes: it.size,
    };
    attached.map(attachment).collect()
}

/// A note for the user that lists the attachments of a new workspace.
pub(super) fn note(session: &Session, workspace: &PreparedWorkspace) -> Option<String> {
    let directory = workspace.attachments_dir.as_ref()?;
    let names: Vec<&str> = session.task.attachments.iter().map(|it| it.name.as_str()).collect();
    Some(format!("Attachments in {}: {}.", directory.display(), names.join(", ")))
}

/// The prompt of a task, followed by the paths of its attachments.
pub(super) fn with_paths(prompt: &str, session: &Session, workspace: &PreparedWorkspace) -> String {
    let Some(directory) = &workspace.attachments_dir else { return prompt.to_owned() };
    let mut text = format!(
        "{prompt}\n\nFiles that came with this task, read-only and outside of the workspace:\n"
    );
    for attachment in &session.task.attachments {
        let path = directory.join(&attachment.name);
        text.push_str(&format!("- {} ({} bytes)\n", path.display(), attachment.size));
    }
    text
}
