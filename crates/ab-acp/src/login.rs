//! Login files of a vendor, copied into the home of one agent.

use std::path::Path;

use ab_core::{Error, ErrorCode, ErrorKind, Isolation, Result};
use ab_local::LocalWorkspace;

use crate::resolve::LoginFile;

/// Copies login files into `home`, where the agent finds them, and returns their contents. A file that is there stays:
/// the agent may have renewed its login. The home is opened as a workspace, because an earlier agent may have left links
/// in it.
///
/// # Errors
/// A file that cannot be read or written. The message names it.
pub async fn copy_login_files(home: &Path, files: &[LoginFile]) -> Result<Vec<String>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let builder =
        LocalWorkspace::builder(home).isolation(Isolation::None).isolation_floor(Isolation::None);
    let home = builder.open().await?.backend;
    let mut contents = Vec::new();
    for file in files {
        let source = &file.source;
        let text = tokio::fs::read_to_string(source).await.map_err(|error| {
            let message = format!("cannot read the login file {}: {error}", source.display());
            Error::new(ErrorCode::ReadFailed, ErrorKind::Io, message).with_source(error)
        })?;
        if !home.exists(&file.path).await? {
            home.write(&file.path, text.clone().into_bytes()).await?;
        }
        contents.push(text);
    }
    home.destroy().await?;
    Ok(contents)
}
