//! Stores the id of the agent's conversation in a file beside the session's workspace. The agent
//! cannot write there. Only this module reads and writes the file.
//! [`SessionWorkspaceStore::remove_workspace`](ab_snapshot::SessionWorkspaceStore::remove_workspace)
//! removes it.

use std::io;
use std::path::PathBuf;

use ab_acp::AcpSessionId;
use ab_snapshot::PreparedWorkspace;

/// Maximum length of a stored id in bytes.
const LONGEST: u64 = 4096;

/// Replaces the stored id atomically. After a crash the file contains either the old id or the new
/// id.
pub(super) async fn store(workspace: &PreparedWorkspace, id: &AcpSessionId) -> io::Result<()> {
    let path = path(workspace);
    let new = path.with_extension("new");
    tokio::fs::write(&new, id.as_str()).await?;
    tokio::fs::rename(new, path).await
}

/// The stored id; `None` if there is none.
pub(super) async fn load(workspace: &PreparedWorkspace) -> io::Result<Option<AcpSessionId>> {
    use tokio::io::AsyncReadExt;
    let file = match tokio::fs::File::open(path(workspace)).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).await?;
    Ok(Some(AcpSessionId::new(&text)))
}

fn path(workspace: &PreparedWorkspace) -> PathBuf {
    workspace.tree.with_file_name("conversation")
}
