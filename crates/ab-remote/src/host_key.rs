//! The host key, by which clients identify this server.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{HashAlg, PrivateKey};

/// Maximum number of bytes that are read of a key file.
const LONGEST_FILE: u64 = 64 * 1024;

/// An ed25519 key, or a key of any type that was read from a file.
#[derive(Clone)]
pub struct HostKey {
    key: PrivateKey,
    origin: HostKeyOrigin,
}

/// Where a host key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKeyOrigin {
    /// The key was read from the file.
    Loaded,
    /// The key was created and stored in the file.
    Created,
    /// The key was created and is lost when this process ends. Clients that remember keys will then
    /// show a warning.
    Ephemeral { why: String },
}

impl HostKey {
    /// Loads the key from a file. If the file does not exist, creates a key and stores it. If the
    /// new key cannot be stored, it is still returned, and [`origin`](Self::origin) contains the
    /// reason. Fails if the file exists and cannot be used. A new key would make clients believe
    /// that this is a different server.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        if let Some(key) = read(path)? {
            return Ok(Self { key, origin: HostKeyOrigin::Loaded });
        }
        let key = make()?;
        let Err(error) = store(path, &key) else {
            return Ok(Self { key, origin: HostKeyOrigin::Created });
        };
        // Another process may have created the file first.
        if error.kind() == io::ErrorKind::AlreadyExists
            && let Some(key) = read(path)?
        {
            return Ok(Self { key, origin: HostKeyOrigin::Loaded });
        }
        let why = format!("write {}: {error}", path.display());
        Ok(Self { key, origin: HostKeyOrigin::Ephemeral { why } })
    }

    /// Creates a key for this process only.
    pub fn generate_ephemeral(why: impl Into<String>) -> io::Result<Self> {
        Ok(Self { key: make()?, origin: HostKeyOrigin::Ephemeral { why: why.into() } })
    }

    pub fn origin(&self) -> &HostKeyOrigin {
        &self.origin
    }

    /// The fingerprint in the form in which `ssh-keygen -l` prints it: `SHA256:…`.
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The public key in the form in which a line of a `known_hosts` file contains it after the
    /// name.
    pub fn public_key(&self) -> String {
        self.key.public_key().to_openssh().unwrap_or_default()
    }

    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostKey")
            .field("fingerprint", &self.fingerprint())
            .field("origin", &self.origin)
            .finish()
    }
}

fn make() -> io::Result<PrivateKey> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    PrivateKey::new(Ed25519Keypair::from_seed(&seed).into(), "agent-backend").map_err(other)
}

/// Reads the key in the file. `None` if the file does not exist.
fn read(path: &Path) -> io::Result<Option<PrivateKey>> {
    // Check the type first, because opening a pipe would block.
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("other users can read it: its mode must be 600"));
    }
    let mut text = String::new();
    file.take(LONGEST_FILE).read_to_string(&mut text)?;
    russh::keys::decode_secret_key(&text, None).map(Some).map_err(other)
}

/// Whether the error means that the file does not exist. This includes the case that a parent is
/// not a directory.
fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Writes the key to the file. The file is either complete or missing. Never replaces an existing
/// file.
fn store(path: &Path, key: &PrivateKey) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let text = key.to_openssh(LineEnding::LF).map_err(other)?;
    let (draft, mut file) = draft(path)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&draft, path));
    let _ = fs::remove_file(&draft);
    written
}

/// Creates a temporary file next to `path`. If its name exists, tries another name.
fn draft(path: &Path) -> io::Result<(PathBuf, File)> {
    const TRIES: usize = 16;
    let mut last = None;
    for _ in 0..TRIES {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{:016x}", u64::from_ne_bytes(random)));
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(&name) {
            Ok(file) => return Ok((name.into(), file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(last.map(|error| error.to_string()).unwrap_or_default()))
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_made_once_and_then_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/host");
        let made = HostKey::load_or_create(&path).unwrap();
        assert_eq!(made.origin(), &HostKeyOrigin::Created);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let loaded = HostKey::load_or_create(&path).unwrap();
        assert_eq!(loaded.origin(), &HostKeyOrigin::Loaded);
        assert_eq!(loaded.fingerprint(), made.fingerprint());
        assert!(made.fingerprint().starts_with("SHA256:"));
        assert!(made.public_key().starts_with("ssh-ed25519 "));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_told_and_not_fatal() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let key = HostKey::load_or_create(&file.join("host")).unwrap();
        assert!(matches!(key.origin(), HostKeyOrigin::Ephemeral { why } if why.contains("write")));
    }

    #[test]
    fn what_is_there_and_no_key_of_ours_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let garbage = directory.path().join("garbage");
        fs::write(&garbage, "no key").unwrap();
        fs::set_permissions(&garbage, fs::Permissions::from_mode(0o600)).unwrap();
        HostKey::load_or_create(&garbage).unwrap_err();
        assert_eq!(fs::read_to_string(&garbage).unwrap(), "no key");

        let open = directory.path().join("open");
        HostKey::load_or_create(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
        let error = HostKey::load_or_create(&open).unwrap_err();
        assert!(error.to_string().contains("600"), "{error}");

        let error = HostKey::load_or_create(directory.path()).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn what_an_earlier_process_left_behind_is_in_nobodys_way() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join(format!("host.{}", std::process::id()));
        fs::write(&left, "half a key").unwrap();
        let key = HostKey::load_or_create(&directory.path().join("host")).unwrap();
        assert_eq!(key.origin(), &HostKeyOrigin::Created);
        assert_eq!(fs::read_to_string(&left).unwrap(), "half a key");
    }
}
