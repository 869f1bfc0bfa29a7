//! Authentication of SSH users by password or public key.

use std::collections::BTreeMap;
use std::fmt;

use russh::keys::PublicKey;
use russh::keys::ssh_key::Algorithm;
use russh::{MethodKind, MethodSet};
use subtle::{Choice, ConstantTimeEq};

/// Maximum length of a password in bytes. Passwords are padded to this length before they are
/// compared.
const LONGEST_PASSWORD: usize = 256;

/// Which clients may log in.
#[derive(Clone, Debug, Default)]
pub enum SshAccess {
    /// Accepts every user name and every authentication method. It is used if another layer in
    /// front of the server has already authenticated the client.
    AnyUser,
    /// Accepts the listed users, who log in with a password or a key.
    Users(SshUsers),
    /// Refuses every login.
    #[default]
    NoUser,
}

/// User names with their passwords and keys.
#[derive(Clone, Default)]
pub struct SshUsers(BTreeMap<String, Credentials>);

#[derive(Clone, Default)]
struct Credentials {
    password: Option<String>,
    keys: Vec<PublicKey>,
}

/// The error for an `authorized_keys` line that cannot be parsed, or for a password of invalid
/// length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCredential {
    pub reason: String,
}

impl fmt::Display for InvalidCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for InvalidCredential {}

impl SshUsers {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the password of `name`.
    pub fn add_password(&mut self, name: &str, password: &str) -> Result<(), InvalidCredential> {
        let length = password.len();
        if password.is_empty() || length > LONGEST_PASSWORD {
            let what = format!(
                "a password has 1 to {LONGEST_PASSWORD} bytes, that of '{name}' has {length}"
            );
            return Err(InvalidCredential { reason: what });
        }
        self.0.entry(name.to_owned()).or_default().password = Some(password.to_owned());
        Ok(())
    }

    /// Adds the keys in an `authorized_keys` file for `name`. Returns the number of keys. Refuses
    /// lines with options. Options restrict a key, and this server does not support these
    /// restrictions.
    pub fn add_authorized_keys(
        &mut self,
        name: &str,
        text: &str,
    ) -> Result<usize, InvalidCredential> {
        let mut keys = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = PublicKey::from_openssh(line).map_err(|error| {
                let what = format!("line {} is not a public key: {error}", number + 1);
                InvalidCredential { reason: what }
            })?;
            keys.push(key);
        }
        let count = keys.len();
        self.0.entry(name.to_owned()).or_default().keys.extend(keys);
        Ok(count)
    }

    fn have_passwords(&self) -> bool {
        self.0.values().any(|credentials| credentials.password.is_some())
    }

    fn knows_password(&self, name: &str, password: &str) -> bool {
        let known = self.0.get(name).and_then(|credentials| credentials.password.as_deref());
        // Compare for unknown names too, so that they take as long as known names.
        let same = same(known.unwrap_or_default(), password);
        bool::from(same) && known.is_some()
    }

    fn knows_key(&self, name: &str, key: &PublicKey) -> bool {
        let known = self.0.get(name).map_or(&[][..], |credentials| &credentials.keys);
        known.iter().any(|each| each.key_data() == key.key_data())
    }
}

impl fmt::Debug for SshUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl SshAccess {
    pub(crate) fn methods(&self) -> MethodSet {
        let kinds: &[MethodKind] = match self {
            SshAccess::AnyUser => &[MethodKind::None, MethodKind::Password, MethodKind::PublicKey],
            SshAccess::Users(users) if users.have_passwords() => {
                &[MethodKind::PublicKey, MethodKind::Password]
            }
            SshAccess::Users(_) => &[MethodKind::PublicKey],
            SshAccess::NoUser => &[],
        };
        MethodSet::from(kinds)
    }

    pub(crate) fn without_credentials(&self) -> bool {
        matches!(self, SshAccess::AnyUser)
    }

