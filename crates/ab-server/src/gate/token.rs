//! The bearer token. It is compared in constant time and never printed.

use std::fmt;
use std::io;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};

/// The token of the server. Only its digest is kept.
#[derive(Clone)]
pub struct AccessToken(Digest);

impl AccessToken {
    pub fn new(text: &str) -> AccessToken {
        AccessToken(digest(&SHA256, text.as_bytes()))
    }

    /// The digest of the token. It must also be kept secret.
    pub(super) fn digest(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Whether `shown` is the token. The time of the comparison depends only on the length of
    /// `shown`.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        let shown = digest(&SHA256, shown);
        verify_slices_are_equal(self.0.as_ref(), shown.as_ref()).is_ok()
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The token in an Authorization header.
pub(crate) fn in_header(value: &[u8]) -> Option<&[u8]> {
    // The code below relies on both prefixes having the same length.
    const SCHEMES: [&[u8]; 2] = [b"bearer ", b"apikey "];
    let (scheme, token) = value.split_at_checked(SCHEMES[0].len())?;
    let known = SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    known.then(|| token.trim_ascii())
}

/// The percent-decoded token in a query.
pub(crate) fn in_query(query: &str) -> Option<Vec<u8>> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("token="))?;
    let mut decoded = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

/// A secret of 256 random bits, in hexadecimal digits.
pub(crate) fn random_text() -> io::Result<String> {
    let mut bytes = [0; 32];
    // Use `getrandom` and not the generator of the TLS library. That generator first collects its
    // own entropy, which takes longer than the rest of the start.
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
