//! Checks the key of a host.
//!
//! If a key is refused, the error contains the host, the key and what the user can do.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use ab_core::{Error, ErrorCause, ErrorCode, ErrorKind, Result};
use russh::keys::{Algorithm, HashAlg, PublicKey, ssh_key};

use super::address::{HostPort, invalid};
use super::known_hosts::{KnownHosts, Standing, learn, line};

/// How the key of a host is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKeyCheck {
    /// The key must be listed for this host.
    KnownHosts(KnownHosts),
    /// The key must have this fingerprint.
    Pin(HostKeyFingerprint),
    /// The first key is trusted and stored in this file, in the format of `known_hosts`. Later keys
    /// must be the same.
    TrustOnFirstUse(PathBuf),
    /// The key must be listed for this host. The key of a host that is not listed is trusted and
    /// added to the first file.
    AcceptNew(KnownHosts),
    /// Every key is accepted. Used if something else authenticates the host.
    Unchecked,
}

/// The digest of a key in the form in which `ssh-keygen -l` prints it: `SHA256:…`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HostKeyFingerprint([u8; 32]);

impl HostKeyFingerprint {
    fn of(key: &PublicKey) -> Self {
        match key.fingerprint(HashAlg::Sha256) {
            ssh_key::Fingerprint::Sha256(digest) => Self(digest),
            // This cannot happen, because SHA-256 was requested. No key has a digest of zeros.
            _ => Self([0; 32]),
        }
    }
}

impl FromStr for HostKeyFingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim().parse() {
            Ok(ssh_key::Fingerprint::Sha256(digest)) => Ok(Self(digest)),
            _ => {
                Err(invalid("invalid fingerprint of a host key: must be SHA256: and 43 characters")
                    .with_hint("ssh-keygen -lf FILE prints the fingerprint of a public key"))
            }
        }
    }
}

impl fmt::Display for HostKeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ssh_key::Fingerprint::Sha256(self.0), f)
    }
}

impl fmt::Debug for HostKeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl HostKeyCheck {
    /// The key types to request from a host, the preferred ones first. Reads the files of known
    /// hosts.
    pub(crate) fn algorithms(&self, host: &HostPort) -> Result<Vec<Algorithm>> {
        let known = match self {
            HostKeyCheck::KnownHosts(known) | HostKeyCheck::AcceptNew(known) => known.load(),
            HostKeyCheck::TrustOnFirstUse(store) => KnownHosts::from_files([store]).load(),
            HostKeyCheck::Pin(_) | HostKeyCheck::Unchecked => return Ok(Vec::new()),
        };
        known.map(|lines| lines.algorithms(host)).map_err(|error| unreadable(host, error))
    }

    /// Fails if the key is not a key of the host. Reads the files of known hosts, and may store a
    /// new key.
    pub(crate) fn judge(&self, host: &HostPort, key: &PublicKey) -> Result<()> {
        let (standing, store) = match self {
            HostKeyCheck::Unchecked => return Ok(()),
            HostKeyCheck::Pin(pin) => {
                let shown = HostKeyFingerprint::of(key);
                return if *pin == shown { Ok(()) } else { Err(unpinned(host, *pin, shown)) };
            }
            HostKeyCheck::KnownHosts(known) => {
                let lines = known.load().map_err(|error| unreadable(host, error))?;
                (lines.standing(host, key), known.files.first())
            }
            HostKeyCheck::TrustOnFirstUse(store) => {
                let standing = learn(store, host, key);
                (standing.map_err(|error| unreadable(host, error))?, Some(store))
            }
            HostKeyCheck::AcceptNew(known) => {
                let lines = known.load().map_err(|error| unreadable(host, error))?;
                let standing = match (lines.standing(host, key), known.files.first()) {
                    (Standing::Unknown, Some(store)) => {
                        learn(store, host, key).map_err(|error| unreadable(host, error))?
                    }
                    (standing, _) => standing,
                };
                (standing, known.files.first())
            }
        };
        match standing {
            Standing::Known => Ok(()),
            Standing::Unknown => Err(unknown(host, key, store)),
            Standing::Revoked { place } => {
                let shown = HostKeyFingerprint::of(key);
                let message = format!("the host key of {host} is revoked in {place}: {shown}");
                Err(refused(message, ErrorCause::HostKeyRefused)
                    .with_hint("do not connect until the host has a new key"))
            }
            Standing::Changed { known, place } => {
                let (known, shown) = (HostKeyFingerprint::of(&known), HostKeyFingerprint::of(key));
                let message = format!(
                    "the host key of {host} has changed: it is now {shown}, but {place} has {known}"
                );
                let name = host.known_as();
                let remove = match &place.file {
                    Some(file) => format!("ssh-keygen -R '{name}' -f '{}'", file.display()),
                    None => format!("remove {place}"),
                };
                Err(refused(message, ErrorCause::HostKeyRefused).with_hint(format!(
                    "this can be an attack; if the change is expected, remove the old key: {remove}"
                )))
            }
        }
    }
}

fn unknown(host: &HostPort, key: &PublicKey, store: Option<&PathBuf>) -> Error {
    let shown = HostKeyFingerprint::of(key);
    let kind = key.algorithm();
    let message = format!("the host key of {host} is not known: {kind} {shown}");
    let place = match store {
        Some(path) => format!("to {}", path.display()),
        None => "to a file of known hosts and name that file".to_owned(),
    };
    let line = line(host, key);
    refused(message, ErrorCause::HostKeyUnknown).with_hint(format!(
        "if the owner of the host confirms this fingerprint, add this line {place}: {line}"
    ))
}

