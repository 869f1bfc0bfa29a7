//! The key by which clients know this server again.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{HashAlg, PrivateKey};

/// A key file is not longer than this; what is, is none.
const LONGEST_FILE: u64 = 64 * 1024;

/// An ed25519 key, or whatever key a file holds.
#[derive(Clone)]
pub struct HostKey {
    key: PrivateKey,
    origin: Origin,
}

/// Where a host key is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was in the file.
    Loaded,
    /// It was made, and is in the file now.
    Made,
    /// It was made and is lost with this process: clients that remember keys will complain.
    Ephemeral { why: String },
}

impl HostKey {
    /// The key in a file, which is made if it is not there. What is in the way of that is told by
    /// [`origin`](Self::origin) and never fatal; a file that holds something else is left alone.
    pub fn load_or_make(path: &Path) -> io::Result<Self> {
        match read(path) {
            Ok(key) => return Ok(Self { key, origin: Origin::Loaded }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Self::ephemeral(format!("read {}: {error}", path.display())),
        }
        let key = make()?;
        match store(path, &key) {
            Ok(()) => Ok(Self { key, origin: Origin::Made }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match read(path) {
                Ok(key) => Ok(Self { key, origin: Origin::Loaded }),
                Err(error) => Self::ephemeral(format!("read {}: {error}", path.display())),
            },
            Err(error) => Ok(Self {
                key,
                origin: Origin::Ephemeral { why: format!("write {}: {error}", path.display()) },
            }),
        }
    }

    /// A key for this process only.
    pub fn ephemeral(why: impl Into<String>) -> io::Result<Self> {
        Ok(Self { key: make()?, origin: Origin::Ephemeral { why: why.into() } })
    }

    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// As `ssh-keygen -l` shows it: `SHA256:…`.
    pub fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// The public half, as a line of a `known_hosts` file has it after the name.
    pub fn public(&self) -> String {
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

fn read(path: &Path) -> io::Result<PrivateKey> {
    let file = File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("others may read the key: its mode must be 600"));
    }
    let mut text = String::new();
    file.take(LONGEST_FILE).read_to_string(&mut text)?;
    russh::keys::decode_secret_key(&text, None).map_err(other)
}

/// Writes the key whole or not at all, and never over another.
fn store(path: &Path, key: &PrivateKey) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let text = key.to_openssh(LineEnding::LF).map_err(other)?;
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::hard_link(&draft, path));
    let _ = fs::remove_file(&draft);
    written
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
        let made = HostKey::load_or_make(&path).unwrap();
        assert_eq!(made.origin(), &Origin::Made);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let loaded = HostKey::load_or_make(&path).unwrap();
        assert_eq!(loaded.origin(), &Origin::Loaded);
        assert_eq!(loaded.fingerprint(), made.fingerprint());
        assert!(made.fingerprint().starts_with("SHA256:"));
        assert!(made.public().starts_with("ssh-ed25519 "));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_in_the_way_is_told_and_not_fatal() {
        let directory = tempfile::tempdir().unwrap();
        let garbage = directory.path().join("garbage");
        fs::write(&garbage, "no key").unwrap();
        fs::set_permissions(&garbage, fs::Permissions::from_mode(0o600)).unwrap();
        let key = HostKey::load_or_make(&garbage).unwrap();
        assert!(matches!(key.origin(), Origin::Ephemeral { why } if why.contains("read")));
        assert_eq!(fs::read_to_string(&garbage).unwrap(), "no key");

        let below = garbage.join("host");
        let key = HostKey::load_or_make(&below).unwrap();
        assert!(matches!(key.origin(), Origin::Ephemeral { .. }), "{key:?}");

        let open = directory.path().join("open");
        HostKey::load_or_make(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
        let key = HostKey::load_or_make(&open).unwrap();
        assert!(matches!(key.origin(), Origin::Ephemeral { why } if why.contains("600")));
    }
}
