//! Login files of a vendor, copied into the home of one agent.

use std::path::Path;

use ab_core::options::ReadOptions;
use ab_core::{Backend, Error, ErrorCode, ErrorKind, Isolation, Result};
use ab_local::LocalWorkspace;

use crate::agent_readiness::LoginFile;

/// Maximum size in bytes of a login file that is read from an agent's home.
const MAX_LOGIN: u64 = 1024 * 1024;

/// Copies login files into `home`, where the agent finds them, and returns their contents. Files
/// that already exist in `home` are kept, because the agent may have renewed its login. The home is
/// opened as a workspace, because an earlier agent may have left links in it.
///
/// # Errors
///
/// Fails if a file cannot be read or written. The message names the file.
pub async fn copy_login_files_to_agent_home(
    home: &Path,
    files: &[LoginFile],
) -> Result<Vec<String>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let home = open(home).await?;
    let mut contents = Vec::new();
    for file in files {
        let text = read(&file.source).await?;
        if !home.exists(&file.path).await? {
            home.write(&file.path, text.clone().into_bytes()).await?;
        }
        contents.push(text);
    }
    home.destroy().await?;
    Ok(contents)
}

/// Reads the operator's login files. Also reads their copies in `home` at `paths`, because the
/// agent may have renewed its login there. Skips files in `home` that are missing, too large or not
/// text.
///
///
/// # Errors
///
///
/// Fails if a file of the operator cannot be read or the home cannot be opened.
pub async fn read_login_file_contents(
    home: &Path,
    paths: &[String],
    files: &[LoginFile],
) -> Result<Vec<String>> {
    let mut contents = Vec::new();
    for file in files {
        contents.push(read(&file.source).await?);
    }
    if paths.is_empty() {
        return Ok(contents);
    }
    let home = open(home).await?;
    for path in paths {
        let options = ReadOptions { max_bytes: MAX_LOGIN, ..ReadOptions::default() };
        let found = home.read_with(path, options).await;
        let text = found.ok().and_then(|found| String::from_utf8(found.bytes.to_vec()).ok());
        contents.extend(text);
    }
    home.destroy().await?;
    Ok(contents)
}

async fn open(home: &Path) -> Result<Backend> {
    let builder =
        LocalWorkspace::builder(home).isolation(Isolation::None).minimum_isolation(Isolation::None);
    Ok(builder.open().await?.backend)
}

async fn read(source: &Path) -> Result<String> {
    tokio::fs::read_to_string(source).await.map_err(|error| {
        let message = format!("cannot read the login file {}: {error}", source.display());
        Error::new(ErrorCode::ReadFailed, ErrorKind::Io, message).with_source(error)
    })
}