fn unpinned(host: &HostPort, pin: HostKeyFingerprint, shown: HostKeyFingerprint) -> Error {
    let message = format!("the host key of {host} is not the pinned one: it is {shown}");
    refused(message, ErrorCause::HostKeyRefused).with_hint(format!(
        "the pinned key is {pin}; change it only if the owner of the host confirms the new key"
    ))
}

fn unreadable(host: &HostPort, error: io::Error) -> Error {
    let message = format!("cannot look up the host key of {host}: {error}");
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message).with_source(error)
}

fn refused(message: String, detail: ErrorCause) -> Error {
    Error::new(ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy, message).with_cause(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const TWO: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    fn judged(check: &HostKeyCheck, text: &str) -> Result<()> {
        check.judge(&HostPort::new("box", 2222), &key(text))
    }

    /// The message and the hint with which a key is refused.
    fn refusal(check: &HostKeyCheck, text: &str) -> (String, String) {
        let error = judged(check, text).unwrap_err();
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy)
        );
        assert_eq!(error.retry_advice(), ab_core::RetryAdvice::Never);
        (error.message().to_owned(), error.hint().unwrap().to_owned())
    }

    #[test]
    fn fingerprints_are_parsed_and_shown() {
        let shown = HostKeyFingerprint::of(&key(ONE)).to_string();
        assert_eq!(shown.parse::<HostKeyFingerprint>().unwrap().to_string(), shown);
        assert_eq!((shown.len(), &shown[..7]), (50, "SHA256:"));
        for text in ["", "SHA256:", "SHA256:abc", "MD5:00:11", "SHA512:abcd"] {
            assert!(text.parse::<HostKeyFingerprint>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_line_that_makes_it_known() {
        let (message, hint) = refusal(&HostKeyCheck::KnownHosts(KnownHosts::default()), ONE);
        let shown = HostKeyFingerprint::of(&key(ONE));
        assert_eq!(message, format!("the host key of box:2222 is not known: ssh-ed25519 {shown}"));
        assert!(
            hint.ends_with(&format!(
                "to a file of known hosts and name that file: [box]:2222 {ONE}"
            ))
        );
        let known = KnownHosts::from_text(format!("[box]:2222 {ONE}"));
        judged(&HostKeyCheck::KnownHosts(known), ONE).unwrap();
    }

    #[test]
    fn a_key_that_changed_is_refused_with_both() {
        let known = HostKeyCheck::KnownHosts(KnownHosts::from_text(format!("[box]:2222 {TWO}")));
        let (message, hint) = refusal(&known, ONE);
        for key in [key(ONE), key(TWO)] {
            assert!(message.contains(&HostKeyFingerprint::of(&key).to_string()), "{message}");
        }
        assert!(hint.contains("remove line 1 of the known hosts given"), "{hint}");
        let revoked = format!("@revoked * {ONE}");
        let known = HostKeyCheck::KnownHosts(KnownHosts::from_text(revoked));
        assert!(refusal(&known, ONE).0.contains("revoked in line 1"));
    }

    #[test]
    fn a_pin_is_of_one_key() {
        let check = HostKeyCheck::Pin(HostKeyFingerprint::of(&key(ONE)));
        judged(&check, ONE).unwrap();
        assert!(refusal(&check, TWO).0.contains("not the pinned one"));
        judged(&HostKeyCheck::Unchecked, TWO).unwrap();
    }

    #[test]
    fn the_first_key_is_believed_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("first");
        let check = HostKeyCheck::TrustOnFirstUse(store.clone());
        judged(&check, ONE).unwrap();
        judged(&check, ONE).unwrap();
        let (message, hint) = refusal(&check, TWO);
        assert!(message.contains("has changed"), "{message}");
        let command = format!("ssh-keygen -R '[box]:2222' -f '{}'", store.display());
        assert!(hint.ends_with(&command), "{hint}");
        let nowhere = HostKeyCheck::TrustOnFirstUse(store.join("below"));
        let error = judged(&nowhere, ONE).unwrap_err();
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::InvalidConfiguration, ErrorKind::Invalid)
        );
    }

    #[test]
    fn a_new_key_is_accepted_only_where_nobody_knows_the_host() {
        let directory = tempfile::tempdir().unwrap();
        let (own, system) = (directory.path().join("own"), directory.path().join("system"));
        let check = HostKeyCheck::AcceptNew(KnownHosts::from_files([&own, &system]));
        for (text, what) in [
            (format!("[box]:2222 {TWO}\n"), "has changed"),
            (format!("@revoked * {ONE}\n"), "is revoked"),
            (format!("@revoked box {ONE}\n"), "is revoked"),
        ] {
            std::fs::write(&system, text).unwrap();
            let (message, _) = refusal(&check, ONE);
            assert!(message.contains(what), "{message}");
            assert!(!own.exists());
        }
        // A key that another file lists is not added.
        std::fs::write(&system, format!("[box]:2222 {ONE}\n")).unwrap();
        judged(&check, ONE).unwrap();
        assert!(!own.exists());
        std::fs::write(&system, format!("fox {TWO}\n")).unwrap();
        judged(&check, ONE).unwrap();
        assert_eq!(std::fs::read_to_string(&own).unwrap(), format!("[box]:2222 {ONE}\n"));
        assert!(refusal(&check, TWO).0.contains("has changed"));
        // There is no file in which the key could be stored.
        let (message, _) = refusal(&HostKeyCheck::AcceptNew(KnownHosts::default()), ONE);
        assert!(message.contains("is not known"), "{message}");
    }
}
