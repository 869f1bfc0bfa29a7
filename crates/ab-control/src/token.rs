//! Generates secrets.

use std::fmt::Write;

use ab_executor::SessionToken;

const BYTES: usize = 32;

/// A random token of 256 bits in hexadecimal.
pub(crate) fn new_token() -> Result<SessionToken, getrandom::Error> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)?;
    let mut text = String::with_capacity(2 * BYTES);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(SessionToken::new(text))
}
