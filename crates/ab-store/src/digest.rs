//! SHA-256 digests as hexadecimal text.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};

/// The SHA-256 of `bytes` in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hexadecimal(digest(&SHA256, bytes).as_ref())
}

/// Encodes each byte as two hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