    pub(crate) fn by_password(&self, name: &str, password: &str) -> bool {
        match self {
            SshAccess::AnyUser => true,
            SshAccess::Users(users) => users.knows_password(name, password),
            SshAccess::NoUser => false,
        }
    }

    pub(crate) fn by_key(&self, name: &str, key: &PublicKey, algorithm: &Algorithm) -> bool {
        // Refuse signatures with SHA-1, because they can be forged.
        if matches!(algorithm, Algorithm::Rsa { hash: None } | Algorithm::Dsa) {
            return false;
        }
        match self {
            SshAccess::AnyUser => true,
            SshAccess::Users(users) => users.knows_key(name, key),
            SshAccess::NoUser => false,
        }
    }
}

/// Compares in constant time, so that the time reveals neither the matching prefix nor the length
/// of `known`.
fn same(known: &str, given: &str) -> Choice {
    fn padded(text: &str) -> [u8; LONGEST_PASSWORD] {
        let mut padded = [0; LONGEST_PASSWORD];
        let length = text.len().min(LONGEST_PASSWORD);
        padded[..length].copy_from_slice(&text.as_bytes()[..length]);
        padded
    }
    padded(known).ct_eq(&padded(given)) & known.len().ct_eq(&given.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ a@b";
    const OTHER: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti c@d";

    #[test]
    fn passwords_are_of_one_user() {
        let mut users = SshUsers::new();
        users.add_password("ada", "secret").unwrap();
        users.add_authorized_keys("bob", "").unwrap();
        let access = SshAccess::Users(users);
        assert!(access.by_password("ada", "secret"));
        for (name, password) in [
            ("ada", ""),
            ("ada", "secre"),
            ("ada", "secret\0"),
            ("ada", "secretsecret"),
            ("bob", "secret"),
            ("bob", ""),
            ("eve", ""),
            ("", ""),
        ] {
            assert!(!access.by_password(name, password), "{name} {password:?}");
        }
        assert!(!access.without_credentials());
        assert!(SshUsers::new().add_password("ada", "").is_err());
        assert!(SshUsers::new().add_password("ada", &"x".repeat(257)).is_err());
    }

    #[test]
    fn keys_are_of_one_user() {
        let mut users = SshUsers::new();
        let text = format!("# mine\n\n{KEY}\n");
        assert_eq!(users.add_authorized_keys("ada", &text), Ok(1));
        let restricted = format!("command=\"true\" {KEY}");
        assert!(
            users.add_authorized_keys("ada", &restricted).unwrap_err().reason.contains("line 1")
        );
        let access = SshAccess::Users(users);
        let (key, other) =
            (PublicKey::from_openssh(KEY).unwrap(), PublicKey::from_openssh(OTHER).unwrap());
        let algorithm = Algorithm::Ed25519;
        assert!(access.by_key("ada", &key, &algorithm));
        assert!(!access.by_key("ada", &other, &algorithm));
        assert!(!access.by_key("bob", &key, &algorithm));
        assert!(!access.by_key("ada", &key, &Algorithm::Rsa { hash: None }));
        assert!(!SshAccess::NoUser.by_key("ada", &key, &algorithm));
        assert!(SshAccess::AnyUser.by_key("eve", &other, &algorithm));
    }

    #[test]
    fn passwords_are_asked_for_where_there_are_any() {
        let mut users = SshUsers::new();
        users.add_authorized_keys("ada", KEY).unwrap();
        let by_key = MethodSet::from(&[MethodKind::PublicKey][..]);
        assert_eq!(SshAccess::Users(users.clone()).methods(), by_key);
        users.add_password("bob", "secret").unwrap();
        let by_both = MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password][..]);
        assert_eq!(SshAccess::Users(users).methods(), by_both);
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut users = SshUsers::new();
        users.add_password("ada", "secret").unwrap();
        assert_eq!(format!("{users:?}"), "[\"ada\"]");
    }
}
