//! The data directory of `serve`: its path, the token in it, and the address of the server that
//! uses it.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::token;

const TOKEN: &str = "token";
const BROWSER_KEY: &str = "browser-key";
const ADDRESS: &str = "server.json";
const PRIVATE_FILE: u32 = 0o600;
const TOKEN_BYTES: usize = 32;

/// Makes a path absolute and removes `..`, because sandboxes mount directories only under absolute
/// paths without `..`.
///
/// # Errors
///
/// Fails if the path is empty or if there is no current directory.
pub(crate) fn absolute(named: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(named)
        .map_err(|error| Failure::input(format!("find {}", named.display()), error))?;
    let mut resolved = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            // The parent directory of a link is the parent of its target.
            resolved = resolved.canonicalize().unwrap_or(resolved);
            resolved.pop();
        } else {
            resolved.push(part);
        }
    }
    Ok(resolved)
}

/// The default directory, below the XDG state directory.
///
/// # Errors
///
/// A usage error if there is no home directory.
pub(crate) fn default() -> Result<PathBuf, Failure> {
    let state = variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(variable("HOME")?.join(".local/state")));
    match state {
        Some(state) => Ok(state.join("agent-backend")),
        None => Err(Failure::usage("neither XDG_STATE_HOME nor HOME is set")
            .with_hint("name the data directory with --data-dir")),
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the token in the data directory. Creates it if it is missing.
///
/// # Errors
///
/// Fails if the file cannot be read or created. A usage error if the file contains no token.
pub(crate) fn made_token(directory: &Path) -> Result<String, Failure> {
    made_secret(&directory.join(TOKEN))
}

/// Returns the key that signs the cookies of browsers. Creates it if it is missing. A new key logs
/// all browsers out.
///
/// # Errors
///
/// Fails if the file cannot be read or created. A usage error if the file is empty.
pub(crate) fn made_browser_key(directory: &Path) -> Result<String, Failure> {
    made_secret(&directory.join(BROWSER_KEY))
}

fn made_secret(path: &Path) -> Result<String, Failure> {
    let fails = |error| Failure::input(format!("create {}", path.display()), error);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE_FILE);
    match options.open(path) {
        Ok(mut file) => {
            let text = random_token().map_err(fails)?;
            file.write_all(format!("{text}\n").as_bytes()).map_err(fails)?;
            token::checked(&text)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => token::in_file(path),
        Err(error) => Err(fails(error)),
    }
}

/// Returns the token in the data directory, if there is one.
///
/// # Errors
///
/// A usage error if the file contains no token.
pub(crate) fn token(directory: &Path) -> Result<Option<String>, Failure> {
    let path = directory.join(TOKEN);
    if path.exists() { token::in_file(&path).map(Some) } else { Ok(None) }
}

fn random_token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The file in the data directory that contains the address of the running server. Dropping this
/// value removes the file.
#[derive(Debug)]
pub(crate) struct AddressFile {
    path: PathBuf,
}

impl AddressFile {
    /// Writes the address, so that clients on this machine can find the server. If the disk is
    /// full, overwrites the file that a killed server left. If the disk is full and no such file
    /// exists, logs a warning, and the server runs without the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub(crate) fn write(directory: &Path, url: &str) -> Result<AddressFile, Failure> {
        let path = directory.join(ADDRESS);
        let beside = directory.join(format!("{ADDRESS}.new"));
        let text = json!({ "url": url, "pid": std::process::id() }).to_string();
        let fails = |error| Failure::input(format!("write {}", path.display()), error);
        let text = format!("{text}\n");
        match fs::write(&beside, &text).and_then(|()| fs::rename(&beside, &path)) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                // Remove the new file, which is empty or incomplete. Clients do not read it.
                let _ = fs::remove_file(&beside);
                if overwrite(&path, &text).is_err() {
                    let path = path.display();
                    tracing::warn!(%error, "cannot write {path}: clients must name the server with --server");
                }
            }
            written => written.map_err(fails)?,
        }
        Ok(AddressFile { path })
    }
}

impl Drop for AddressFile {
    fn drop(&mut self) {
        // Ignore this error. A file that remains names a process that has ended, and clients ignore
        // such a file.
        let _ = fs::remove_file(&self.path);
    }
}

/// Overwrites an existing file without allocating more disk space.
fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// The URL of the server that uses the data directory. `None` if no server is running.
pub(crate) fn running_server(directory: &Path) -> Option<String> {
    let text = fs::read(directory.join(ADDRESS)).ok()?;
    let value: Value = serde_json::from_slice(&text).ok()?;
    let pid = Pid::from_raw(value["pid"].as_i64()?.try_into().ok()?)?;
    // Check that the process exists. A killed server leaves its file, and another program may now
    // use the server's port. The token must not be sent to this program.
    test_kill_process(pid).ok()?;
    value["url"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_named_directory_is_absolute_without_parents() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("far/below")).unwrap();
        std::os::unix::fs::symlink("far/below", path.join("link")).unwrap();
        for (named, expect) in [
            ("a/../data", "data"),
            ("none/../far/./data", "far/data"),
            ("far/below/../../data", "data"),
            // For `..` after a link, the kernel uses the parent of the link's target.
            ("link/../data", "far/data"),
        ] {
            assert_eq!(absolute(&path.join(named)).unwrap(), path.join(expect), "{named}");
        }
        assert!(absolute(Path::new("../x")).unwrap().is_absolute());
        assert!(absolute(Path::new("")).is_err());
    }

    #[test]
    fn a_token_is_made_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(token(path).unwrap(), None);
        let made = made_token(path).unwrap();
        assert_eq!(made.len(), 2 * TOKEN_BYTES);
        assert_eq!(made_token(path).unwrap(), made);
        assert_eq!(token(path).unwrap(), Some(made));
        let mode = fs::metadata(path.join(TOKEN)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE_FILE);
    }

    #[test]
    fn only_the_address_of_a_live_process_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(running_server(path), None);
        let file = AddressFile::write(path, "http://127.0.0.1:1").unwrap();
        assert_eq!(running_server(path).as_deref(), Some("http://127.0.0.1:1"));
        drop(file);
        assert_eq!(running_server(path), None);
        let gone = json!({ "url": "http://127.0.0.1:1", "pid": i32::MAX }).to_string();
        fs::write(path.join(ADDRESS), gone).unwrap();
        assert_eq!(running_server(path), None);
    }
}
