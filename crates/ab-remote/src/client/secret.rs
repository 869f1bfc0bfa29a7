//! Secret text, such as a token, a password, a passphrase or a private key.

use std::fmt;

/// A text that is not included in any log, error or `Debug` output.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text, which is needed to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this is a private key that needs a passphrase.
    pub fn is_encrypted_private_key(&self) -> bool {
        let read = russh::keys::decode_secret_key(&self.0, None);
        matches!(read, Err(russh::keys::Error::KeyIsEncrypted))
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_not_shown() {
        let secret = SecretText::from("correct horse");
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        assert_eq!(secret.reveal(), "correct horse");
    }
}
